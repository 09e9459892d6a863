"""The events of a run for other tools: OpenLineage, as Marquez, DataHub and their like read it.

Every run of a recipe is a run of the job `bertloom.RECIPE`, every step a run of its own below it:
START, then COMPLETE, FAIL or, where it was interrupted, ABORT; cache hits as well. Events go to the
store first, at once (`event_file`); at the end of a run they are sent if OpenLineage's client is
configured (`sending`).
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from flows.lineage.export.client import (
    Plain,
    generate_new_uuid,
    generate_static_uuid,
    own_facet,
    run_event,
)
from flows.lineage.export.datasets import (
    input_dataset,
    output_dataset,
    raw_datasets,
    store_namespace,
)
from flows.lineage.export.event_file import read_events, write_events
from flows.lineage.export.facets import (
    cache_tags,
    engine_facet,
    error_facet,
    parameters_facet,
    parent_facet,
    recipe_job,
    step_engine_facet,
    step_job,
)
from flows.lineage.export.sending import is_configured, send_events
from flows.run.graph import Step
from flows.run.provenance import checkout
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import now
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

Kind = Literal["START", "COMPLETE", "FAIL", "ABORT"]

_ENDS: Mapping[str, Kind] = {
    "completed": "COMPLETE",
    "failed": "FAIL",
    "interrupted": "ABORT",
    "crashed": "ABORT",
}


class _OpenStep(NamedTuple):
    """A step that began and has not ended."""

    run_id: str
    inputs: list[Plain]
    job: Plain


class LineageEvents:
    """Writes what a run and its steps do. Threads may share one; each process makes its own."""

    def __init__(
        self,
        store: ArtifactStore,
        *,
        recipe: Recipe,
        run_id: str,
        flow_run_id: str = "",
    ) -> None:
        """Nothing is written yet.

        Args:
            store: where the run's events go.
            recipe: what is run.
            run_id: of the run.
            flow_run_id: Prefect's id of it; "" without Prefect.
        """
        self._store, self._recipe, self._run_id = store, recipe, run_id
        self._flow_run_id = flow_run_id
        self._names: dict[str, str] = {
            "namespace": store_namespace(store.root),
            "recipe": recipe.name,
        }
        self._id = _run_uuid(run_id, namespace=self._names["namespace"])
        self._open: dict[str, _OpenStep] = {}
        self._datasets: dict[tuple[str, ...], Plain] = {}
        self._lock = threading.Lock()

    # The run

    def run_started(self) -> None:
        """The run begins."""
        # Not the runner's own options, which may be anything, credentials too.
        shown = self._recipe.model_dump(
            mode="json",
            include={"execution": {"runner", "workers", "parallel_steps"}},
        )
        self._write_run("START", {"executionParameters": parameters_facet(shown)})

    def run_ended(self, state: str, error: str = "") -> None:
        """The run ends: `completed`, `failed`, `interrupted` or `crashed`.

        Steps that are still open end with it. The events are sent if OpenLineage's client is
        configured; an error is logged.
        """
        kind = _ENDS[state]
        failed = {}
        if kind != "COMPLETE":
            why = "the run ended while this was at work"
            _abort_open(self._store, self._run_id, why=why, with_run=False)
            failed = {"errorMessage": error_facet(error or "no reason was given")}
        self._write_run(kind, failed)
        if is_configured():
            send_events(self._store, self._run_id)

    # Its steps

    def step_started(self, step: Step, inputs: Mapping[str, Manifest]) -> None:
        """A step begins: it is looked up, and built if it is not there.

        A step that is tried again starts a run of its own.

        Args:
            step: the step.
            inputs: the manifest of each of its inputs.
        """
        given = [self._input(step, name, inputs[name]) for name in step.inputs if name in inputs]
        opened = _OpenStep(str(generate_new_uuid()), given, step_job(self._recipe.name, step))
        with self._lock:
            self._open[step.label] = opened
        config = parameters_facet(step.config.model_dump(mode="json"))
        self._write_step("START", step, opened, {"executionParameters": config})

    def step_completed(self, step: Step, manifest: Manifest, *, was_cached: bool) -> None:
        """A step that began has its artifact."""
        opened = self._close(step)
        output = output_dataset(step, manifest, was_cached=was_cached, **self._names)
        tags = {"tags": cache_tags(manifest, was_cached=was_cached)}
        read = opened._replace(inputs=[*opened.inputs, *raw_datasets(manifest.raw_inputs)])
        self._write_step("COMPLETE", step, read, tags, outputs=[output], durable=not was_cached)

    def step_failed(self, step: Step, error: BaseException) -> None:
        """A step that began has failed or, where the error is no `Exception`, was interrupted."""
        kind: Kind = "FAIL" if isinstance(error, Exception) else "ABORT"
        self._write_step(kind, step, self._close(step), {"errorMessage": error_facet(error)})

    def _close(self, step: Step) -> _OpenStep:
        with self._lock:
            opened = self._open.pop(step.label, None)
        if opened is None:
            raise RuntimeError(f"{step.label}: a step that has not started cannot end")
        return opened

    def _input(self, step: Step, name: str, manifest: Manifest) -> Plain:
        # Hundreds of trials read the same artifacts: each is described once.
        key = (step.stage.name, name, step.inputs[name], manifest.artifact_id)
        if key not in self._datasets:
            self._datasets[key] = input_dataset(step, name, manifest, **self._names)
        return self._datasets[key]

    # Writing

    def _write_run(self, kind: Kind, facets: Mapping[str, Plain]) -> None:
        engine = engine_facet("prefect" if self._flow_run_id else "bertloom")
        about = {"processing_engine": engine, **facets}
        job = recipe_job(self._recipe.name)
        self._write(kind, self._id, job, about, durable=kind != "START")

    def _write_step(
        self,
        kind: Kind,
        step: Step,
        opened: _OpenStep,
        facets: Mapping[str, Plain],
        *,
        outputs: list[Plain] | None = None,
        durable: bool = False,
    ) -> None:
        engine = step_engine_facet(step.stage, runner=self._recipe.execution.runner)
        about = {"processing_engine": engine, "parent": self._parent, **facets}
        datasets = {"inputs": opened.inputs, "outputs": outputs or []}
        self._write(
            kind, opened.run_id, opened.job, about, label=step.label, durable=durable, **datasets
        )

    def _write(
        self,
        kind: Kind,
        event_run: str,
        job: Plain,
        facets: Mapping[str, Plain],
        *,
        label: str | None = None,
        durable: bool,
        **datasets: list[Plain],
    ) -> None:
        about = {
            "runId": self._run_id,
            "recipe": self._recipe.name,
            "label": label,
            "flowRunId": self._flow_run_id or None,
            "gitDirty": checkout().is_dirty,
        }
        run = {
            "runId": event_run,
            "facets": {"bertloom_run": own_facet("bertloom_run", about), **facets},
        }
        event = {**run_event(kind, time=now(), run=run, job=job), **datasets}
        write_events(
            self._store, self._run_id, [json.dumps(event, sort_keys=True)], durable=durable
        )

    @functools.cached_property
    def _parent(self) -> Plain:
        return parent_facet(self._id, self._recipe.name)


def _run_uuid(run_id: str, *, namespace: str) -> str:
    """OpenLineage's id of a run: the same in every process that has a part in it."""
    try:
        moment = datetime.strptime(run_id[:15], "%Y%m%dt%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        moment = datetime.fromtimestamp(0, UTC)
    return str(generate_static_uuid(moment, f"{namespace} {run_id}".encode()))


# Runs that ended without saying so


def close_abandoned(store: ArtifactStore, run_id: str) -> int:
    """Write an ABORT for whatever a run that is dead has left open; how many.

    Only to be called of a run whose process is known to be gone. What is written already stays as
    it is, and a second call finds nothing to do.
    """
    why = "the process that was at work on this is gone"
    return _abort_open(store, run_id, why=why, with_run=True)


def _abort_open(store: ArtifactStore, run_id: str, *, why: str, with_run: bool) -> int:
    """Write an ABORT for each START without an end, steps before the run they are of."""
    started: dict[str, dict[str, Any]] = {}
    try:
        recorded = read_events(store, run_id)
    except ArtifactNotFoundError:
        return 0  # it ended before its first event
    for _, _, event in recorded.events:
        event_run = event.get("run", {}).get("runId", "")
        if event.get("eventType") == "START":
            started[event_run] = event
        elif event.get("eventType") in _ENDS.values():
            started.pop(event_run, None)
    lines = []
    for event in reversed(started.values()):
        facets = event["run"].get("facets", {}) | {"errorMessage": error_facet(why)}
        if with_run or "parent" in facets:
            facets.pop("executionParameters", None)
            run = {"runId": event["run"]["runId"], "facets": facets}
            ended = {**event, "eventTime": now(), "eventType": "ABORT", "run": run}
            lines.append(json.dumps(ended, sort_keys=True))
    if lines:
        write_events(store, run_id, lines, durable=True)
    return len(lines)
