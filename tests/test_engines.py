"""The same bytes on real engines: Flink in one process and standalone, Spark standalone.

Skips, and says what is missing, where there is no Java, no job server or no engine: `make engines`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpus_runs import digests, run_corpus, small_recipe, small_recipe_file, small_sample
from engine_clusters import Flink, flink_cluster, job_servers, spark_cluster

from flows.sample import SampleFiles
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids
from schemas.configs import ExecutionConfig
from schemas.manifest import StageOutput
from schemas.recipe import Recipe

_WAIT = 1200
"""Seconds, at most: engines on a busy machine take their time."""

pytestmark = [pytest.mark.engines, pytest.mark.network]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def sample(folder: Path) -> SampleFiles:
    return small_sample(folder / "sample")


@pytest.fixture(scope="module")
def local(folder: Path, sample: SampleFiles) -> dict[str, StageOutput]:
    return run_corpus(small_recipe(sample), folder / "local")


@pytest.fixture(scope="module")
def flink(folder: Path) -> Iterator[Flink]:
    job_servers()
    with flink_cluster(folder / "flink", task_managers=2) as started:
        yield started


def _same(
    name: str, fields: dict[str, Any], local: dict[str, StageOutput], *, to: Path, of: SampleFiles
) -> None:
    own = {"job_server": str(job_servers()), **fields}
    how = ExecutionConfig.model_validate({"runner": name, name: own})
    assert digests(run_corpus(small_recipe(of), to, execution=how)) == digests(local)


def test_flink_in_one_process(
    sample: SampleFiles, local: dict[str, StageOutput], tmp_path: Path
) -> None:
    _same("flink", {"master": "[local]"}, local, to=tmp_path / "run", of=sample)


def test_flink_with_two_task_managers_and_three_steps_ready_at_once(
    flink: Flink, tmp_path: Path
) -> None:
    """By the command, on two slots: it ends, and the files are those of `local`."""
    recipe = _three_lengths(tmp_path)
    here = Recipe.model_validate(yaml.safe_load(recipe.read_text()))
    expected = run_corpus(here, tmp_path / "local")
    running = _begin(recipe, flink, tmp_path / "store", until="build-instances", parallel="3")
    told, _ = running.communicate(timeout=_WAIT)
    assert running.returncode == 0, told
    record, store = _last_run(tmp_path / "store"), ArtifactStore(str(tmp_path / "store"))
    made = {
        step.label: {entry.path: entry.sha256 for entry in store.read_manifest(step.manifest).files}
        for step in record.steps
    }
    assert made == digests(expected)
    assert len({job.id for job in record.jobs}) == len(record.jobs) == 6
    assert not _job_servers_of(flink)


def _three_lengths(folder: Path) -> Path:
    path = small_recipe_file(folder)
    data = yaml.safe_load(path.read_text())
    (config,) = data["build_instances"].values()
    lengths = {f"length-{length}": {**config, "max_seq_length": length} for length in (32, 48, 64)}
    path.write_text(yaml.safe_dump({**data, "build_instances": lengths}))
    return path


def _job_servers_of(flink: Flink) -> list[str]:
    """Job servers that run for a cluster: none may outlive who started it."""
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    wanted = f"--flink-master={flink.master} "
    return [line for line in found.stdout.splitlines() if wanted in line]


def test_spark_with_two_workers(
    folder: Path, sample: SampleFiles, local: dict[str, StageOutput], tmp_path: Path
) -> None:
    job_servers()
    with spark_cluster(folder / "spark", workers=2) as (master, home):
        fields = {"master": master, "home": home}
        _same("spark", fields, local, to=tmp_path / "run", of=sample)


# A run from outside


def _begin(
    recipe: Path,
    flink: Flink,
    store: Path,
    *more: str,
    until: str = "build-documents",
    parallel: str = "1",
) -> subprocess.Popen[str]:
    """`bertloom run` in a process of its own."""
    command = [
        sys.executable, "-m", "flows", "run", str(recipe), "--engine", "local",
        "--store", str(store), "--runner", "flink", "--until", until,
        "--parallel", parallel,
        "--set", f"execution.flink.master={flink.master}",
        "--set", f"execution.flink.job_server={job_servers()}", *more,
    ]  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}
    )


def _jobs(flink: Flink, known: set[str]) -> list[dict[str, object]]:
    return [job for job in flink.jobs() if str(job["jid"]) not in known]


def _wait_for_a_job(flink: Flink, known: set[str]) -> str:
    for _ in range(2 * _WAIT):
        for job in _jobs(flink, known):
            if job["state"] == "RUNNING":
                return str(job["jid"])
        time.sleep(0.5)
    pytest.fail("no job runs")


def _last_run(store: Path) -> RunRecord:
    opened = ArtifactStore(str(store))
    return read_run(opened, run_ids(opened)[-1])


def test_a_killed_submitter_leaves_one_job_that_the_next_run_attaches_to(
    flink: Flink, tmp_path: Path
) -> None:
    recipe, store = small_recipe_file(tmp_path), tmp_path / "store"
    known = {str(job["jid"]) for job in flink.jobs()}
    first = _begin(recipe, flink, store)
    job = _wait_for_a_job(flink, known)
    first.kill()
    first.communicate()
    for _ in range(100):
        if not _job_servers_of(flink):
            break
        time.sleep(0.1)
    assert not _job_servers_of(flink)
    second = _begin(recipe, flink, store)
    told, _ = second.communicate(timeout=_WAIT)
    assert second.returncode == 0, told
    assert "attached to a job that runs already: bertloom-test-build-documents-" in told
    assert [str(found["jid"]) for found in _jobs(flink, known)] == [job]
    record = _last_run(store)
    assert [(found.id, found.attached) for found in record.jobs] == [(job, True)]
    assert job in record.jobs[0].url


@pytest.mark.parametrize("detach", [False, True])
def test_a_signal_cancels_the_job_or_leaves_it(flink: Flink, tmp_path: Path, detach: bool) -> None:
    recipe, store = small_recipe_file(tmp_path), tmp_path / "store"
    known = {str(job["jid"]) for job in flink.jobs()}
    running = _begin(recipe, flink, store, *(["--detach"] if detach else []))
    job = _wait_for_a_job(flink, known)
    running.send_signal(signal.SIGTERM)
    told, _ = running.communicate(timeout=_WAIT)
    assert running.returncode == 143, told
    for _ in range(2 * _WAIT):
        (found,) = _jobs(flink, known)
        if found["state"] in ("FINISHED", "CANCELED", "FAILED"):
            break
        time.sleep(0.5)
    assert (str(found["jid"]), found["state"]) == (job, "FINISHED" if detach else "CANCELED"), told


def test_a_failed_job_says_why_first(flink: Flink, tmp_path: Path) -> None:
    recipe, store = small_recipe_file(tmp_path), tmp_path / "store"
    boot = tmp_path / "boot"
    boot.write_text("#!/bin/sh\nexit 7\n")
    boot.chmod(0o755)
    failing = _begin(recipe, flink, store, "--set", f"execution.flink.worker_command={boot}")
    told, _ = failing.communicate(timeout=_WAIT)
    assert failing.returncode == 1
    (said,) = [line for line in told.splitlines() if "FAILED" in line]
    assert "exit code 7" in said, told
    assert "\tat " not in told
    assert json.dumps(_last_run(store).failures).count("exit code 7")
