"""Checkpoints: exact, whole or not there, and the earlier ones safe whatever happens."""

from __future__ import annotations

import builtins
import contextlib
import errno
import inspect
import io
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.log_records import own_records
from support.paths import ROOT

from model.training import checkpoints as checkpoints_module
from model.training.checkpoints import RECORD_FILE, CheckpointRecord, Checkpoints
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


def _assert_equal(found: dict[str, dict[str, torch.Tensor]], step: int) -> None:
    torch.testing.assert_close(found, _tensors(step), rtol=0, atol=0)


def _save(checkpoints: Checkpoints, step: int) -> Path:
    saved = checkpoints.save(step, tensors=_tensors(step), state={"step": step})
    return Path(saved.url)


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


def test_second_writer_keeps_first_from_saving_on_object_store() -> None:
    folder = f"memory://{uuid.uuid4().hex}"
    first, second = Checkpoints(folder, keep_last=1), Checkpoints(folder, keep_last=1)
    with first.lock():
        _save(first, 1)
        with second.lock():
            _save(second, 2)
            with pytest.raises(CheckpointError):
                _save(first, 3)
    assert _steps(second) == [2]


def test_files_do_not_depend_on_tensor_order_and_safetensors_reads_them(tmp_path: Path) -> None:
    first = _save(Checkpoints(str(tmp_path / "a"), keep_last=1), 5)
    turned = {file: dict(reversed(t.items())) for file, t in reversed(_tensors(5).items())}
    saved = Checkpoints(str(tmp_path / "b"), keep_last=1).save(5, tensors=turned, state={})
    names = ["model.safetensors", "optimizer.safetensors"]
    assert sorted(path.name for path in first.iterdir()) == [RECORD_FILE, *names]
    for name in names:
        assert (first / name).read_bytes() == (Path(saved.url) / name).read_bytes()
    _assert_equal({name.split(".")[0]: load_file(first / name) for name in names}, 5)


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


def test_checkpoint_of_earlier_step_is_latest_when_saved_last(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    for step in (10, 20, 15):
        _save(checkpoints, step)
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.info.step == 15
    _save(checkpoints, 20)
    assert _steps(checkpoints) == [15, 20]
    assert len(list(tmp_path.glob("step-*"))) == 2


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("damage", [_flip, _truncate, Path.unlink])
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", RECORD_FILE])
def test_damaged_newest_checkpoint_is_logged_and_skipped(
    file: str, damage: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    _save(checkpoints, 1)
    newest = _save(checkpoints, 2)
    damage(newest / file)
    with caplog.at_level(logging.WARNING):
        latest = checkpoints.latest()
    assert latest is not None
    assert latest.info.step == 1
    _assert_equal(latest.tensors, 1)
    if (file, damage) == (RECORD_FILE, Path.unlink):
        assert own_records(caplog) == []  # looks like the rest of an interrupted save
    else:
        (problem,) = caplog.messages
        assert str(newest / file) in problem
    third = _save(checkpoints, 3)
    assert _steps(checkpoints) == [1, 3]
    assert not newest.exists()
    for path in (third, Path(latest.info.url)):
        _flip(path / "model.safetensors")
    assert checkpoints.latest() is None
    assert "starting from step 0" in caplog.text


def _call_readers(checkpoints: Checkpoints) -> None:
    """Call every public method that needs no argument."""
    for name, method in inspect.getmembers(checkpoints, inspect.ismethod):
        if not name.startswith("_") and not inspect.signature(method).parameters:
            with contextlib.suppress(CheckpointError):
                method()


@pytest.mark.parametrize("damaged", [1, 2, 3])
@pytest.mark.parametrize("damage", [_flip, _truncate])
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", RECORD_FILE])
def test_damaged_checkpoint_costs_no_other(
    file: str, damage: Callable[[Path], None], damaged: int, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=4)
    for step in (1, 2, 3):
        saved = _save(checkpoints, step)
        if step == damaged:
            path = saved / file
    damage(path)
    before = sorted(tmp_path.rglob("*"))
    _call_readers(checkpoints)
    assert sorted(tmp_path.rglob("*")) == before  # only `save` deletes
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.info.step == (2 if damaged == 3 else 3)
    _save(checkpoints, 4)
    assert {1, 2, 3, 4} - {damaged} <= set(_steps(checkpoints))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a/first", "a/second"),  # a record over the next step's
        ("a/second", "a/first"),
        ("a/first", "a/step-00000009-0009-abcdef"),  # a whole checkpoint under another name
        ("b/first", "a/second"),
    ],
)
def test_record_of_other_checkpoint_is_logged_and_skipped(
    source: str, target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = _tensors(1)  # equal ones: the sha256 of no file tells the checkpoints apart
    paths: dict[str, Path] = {}
    for training in ("a", "b"):
        checkpoints = Checkpoints(str(tmp_path / training / "checkpoints"), keep_last=4)
        for step, name in enumerate(("first", "second"), 1):
            saved = checkpoints.save(step, tensors=tensors, state={"of": f"{training}/{name}"})
            paths[f"{training}/{name}"] = Path(saved.url)
    checkpoints = Checkpoints(str(tmp_path / "a" / "checkpoints"), keep_last=4)
    misplaced = paths.get(target, Path(checkpoints.url) / Path(target).name)
    shutil.copytree(paths[source], misplaced, dirs_exist_ok=True)
    sound = [name for name in ("a/first", "a/second") if name != target]
    with caplog.at_level(logging.WARNING):
        latest = checkpoints.latest()
    assert latest is not None
    assert latest.state == {"of": sound[-1]}
    (problem,) = caplog.messages
    assert str(misplaced / RECORD_FILE) in problem


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ETIMEDOUT])
@pytest.mark.parametrize("file", ["model.safetensors", RECORD_FILE])
def test_unreadable_file_is_an_error_and_no_damage(
    file: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    _save(checkpoints, 1)
    path = _save(checkpoints, 2) / file
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


def test_next_save_deletes_unfinished_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    _save(checkpoints, 1)
    unfinished = tmp_path / "step-00000002-0002-abcdef"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"half")
    (unfinished / f".{RECORD_FILE}.partial").write_bytes(b"{")
    others = tmp_path / "notes"
    others.mkdir()
    assert _steps(checkpoints) == [1]
    assert unfinished.exists()  # readers delete nothing
    _save(checkpoints, 3)
    assert not unfinished.exists()
    assert others.exists()
    assert _steps(checkpoints) == [1, 3]


_WRITER = """
import sys, torch
from model.training.checkpoints import Checkpoints
checkpoints = Checkpoints(sys.argv[1], keep_last=2)
with checkpoints.lock():
    latest = checkpoints.latest()
    step = latest.info.step if latest else 0
    while True:
        step += 1
        values = torch.full((100_000,), float(step))
        tensors = {"model": {"w": values, "v": values + 1}, "optimizer": {"m": values}}
        checkpoints.save(step, tensors=tensors, state={"step": step})
        print(step, flush=True)
"""


def _start_writer(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_latest_checkpoint_is_complete_when_process_is_killed(tmp_path: Path) -> None:
    for attempt in range(40):
        writer = _start_writer(tmp_path)
        assert writer.stdout is not None
        printed = int(writer.stdout.readline())
        # A save takes some milliseconds: kill at another moment of it each time.
        time.sleep(0.02 + 0.0037 * (attempt % 8))
        writer.kill()
        rest, _ = writer.communicate()
        printed = max([printed, *map(int, rest.split())])
        checkpoints = Checkpoints(str(tmp_path), keep_last=2)
        folders = set(tmp_path.glob("step-*"))
        is_interrupted = any(not (path / RECORD_FILE).exists() for path in folders)
        latest = checkpoints.latest()
        assert latest is not None
        assert latest.info.step in (printed, printed + 1)
        step = float(latest.info.step)
        assert latest.state == {"step": step}
        assert torch.equal(latest.tensors["model"]["w"], torch.full((100_000,), step))
        assert torch.equal(latest.tensors["optimizer"]["m"], torch.full((100_000,), step))
        with checkpoints.lock():  # the kernel released it
            pass
        if is_interrupted:
            return
    pytest.fail("no kill came in the middle of a save")


def test_second_process_cannot_write_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=1)
    writer = _start_writer(tmp_path)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(CheckpointError, match=str(writer.pid)), checkpoints.lock():
            pass
        with pytest.raises(CheckpointError, match=str(writer.pid)):
            _save(checkpoints, 1)
    finally:
        writer.kill()
        writer.communicate()
    with checkpoints.lock():
        _save(checkpoints, 1_000_000)
        with pytest.raises(CheckpointError, match=str(os.getpid())):
            _save(Checkpoints(str(tmp_path), keep_last=1), 2)
    _save(Checkpoints(str(tmp_path), keep_last=1), 2)


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


@pytest.mark.parametrize("failing", ["tensors", "sync", "record"])
def test_failed_write_loses_nothing(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=1)
    first = _save(checkpoints, 1)
    before = sorted(path.name for path in tmp_path.iterdir())

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if failing == "tensors":
            patch.setattr(checkpoints_module, "save_tensors", fail)
        elif failing == "sync":
            patch.setattr(os, "fsync", fail)
        else:
            patch.setattr(Path, "replace", fail)
        with pytest.raises(CheckpointError) as error:
            _save(checkpoints, 2)
    for fact in ("step 2", os.strerror(errno.ENOSPC), str(tmp_path), first.name):
        assert fact in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert _steps(checkpoints) == [1]
    _save(checkpoints, 3)


def test_interrupted_save_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(CheckpointRecord, "to_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _save(Checkpoints(str(tmp_path), keep_last=1), 1)
    assert list(tmp_path.glob("step-*")) == []


def test_values_that_cannot_be_stored_are_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "run"), keep_last=1)
    for wrong in (torch.zeros(1), float("inf")):
        with pytest.raises(CheckpointError, match="state"):
            checkpoints.save(1, tensors={}, state={"x": wrong})
    with pytest.raises(CheckpointError, match="nosuch"):
        Checkpoints("nosuch://x", keep_last=1)
    assert not (tmp_path / "run").exists()
