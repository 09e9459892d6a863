"""Checkpoints: exact, whole or not there, and the earlier ones safe whatever happens."""

from __future__ import annotations

import builtins
import errno
import io
import logging
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.paths import ROOT

from model.training.checkpoints import Checkpoints
from schemas.errors import CheckpointError


def _tensors(step: int) -> dict[str, dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(step)
    weight = torch.randn(6, 7, generator=draw)
    return {
        "model": {
            "b.bfloat16": weight.to(torch.bfloat16),
            "a.float32": weight,
            "rows": torch.arange(5) + (1 << 40) + step,
            "flag": torch.tensor([True, False, True]),
            "scalar": torch.tensor(float(step)),
            "empty": torch.zeros(0, 3),
            "turned": weight.t(),
        },
        "optimizer": {"first_moment.a": weight * 3, "step": torch.tensor(7.0)},
    }


def _assert_equal(tensors: dict[str, dict[str, torch.Tensor]], step: int) -> None:
    torch.testing.assert_close(tensors, _tensors(step), rtol=0, atol=0)


def _save(checkpoints: Checkpoints, step: int) -> Path:
    saved = checkpoints.save(step, tensors=_tensors(step), state={"step": step})
    return Path(saved.url)


def _urls(checkpoints: Checkpoints) -> list[str]:
    return [saved.url for saved in checkpoints.list()]


def _steps(checkpoints: Checkpoints) -> list[int]:
    return [saved.step for saved in checkpoints.list()]


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}"


def test_everything_comes_back_exactly(folder: str) -> None:
    checkpoints = Checkpoints(folder, keep_last=2)
    assert checkpoints.latest() is None
    assert checkpoints.list() == ()
    state = {
        "step": 3,
        "seed": (1 << 63) - 1,
        "loss": 0.1 + 0.2,
        "loader": {"window": 1},
        "x": None,
    }
    saved = checkpoints.save(3, tensors=_tensors(3), state=state)
    loaded = Checkpoints(folder, keep_last=2).latest()
    assert loaded is not None
    assert loaded.info == saved == checkpoints.list()[0]
    assert saved.step == 3
    _assert_equal(loaded.tensors, 3)
    assert loaded.state == state


def test_newest_checkpoints_are_kept(folder: str) -> None:
    checkpoints = Checkpoints(folder, keep_last=2)
    seen = []
    for step in range(4):
        _save(checkpoints, step)
        seen.append(_steps(checkpoints))
    assert seen == [[0], [0, 1], [1, 2], [2, 3]]
    latest = checkpoints.latest()
    assert latest is not None
    assert (latest.info.step, latest.state) == (3, {"step": 3})


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def test_file_does_not_depend_on_tensor_order_and_safetensors_reads_it(tmp_path: Path) -> None:
    first = _save(Checkpoints(str(tmp_path / "a"), keep_last=1), 5)
    turned = {part: dict(reversed(t.items())) for part, t in reversed(_tensors(5).items())}
    saved = Checkpoints(str(tmp_path / "b"), keep_last=1).save(5, tensors=turned, state={"step": 5})
    assert first.read_bytes() == Path(saved.url).read_bytes()
    assert first.name == saved.name
    assert torch.equal(load_file(first)["model.rows"], _tensors(5)["model"]["rows"])


def test_last_saved_checkpoint_of_a_step_is_newest(folder: str) -> None:
    checkpoints = Checkpoints(folder, keep_last=2)
    for state in ("training", "finished"):
        checkpoints.save(4, tensors=_tensors(4), state={"is": state})
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.state == checkpoints.at_step(4).state == {"is": "finished"}
    with pytest.raises(CheckpointError):
        checkpoints.at_step(5)


@pytest.mark.parametrize("damage", [_flip, _truncate])
@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_damaged_checkpoint_costs_no_other(
    damage: Callable[[Path], None],
    damaged: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=3)
    paths = {step: _save(checkpoints, step) for step in (1, 2, 3)}
    damage(paths[damaged])
    before = sorted(tmp_path.iterdir())
    with caplog.at_level(logging.WARNING):
        latest = checkpoints.latest()
    assert latest is not None
    assert latest.info.step == (2 if damaged == 3 else 3)
    _assert_equal(latest.tensors, latest.info.step)
    assert [str(paths[3]) in message for message in caplog.messages] == [True] * (damaged == 3)
    with pytest.raises(CheckpointError):
        checkpoints.at_step(damaged)
    assert sorted(tmp_path.iterdir()) == before  # only `save` deletes
    _save(checkpoints, latest.info.step + 1)
    sound = {1, 2, 3, latest.info.step + 1} if damaged == 3 else {2, 3, 4}
    assert set(_steps(checkpoints)) == sound


def test_training_starts_again_when_every_checkpoint_is_damaged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    for step in (1, 2):
        _flip(_save(checkpoints, step))
    assert checkpoints.latest() is None
    _save(checkpoints, 1)
    latest = checkpoints.latest()
    assert latest is not None
    assert _steps(checkpoints) == [latest.info.step] == [1]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ETIMEDOUT])
def test_unreadable_file_is_an_error_and_no_damage(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    _save(checkpoints, 1)
    path = _save(checkpoints, 2)
    read = io.open

    def fail(target: Any, *args: Any, **options: Any) -> Any:
        if str(target) == str(path):
            raise OSError(number, os.strerror(number), str(target))
        return read(target, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", fail)
        patch.setattr(builtins, "open", fail)
        with pytest.raises(CheckpointError) as error:
            checkpoints.latest()
    assert str(path) in str(error.value)
    _save(checkpoints, 3)
    assert _steps(checkpoints) == [2, 3]


def test_checkpoints_are_read_after_their_store_is_moved(tmp_path: Path) -> None:
    folder = "work/pretrain/0a1b/checkpoints"
    _save(Checkpoints(str(tmp_path / "old" / folder), keep_last=1), 1)
    (tmp_path / "old").rename(tmp_path / "new")
    assert _steps(Checkpoints(str(tmp_path / "new" / folder), keep_last=1)) == [1]


def test_next_save_deletes_unfinished_checkpoint_and_no_other_file(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    first = _save(checkpoints, 1)
    unfinished, notes = tmp_path / f".{first.name}.0a1b", tmp_path / "notes"
    unfinished.write_bytes(b"half")
    notes.mkdir()
    assert _steps(checkpoints) == [1]
    assert unfinished.exists()  # readers delete nothing
    _save(checkpoints, 3)
    assert sorted(tmp_path.iterdir()) == sorted([notes, *map(Path, _urls(checkpoints))])
    assert _steps(checkpoints) == [1, 3]


_WRITER = """
import os, signal, sys, torch
from pathlib import Path
from model.training.checkpoints import Checkpoints
checkpoints = Checkpoints(sys.argv[1], keep_last=2)
with checkpoints.lock():
    for step in (1, 2, 3):
        if sys.argv[2:] and step == 2:
            Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        values = torch.full((100_000,), float(step))
        tensors = {"model": {"w": values, "v": values + 1}, "optimizer": {"m": 1 * values}}
        checkpoints.save(step, tensors=tensors, state={"step": step})
        print(step, flush=True)
    signal.pause()
"""


def _start_writer(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_checkpoint_survives_a_process_that_is_killed_while_it_writes_the_next(
    tmp_path: Path,
) -> None:
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), "held"], cwd=ROOT)
    assert writer.wait() == -signal.SIGKILL
    assert len(list(tmp_path.glob(".step-00000002-*"))) == 1
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    latest = checkpoints.latest()
    assert latest is not None
    assert (latest.info.step, latest.state) == (1, {"step": 1})
    assert torch.equal(latest.tensors["optimizer"]["m"], torch.full((100_000,), 1.0))
    with checkpoints.lock():  # the kernel released it
        _save(checkpoints, 2)
    assert not list(tmp_path.glob(".step-*"))


def test_second_process_cannot_write_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=1)
    writer = _start_writer(tmp_path)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(CheckpointError, match=str(writer.pid)), checkpoints.lock():
            pass
    finally:
        writer.kill()
        writer.communicate()
    with checkpoints.lock():
        other = Checkpoints(str(tmp_path), keep_last=1)
        with pytest.raises(CheckpointError, match=str(os.getpid())), other.lock():
            pass


_FORKS = """
import os, sys, time
from model.training.checkpoints import Checkpoints
with Checkpoints(sys.argv[1], keep_last=1).lock():
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(1_000)
        os._exit(0)
    time.sleep(1_000)
"""


def test_lock_ends_with_its_process_when_a_forked_child_lives_on(tmp_path: Path) -> None:
    """Loader workers may outlive a run that was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKS, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    checkpoints = Checkpoints(str(tmp_path), keep_last=1)
    try:
        with pytest.raises(CheckpointError, match=str(process.pid)), checkpoints.lock():
            pass
        process.kill()
        process.wait()
        os.kill(child, 0)  # still there
        with checkpoints.lock():
            pass
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(("target", "name"), [(os, "fsync"), (Path, "replace")])
def test_failed_write_loses_nothing(
    target: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=1)
    _save(checkpoints, 1)
    before = sorted(path.name for path in tmp_path.iterdir())

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(target, name, fail)
        with pytest.raises(CheckpointError) as error:
            _save(checkpoints, 2)
    for fact in ("step 2", os.strerror(errno.ENOSPC), str(tmp_path)):
        assert fact in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    _save(checkpoints, 3)
    assert _steps(checkpoints) == [3]
