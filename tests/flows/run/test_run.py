"""Runs: steps side by side, two runs at once, runs that died, and what a hit is looked at for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.fake_stages import FakeStages
from support.store_builder import held_by_another

from flows.bert import recipe_steps
from flows.preparation import prepare_run
from flows.run.plan import PlannedStep, plan_rows
from flows.run.run import max_parallel_steps
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import start_of
from flows.store.runs import RESUME_HINT, read_run, run_ids, write_run
from schemas.corpus_configs import InstancesConfig
from schemas.errors import InputError
from schemas.execution_configs import ExecutionConfig

TWO = ExecutionConfig(max_parallel_steps=2)
QUIETLY = {"log": lambda line: None, "engine": "local"}


def hold_up(fakes: FakeStages) -> tuple[threading.Event, threading.Event]:
    """Let the first stage wait: an event that it has begun, and one to let it go on."""
    begun, go_on = threading.Event(), threading.Event()
    documents = fakes.module.documents

    def slowly(*arguments: object, **more: object) -> object:
        begun.set()
        assert go_on.wait(30)
        return documents(*arguments, **more)

    fakes.module.documents = slowly
    return begun, go_on


def newest(root: str) -> str:
    return run_ids(ArtifactStore(root))[-1]


def test_steps_that_do_not_need_each_other_run_at_once(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2, timeout=30)
    instances = fakes.module.instances

    def meet(*arguments: object, **more: object) -> object:
        meeting.wait()  # raises where the other one is not there too
        return instances(*arguments, **more)

    monkeypatch.setattr(fakes.module, "instances", meet)
    said: list[str] = []
    done = run_recipe(fakes.recipe(root, execution=TWO), log=said.append, engine="local")
    assert [result.label for result in done][-2:] == ["build-instances.one", "build-instances.two"]
    # Indented are warnings: what the fakes make is no table that a card could describe.
    assert len([line for line in said if not line.startswith(" ")]) == 5
    record = read_run(ArtifactStore(root), newest(root))
    assert record.state == "completed"
    assert [step.label for step in record.steps] == list(record.planned)


def test_side_by_side_makes_the_same_as_one_by_one(
    fakes: FakeStages, root: str, tmp_path: Path
) -> None:
    alone = run_recipe(fakes.recipe(root), log=lambda line: None, engine="local")
    both = run_recipe(
        fakes.recipe(str(tmp_path / "other"), execution=TWO), log=lambda line: None, engine="local"
    )
    assert [r.manifest.content for r in alone] == [r.manifest.content for r in both]


def test_side_by_side_what_needs_a_failed_step_is_not_run(fakes: FakeStages, root: str) -> None:
    fakes.module.FAULTS["tokens"] = [InputError("bad tokens")]
    said: list[str] = []
    with pytest.raises(InputError, match="bad tokens"):
        run_recipe(fakes.recipe(root, execution=TWO), log=said.append, engine="local")
    assert "build-tokens  FAILED: bad tokens" in said
    assert sum("not run: needs build-tokens" in line for line in said) == 2
    record = read_run(ArtifactStore(root), newest(root))
    assert record.state == "failed"
    assert record.failures == {"build-tokens": "InputError: bad tokens"}


def test_of_two_runs_at_once_one_builds_and_the_other_waits(fakes: FakeStages, root: str) -> None:
    begun, go_on = hold_up(fakes)
    recipe = fakes.recipe(root)
    said: list[str] = []
    first = threading.Thread(
        target=run_recipe, args=(recipe,), kwargs={"log": lambda line: None, "engine": "local"}
    )
    first.start()
    assert begun.wait(30)
    threading.Timer(0.5, go_on.set).start()
    results = run_recipe(recipe, log=said.append, engine="local")
    first.join(30)
    assert results[0].was_cached
    assert fakes.calls.count("documents") == 1
    waited = [line for line in said if "waiting for" in line]
    assert waited[0].startswith("build-documents")
    assert len(set(waited)) == len(waited)  # once a step, though it looks again and again


def test_a_run_goes_on_when_the_one_that_it_waits_for_is_killed(
    fakes: FakeStages, root: str, tmp_path: Path
) -> None:
    wanted = run_recipe(fakes.recipe(str(tmp_path / "other")), **QUIETLY)[0].manifest
    ArtifactStore(root)
    with held_by_another(root, wanted.stage, wanted.cache_key) as process:
        said: list[str] = []

        def kill_when_waited_for(line: str) -> None:
            said.append(line)
            if "waiting for" in line:
                process.kill()

        done = run_recipe(fakes.recipe(root), log=kill_when_waited_for, engine="local")
    assert not done[0].was_cached
    [waited] = [line for line in said if "waiting for" in line]
    assert f"theirs (process {process.pid} on " in waited


@pytest.mark.parametrize("waits_for", ["another run", "another try"])
def test_a_signal_ends_waiting_side_by_side(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    begun, go_on = hold_up(fakes) if waits_for == "another run" else (threading.Event(),) * 2

    def interrupt_when(line: str) -> None:
        if "waiting for" in line or "trying again" in line:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    other = threading.Thread(target=run_recipe, args=(fakes.recipe(root),), kwargs=QUIETLY)
    if waits_for == "another run":
        other.start()
        assert begun.wait(30)
    else:
        fakes.module.FAULTS["documents"] = [OSError(5, "flaky")]
        monkeypatch.setattr("flows.run.executor.RETRY_DELAYS", (30,))
    clock = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_recipe(fakes.recipe(root, execution=TWO), log=interrupt_when, engine="local")
    assert time.monotonic() - clock < 15
    assert read_run(ArtifactStore(root), newest(root)).state == "interrupted"
    go_on.set()
    if other.ident is not None:
        other.join(30)


def test_the_limit_is_the_recipes_or_the_runners() -> None:
    assert max_parallel_steps(ExecutionConfig()) == 1
    assert max_parallel_steps(TWO) == 2
    given = {"project": "p", "region": "r", "temp_location": "gs://b/t", "image": "i"}
    cloud = ExecutionConfig.model_validate({"runner": "dataflow", "dataflow": given})
    assert max_parallel_steps(cloud) == 8


def test_a_seed_is_part_of_the_key(fakes: FakeStages, root: str) -> None:
    def contents(seed: int) -> list[str]:
        recipe = fakes.recipe(root, build_instances={"one": InstancesConfig(seed=seed)})
        return [r.manifest.cache_key for r in run_recipe(recipe, engine="local")]

    first, other = contents(1), contents(2)
    assert first[:-1] == other[:-1]
    assert first[-1] != other[-1]


def test_a_damaged_artifact_is_built_again_if_every_byte_is_looked_at(
    fakes: FakeStages, root: str
) -> None:
    first = run_recipe(fakes.recipe(root), engine="local")
    manifest = first[0].manifest
    file = Path(root, manifest.data, manifest.files[0].object)
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    assert run_recipe(fakes.recipe(root), engine="local")[0].was_cached
    full = fakes.recipe(root, execution=ExecutionConfig(verify_cached="full"))
    again = run_recipe(full, engine="local")
    assert not again[0].was_cached
    assert again[0].manifest.content == manifest.content
    assert all(result.was_cached for result in again[1:])


def test_a_run_that_died_is_told_by_the_next(fakes: FakeStages, root: str) -> None:
    recipe, store = fakes.recipe(root), ArtifactStore(root)
    run = prepare_run(recipe, recipe_steps(recipe))
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
    told = read_run(store, run.run_id)
    assert (told.state, told.updated_at) == ("crashed", written)
    assert RESUME_HINT in told.failures[""]
    assert RESUME_HINT in store.backend.read(f"runs/{run.run_id}/report.html").decode()
    assert read_run(store, newest(root)).state == "completed"


def test_trials_that_fare_alike_are_one_line_of_a_plan() -> None:
    trials = [
        PlannedStep(f"finetune.cola.bs16-lr2e-05-ep3-r{n}", "cached", "k", "a") for n in (0, 1)
    ]
    rows = plan_rows([PlannedStep("tabulate", "unknown", reason="after x"), *trials])
    assert rows == [
        ("tabulate", "", "unknown", "after x"),
        ("finetune.cola (2 trials)", "", "cached", ""),
    ]


def test_the_record_of_a_run_tells_what_is_done_so_far(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.run.run_recorder._WRITE_SECONDS", 0.0)
    seen: list[list[str]] = []
    tokens = fakes.module.tokens

    def look(*arguments: object, **more: object) -> object:
        record = read_run(ArtifactStore(root), newest(root))
        assert record.state == "running"
        seen.append([step.label for step in record.steps])
        return tokens(*arguments, **more)

    monkeypatch.setattr(fakes.module, "tokens", look)
    run_recipe(fakes.recipe(root), engine="local")
    assert seen == [["build-documents", "build-vocabulary"]]


def test_a_second_signal_ends_the_process_at_once() -> None:
    program = (
        "import time\n"
        "from flows.run.executor import end_on_second_signal\n"
        "with end_on_second_signal():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(30) == 128 + number
