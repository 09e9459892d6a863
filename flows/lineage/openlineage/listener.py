"""Listener that sends OpenLineage events of a run and its steps.

A run of a recipe is a run of the job `bertloom.RECIPE`. Each try of a step is a run of the job
`bertloom.RECIPE.LABEL`, and the run of the recipe is its parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from openlineage.client import event_v2 as ol
from openlineage.client.event_v2 import RunState
from openlineage.client.facet_v2 import RunFacet
from openlineage.client.uuid import generate_new_uuid, generate_static_uuid

from flows.lineage.openlineage import facets
from flows.lineage.openlineage.sender import EventSender
from flows.run.events import Event, RunFinished, RunStarted, StepFailed, StepFinished, StepStarted
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import now
from flows.store.runs import RunRecord

_FINAL_STATES = {"completed": RunState.COMPLETE, "failed": RunState.FAIL}


class OpenLineageListener:
    """Sends START and COMPLETE, FAIL or ABORT of a run and of each step, cached steps included."""

    def __init__(self) -> None:
        """Connect to the collector."""
        self._sender = EventSender()
        self._recipe = self._id = ""
        self._step_ids: dict[str, str] = {}
        """UUID of each step in progress, by label."""

    def on_event(self, event: Event) -> None:
        """Send the OpenLineage events that an event of the run stands for."""
        match event:
            case RunStarted(run):
                self._recipe = run.recipe.name
                self._id = _run_uuid(run.store, run.run_id, run.started_at)
                self._send(RunState.START)
            case StepStarted():
                self._start(event)
            case StepFinished(run, step, _, result):
                inputs = [*self._start(event), *facets.raw_datasets(result.manifest)]
                outputs = [facets.output_dataset(run, step, result.manifest)]
                tags = {"tags": facets.cache_facet(result)}
                self._send(RunState.COMPLETE, step.label, tags, inputs=inputs, outputs=outputs)
                del self._step_ids[step.label]
            case StepFailed(_, step, _, error):
                self._start(event)
                self._send(RunState.FAIL, step.label, facets.error_facets(error))
                del self._step_ids[step.label]
            case RunFinished(_, state, failures):
                for label in self._step_ids:
                    self._send(RunState.ABORT, label)
                errors = facets.error_facets(*failures.values())
                self._send(_FINAL_STATES.get(state, RunState.ABORT), about=errors)
                self._sender.close()

    def abort(self, store: ArtifactStore, record: RunRecord) -> None:
        """Send the ABORT of a run of another process, which was killed."""
        self._recipe = record.recipe["name"]
        self._id = _run_uuid(store, record.run_id, record.started)
        self._send(RunState.ABORT, about=facets.error_facets(record.failures.get("", record.state)))
        self._sender.close()

    def _start(self, event: StepStarted | StepFinished | StepFailed) -> list[ol.InputDataset]:
        """Send the START of a step, unless it was sent; return what the step reads."""
        inputs = facets.input_datasets(event.run, event.step, event.inputs)
        if event.step.label not in self._step_ids:
            self._step_ids[event.step.label] = str(generate_new_uuid())
            about = facets.step_facets(event.step)
            self._send(RunState.START, event.step.label, about, inputs=inputs)
        return inputs

    def _send(
        self,
        state: RunState,
        label: str = "",
        about: Mapping[str, RunFacet] | None = None,
        *,
        inputs: list[ol.InputDataset] | None = None,
        outputs: list[ol.OutputDataset] | None = None,
    ) -> None:
        parent = {"parent": facets.parent_facet(self._id, self._recipe)} if label else {}
        run = ol.Run(self._step_ids[label] if label else self._id, {**parent, **(about or {})})
        job = facets.job(self._recipe, label)
        event = ol.RunEvent(eventTime=now(), eventType=state, run=run, job=job)
        event.inputs, event.outputs = inputs or [], outputs or []
        self._sender.send(event)


def _run_uuid(store: ArtifactStore, run_id: str, started_at: str) -> str:
    """Return the UUID of a run, the same in every process."""
    start = datetime.fromisoformat(started_at)
    return str(generate_static_uuid(start, f"{store.root} {run_id}".encode()))
