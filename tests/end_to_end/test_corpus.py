"""The four corpus stages together: equal bytes on every runner, and counts that add up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.corpus_builder import as_input, digests, run_corpus, small_recipe, small_sample
from support.golden import GOLDEN, golden_digests

from flows.sample import SampleFiles
from pipelines.build_instances import build_instances
from pipelines.io.file_systems import file_system
from pipelines.io.shards import open_shard
from schemas.corpus_configs import DocumentsConfig, WikipediaSource
from schemas.errors import CorruptInputError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageOutput
from schemas.recipe import Recipe


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
    assert counters["books-kept"] == 3
    assert counters["duplicates-same-text"] >= 1  # the sample world has some on purpose
    kept = counters["documents-kept"] - counters["duplicates-same-text"]
    assert tokens.counters["documents-kept"] == kept
    assert tokens.counters["tokens"] > 10_000
    assert sum(entry.rows or 0 for entry in tokens.files) == kept
    instances = outputs["build-instances.length-64"]
    rows = {"training": 0, "held-out": 0}
    for entry in instances.files:
        rows[str(entry.statistics["part"])] += entry.rows or 0
    assert rows["training"] == instances.counters["instances"] > 500
    assert rows["held-out"] == instances.counters["held-out-instances"] > 10
    assert rows["held-out"] == instances.statistics["held_out_instances"]
    assert outputs["build-vocabulary"].counters["vocabulary-size"] == 400


def test_instances_contain_tokens_of_their_document(
    one_worker: tuple[Path, dict[str, StageOutput]],
) -> None:
    folder, outputs = one_worker
    tokens = outputs["build-tokens"].files
    entry = outputs["build-instances.length-64"].files[0]
    with open_shard(str(folder / "build-tokens" / tokens[0].stored_name)) as reader:
        own = reader.read_all().column("token_ids").to_pylist()
    with open_shard(str(folder / "build-instances.length-64" / entry.stored_name)) as reader:
        table = reader.read_all()
    for row in table.slice(0, 200).to_pylist():
        ids = list(row["input_ids"])
        for position, original in zip(
            row["masked_lm_positions"], row["masked_lm_ids"], strict=True
        ):
            ids[position] = original
        segment_a = ids[1 : row["segment_b_start"] - 1]
        document = own[row["document_row"]]
        width = len(segment_a)
        assert any(document[i : i + width] == segment_a for i in range(len(document)))


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
    rows = golden_digests({"build-instances": made})["build-instances"]
    assert rows == "700edad8fa7ecd5a75ebf135e9ae39f3"
    assert made.counters["instances"] == sum(entry.rows or 0 for entry in made.files)
    assert made.statistics["held_out_instances"] == 0


def test_two_processes_build_equal_bytes(
    sample: SampleFiles, one_worker: tuple[Path, dict[str, StageOutput]], tmp_path: Path
) -> None:
    outputs = run_corpus(small_recipe(sample), tmp_path, execution=ExecutionConfig(workers=2))
    assert digests(outputs) == digests(one_worker[1])


def test_two_threads_build_equal_bytes(
    sample: SampleFiles, one_worker: tuple[Path, dict[str, StageOutput]], tmp_path: Path
) -> None:
    how = ExecutionConfig(runner="threads", workers=2)
    assert digests(run_corpus(small_recipe(sample), tmp_path, execution=how)) == digests(
        one_worker[1]
    )


def test_order_of_inputs_does_not_change_bytes(
    sample: SampleFiles, one_worker: tuple[Path, dict[str, StageOutput]], tmp_path: Path
) -> None:
    outputs = run_corpus(small_recipe(sample, reverse=True), tmp_path)
    assert digests(outputs) == digests(one_worker[1])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"nothing listens on port {port}")


@pytest.fixture
def job_service(tmp_path: Path, bucket: str) -> Iterator[tuple[str, ...]]:
    """Beam's portable job service, with workers in another process and folder.

    They share only the bucket; temporary files and caches are in separate folders.
    """
    job, pool = _free_port(), _free_port()
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
            _wait_for(job)
            _wait_for(pool)
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


@pytest.mark.parametrize("workers", [1, 2])
def test_truncated_dump_is_named(sample: SampleFiles, tmp_path: Path, workers: int) -> None:
    cut = tmp_path / "cut-pages-articles.xml.bz2"
    cut.write_bytes(Path(sample.pages).read_bytes()[:20_000])
    recipe = Recipe(
        name="cut",
        build_documents=DocumentsConfig(sources=(WikipediaSource(name="cut", paths=(str(cut),)),)),
    )
    with pytest.raises(CorruptInputError, match=r"cut-pages-articles.*byte \d+"):
        run_corpus(recipe, tmp_path / "run", execution=ExecutionConfig(workers=workers))
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_golden_rows(one_worker: tuple[Path, dict[str, StageOutput]]) -> None:
    """The rows of each stage, not the bytes, so that another pyarrow changes nothing here."""
    assert golden_digests(one_worker[1]) == GOLDEN, (
        "A stage's output changed. If that was meant: raise its version, say in CHANGELOG.md "
        "what used to happen, and run `PYTHONPATH=tests python -m support.golden` for new digests."
    )
