"""Prefect's view of a run: an artifact per stage, a summary, progress in the log."""

from __future__ import annotations

import contextvars
import re
import time

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.artifact_markdown import run_markdown, stage_markdown, stage_title
from flows.formatting import format_count, format_duration
from flows.run.events import Event, RunFinished, StepFinished, StepProgress, StepStarted
from flows.run.run import Run
from pipelines.progress import ProgressUpdate
from schemas.redaction import escape_control_characters, redact

_PROGRESS_SECONDS = 10.0


class ArtifactListener:
    """Shows the stages of a run on its Prefect page."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._contexts: dict[str, contextvars.Context] = {}
        self._logged_at: dict[str, float] = {}

    def on_event(self, event: Event) -> None:
        """Create artifacts of stages that are complete, and of the run; log progress."""
        match event:
            case StepStarted(step=step):
                # Progress comes from other threads, and belongs to the log of this task run.
                self._contexts[step.label] = contextvars.copy_context()
                self._logged_at[step.label] = time.monotonic()
            case StepProgress(_, step, reading):
                self._log_progress(step.label, reading)
            case StepFinished(run, step):
                stage = step.stage.name
                if not any(label.partition(".")[0] == stage for label in event.remaining):
                    _publish_stage(run, stage)
            case RunFinished(run):
                _publish_summary(run)

    def _log_progress(self, label: str, reading: ProgressUpdate) -> None:
        now = time.monotonic()
        if label in self._contexts and now - self._logged_at[label] >= _PROGRESS_SECONDS:
            self._logged_at[label] = now
            context = self._contexts[label].copy()
            context.run(lambda: get_run_logger().info("%s", progress_text(reading)))


def progress_text(reading: ProgressUpdate) -> str:
    """Return how far a job is: `build-documents: 3 of 12 items, 1,204 rows, about 20.0 s left`."""
    total = f" of {reading.total:,.0f}" if reading.total else ""
    text = f"{reading.job}: {reading.done:,.0f}{total} {reading.unit}s"
    if reading.rows:
        text += f", {reading.rows:,} rows"
    if (left := reading.seconds_left()) is not None:
        text += f", about {format_duration(left)} left"
    return text


def _publish_stage(run: Run, stage: str) -> None:
    results = [result for result in run.results() if result.manifest.stage == stage]
    text = stage_markdown(results, run=run)
    _publish(text, key=_key(run.recipe.name, stage), title=stage_title(results))


def _publish_summary(run: Run) -> None:
    built = sum(not result.was_cached for result in run.results())
    failed = f", {len(run.failures)} failed" if run.failures else ""
    title = f"{run.recipe.name}: {format_count(len(run.steps), 'step')}, {built:,} built{failed}"
    _publish(run_markdown(run, title=title), key=_key("run", run.recipe.name), title=title)


def _publish(text: str, *, key: str, title: str) -> None:
    create_markdown_artifact(
        escape_control_characters(redact(text)),
        key=key,
        description=escape_control_characters(title),
    )


def _key(*parts: str) -> str:
    """Return a key of lower-case letters, digits and dashes, as Prefect requires."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
