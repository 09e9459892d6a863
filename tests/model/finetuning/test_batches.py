"""Units as batches: what a batch holds, and the order of epochs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from support.finetuning_builder import KINDS, features_of
from support.task_model_builder import random_task_model, task_batch
from torch.utils._python_dispatch import TorchDispatchMode

from model.finetuning import batches
from model.finetuning.batches import TaskStep, epoch_order, task_batches
from model.tasks.features import IGNORED, Features
from model.training.distributed import choose_worker_device
from model.training.workers import WORKER_VARIABLE

WAITS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "unique",
    "masked_scatter",
    "index.Tensor",
)


def steps_of(features: Features, order: np.ndarray, **changes: object) -> list[TaskStep]:
    provided = {
        "batch": 5,
        "per_device_max_tokens": 20,
        **changes,
    }
    return list(task_batches(features, order, **provided))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "per_unit"), KINDS)
def test_every_unit_comes_once_with_its_own_tokens(kind: str, per_unit: int) -> None:
    features = features_of(kind, per_unit=per_unit)
    order = epoch_order(features.units, seed=1, restart=0, phase="train", epoch=0)
    steps = steps_of(features, order)
    assert [len(step.units) for step in steps] == [5, 5, 5, 5, 3]
    assert np.concatenate([step.units for step in steps]).tolist() == order.tolist()
    for step in steps:
        for part in step.micro_batches:
            check_tokens(part, features)
            check_labels(part, features)
            assert len(part.tokens.input_ids) <= max(20, per_unit * 11)
        assert step.tokens == sum(int(part.tokens.lengths.sum()) for part in step.micro_batches)


def check_tokens(part, features: Features) -> None:
    tokens = part.tokens
    sequences = [
        int(unit) * features.per_unit + number
        for unit in part.units
        for number in range(features.per_unit)
    ]
    expected_start = 0
    for index, sequence in enumerate(sequences):
        begin, end = features.offsets[sequence], features.offsets[sequence + 1]
        length = int(end - begin)
        start = int(tokens.starts[index])
        assert start == expected_start
        expected_start += length
        assert tokens.lengths[index] == length
        own = slice(start, start + length)
        assert tokens.input_ids[own].tolist() == features.input_ids[begin:end].tolist()
        assert tokens.position_ids[own].tolist() == list(range(length))
        segments = [0] * int(features.b_starts[sequence])
        segments += [1] * (length - len(segments))
        assert tokens.segment_ids[own].tolist() == segments
    assert len(tokens.input_ids) == expected_start


def check_labels(part, features: Features) -> None:
    if features.kind != "tagging":
        assert part.positions is None
        own = features.labels[part.units]
        assert (
            part.labels.tolist()
            == (own.astype(np.float32) if features.kind == "regression" else own).tolist()
        )
        wanted = torch.float32 if features.kind == "regression" else torch.int64
        assert part.labels.dtype == wanted
        return
    positions, labels = [], []
    for index, unit in enumerate(part.units):
        own = slice(features.position_offsets[unit], features.position_offsets[unit + 1])
        positions += (features.positions[own] + int(part.tokens.starts[index])).tolist()
        labels += features.labels[own].tolist()
    assert part.positions.tolist() == positions
    assert part.labels.tolist() == labels


def test_the_mean_of_tags_is_over_labelled_tokens() -> None:
    features = features_of("tagging")
    order = np.arange(features.units)
    steps = steps_of(features, order, batch=7)
    assert sum(step.count for step in steps) == int((features.labels != IGNORED).sum())
    whole = steps_of(features_of("span"), order, batch=7)
    assert [step.count for step in whole] == [7, 7, 7, 2]


def test_a_unit_that_is_too_long_is_a_micro_batch_of_its_own() -> None:
    features = features_of(units=9)
    (step,) = steps_of(features, np.arange(9), batch=9, per_device_max_tokens=1)
    assert len(step.micro_batches) == 9
    (step,) = steps_of(features, np.arange(9), batch=9, per_device_max_tokens=1 << 20)
    assert len(step.micro_batches) == 1


def test_epochs_are_shuffles_of_the_whole() -> None:
    provided = {"seed": 1, "restart": 0, "phase": "train", "epoch": 0}
    first = epoch_order(1000, **provided)
    assert sorted(first.tolist()) == list(range(1000))
    for name, value in {"seed": 2, "restart": 1, "phase": "augmentation", "epoch": 1}.items():
        other = epoch_order(1000, **{**provided, name: value})
        assert sorted(other.tolist()) == list(range(1000))
        assert (other == first).mean() < 0.05, name
    assert epoch_order(1000, **provided).tolist() == first.tolist()
    # Of data sorted by label (MNLI is), a batch has all labels: no buffer shuffles so far.
    labels = np.repeat([0, 1, 2], 400)
    shuffled = labels[epoch_order(1200, **provided)]
    for begin, end in pairwise(range(0, 1201, 100)):
        assert set(np.bincount(shuffled[begin:end], minlength=3) > 15) == {True}
    assert epoch_order(0, **provided).tolist() == []


# On GPUs, as far as a CPU can show it


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
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.data_ptr() in pinned)
    monkeypatch.setattr(torch.Tensor, "to", to)
    features = features_of("tagging")
    units = np.arange(features.units)
    (step,) = task_batches(features, units, batch=100, per_device_max_tokens=1 << 30)
    step.micro_batches[0].to("cuda")
    batches.device_tensor(units, torch.device("cuda"))
    assert copies == [(True, True)] * 7


@pytest.mark.parametrize("kind", ["classification", "span", "tagging"])
def test_bilstm_step_has_no_shapes_that_depend_on_tensors(kind: str) -> None:
    model = random_task_model(kind, lstm_hidden_size=8)  # type: ignore[arg-type]
    batch = task_batch(kind)  # type: ignore[arg-type]
    with Operators() as operators:
        model(batch).loss.backward()
    assert [name for name in operators.names if any(wait in name for wait in WAITS)] == []
