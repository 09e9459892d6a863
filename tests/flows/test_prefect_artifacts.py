"""What Prefect is told of a stage, and that nobody waits for it."""

from __future__ import annotations

import contextvars
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flows.orchestration import views as prefect_views
from flows.orchestration.stage_pages import metric_rows, run_markdown, stage_markdown
from support.fake_stages import FakeStages

from flows.bert import recipe_steps
from flows.prefect_server import configure_prefect
from flows.run.run import Run
from flows.run.step_execution import StepResult
from pipelines.telling.progress import Reading

HERE = contextvars.copy_context()


@pytest.fixture
def run(fakes: FakeStages, tmp_path: Path) -> Run:
    recipe = fakes.recipe(str(tmp_path / "store"))
    return Run(recipe, recipe_steps(recipe), say=lambda line: None)


def built(run: Run) -> dict[str, StepResult]:
    """All steps of a run."""
    for step in run.steps:
        run.execute(step)
    return run.done


def test_a_job_that_hangs_keeps_nobody_waiting() -> None:
    publisher, released, done = prefect_views.Publisher(longest=2), threading.Event(), []
    started = threading.Event()

    def hang() -> None:
        started.set()
        released.wait()

    publisher.submit(hang, context=HERE)
    assert started.wait(10)
    for number in range(4):
        publisher.submit(lambda number=number: done.append(number), context=HERE)
    assert not publisher.flush(seconds=0.05)
    released.set()
    assert publisher.flush(seconds=10)
    assert done == [0, 1]  # two can wait


def test_a_job_that_fails_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="flows")
    publisher, done = prefect_views.Publisher(), []

    def fail() -> None:
        raise ConnectionError("no server")

    publisher.submit(fail, context=HERE)
    publisher.submit(lambda: done.append(1), context=HERE)
    assert publisher.flush(seconds=10)
    assert done == [1]
    assert "no server" in caplog.text


@pytest.fixture
def hanging_server() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/api"


@pytest.mark.network
def test_a_stage_does_not_wait_for_a_server_that_hangs(
    run: Run, hanging_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_prefect()
    from flows.orchestration.flows import run_step_task
    from prefect.client.schemas.objects import TaskRun
    from prefect.context import TaskRunContext
    from prefect.settings import PREFECT_API_URL, temporary_settings

    publisher = prefect_views.Publisher()
    monkeypatch.setattr(prefect_views, "_PUBLISHER", publisher)
    monkeypatch.setattr(prefect_views, "_PROGRESS_SECONDS", 0.0)
    with (
        temporary_settings(updates={PREFECT_API_URL: hanging_server}),
        TaskRunContext.model_construct(
            task=run_step_task,
            task_run=TaskRun(flow_run_id=uuid4(), task_key="step", dynamic_key="0"),
        ),
        prefect_views.watched(run, "build-documents") as view,
    ):
        view.note(Reading("build-documents", 1, 2, "shard"))
        assert not publisher.flush(seconds=0.3)  # it is being told, and hangs
        result = run.execute(run.by_label["build-documents"])
        assert isinstance(result, StepResult)
        view.note(Reading("build-documents", 2, 2, "shard"))
        view.show(result)
    assert not result.was_cached


def test_a_progress_that_waits_is_replaced_by_a_newer_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, told = prefect_views.Publisher(), []
    monkeypatch.setattr(prefect_views, "_PUBLISHER", publisher)
    monkeypatch.setattr(prefect_views, "_PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(
        prefect_views.StageView, "_set_progress", lambda self, *what: told.append(what)
    )
    released = threading.Event()
    publisher.submit(released.wait, context=HERE)
    with prefect_views.watched(run, "build-documents") as view:
        for done in (1, 2, 3):
            view.note(Reading("build", done, 4, "shard", seconds=10.0, bytes=3_000_000, rows=7))
    released.set()
    assert publisher.flush(seconds=10)
    text = "build: 3 of 4 shards, 7 rows, 3.0 MB written at 0.3 MB/s, about 3.3 s left"
    assert told == [(75.0, text)]


def test_a_page_has_counts_reasons_and_lineage(run: Run) -> None:
    result = built(run)["build-documents"]
    manifest = result.manifest
    text = stage_markdown(result, store=run.store, run_id=run.run_id)
    assert "| documents | 4 | 3 | 1 | too-short 1 |" in text
    assert "```mermaid\n" in text
    assert "raw.txt" in text
    assert f"bertloom lineage {manifest.artifact_id}" in text
    assert metric_rows(manifest) == []


def test_what_is_shown_cannot_leave_its_cell(run: Run) -> None:
    result = built(run)["build-documents"]
    odd: dict[str, Any] = {"a|b": "<script>\n`x`"}
    manifest = result.manifest.model_copy(update={"statistics": odd})
    text = stage_markdown(result._replace(manifest=manifest), store=run.store, run_id=run.run_id)
    assert "| a\\|b | &lt;script> 'x' |" in text


def test_numbers_of_a_training_are_rows(run: Run) -> None:
    result = built(run)["build-tokens"]
    statistics = {"held_out": {"perplexity": 12.5, "is_best": True}, "model": {"layers": 2}}
    manifest = result.manifest.model_copy(update={"stage": "pretrain", "statistics": statistics})
    assert metric_rows(manifest) == [{"metric": "held_out.perplexity", "value": 12.5}]


def test_a_report_in_a_bucket_is_a_place_and_no_link(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.store, "url", lambda path: f"s3://bucket/store/{path}")
    text = run_markdown(run, title="fake: 5 steps")
    assert f"Report: `s3://bucket/store/runs/{run.run_id}/report.html`" in text
    assert "](s3:" not in text


def test_a_run_is_summed_up_by_what_failed_and_what_it_is_for(run: Run) -> None:
    tokens = built(run)["build-tokens"]
    run.failures["evaluate.cola"] = ValueError("no such file: cola/dev.tsv")
    run.done["build-tokens"] = tokens._replace(
        manifest=tokens.manifest.model_copy(update={"stage": "find-something"})
    )
    reached = {"statistics": {"held_out": {"perplexity": 12.5}}, "counters": {"steps": 7}}
    trained = tokens.manifest.model_copy(update={"stage": "pretrain", **reached})
    run.done["build-vocabulary"] = tokens._replace(label="build-vocabulary", manifest=trained)
    text = run_markdown(run, title="fake: 5 steps")
    assert text.startswith(
        "**evaluate.cola** failed: no such file: cola/dev.tsv\n\n**fake: 5 steps**"
    )
    assert f"[Report](file://{run.store.root}/runs/{run.run_id}/report.html)" in text
    assert (
        f"| build-vocabulary | 7 steps, held-out perplexity 12.50 | {trained.artifact_id} |" in text
    )
    assert "| build-tokens | 1 file |" not in text.partition("| built |")[0]


def test_keys_are_as_prefect_wants_them() -> None:
    assert prefect_views._key("Sample", "finetune.sst-2.b16_lr2e-05") == (
        "sample-finetune-sst-2-b16-lr2e-05"
    )
