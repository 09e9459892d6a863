"""The CUDA path of training, checked on a CPU: seeds, pinned copies, collectives, shards."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from model import attention
from model.attention import seed_dropout
from model.data import batches as data_batches
from model.data import shards
from model.finetuning import window_lstm
from model.training.distributed import ProcessGroup
from model.training.throughput import ThroughputMeter
from pipelines.io.stage_inputs import InputFile
from schemas.errors import ArtifactCorruptError, InstanceDataError

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


def verify(folders: list[Path], files: list[InputFile]) -> list[Any]:
    """Verify files in one rank per folder, the first two on one machine; return the outcomes."""
    shared = threading.Barrier(len(folders)), [[] for _ in folders]
    outcomes: list[Any] = [None] * len(folders)

    def run(rank: int) -> None:
        own = [file._replace(url=str(folders[rank] / file.path)) for file in files]
        ranks: Any = ThreadRanks(rank, rank if rank < 2 else 0, shared)
        try:
            outcomes[rank] = shards._verify_in_turns(own, ranks)
        except (ArtifactCorruptError, InstanceDataError) as error:
            outcomes[rank] = type(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(folders))]
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


def write_shards(folder: Path) -> list[InputFile]:
    folder.mkdir()
    files = []
    for number in range(3):
        data = bytes([number]) * 100
        (folder / f"part-{number}").write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        files.append(InputFile("", f"part-{number}", "instances x", 100, sha256))
    return files


def test_ranks_of_one_store_hash_its_shards_once(tmp_path: Path, hashed: Counter[str]) -> None:
    files = write_shards(tmp_path / "store")
    outcomes = verify([tmp_path / "store"] * 3, files)
    assert outcomes == [[tmp_path / "store" / file.path for file in files]] * 3
    assert hashed == {"store": 3}


def test_machine_with_own_copies_hashes_them(tmp_path: Path, hashed: Counter[str]) -> None:
    files = write_shards(tmp_path / "one")
    write_shards(tmp_path / "two")
    verify([tmp_path / "one", tmp_path / "one", tmp_path / "two"], files)
    assert hashed == {"one": 3, "two": 3}


@pytest.mark.parametrize("fault", ["missing", "short", "changed"])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_rank_notices_faults_of_its_own_files(tmp_path: Path, fault: str, rank: int) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    files, *_ = [write_shards(folder) for folder in folders]
    file = folders[rank] / "part-1"
    if fault == "missing":
        file.unlink()
    else:
        file.write_bytes(b"\1" * 99 + (b"" if fault == "short" else b"\2"))
    expected = InstanceDataError if fault == "missing" else ArtifactCorruptError
    outcomes = verify(folders, files)
    assert [outcome is expected for outcome in outcomes] == [n == rank for n in range(3)]
