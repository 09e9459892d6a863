"""Real engines of which a part is killed half-way: the files are those of `local` still.

Takes a quarter of an hour: `make failures`. Skipped, with what is missing, as the tests of engines.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
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
from support.corpus_builder import STAGES, digests, run_corpus, small_recipe, small_sample

from benchmarks.object_store import Proxy, S3Server, environment
from flows.sample import write_sample
from flows.store.activity import CollectionLock
from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import collect_garbage
from flows.store.runs import RunRecord
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.recipe import Recipe

pytestmark = [pytest.mark.failures, pytest.mark.network]

_AWAY_SECONDS = 20


class _World(NamedTuple):
    """Fixtures of all tests."""

    flink: Flink
    proxy: Proxy
    bucket: str
    recipe: Path
    local: dict[str, dict[str, str]]

    def store(self) -> str:
        """The URL of a new store."""
        return f"{self.bucket}/{uuid.uuid4().hex[:8]}"

    def run(self, store: str, *more: str, until: str = "build-documents") -> Command:
        """A run of the recipe up to a stage."""
        return flink_run(self.recipe, self.flink, store, f"--until={until}", "--jobs=1", *more)

    def working(self, store: str, stage: str) -> Callable[[], bool]:
        """Return whether a worker has read the plan of a stage's job."""
        begin = f"{store.removeprefix('s3:/')}/artifacts/{stage}/"

        def seen() -> bool:
            asked = [path for operation, path in [*self.proxy.requests] if operation == "GET"]
            return any(path.startswith(begin) and path.endswith("-plan") for path in asked)

        return seen


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_World]:
    job_server("flink")
    folder = tmp_path_factory.mktemp("failures")
    with contextlib.ExitStack() as held:
        server = held.enter_context(S3Server())
        proxy = held.enter_context(Proxy(server.url))
        variables = environment(proxy.url)
        patch = held.enter_context(pytest.MonkeyPatch.context())
        for name, value in variables.items():
            patch.setenv(name, value)
        flink = held.enter_context(flink_cluster(folder / "flink", task_managers=2))
        path = _recipe_file(folder)
        recipe = Recipe.model_validate(yaml.safe_load(path.read_text()))
        local = digests(run_corpus(recipe, folder / "local"))
        yield _World(flink, proxy, server.make_bucket("failures"), path, local)
        fsspec.get_filesystem_class("s3").clear_instance_cache()


def _recipe_file(folder: Path) -> Path:
    """A sample of a dozen pieces that take a second each: what is found again pays there."""
    sample = write_sample(str(folder / "sample"), articles=7000, tales=12, pages_per_stream=20)
    wiki = WikipediaSource(name="samplewiki", paths=(sample.pages,), target_split_bytes=256 << 10)
    books = BooksSource(name="tales", paths=(sample.books,), target_split_bytes=256 << 10)
    recipe = Recipe(
        name="failures",
        build_documents=DocumentsConfig(sources=(wiki, books)),
        build_vocabulary=VocabularyConfig(vocab_size=500),
        build_instances={"length-64": InstancesConfig(max_seq_length=64, dupe_factor=2)},
    )
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe.model_dump(mode="json", exclude={"store", "execution"})))
    return path


def _check(world: _World, store: str, *, stages: int = 1) -> RunRecord:
    """The files are those of `local`, and nothing else is left once garbage is collected."""
    record, opened = last_run(store), ArtifactStore(store)
    manifests = [opened.read_manifest(step.manifest) for step in record.steps]
    made = {
        step.label: {entry.path: entry.sha256 for entry in manifest.files}
        for step, manifest in zip(record.steps, manifests, strict=True)
    }
    assert made == {label: world.local[label] for label in [*world.local][:stages]}
    for manifest in manifests:
        hidden = [path for path in opened.backend.stat(manifest.data_path) if "/." in path]
        assert hidden == [], "plans and reports"
    collect_garbage(opened, keep_runs=1, grace_hours=0, lock=CollectionLock(opened))
    wanted = {
        f"{manifest.data_path}/{entry.stored_name}"
        for manifest in manifests
        for entry in manifest.files
    }
    for manifest in manifests:
        wanted.add(f"{manifest.artifact_path}/manifest.json")
    assert {*opened.backend.stat("artifacts")} == wanted
    return record


def _vertices(flink: Flink, job: str) -> Iterator[dict[str, Any]]:
    """Return the subtasks of a job from Flink's REST interface."""
    for vertex in flink.ask(f"jobs/{job}")["vertices"]:
        yield from flink.ask(f"jobs/{job}/vertices/{vertex['id']}")["subtasks"]


def _at_work(flink: Flink, stage: str) -> tuple[str, str]:
    """The job of a stage, and a task manager that works on it."""
    (job,) = [
        str(job["jid"])
        for job in flink.jobs()
        if f"-{stage}-" in str(job["name"]) and job["state"] == "RUNNING"
    ]
    workers = [
        task["taskmanager-id"] for task in _vertices(flink, job) if task["status"] == "RUNNING"
    ]
    assert workers, f"no task of {stage} runs"
    return job, workers[0]


def test_job_survives_a_killed_task_manager_in_each_stage(world: _World) -> None:
    store = world.store()
    run = world.run(store, until="build-instances")
    jobs = []
    for stage in STAGES:
        run.wait_until(world.working(store, stage))
        job, victim = _at_work(world.flink, stage)
        world.flink.kill(victim)
        world.flink.start_task_manager(int(victim.rpartition("-")[2]))
        jobs.append(job)
    assert run.ended() == 0, run.output
    for job in jobs:
        assert any(task["attempt"] > 0 for task in _vertices(world.flink, job)), job
    record = _check(world, store, stages=len(STAGES))
    assert [job.id for job in record.jobs] == jobs, "Flink's own restart, no second job"


def test_job_is_resubmitted_after_the_job_manager_was_killed(world: _World) -> None:
    store = world.store()
    run = world.run(store)
    run.wait_until(world.working(store, "build-documents"))
    lost, _ = _at_work(world.flink, "build-documents")
    world.flink.kill("job-manager")
    world.flink.start_job_manager()
    world.flink.wait_for_slots(2)
    assert run.ended() == 0, run.output
    assert f"does not know job {lost} " in run.output
    assert "trying again in 10 s" in run.output
    record = _check(world, store)
    # What little is left is done without a job.
    assert [job.id for job in record.jobs][:1] == [lost]


def test_run_survives_an_unreachable_object_store(world: _World) -> None:
    store = world.store()
    run = world.run(store)
    run.wait_until(world.working(store, "build-documents"))
    world.proxy.next = ["reset"] * 100_000
    time.sleep(_AWAY_SECONDS)
    world.proxy.next = []
    assert world.proxy.harmed["reset"] > 0
    if run.ended() != 0:  # it may report that; then another run resumes
        assert "FAILED" in run.output
        run = world.run(store)
    assert run.ended() == 0, run.output
    _check(world, store)


def test_one_of_two_runs_that_need_all_slots_gives_way(world: _World, tmp_path: Path) -> None:
    """While a third one has a slot, neither can get two; and each may hold the other's second."""
    setting, opened = gate(tmp_path)
    one_slot = ("--set", setting, "--set", "execution.flink.parallelism=1")
    stores = [world.store() for _ in range(3)]
    holder = world.run(stores[0], *one_slot)
    holder.wait_until(lambda: world.flink.ask("overview")["slots-available"] == 1)
    both = '--set=execution.beam_options=["--parallelism=2"]'
    runs = [world.run(store, both) for store in stores[1:]]
    for run in runs:
        run.wait_until(lambda: any("no free slots for" in other.output for other in runs))
    opened.touch()
    for run in [holder, *runs]:
        assert run.ended() == 0, run.output
    for store in stores:
        _check(world, store)


# Spark


def _kill_one_executor(application: Path) -> bool:
    """Kill the first executor of an application that has finished a task, and others to do."""
    for log in sorted(application.glob("*/stderr")):
        if "Finished task" not in log.read_text(errors="replace"):
            continue
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_java = (process / "exe").readlink().name == "java"
                if is_java and (process / "cwd").readlink() == log.parent:
                    os.kill(int(process.name), signal.SIGKILL)
                    return True
    return False


@contextlib.contextmanager
def _executors_killed(cluster: Path) -> Iterator[set[str]]:
    """Kill one executor of each application of a cluster, and yield the names of those killed."""
    killed, has_ended = set[str](), threading.Event()

    def work() -> None:
        while not has_ended.wait(0.05):
            for application in cluster.glob("worker-*/app-*"):
                if application.name not in killed and _kill_one_executor(application):
                    killed.add(application.name)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        has_ended.set()
        thread.join()


def test_job_survives_a_killed_spark_executor_in_each_stage(tmp_path: Path) -> None:
    job_server("spark")
    recipe = small_recipe(small_sample(tmp_path / "sample"))
    local = run_corpus(recipe, tmp_path / "local")
    with spark_cluster(tmp_path / "spark", workers=2) as master:
        config = execution_on("spark", master)
        with _executors_killed(tmp_path / "spark") as killed:
            made = run_corpus(recipe, tmp_path / "run", execution=config)
    assert digests(made) == digests(local)
    assert len(killed) == len(STAGES)
