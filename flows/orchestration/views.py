"""What Prefect's pages show of a stage: its progress, and then what it made.

A server that hangs or restarts makes Prefect's client wait and try again. No stage may wait with
it: whatever is published is queued for a thread of its own, and dropped if it cannot be sent.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Full, Queue
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event

from flows.engine.stages import amount
from flows.engine.steps import StepResult
from flows.formats import byte_text, counted, time_text
from flows.orchestration.run import Run
from flows.orchestration.stage_pages import metric_rows, run_markdown, stage_markdown
from pipelines.telling.progress import Reading, listening
from schemas.disclosure import visible, without_secrets
from schemas.manifest import Manifest

_PROGRESS_SECONDS = 5.0
_FLUSH_SECONDS = 5.0
_LOOK_SECONDS = 0.02
_LOGGER = logging.getLogger(__name__)


class Publisher:
    """Does one job after the other in a thread of its own, and drops those that fail."""

    def __init__(self, *, longest: int = 200) -> None:
        """`longest` is how many jobs may wait; further ones are dropped."""
        self._jobs: Queue[tuple[contextvars.Context, Callable[[], object]]] = Queue(longest)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], object], *, context: contextvars.Context) -> None:
        """Have a job done in a context, such as that of a task run. Returns at once."""
        try:
            self._jobs.put_nowait((context.copy(), job))
        except Full:
            _LOGGER.debug("not told to Prefect, which does not keep up")
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)
                self._thread.start()

    def flush(self, *, seconds: float) -> bool:
        """Wait until all jobs are done, `seconds` at most; return whether they are."""
        deadline = time.monotonic() + seconds
        while self._jobs.unfinished_tasks:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _work(self) -> None:
        while True:
            context, job = self._jobs.get()
            try:
                context.run(job)
            except Exception as error:  # telling is a courtesy: no stage fails for it
                _LOGGER.debug("not told to Prefect: %r", error)
            finally:
                self._jobs.task_done()


_PUBLISHER = Publisher()


@contextlib.contextmanager
def watched(run: Run, label: str) -> Iterator[StageView]:
    """A stage that is built in this block, by the task run that one is in."""
    view = StageView(run, label)
    with listening(view.note):
        yield view


def flush_views() -> None:
    """Give what was not sent yet a few seconds, before the end of a run, whose client it needs."""
    _PUBLISHER.flush(seconds=_FLUSH_SECONDS)


class StageView:
    """Shows a stage on the page of its task run."""

    def __init__(self, run: Run, label: str) -> None:
        self._run, self._label = run, label
        self._context = contextvars.copy_context()
        self._key = _key(run.recipe.name, label)
        self._told = time.monotonic()
        self._progress: UUID | None = None
        self._waits = False
        self._latest: Reading | None = None

    def note(self, reading: Reading) -> None:
        """Take a reading of one of the stage's jobs; show it if the last shown is old enough."""
        self._latest = reading
        now = time.monotonic()
        if self._waits or now - self._told < _PROGRESS_SECONDS:
            return
        self._told, self._waits = now, True
        _PUBLISHER.submit(self._tell_progress, context=self._context)

    def show(self, result: StepResult) -> None:
        """Show what was made."""
        _PUBLISHER.submit(lambda: self._tell_end(result), context=self._context)

    def _tell_progress(self) -> None:
        try:
            if (reading := self._latest) is not None:
                share = 100 * reading.done / reading.total if reading.total else 0.0
                self._set_progress(min(share, 100.0), progress_text(reading))
        finally:
            self._waits = False

    def _set_progress(self, share: float, text: str) -> None:
        if self._progress is None:
            found = create_progress_artifact(share, key=f"progress-{self._key}", description=text)
            self._progress = found if isinstance(found, UUID) else None
        else:
            update_progress_artifact(self._progress, share, description=text)

    def _tell_end(self, result: StepResult) -> None:
        manifest, holds = result.manifest, amount(result.manifest)
        if self._progress is not None:
            self._set_progress(100.0, f"{self._label}: {holds}, took {time_text(result.seconds)}")
        _emit_assets(self._run, self._label, manifest)
        text = stage_markdown(result, store=self._run.store, run_id=self._run.run_id)
        title = visible(f"{self._label}: {holds}")
        create_markdown_artifact(visible(without_secrets(text)), key=self._key, description=title)
        if rows := metric_rows(manifest):
            title = f"metrics of {title}"
            create_table_artifact(rows, key=f"metrics-{self._key}", description=title)


def progress_text(reading: Reading) -> str:
    """How far, how fast, how much longer: `build-documents: 3 of 12 shards, 1,204 documents`."""
    total = f" of {reading.total:,.0f}" if reading.total else ""
    parts = [f"{reading.job}: {reading.done:,.0f}{total} {reading.unit}s"]
    if reading.rows:
        parts.append(f"{reading.rows:,} rows")
    if reading.bytes and reading.seconds:
        rate = reading.bytes / reading.seconds
        parts.append(f"{byte_text(reading.bytes)} written at {rate / 1e6:.1f} MB/s")
    elif reading.seconds and reading.done > reading.first:
        pace = (reading.done - reading.first) / reading.seconds
        parts.append(f"{pace:,.2f} {reading.unit}s/s")
    if (left := reading.seconds_left()) is not None:
        parts.append(f"about {time_text(left)} left")
    return ", ".join(parts)


def show_found(run: Run, results: Sequence[StepResult]) -> None:
    """Emit events of the artifacts that were there: a `Cached` task emits none by itself."""

    def tell() -> None:
        for result in results:
            resource = {
                "prefect.resource.id": _asset(run, result.label),
                "prefect.resource.name": result.label,
                "bertloom.manifest": result.manifest.path,
            }
            emit_event("prefect.asset.referenced", resource=resource)

    _PUBLISHER.submit(tell, context=contextvars.copy_context())


def show_summary(run: Run) -> None:
    """Show what a run built, with a link to its report."""

    def tell() -> None:
        results = run.results()
        built = sum(not result.was_cached for result in results)
        failed = f", {len(run.failures)} failed" if run.failures else ""
        title = f"{run.recipe.name}: {counted(len(run.steps), 'step')}, {built:,} built{failed}"
        text = visible(without_secrets(run_markdown(run, title=title)))
        create_markdown_artifact(text, key=_key("run", run.recipe.name), description=title)

    if run.is_begun:
        _PUBLISHER.submit(tell, context=contextvars.copy_context())


def _emit_assets(run: Run, label: str, manifest: Manifest) -> None:
    step = run.by_label[label]
    related = [
        {"prefect.resource.id": _asset(run, needed), "prefect.resource.role": "asset"}
        for needed in dict.fromkeys(step.inputs.values())
    ]
    related += [
        {
            "prefect.resource.id": f"bertloom-file://sha256/{item.sha256}",
            "prefect.resource.name": item.name,
            "prefect.resource.role": "asset",
        }
        for item in manifest.raw_inputs[:_RELATED_FILES]
    ]
    payload: dict[str, Any] = {
        "artifact": manifest.artifact_id,
        "content": manifest.content,
        "counters": manifest.counters,
    }
    resource = {"prefect.resource.id": _asset(run, label), "prefect.resource.name": label}
    emit_event(
        "prefect.asset.materialization.succeeded",
        resource=resource,
        related=related,
        payload=payload,
    )


_RELATED_FILES = 20


def _asset(run: Run, label: str) -> str:
    return f"bertloom://{run.recipe.name}/{label}"


def _key(*parts: str) -> str:
    """A key as Prefect wants it: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
