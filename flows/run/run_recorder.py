"""Listener that writes the record of a run to the store."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping

from flows.run.events import (
    Event,
    JobSubmitted,
    RunFinished,
    RunStarted,
    RunStopping,
    StepFinished,
)
from flows.run.provenance import checkout
from flows.run.run import Run
from flows.store.pointers import now
from flows.store.process_identity import this_process
from flows.store.runs import RESUME_HINT, JobRecord, RunRecord, RunState, write_run
from schemas.redaction import redact, redact_record

_WRITE_SECONDS = 2.0
"""Minimum time between two writes while a run makes progress."""


class RunRecorder:
    """Writes `runs/RUN_ID/run.json` when a run starts, makes progress and ends."""

    def __init__(self) -> None:
        """Write nothing before the run starts."""
        self._jobs: dict[str, JobRecord] = {}
        self._written_at = 0.0
        self._lock = threading.Lock()
        self._run: Run | None = None

    def on_event(self, event: Event) -> None:
        """Write the record if the event changes it."""
        with self._lock:
            match event:
                case RunStarted(run):
                    self._run = run
                    self._write("running")
                case JobSubmitted(_, step, job):
                    self._jobs[job.id] = JobRecord(label=step.label, **dataclasses.asdict(job))
                    self._write("running")
                case StepFinished() if time.monotonic() - self._written_at >= _WRITE_SECONDS:
                    self._write("running")
                case RunStopping():
                    # A process that is being stopped may not live until RunFinished.
                    self._write("interrupted", {"": f"Stopped. {RESUME_HINT}"})
                case RunFinished(_, state, failures):
                    self._write(state, {k: failure_text(e) for k, e in failures.items()})

    def _write(self, state: RunState, failures: Mapping[str, str] | None = None) -> None:
        run, code, process = self._run, checkout(), this_process()
        if run is None or (state == "running" and run.stopping.is_set()):
            return
        self._written_at = time.monotonic()
        record = RunRecord(
            run_id=run.run_id,
            state=state,
            started=run.started_at,
            updated_at=now(),
            recipe=redact_record(run.recipe.model_dump(mode="json")),
            engine=run.engine,
            flow_run_id=run.flow_run_id,
            **process.model_dump(),
            git_commit=code.commit,
            git_dirty=code.is_dirty,
            rebuild=tuple(sorted(run.rebuilt)),
            planned=tuple(run.by_label),
            steps=tuple(result.record for result in run.results()),
            failures=dict(failures or {}),
            jobs=tuple(self._jobs.values()),
        )
        write_run(run.store, record)
        run.record = record


def failure_text(error: BaseException) -> str:
    """Return the text of an error as records contain it, without secrets."""
    if isinstance(error, Exception):
        return str(redact(f"{type(error).__name__}: {error}"))
    cause = "Ctrl-C" if isinstance(error, KeyboardInterrupt) else "a signal"
    return f"Stopped by {cause}. {RESUME_HINT}"
