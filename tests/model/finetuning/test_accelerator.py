"""Fine-tuning on GPUs, as far as a CPU can show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.finetuning_builder import features_of
from support.task_model_builder import random_task_model, task_batch
from torch.utils._python_dispatch import TorchDispatchMode

from model.finetuning import batches
from model.finetuning.batches import task_batches
from model.launch.distributed import choose_worker_device
from model.launch.launcher import WORKER_VARIABLE

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "masked_scatter")


class Operators(TorchDispatchMode):
    """Records the names of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_concurrent_workers_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen = []
    for number in range(3):
        monkeypatch.setenv(WORKER_VARIABLE, str(number))
        chosen.append(str(choose_worker_device("auto")))
    assert chosen == ["cuda:0", "cuda:1", "cuda:0"]
    assert choose_worker_device("cpu").type == "cpu"


def test_batches_are_copied_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[tuple[bool, bool]] = []
    pinned: set[int] = set()

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()
        pinned.add(copy.data_ptr())
        return copy

    def to(tensor: torch.Tensor, device: object, *, non_blocking: bool = False) -> torch.Tensor:
        copies.append((tensor.data_ptr() in pinned, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    features = features_of("tagging")
    units = np.arange(features.units)
    (step,) = task_batches(
        features, units, batch=100, layout="packed", per_device_max_tokens=1 << 30, pad_id=0
    )
    step.micro_batches[0].to("cuda")
    batches.device_tensor(units, torch.device("cuda"))
    assert copies == [(True, True)] * 7


@pytest.mark.parametrize("padded_length", [None, 40])
@pytest.mark.parametrize("kind", ["classification", "span", "tagging"])
def test_bilstm_step_has_no_shapes_that_depend_on_tensors(
    kind: str, padded_length: int | None
) -> None:
    model = random_task_model(kind, lstm_hidden_size=8)  # type: ignore[arg-type]
    batch = task_batch(kind, padded_length=padded_length)  # type: ignore[arg-type]
    with Operators() as operators:
        model(batch).loss.backward()
    assert [name for name in operators.names if any(wait in name for wait in WAITS)] == []
