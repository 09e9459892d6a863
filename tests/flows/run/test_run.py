"""Runs: concurrent steps, concurrent runs, killed runs, verification of cached artifacts."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import LABELS, FakeStages, Recorder
from support.store_builder import held_by_another

from flows import preparation
from flows.bert import recipe_steps
from flows.preparation import prepare_run
from flows.run.events import Event, RunFinished, StepFailed, StepFinished, StepSkipped
from flows.run.run import max_parallel_steps
from flows.running import run_recipe
from flows.store import backend
from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import start_of
from flows.store.runs import RESUME_HINT, read_run, run_ids, write_run
from schemas.errors import InputError, MissingInputError, NetworkError
from schemas.execution_configs import ExecutionConfig
from schemas.recipe import Recipe

TWO = ExecutionConfig(max_parallel_steps=2)
QUIET = {"listeners": [], "engine": "local"}


def block_first_stage(fakes: FakeStages) -> tuple[threading.Event, threading.Event]:
    """Let the first stage wait; return the event of its start, and the event that ends the wait."""
    started, unblocked = threading.Event(), threading.Event()
    documents = fakes.module.documents

    def wait_first(*args: object, **kwargs: object) -> object:
        started.set()
        assert unblocked.wait(1_000)
        return documents(*args, **kwargs)

    fakes.module.documents = wait_first
    return started, unblocked


def newest(root: str) -> str:
    return run_ids(ArtifactStore(root))[-1]


def test_independent_steps_run_concurrently(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2, timeout=300)
    instances = fakes.module.instances

    def meet(*args: object, **kwargs: object) -> object:
        meeting.wait()  # raises if the steps do not run concurrently
        return instances(*args, **kwargs)

    monkeypatch.setattr(fakes.module, "instances", meet)
    lines: list[str] = []
    done = run_recipe(fakes.recipe(root, execution=TWO), log=lines.append, engine="local")
    assert [result.label for result in done][-2:] == ["build-instances.one", "build-instances.two"]
    # Warnings are indented: cards cannot describe what the fake stages write.
    assert len([line for line in lines if not line.startswith(" ")]) == 5
    record = read_run(ArtifactStore(root), newest(root))
    assert record.state == "completed"
    assert [step.label for step in record.steps] == list(record.planned)


def test_waiting_run_builds_step_when_its_builder_is_killed(
    fakes: FakeStages, root: str, tmp_path: Path
) -> None:
    manifest = run_recipe(fakes.recipe(str(tmp_path / "other")), **QUIET)[0].manifest
    ArtifactStore(root)
    with held_by_another(root, manifest.stage, manifest.cache_key) as process:
        lines: list[str] = []

        def kill_when_waited_for(line: str) -> None:
            lines.append(line)
            if "waiting for" in line:
                process.kill()

        done = run_recipe(fakes.recipe(root), log=kill_when_waited_for, engine="local")
    assert not done[0].was_cached
    [waited] = [line for line in lines if "waiting for" in line]
    assert f"theirs (process {process.pid} on " in waited


@pytest.mark.parametrize("waits_for", ["another run", "another try"])
def test_signal_ends_waiting_of_concurrent_steps(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    def interrupt_when(line: str) -> None:
        if "waiting for" in line or "trying again" in line:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    other = threading.Thread(target=run_recipe, args=(fakes.recipe(root),), kwargs=QUIET)
    if waits_for == "another run":
        started, unblocked = block_first_stage(fakes)
        other.start()
        assert started.wait(300)
    else:
        fakes.module.FAULTS["documents"] = [OSError(5, "flaky")]
        monkeypatch.setattr("flows.run.executor.RETRY_DELAYS", (1_000,))
    clock = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_recipe(fakes.recipe(root, execution=TWO), log=interrupt_when, engine="local")
    assert time.monotonic() - clock < 300
    assert read_run(ArtifactStore(root), newest(root)).state == "interrupted"
    if waits_for == "another run":
        unblocked.set()
        other.join(300)


def test_max_parallel_steps_comes_from_recipe_or_runner() -> None:
    assert max_parallel_steps(ExecutionConfig()) == 1
    assert max_parallel_steps(TWO) == 2
    settings = {"project": "p", "region": "r", "temp_location": "gs://b/t", "image": "i"}
    cloud = ExecutionConfig.model_validate({"runner": "dataflow", "dataflow": settings})
    assert max_parallel_steps(cloud) == 8


def test_corrupt_artifact_is_rebuilt_when_verify_cached_is_full(
    fakes: FakeStages, root: str
) -> None:
    first = run_recipe(fakes.recipe(root), engine="local")
    manifest = first[0].manifest
    file = Path(root, manifest.data_path, manifest.files[0].stored_name)
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    assert run_recipe(fakes.recipe(root), engine="local")[0].was_cached
    full = fakes.recipe(root, execution=ExecutionConfig(verify_cached="full"))
    again = run_recipe(full, engine="local")
    assert not again[0].was_cached
    assert again[0].manifest.content_digest == manifest.content_digest
    assert all(result.was_cached for result in again[1:])


def test_killed_run_is_marked_by_next_run(fakes: FakeStages, root: str) -> None:
    recipe, store = fakes.recipe(root), ArtifactStore(root)
    run = prepare_run(recipe, recipe_steps(recipe), store=None)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with run:
        running = read_run(store, run.run_id)
    died = running.model_copy(update={"pid": process.pid, "process_start": start_of(process.pid)})
    write_run(store, died)
    written = read_run(store, died.run_id).updated_at
    assert not died.is_gone
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert died.is_gone
    assert not died.model_copy(update={"host": "elsewhere"}).is_gone
    run_recipe(recipe, engine="local")
    marked = read_run(store, run.run_id)
    assert (marked.state, marked.updated_at) == ("crashed", written)
    assert RESUME_HINT in marked.failures[""]


def test_second_signal_ends_process_immediately() -> None:
    program = (
        "import time\n"
        "from flows.run.executor import end_on_second_signal\n"
        "with end_on_second_signal():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(1_000)\n"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(300) == 128 + number


# Events


@pytest.fixture
def recipe(fakes: FakeStages, tmp_path: Path) -> Recipe:
    return fakes.recipe(str(tmp_path / "store"))


def test_each_step_starts_and_finishes_once(recipe: Recipe) -> None:
    recorder = Recorder()
    run_recipe(recipe, listeners=[recorder], engine="local")
    assert recorder.names == [
        "RunStarted",
        *["StepStarted", "StepFinished"] * len(LABELS),
        "RunFinished",
    ]
    finished = recorder.events_of(StepFinished)
    assert [event.step.label for event in finished] == LABELS
    assert [len(event.remaining) for event in finished] == [4, 3, 2, 1, 0]
    again = Recorder()
    run_recipe(recipe, listeners=[again], engine="local")
    assert again.names == ["RunStarted", *["StepFinished"] * len(LABELS), "RunFinished"]


def test_failed_step_skips_the_steps_that_need_it(recipe: Recipe, fakes: FakeStages) -> None:
    fakes.module.FAULTS["tokens"] = [InputError("bad tokens")]
    recorder = Recorder()
    with pytest.raises(InputError):
        run_recipe(recipe, listeners=[recorder], engine="local")
    (failed,) = recorder.events_of(StepFailed)
    assert (failed.step.label, failed.retry_delay) == ("build-tokens", None)
    skipped = {event.step.label: event.missing for event in recorder.events_of(StepSkipped)}
    assert skipped == dict.fromkeys(LABELS[3:], ("build-tokens",))
    (last,) = recorder.events_of(RunFinished)
    assert (last.state, list(last.failures)) == ("failed", ["build-tokens"])


def test_failing_listener_is_logged_and_fails_no_run(
    recipe: Recipe, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def on_event(self, event: Event) -> None:
            raise ConnectionError("no server")

    recorder = Recorder()
    results = run_recipe(recipe, listeners=[Broken(), recorder], engine="local")
    assert [result.label for result in results] == LABELS
    assert "Broken" in caplog.text
    assert recorder.names[-1] == "RunFinished"
    store = ArtifactStore(recipe.store)
    (run_id,) = run_ids(store)
    assert read_run(store, run_id).state == "completed"


class _Flaky:
    """A function that raises errors before its first success."""

    def __init__(self, function: Callable[..., Any], *errors: Exception) -> None:
        self.function, self.errors, self.calls = function, list(errors), 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("name", ["plan_steps", "check_inputs"])
def test_transient_error_while_planning_is_retried(
    name: str, fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "RETRY_DELAYS", (0.0, 0.0))
    recipe = fakes.recipe(str(tmp_path / "store"))
    function = getattr(preparation, name)
    for errors, calls in (
        ([ConnectionResetError("reset"), NetworkError("timeout")], 3),
        ([NetworkError("timeout")] * 3, 3),
        ([MissingInputError("no such file")], 1),
    ):
        flaky = _Flaky(function, *errors)
        monkeypatch.setattr(preparation, name, flaky)
        if len(errors) == 2:
            assert preparation.prepare_run(recipe, recipe_steps(recipe), store=None).planned
        else:
            with pytest.raises(type(errors[-1])):
                preparation.prepare_run(recipe, recipe_steps(recipe), store=None)
        assert flaky.calls == calls


def test_cached_run_reads_a_store_that_it_cannot_write_to(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = fakes.recipe(root)
    run_recipe(recipe, **QUIET)

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("replace", "put_if_absent", "compare_and_swap", "delete"):
        monkeypatch.setattr(backend._Disk, name, refuse)
    results = run_recipe(recipe, **QUIET)
    assert [result.was_cached for result in results] == [True] * len(LABELS)
    assert "Read-only" in caplog.text
    recorder = Recorder()
    with pytest.raises(OSError, match="Read-only"):
        run_recipe(recipe, rebuild=["all"], listeners=[recorder], engine="local")
    assert not recorder.events  # it has not started
