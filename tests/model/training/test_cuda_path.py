"""The CUDA path of training, checked on a CPU: seeds, pinned copies, collectives, shards."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.instance_builder import random_shards, write_artifact

from model import attention
from model.attention import seed_dropout
from model.data import batches as data_batches
from model.data import shards
from model.finetuning import window_lstm
from model.training.distributed import ProcessGroup
from model.training.throughput import ThroughputMeter
from pipelines.io.stage_inputs import InputFile
from schemas.errors import ArtifactCorruptError, InstanceDataError
from schemas.manifest import StageInput

CUDA = torch.device("cuda", 1)


class CudaModel:
    """Stand-in for a model on a GPU. Its modules must not be walked."""

    def parameters(self) -> Any:
        class OnCuda:
            device = CUDA
            is_cuda = True

        return iter([OnCuda()])

    def named_modules(self) -> Any:
        raise AssertionError("a model on a GPU needs no seed per module")


def test_dropout_on_gpu_needs_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    model: Any = CudaModel()
    seed_dropout(model, 5)
    seed_dropout(model, 6)
    assert seeds == [5, 6]


class Copies:
    """Records copies to a GPU, as (is pinned, is asynchronous)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[bool, bool]] = []
        self.pinned: set[int] = set()
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: self._pin(x))
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda x: x.data_ptr() in self.pinned)
        copies = self

        def to(tensor: torch.Tensor, device: Any, *, non_blocking: bool = False) -> torch.Tensor:
            copies.made.append((tensor.is_pinned(), non_blocking))
            return tensor

        monkeypatch.setattr(torch.Tensor, "to", to)

    def _pin(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()
        self.pinned.add(copy.data_ptr())
        return copy


def test_layout_is_copied_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch)
    lengths = np.array([3, 5, 2])
    attention.attention_layout(lengths, heads=2, device=CUDA, flash=True, has_dropout=True)
    attention._group(np.cumsum(lengths) - lengths, lengths, CUDA)
    assert copies.made == [(True, True)] * 5


def test_pinned_tensors_are_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch)
    pinned = torch.zeros(3).pin_memory()
    copy = data_batches.to_device(pinned, CUDA)
    assert copy is pinned
    assert copies.made == [(True, True)]


def test_logged_steps_need_no_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a logged step waits for the queued one")

    monkeypatch.setattr(dist, "all_reduce", refuse)
    meter = ThroughputMeter(ProcessGroup(0, 2, torch.device("cpu")), peak=None)
    meter.add(300, flops=10, waited=0.5)
    assert meter.record(1, seconds=2.0)[2] == 150.0


@pytest.mark.parametrize("lengths", [[4, 1, 7, 7, 2], [1], []])
def test_packed_windows_have_the_outputs_of_padded_rows(lengths: list[int]) -> None:
    counts = np.array(lengths, np.int64)
    layer = window_lstm.WindowLSTM(6, units=5)
    layer.draw("lstm", seed=1)
    draws = torch.Generator().manual_seed(2)
    x = torch.randn(int(counts.sum()) + 2, 6, generator=draws)
    results = []
    for lay_out in (window_lstm.pad_windows, window_lstm.pack_windows):
        inputs = x.clone().requires_grad_()
        windows = lay_out(
            np.cumsum(counts) - counts, counts, positions=len(x), device=torch.device("cpu")
        )
        outputs = layer.over_windows(inputs, windows)[: int(counts.sum())]
        if lengths:
            torch.autograd.backward(outputs.square().sum())
        results.append((outputs, inputs.grad if lengths else outputs))
    for padded, packed in zip(*results, strict=True):
        torch.testing.assert_close(packed, padded, atol=5e-7, rtol=1e-6)


def test_gpu_reads_packed_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    Copies(monkeypatch)
    counts = np.array([2, 3])
    windows = window_lstm.lay_out_windows(np.array([0, 2]), counts, positions=5, device=CUDA)
    assert isinstance(windows, window_lstm.PackedWindows)
    assert windows.sizes.tolist() == [2, 2, 1]


# Shards


class ThreadRanks:
    """Rank of a training whose ranks are threads."""

    def __init__(self, rank: int, local_rank: int, shared: tuple[threading.Barrier, list[Any]]):
        self.rank, self.local_rank = rank, local_rank
        self._barrier, self._values = shared

    def all_gather(self, values: Any) -> list[Any]:
        self._values[self.rank] = list(values)
        self._barrier.wait(300)
        gathered = [value for each in self._values for value in each]
        self._barrier.wait(300)
        return gathered


def verify(artifacts: list[StageInput]) -> list[Any]:
    """Open shards in one rank per artifact, the first two on one machine; return the outcomes."""
    shared = threading.Barrier(len(artifacts)), [[] for _ in artifacts]
    outcomes: list[Any] = [None] * len(artifacts)

    def run(rank: int) -> None:
        artifact = artifacts[rank]
        ranks: Any = ThreadRanks(rank, rank if rank < 2 else 0, shared)
        try:
            outcomes[rank] = shards.local_files(artifact, artifact.files, ranks=ranks)
        except (ArtifactCorruptError, InstanceDataError) as error:
            outcomes[rank] = type(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(artifacts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Number of times that each file was hashed, by its folder's name."""
    counts: Counter[str] = Counter()
    check_stream = InputFile.check_stream

    def counted(file: InputFile, source: Any) -> None:
        counts[Path(file.url).parent.name] += 1
        check_stream(file, source)

    monkeypatch.setattr(InputFile, "check_stream", counted)
    return counts


@pytest.fixture
def machines(tmp_path: Path) -> list[StageInput]:
    """Artifact of each of three ranks: two share a machine, one has its own copy."""
    rows = {path: part for path, part in random_shards(20).items() if path.startswith("part-")}
    one, two = (write_artifact(str(tmp_path / name), rows) for name in ("one", "two"))
    return [one, one, two]


def test_each_machine_hashes_its_shards_once(
    machines: list[StageInput], hashed: Counter[str]
) -> None:
    outcomes = verify(machines)
    for artifact, paths in zip(machines, outcomes, strict=True):
        assert paths == [Path(artifact.data) / entry.stored_name for entry in artifact.files]
    assert hashed == {name: len(machines[0].files) for name in ("one", "two")}


@pytest.mark.parametrize("fault", ["missing", "short", "changed"])
@pytest.mark.parametrize("machine", [0, 2])
def test_every_rank_of_a_machine_notices_faults_of_its_files(
    machines: list[StageInput], fault: str, machine: int
) -> None:
    file = Path(machines[machine].data) / machines[machine].files[1].stored_name
    data = file.read_bytes()
    if fault == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:-1] + (b"" if fault == "short" else bytes([data[-1] ^ 1])))
    expected = InstanceDataError if fault == "missing" else ArtifactCorruptError
    outcomes = verify(machines)
    assert [outcome is expected for outcome in outcomes] == [
        artifact is machines[machine] for artifact in machines
    ]
