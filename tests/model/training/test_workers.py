"""Worker processes: results, errors, stops, and when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from support.paths import ROOT
from support.waiting import is_running, wait_until

from model.training import workers
from model.training.workers import (
    Worker,
    WorkerPool,
    library_settings,
    stop_running_calls,
)
from schemas.errors import ConfigError, DivergenceError, RunnerError, TrainingError

PROBE = "model.probe:answer"  # created by the fixture below
PROBE_CODE = """
import os, time
from pydantic import BaseModel
import schemas.errors as errors

class Question(BaseModel):
    name: str = "the probe"
    do: str = ""
    text: str = ""

def answer(question: Question, *, stop) -> dict:
    print("what a library prints")
    if question.do == "wait":
        open(question.text, "w").close()
        while not stop.reason:
            time.sleep(0.01)
        raise errors.TrainingError("stopped and written: " + stop.reason)
    if question.do == "fault":
        raise ZeroDivisionError("division")
    if question.do:
        error = getattr(errors, question.do)("the message")
        error.add_note("a note")
        raise error
    return {"pid": os.getpid(), "text": question.text, "folder": os.getcwd()}

"""
TORCH_CODE = """
import os, torch
from model.probe import Question

def threads(question: Question, *, stop) -> dict:
    threads = torch.get_num_threads()
    torch.set_num_threads(int(question.text))
    return {"threads": threads, "allocator": os.environ["PYTORCH_ALLOC_CONF"]}
"""


class Question(BaseModel):
    name: str = "the probe"
    do: str = ""
    text: str = ""


@pytest.fixture(autouse=True)
def _probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a module of `model` that only worker processes of these tests can import."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Finder(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('model.probe'):\n"
        f"            file = {str(site)!r} + '/' + name[6:] + '.py'\n"
        "            return spec_from_file_location(name, file)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    (site / "probe.py").write_text(PROBE_CODE)
    (site / "probe_torch.py").write_text(TORCH_CODE)
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.fixture
def process() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.end()


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    actual: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            actual.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, actual


def test_worker_is_reused(process: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = process.call(PROBE, Question(text="Käse\n" * 100_000))
    assert first["pid"] != os.getpid()
    assert first["text"] == "Käse\n" * 100_000
    monkeypatch.chdir(tmp_path)  # the working directory is sent with each call
    second = process.call(PROBE, Question(text="again"))
    assert second == {"pid": first["pid"], "text": "again", "folder": str(tmp_path)}


def test_torch_of_worker_has_our_settings_and_its_threads_are_reset(
    process: Worker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("OMP_DISPLAY_ENV", "VERBOSE")  # OpenMP prints its settings
    first = process.call("model.probe_torch:threads", Question(text="3"))
    assert first["allocator"] == "expandable_segments:True"
    assert "GOMP_SPINCOUNT = '2000'" in capfd.readouterr().err
    second = process.call("model.probe_torch:threads", Question(text="3"))
    assert second["threads"] == first["threads"]


@pytest.mark.parametrize(
    ("environ", "added"),
    [
        ({}, {"GLIBC_TUNABLES", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "PYTORCH_ALLOC_CONF"}),
        ({"KMP_BLOCKTIME": "200"}, {"GLIBC_TUNABLES", "PYTORCH_ALLOC_CONF"}),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, {"GLIBC_TUNABLES", "PYTORCH_ALLOC_CONF"}),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "x:1", "GLIBC_TUNABLES": ""},
            {"GOMP_SPINCOUNT", "KMP_BLOCKTIME"},
        ),
    ],
)
def test_library_settings_of_the_user_are_kept(environ: dict[str, str], added: set[str]) -> None:
    assert library_settings(environ).keys() == added


def test_errors_keep_type_and_notes_and_end_the_worker(process: Worker) -> None:
    before = process.call(PROBE, Question())["pid"]
    with pytest.raises(DivergenceError, match="the message") as caught:
        process.call(PROBE, Question(do="DivergenceError"))
    assert caught.value.__notes__ == ["a note"]
    with pytest.raises(RunnerError, match="the probe: ZeroDivisionError: division"):
        process.call(PROBE, Question(do="fault"))
    assert process.call(PROBE, Question())["pid"] != before
    assert not is_running(before)


def test_foreign_functions_and_memory_urls_are_refused(process: Worker) -> None:
    with pytest.raises(RunnerError, match="expected a function of the package model"):
        process.call("os:system", Question())
    with pytest.raises(ConfigError, match="memory://store"):
        process.call(PROBE, Question(text="memory://store"))


def test_killed_worker_is_reported_and_replaced(process: Worker, tmp_path: Path) -> None:
    pid = process.call(PROBE, Question())["pid"]
    begun = tmp_path / "begun"
    thread, actual = in_thread(lambda: process.call(PROBE, Question(do="wait", text=str(begun))))
    wait_until(begun.exists)
    os.kill(pid, signal.SIGKILL)
    thread.join(300)
    assert isinstance(actual[0], RunnerError)
    assert "SIGKILL" in str(actual[0])
    assert "the probe" in str(actual[0])
    second = process.call(PROBE, Question())["pid"]
    assert second != pid
    os.kill(second, signal.SIGKILL)  # between two calls
    assert process.call(PROBE, Question())["pid"] != second


def test_idle_worker_ends(process: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.3)
    pid = process.call(PROBE, Question())["pid"]
    wait_until(lambda: not is_running(pid))
    assert process.call(PROBE, Question())["pid"] != pid


def test_worker_ends_with_its_launcher(tmp_path: Path) -> None:
    for how in ("kill", "exit", "interrupt"):
        begun = tmp_path / f"begun-{how}"
        do = "" if how == "exit" else "wait"
        code = (
            "import sys; sys.path.insert(0, 'tests')\n"
            f"from {__name__} import *\n"
            "from model.training.workers import call_in_worker\n"
            "print(call_in_worker(PROBE, Question())['pid'], flush=True)\n"
            f"call_in_worker(PROBE, Question(do={do!r}, text={str(begun)!r}))\n"
        )
        run = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        if how != "exit":
            wait_until(begun.exists)
            run.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
        _, said = run.communicate(timeout=300)
        assert ("KeyboardInterrupt" in said) == (how == "interrupt")
        wait_until(lambda pid=pid: not is_running(pid))  # type: ignore[misc]


def test_concurrent_calls_have_a_worker_each(tmp_path: Path) -> None:
    both = WorkerPool()
    try:
        begun = [tmp_path / "first", tmp_path / "second"]
        waiting = [
            in_thread(lambda file=file: both.call(PROBE, Question(do="wait", text=str(file))))
            for file in begun
        ]
        wait_until(lambda: all(file.exists() for file in begun))
        stop_running_calls()
        for thread, actual in waiting:
            thread.join(300)
            assert isinstance(actual[0], TrainingError)
            assert str(actual[0]) == "stopped and written: SIGTERM"
        pids = {both.call(PROBE, Question())["pid"] for _ in range(3)}
        assert len(pids) == 1  # sequential calls share one
        assert len(both.workers) == 2
    finally:
        both.end()
    assert not any(is_running(pid) for pid in pids)
