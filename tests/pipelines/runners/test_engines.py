"""The same bytes on real engines: Flink in one process and standalone, Spark standalone.

Skipped, with what is missing, without Java, a job server or an engine: `make engines`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.clusters import (
    Command,
    Flink,
    execution_on,
    flink_cluster,
    flink_run,
    gate,
    job_server,
    last_run,
    spark_cluster,
)
from support.corpus_builder import STAGES, digests, run_corpus, small_recipe_file

from flows.store.artifacts import ArtifactStore
from schemas.recipe import Recipe

_DOCUMENTS = ("--until=build-documents", "--jobs=1")
Digests = dict[str, dict[str, str]]

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def recipe(folder: Path) -> Path:
    """A file: the small recipe, with instances of three lengths."""
    path = small_recipe_file(folder)
    data = yaml.safe_load(path.read_text())
    (config,) = data["build_instances"].values()
    lengths = {f"length-{length}": {**config, "max_seq_length": length} for length in (32, 48, 64)}
    path.write_text(yaml.safe_dump({**data, "build_instances": lengths}))
    return path


def _loaded(path: Path) -> Recipe:
    return Recipe.model_validate(yaml.safe_load(path.read_text()))


@pytest.fixture(scope="module")
def local(folder: Path, recipe: Path) -> Digests:
    """Return the files of the local runner."""
    return digests(run_corpus(_loaded(recipe), folder / "local"))


@pytest.fixture(scope="module")
def flink(folder: Path) -> Iterator[Flink]:
    job_server("flink")
    with flink_cluster(folder / "flink", task_managers=2) as started:
        yield started


def _same(name: str, master: str, local: Digests, *, to: Path, of: Path) -> None:
    """Run the four stages on an engine, one of the lengths, and compare."""
    how = execution_on(name, master)
    whole = _loaded(of)
    one = dict([*whole.build_instances.items()][:1])
    small = whole.model_copy(update={"build_instances": one})
    made = digests(run_corpus(small, to, execution=how))
    assert [stage.split(".")[0] for stage in made] == list(STAGES)
    assert made == {stage: local[stage] for stage in made}


@pytest.mark.engines
def test_flink_in_one_process(recipe: Path, local: Digests, tmp_path: Path) -> None:
    _same("flink", "[local]", local, to=tmp_path / "run", of=recipe)


@pytest.mark.engines
def test_flink_with_two_task_managers_and_three_steps_ready_at_once(
    flink: Flink, recipe: Path, local: Digests, tmp_path: Path
) -> None:
    """Run by the command on two slots: it ends with the files of `local`."""
    running = flink_run(
        recipe, flink, str(tmp_path / "store"), "--until=build-instances", "--jobs=3"
    )
    assert running.ended() == 0, running.output
    record, store = last_run(str(tmp_path / "store")), ArtifactStore(str(tmp_path / "store"))
    made = {
        step.label: {entry.path: entry.sha256 for entry in store.read_manifest(step.manifest).files}
        for step in record.steps
    }
    assert made == local
    assert len({job.id for job in record.jobs}) == len(record.jobs) == len(local)
    assert not flink.job_servers()


@pytest.mark.failures
def test_spark_in_one_process(recipe: Path, local: Digests, tmp_path: Path) -> None:
    _same("spark", "local[2]", local, to=tmp_path / "run", of=recipe)


@pytest.mark.engines
def test_spark_with_two_workers(folder: Path, recipe: Path, local: Digests, tmp_path: Path) -> None:
    job_server("spark")
    with spark_cluster(folder / "spark", workers=2) as master:
        _same("spark", master, local, to=tmp_path / "run", of=recipe)


# A run from outside


def _stopped(running: Command) -> str:
    """Return its output after SIGTERM."""
    running.process.terminate()
    assert running.ended() == 128 + signal.SIGTERM, running.output
    return running.output


@pytest.mark.failures
def test_run_cancels_the_job_of_a_killed_submitter(
    flink: Flink, recipe: Path, local: Digests, tmp_path: Path
) -> None:
    """A run that waits for the slots of that job is stopped in the meantime."""
    setting, opened = gate(tmp_path)
    store, known = tmp_path / "store", {str(job["jid"]) for job in flink.jobs()}

    def state() -> list[tuple[str, object]]:
        jobs = [(str(job["jid"]), job["state"]) for job in flink.jobs()]
        return [(job, state) for job, state in jobs if job not in known]

    first = flink_run(recipe, flink, str(store), *_DOCUMENTS, "--set", setting)
    first.wait_until(lambda: [said for _, said in state()] == ["RUNNING"])
    ((job, _),) = state()
    first.wait_until(lambda: flink.ask("overview")["slots-available"] == 0)
    first.wait_until(lambda: [item.id for item in last_run(str(store)).jobs] == [job])

    another = str(tmp_path / "another")  # the same work, but not the same job
    waiting = flink_run(recipe, flink, another, *_DOCUMENTS, "--set", setting)
    waiting.wait_until(lambda: "no free slot on" in waiting.output)
    assert "canceling" not in _stopped(waiting)
    first.process.kill()
    first.process.wait()
    assert state() == [(job, "RUNNING")]

    second = flink_run(recipe, flink, str(store), *_DOCUMENTS, "--set", setting)
    second.wait_until(lambda: f"canceling job {job}, left by an earlier run" in second.output)
    second.wait_until(lambda: len(state()) == 2)
    opened.touch()
    assert second.ended() == 0, second.output
    states = dict(state())
    assert states.pop(job) == "CANCELED"
    ((own_job, own_state),) = states.items()
    assert own_state == "FINISHED"
    record = last_run(str(store))
    assert [recorded.id for recorded in record.jobs] == [own_job]
    assert own_job in record.jobs[0].url
    files = ArtifactStore(str(store)).read_manifest(record.steps[0].manifest).files
    assert {entry.path: entry.sha256 for entry in files} == local["build-documents"]


@pytest.mark.failures
def test_error_of_failed_job_begins_with_its_cause(
    flink: Flink, recipe: Path, tmp_path: Path
) -> None:
    boot = tmp_path / "boot"
    boot.write_text("#!/bin/sh\nexit 7\n")
    boot.chmod(0o755)
    setting = f"execution.flink.worker_command={boot}"
    failing = flink_run(recipe, flink, str(tmp_path / "store"), *_DOCUMENTS, "--set", setting)
    assert failing.ended() == 1, failing.output
    (said,) = [line for line in failing.output.splitlines() if "FAILED" in line]
    assert "exit code 7" in said, failing.output
    assert "\tat " not in failing.output
    (failure,) = last_run(str(tmp_path / "store")).failures.values()
    assert "exit code 7" in failure
