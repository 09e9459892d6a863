"""Worker processes of the local runner."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from support.paths import PYTHONPATH
from support.waiting import is_running, wait_until

from pipelines.runners.job_context import Submission, submission_scope
from pipelines.runners.local import close_pools, hidden_main_module, map_items
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import WorkResult
from schemas.errors import RunnerError
from schemas.execution_configs import ExecutionConfig


@pytest.fixture(autouse=True)
def _close_pools() -> Iterator[None]:
    yield
    close_pools()


class _Item(NamedTuple):
    number: int
    weight: int = 1


def _get_pid(_item: int) -> int:
    return os.getpid()


def _meet(meeting: tuple[Path, int, int]) -> int:
    """Wait until all of `count` items are in progress, each in another process."""
    folder, count, item = meeting
    (folder / str(item)).touch()
    wait_until(lambda: len(list(folder.iterdir())) == count)
    return os.getpid()


def _meet_all(folder: Path, items: Sequence[int], *, count: int) -> set[int]:
    """Return the processes of items of a job that are in progress at the same time."""
    folder.mkdir(exist_ok=True)
    return set(map_items(_meet, [(folder, count, item) for item in items], workers=2))


def _get_environment(_item: int) -> tuple[str | None, bool]:
    return os.environ.get("AWS_ACCESS_KEY_ID"), "PATH" in os.environ


def _kill_in_item_3(item: int) -> int:
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def _warn(item: int) -> int:
    logging.getLogger("pipelines.test").warning("item %d is odd", item)
    return item


def _touch_and_wait(path: str) -> None:
    file = Path(f"{path}.partial")
    try:
        file.write_text(str(os.getpid()))
        time.sleep(600)
    finally:
        file.unlink(missing_ok=True)


def _loaded_modules(_item: int) -> list[str]:
    return list(sys.modules)


def test_one_worker_or_one_item_needs_no_process() -> None:
    assert list(map_items(_get_pid, range(2), workers=1)) == [os.getpid()] * 2
    assert list(map_items(_get_pid, range(1), workers=2)) == [os.getpid()]


def test_workers_are_reused_by_the_next_job(tmp_path: Path) -> None:
    first = _meet_all(tmp_path / "first", range(2), count=2)
    second = _meet_all(tmp_path / "second", range(2), count=2)
    assert len(first) == 2
    assert first == second
    assert os.getpid() not in first


def test_workers_have_the_environment_variables_of_their_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key in ("first", "second"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        assert set(map_items(_get_environment, range(2), workers=2)) == {(key, True)}
    monkeypatch.delenv("PATH")
    assert set(map_items(_get_environment, range(2), workers=2)) == {("second", False)}


class _ListModules:
    """Work of a job that returns the modules of its process."""

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, item: _Item) -> WorkResult:
        return WorkResult(item.number, statistics=_loaded_modules(item.number))


def test_workers_of_a_job_do_not_load_beam_torch_or_prefect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    items = [_Item(number) for number in range(2)]
    execution = ExecutionConfig(workers=2)
    job = run_shard_job(
        "job", items, work=_ListModules(), output=str(tmp_path), execution=execution
    )
    for report in job.reports:
        assert "pipelines.documents.build_shard" in report.statistics
        assert not {"apache_beam", "torch", "prefect"} & set(report.statistics)


def test_job_of_one_worker_does_not_load_beam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pipelines.shard_job.pipeline", None)  # fails to load
    execution = ExecutionConfig(workers=1)
    job = run_shard_job(
        "job", [_Item(7)], work=_ListModules(), output=str(tmp_path), execution=execution
    )
    assert [report.index for report in job.reports] == [7]


def test_jobs_at_the_same_time_have_different_workers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(_meet_all, tmp_path / "all", items, count=4)
            for items in (range(2), range(2, 4))
        ]
    assert len(jobs[0].result() | jobs[1].result()) == 4


def test_killed_worker_is_a_runner_error_and_the_next_job_works() -> None:
    with pytest.raises(RunnerError, match="killed"):
        list(map_items(_kill_in_item_3, range(8), workers=2))
    assert sorted(map_items(_kill_in_item_3, range(3), workers=2)) == [0, 1, 2]


def test_warnings_of_workers_reach_the_loggers_of_this_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    list(map_items(_warn, range(2), workers=2))
    close_pools()
    assert {"item 0 is odd", "item 1 is odd"} <= set(caplog.messages)


def test_stopped_run_ends_the_calls_in_progress_and_their_temporary_files(tmp_path: Path) -> None:
    stop = threading.Event()
    paths = [str(tmp_path / name) for name in "ab"]

    def stop_when_busy() -> None:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        stop.set()

    threading.Thread(target=stop_when_busy).start()
    with submission_scope(Submission("job", stop_event=stop)), pytest.raises(RunnerError):
        list(map_items(_touch_and_wait, paths, workers=2))
    assert list(tmp_path.iterdir()) == []


_SCRIPT = """\
import os, sys
from pipelines.runners.local import map_items
from tests.pipelines.runners.test_local import _get_pid, _touch_and_wait

with open("starts", "a") as log:
    log.write("x")
list(map_items(_get_pid, range(4), workers=2))
if sys.argv[1:]:
    list(map_items(_touch_and_wait, sys.argv[1:], workers=2))
"""


@pytest.mark.parametrize("temporary", ["t", "long-" * 20])
def test_script_without_main_guard_runs_once(tmp_path: Path, temporary: str) -> None:
    """Also where the path of the fork server's socket would be too long."""
    (tmp_path / temporary).mkdir()
    (tmp_path / "script.py").write_text(_SCRIPT)
    variables = {"PYTHONPATH": PYTHONPATH, "TMPDIR": str(tmp_path / temporary)}
    command = [sys.executable, "script.py"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **variables}, check=True, timeout=300)
    assert (tmp_path / "starts").read_text() == "x"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "script.py").write_text(_SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "script.py", "a", "b"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def read_pids() -> list[str]:
        return [text for file in tmp_path.glob("*.partial") if (text := file.read_text())]

    try:
        wait_until(lambda: len(read_pids()) == 2)
        pids = [int(pid) for pid in read_pids()]
    finally:
        process.send_signal(number)
        process.wait(300)
    for pid in pids:
        wait_until(lambda pid=pid: not is_running(pid))
    assert (number == signal.SIGKILL) == bool(list(tmp_path.glob("*.partial")))


def test_main_module_is_that_of_the_script_after_jobs_at_the_same_time() -> None:
    main = sys.modules["__main__"]
    first_inside, second_inside, first_left = (threading.Event() for _ in range(3))

    def first() -> None:
        with hidden_main_module():
            first_inside.set()
            second_inside.wait(timeout=0.2)
        first_left.set()

    def second() -> None:
        first_inside.wait()
        with hidden_main_module():
            second_inside.set()
            first_left.wait()

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.modules["__main__"] is main
