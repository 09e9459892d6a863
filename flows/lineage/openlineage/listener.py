"""Listener that sends OpenLineage events of a run and its steps.

A run of a recipe is a run of the job `bertloom.RECIPE`. Each try of a step is a run of the job
`bertloom.RECIPE.LABEL`, and the run of the recipe is its parent.
"""

from __future__ import annotations

import logging
import queue
import threading
from datetime import datetime
from typing import Any

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Run, RunEvent, RunState
from openlineage.client.uuid import generate_new_uuid, generate_static_uuid

from flows.lineage.openlineage import facets
from flows.run.events import Event, RunFinished, RunStarted, StepFailed, StepFinished, StepStarted
from flows.run.run_recorder import failure_text
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import now
from flows.store.runs import RunRecord
from schemas.redaction import redact

_FINAL_STATES = {"completed": RunState.COMPLETE, "failed": RunState.FAIL}
_CLOSE_SECONDS = 5.0
_LOGGER = logging.getLogger(__name__)


class OpenLineageListener:
    """Sends START and COMPLETE, FAIL or ABORT of a run and of each step, cached steps included."""

    def __init__(self) -> None:
        """Start the sender. The client raises errors if its settings are wrong."""
        self._sender = _Sender()
        self._recipe = ""
        self._ids: dict[str, str] = {}
        """UUID of the run ("") and of each step in progress, by label."""

    def on_event(self, event: Event) -> None:
        """Send the OpenLineage events that an event of the run stands for."""
        match event:
            case RunStarted(run):
                self._open_run(run.store, run.recipe.name, run.run_id, run.started_at)
                self._send(RunState.START)
            case StepStarted():
                self._start(event)
            case StepFinished(run, step, _, result):
                inputs = [
                    *self._start(event),
                    *facets.artifact_datasets(run, step, result.manifest),
                    *facets.raw_datasets(result.manifest),
                ]
                outputs = [facets.output_dataset(run, step, result.manifest)]
                tags = facets.cache_facets(result)
                self._send(RunState.COMPLETE, step.label, tags, inputs=inputs, outputs=outputs)
                del self._ids[step.label]
            case StepFailed(_, step, _, error):
                self._start(event)
                self._send(RunState.FAIL, step.label, facets.error_facets(failure_text(error)))
                del self._ids[step.label]
            case RunFinished(_, state, failures):
                for label in filter(None, self._ids):
                    self._send(RunState.ABORT, label)
                text = "; ".join(map(failure_text, failures.values()))
                self._close(_FINAL_STATES.get(state, RunState.ABORT), text)

    def abort(self, store: ArtifactStore, record: RunRecord) -> None:
        """Send the ABORT of a run of another process, which was killed."""
        self._open_run(store, record.recipe["name"], record.run_id, record.started)
        self._close(RunState.ABORT, record.failures.get("", ""))

    def _close(self, state: RunState, error: str) -> None:
        """Send the end of the run, and wait for the collector."""
        self._send(state, about=facets.error_facets(error))
        self._sender.close()

    def _open_run(self, store: ArtifactStore, recipe: str, run_id: str, started_at: str) -> None:
        """Give the run its UUID, the same in every process."""
        start = datetime.fromisoformat(started_at)
        self._ids[""] = str(generate_static_uuid(start, f"{store.root} {run_id}".encode()))
        self._recipe = recipe

    def _start(self, event: StepStarted | StepFinished | StepFailed) -> list[InputDataset]:
        """Send the START of a step, unless it was sent; return what the step reads."""
        step, inputs = event.step, facets.input_datasets(event.run, event.step, event.inputs)
        if step.label not in self._ids:
            self._ids[step.label] = str(generate_new_uuid())
            self._send(RunState.START, step.label, inputs=inputs)
        return inputs

    def _send(
        self,
        state: RunState,
        label: str = "",
        about: facets.RunFacets | None = None,
        **datasets: Any,
    ) -> None:
        """Send an event of a step, or of the run if there is no label."""
        parent = facets.parent_facets(self._ids[""], self._recipe) if label else {}
        run = Run(self._ids[label], {**parent, **(about or {})})
        job = facets.job(self._recipe, label)
        event = RunEvent(eventTime=now(), eventType=state, run=run, job=job, **datasets)
        self._sender.queue.put(event)


class _Sender:
    """Thread that sends events in order, so that a slow collector delays no step."""

    def __init__(self) -> None:
        self._client, self._error = OpenLineageClient(), ""
        self.queue: queue.SimpleQueue[RunEvent | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="openlineage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait a few seconds for the last events; log an error if some were not sent."""
        self.queue.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive() or self._error:
            error = self._error or f"no answer in {_CLOSE_SECONDS:.0f} s"
            _LOGGER.warning("OpenLineage events were not sent: %s", error)

    def _send_all(self) -> None:
        while (event := self.queue.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # transports can raise anything
                self._error = redact(f"{type(error).__name__}: {error}")
        self._client.close(_CLOSE_SECONDS)
