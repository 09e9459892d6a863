"""The four corpus stages together: equal bytes on every runner, and counts that add up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.corpus_builder import as_input, digests, run_corpus, small_recipe, small_sample
from support.golden import GOLDEN, golden_digests, rows_digest
from support.waiting import wait_until

from benchmarks.local_server import free_ports
from flows.sample import SampleFiles
from pipelines.instances.job import build_instances
from pipelines.io.file_systems import file_system
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageOutput


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleFiles:
    return small_sample(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def one_worker(
    sample: SampleFiles, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, StageOutput]]:
    folder = tmp_path_factory.mktemp("one")
    return folder, run_corpus(small_recipe(sample), folder)


def test_counts_add_up(
    one_worker: tuple[Path, dict[str, StageOutput]],
) -> None:
    outputs = one_worker[1]
    documents, tokens = outputs["build-documents"], outputs["build-tokens"]
    counters = documents.counters
    assert counters["pages-in"] > 120
    assert counters["pages-kept"] + counters["books-kept"] == counters["documents-in"]
    assert counters["duplicates-same-text"] >= 1  # the sample world has some on purpose
    kept = counters["documents-kept"] - counters["duplicates-same-text"]
    assert tokens.counters["documents-kept"] == kept
    assert sum(entry.rows or 0 for entry in tokens.files) == kept
    instances = outputs["build-instances.length-64"]
    rows = {"training": 0, "held-out": 0}
    for entry in instances.files:
        rows[str(entry.statistics["part"])] += entry.rows or 0
    assert rows["training"] == instances.counters["instances"] > 500
    assert rows["held-out"] == instances.counters["held-out-instances"] > 10


def test_golden_rows_without_held_out_documents(
    sample: SampleFiles, one_worker: tuple[Path, dict[str, StageOutput]], tmp_path: Path
) -> None:
    folder, outputs = one_worker
    inputs = {
        name: as_input(name, outputs[f"build-{name}"], str(folder / f"build-{name}"))
        for name in ("tokens", "vocabulary")
    }
    config = small_recipe(sample).build_instances["length-64"]
    made = build_instances(
        config.model_copy(update={"held_out_fraction": 0.0}),
        inputs=inputs,
        output=str(tmp_path),
        execution=ExecutionConfig(),
    )
    assert rows_digest(made.files, tmp_path) == "4bbbf0b5cdb616108d16dfd294e8eb48"
    assert made.counters["instances"] == sum(entry.rows or 0 for entry in made.files)
    assert made.statistics["held_out_instances"] == 0


@pytest.mark.parametrize(
    ("reverse", "execution"),
    [
        (True, ExecutionConfig()),
        (False, ExecutionConfig(workers=2)),
    ],
    ids=["other order of inputs", "processes"],
)
def test_bytes_do_not_depend_on_order_or_runner(
    sample: SampleFiles,
    one_worker: tuple[Path, dict[str, StageOutput]],
    tmp_path: Path,
    reverse: bool,
    execution: ExecutionConfig,
) -> None:
    outputs = run_corpus(small_recipe(sample, reverse=reverse), tmp_path, execution=execution)
    assert digests(outputs) == digests(one_worker[1])


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def job_service(tmp_path: Path, bucket: str) -> Iterator[tuple[str, ...]]:
    """Beam's portable job service, with workers in another process and folder.

    They share only the bucket; temporary files and caches are in separate folders.
    """
    job, pool = free_ports(2)
    commands = [
        ["apache_beam.runners.portability.local_job_service_main", "--job_port", str(job),
         "--staging_dir", str(tmp_path / "staging")],
        ["flows", "worker-pool", f"--port={pool}", "--allow-root"],
    ]  # fmt: skip
    (tmp_path / "theirs").mkdir()
    own = dict.fromkeys(("TMPDIR", "BERTLOOM_CACHE", "HOME"), str(tmp_path / "theirs"))
    with (tmp_path / "log").open("wb") as log:
        servers = [
            subprocess.Popen(
                [sys.executable, "-m", *command], cwd=tmp_path, stdout=log, stderr=log,
                start_new_session=True, env={**os.environ, **own},
            )
            for command in commands
        ]  # fmt: skip
        try:
            wait_until(lambda: _is_listening(job) and _is_listening(pool))
            yield (
                f"--job_endpoint=localhost:{job}",
                "--environment_type=EXTERNAL",
                f"--environment_config=localhost:{pool}",
            )
        finally:
            for server in servers:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


@pytest.mark.slow
@pytest.mark.network
def test_portable_job_service_builds_equal_bytes_in_bucket(
    one_worker: tuple[Path, dict[str, StageOutput]], job_service: tuple[str, ...], bucket: str
) -> None:
    """Raw files and shards are in the bucket; launcher and workers have no disk in common."""
    recipe = small_recipe(small_sample(f"{bucket}/raw"))
    how = ExecutionConfig(runner="portable", beam_options=job_service)
    outputs = run_corpus(recipe, f"{bucket}/run", execution=how)
    assert digests(outputs) == digests(one_worker[1])
    fs, path = file_system(f"{bucket}/run")
    made = {f"{path}/{stage}/{entry.stored_name}" for stage, output in outputs.items()
            for entry in (*output.files, *output.records)}  # fmt: skip
    assert set(fs.find(path)) == made  # no plan, report or part is left


def test_golden_rows(one_worker: tuple[Path, dict[str, StageOutput]]) -> None:
    """The rows of each stage, not the bytes, so that another pyarrow changes nothing here."""
    folder, outputs = one_worker
    assert golden_digests(outputs, folder) == GOLDEN, (
        "A stage's output changed. If that was meant: raise its version, say in CHANGELOG.md "
        "what used to happen, and run `PYTHONPATH=tests python -m support.golden` for new digests."
    )
