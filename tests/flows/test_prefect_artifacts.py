"""Prefect's page of a run: artifacts per stage, a summary, and progress in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import LABELS, FakeStages

from flows.artifact_markdown import metric_rows, run_markdown, stage_markdown
from flows.bert import recipe_steps
from flows.preparation import prepare_run
from flows.run.executor import local_executor, run_steps
from flows.run.run import Run
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from pipelines.progress import ProgressUpdate


@pytest.fixture
def run(fakes: FakeStages, tmp_path: Path) -> Run:
    """A run that has built every step."""
    recipe = fakes.recipe(str(tmp_path / "store"))
    run = prepare_run(recipe, recipe_steps(recipe))
    with local_executor(run) as submit:
        run_steps(run, submit)
    return run


def with_manifest(result: StepResult, **changes: Any) -> StepResult:
    return result._replace(manifest=result.manifest.model_copy(update=changes))


def test_artifact_of_stage_has_counts_reasons_and_lineage(run: Run) -> None:
    result = run.step_results["build-documents"]
    text = stage_markdown([result], store=run.store, run_id=run.run_id)
    assert "| documents | 4 | 3 | 1 | too-short 1 |" in text
    assert "```mermaid\n" in text
    assert "raw.txt" in text
    assert result.manifest.artifact_id in text
    assert metric_rows(result.manifest) == []


def test_artifact_of_stage_lists_all_its_steps(run: Run) -> None:
    results = [result for label, result in run.step_results.items() if "instances" in label]
    text = stage_markdown(results, store=run.store, run_id=run.run_id)
    for result in results:
        assert f"| {result.label} |" in text
        assert result.manifest.artifact_id in text


def test_text_of_users_cannot_leave_its_cell(run: Run) -> None:
    result = run.step_results["build-documents"]._replace(label="a|b <script>\n`x`")
    text = stage_markdown([result], store=run.store, run_id=run.run_id)
    assert "| a\\|b &lt;script> 'x' |" in text


def test_metrics_of_training_are_rows(run: Run) -> None:
    statistics = {
        "held_out": {"perplexity": 12.5, "is_best": True},
        "model": {"num_hidden_layers": 2},
    }
    result = with_manifest(
        run.step_results["build-tokens"], stage="pretrain", statistics=statistics
    )
    assert metric_rows(result.manifest) == [("held_out.perplexity", "12.50")]


def test_report_in_bucket_is_no_link(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.store, "url", lambda path: f"s3://bucket/store/{path}")
    text = run_markdown(run, title="fake: 5 steps")
    assert f"Report: `s3://bucket/store/runs/{run.run_id}/report.html`" in text
    assert "](s3:" not in text


def test_summary_shows_failures_first_then_results(run: Run) -> None:
    run.failures["evaluate.cola"] = ValueError("no such file: cola/dev.tsv")
    statistics = {"held_out": {"perplexity": 12.5}}
    trained = with_manifest(
        run.step_results["build-vocabulary"],
        stage="pretrain",
        statistics=statistics,
        counters={"steps": 7},
    )
    run.step_results["build-vocabulary"] = trained
    text = run_markdown(run, title="fake: 5 steps")
    assert text.startswith("**evaluate.cola** failed: no such file: cola/dev.tsv\n\n")
    assert f"[Report](file://{run.store.root}/runs/{run.run_id}/report.html)" in text
    assert "| build-vocabulary | 7 steps, held-out perplexity 12.50 |" in text


@pytest.mark.network
def test_run_has_one_artifact_per_stage_and_a_summary(
    prefect_server: None, fakes: FakeStages, tmp_path: Path
) -> None:
    from prefect.client.orchestration import get_client

    def created() -> list[Any]:
        with get_client(sync_client=True) as client:
            return [artifact for artifact in client.read_artifacts() if artifact.key]

    before = {artifact.id for artifact in created()}
    run_recipe(fakes.recipe(str(tmp_path / "store"), name="shown"), log=lambda line: None)
    keys = sorted(artifact.key for artifact in created() if artifact.id not in before)
    stages = {label.partition(".")[0] for label in LABELS}
    assert keys == sorted(["run-shown", *(f"shown-{stage}" for stage in stages)])


@pytest.mark.network
def test_progress_is_text() -> None:
    from flows.prefect_artifacts import progress_text

    reading = ProgressUpdate("build", 3, 4, "shard", seconds=10.0, rows=7)
    assert progress_text(reading) == "build: 3 of 4 shards, 7 rows, about 3.3 s left"
