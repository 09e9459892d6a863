"""Named pipes and devices among the inputs: reading one could never end, so none is read."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from support.log_records import own_records

from flows.quickstart.folder_scan import scan_folder
from flows.recipes.safe_yaml import read_yaml
from model.hf_config import CONFIG_FILE, WEIGHTS_FILE
from model.hf_weights import read_checkpoint
from model.tasks.files import open_data
from pipelines.io.raw_files import expand_paths, open_file, parallel_map
from pipelines.wordpiece.vocab_files import read_vocab
from schemas.errors import CheckpointError, ConfigError, InputError, VocabularyError


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """Fail a test that hangs in a read."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        pytest.fail("the read hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.fixture(params=[make_pipe, link_to_device])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A special file in a folder of texts."""
    (tmp_path / "raw").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "raw" / name).write_text("It was a bright cold morning. " * 9)
    request.param(tmp_path / "raw" / "special.txt")
    return tmp_path / "raw" / "special.txt"


@pytest.mark.parametrize("pattern", ["", "/*", "/*.txt"])
def test_special_file_in_folder_is_skipped_with_warning(
    special: Path, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = expand_paths([f"{special.parent}{pattern}"], suffixes=[".txt"])
    assert [name for _, name in files] == ["a.txt", "b.txt"]
    assert [record.args[1] for record in own_records(caplog) if record.args] == [1]


def read_task_lines(path: str) -> list[bytes]:
    with open_data(path) as data:
        return list(data.lines())


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda path: expand_paths([path]), InputError),
        (open_file, InputError),
        (read_task_lines, InputError),
        (lambda path: read_yaml(Path(path), where="x"), ConfigError),
        (read_vocab, VocabularyError),
    ],
)
def test_special_file_named_by_user_is_refused(
    special: Path, fresh_cache: None, read: Callable[[str], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(str(special))


def test_special_file_is_ignored_by_scan(special: Path) -> None:
    scan = scan_folder(special.parent)
    assert [group.files for group in scan.groups] == [2]
    assert [count for _, count in scan.ignored] == [1]


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
def test_special_file_in_checkpoint_is_refused(tmp_path: Path, checkpoint: str, name: str) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    make_pipe(folder / name)
    with pytest.raises(CheckpointError):
        read_checkpoint(str(folder))


class Terminated(BaseException):
    """Raised by the signal handler of the test below."""


def test_signal_stops_caller_while_thread_hangs() -> None:
    hanging, has_ended = threading.Event(), threading.Event()
    last = 30  # all threads have started by then

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    def look(item: int) -> None:
        if item == 0:
            hanging.wait(300)
            has_ended.set()
        elif item == last:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(Terminated):
            parallel_map(look, range(last + 1))
        assert not has_ended.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)
        hanging.set()
