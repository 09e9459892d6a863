"""Listener that writes the OpenLineage events of a run."""

from __future__ import annotations

import threading

from flows.lineage.export.events import LineageEvents
from flows.run.events import (
    Event,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepStarted,
)
from flows.run.run_recorder import failure_text


class OpenLineageListener:
    """Writes START and COMPLETE, FAIL or ABORT of a run and of each step, cached steps included."""

    def __init__(self) -> None:
        """Write nothing before the run starts."""
        self._events: LineageEvents | None = None
        self._open = set[str]()
        self._lock = threading.Lock()

    def on_event(self, event: Event) -> None:
        """Write the events of OpenLineage that an event of the run stands for."""
        if isinstance(event, RunStarted):
            run = event.run
            self._events = LineageEvents(
                run.store, recipe=run.recipe, run_id=run.run_id, flow_run_id=run.flow_run_id
            )
            self._events.run_started()
        elif self._events is None:
            return
        elif isinstance(event, StepStarted | StepFinished | StepFailed):
            self._write_step(self._events, event)
        elif isinstance(event, RunFinished):
            texts = [failure_text(error) for error in event.failures.values()]
            self._events.run_ended(event.state, "; ".join(texts))

    def _write_step(
        self, events: LineageEvents, event: StepStarted | StepFinished | StepFailed
    ) -> None:
        with self._lock:
            is_open = event.step.label in self._open
            if isinstance(event, StepStarted):
                self._open.add(event.step.label)
            else:
                self._open.discard(event.step.label)
        if not is_open:
            events.step_started(event.step, event.inputs)
        if isinstance(event, StepFinished):
            events.step_completed(
                event.step, event.result.manifest, was_cached=event.result.was_cached
            )
        elif isinstance(event, StepFailed):
            events.step_failed(event.step, event.error)
