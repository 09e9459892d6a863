"""The events of one run, built with OpenLineage's client and written one by one.

Imported within `openlineage_classes.without_transports`; others use `flows.lineage.export.events`.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from openlineage.client.generated import base
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_new_uuid, generate_static_uuid

from flows.engine.provenance import checkout
from flows.engine.stages import Step
from flows.lineage.export.datasets import (
    input_dataset,
    output_dataset,
    raw_datasets,
    store_namespace,
)
from flows.lineage.export.event_file import EventFile, RecordedEvent
from flows.lineage.export.facets import (
    RunOfRecipe,
    cache_tags,
    engine_facet,
    error_facet,
    flow_engine_facet,
    nominal_facet,
    parameters_facet,
    parent_facet,
    recipe_job,
    step_job,
)
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import now
from schemas.manifest import Manifest
from schemas.recipe import Recipe

Kind = Literal["START", "COMPLETE", "FAIL", "ABORT"]

Plain = dict[str, Any]
"""Something of OpenLineage's as it is written. What many events repeat is made so once."""

_ENDS = frozenset({"COMPLETE", "FAIL", "ABORT"})


_NO_REASON = "no reason was given"


class _OpenStep(NamedTuple):
    """A step that began and has not ended."""

    run_id: str
    inputs: list[Plain]
    job: Plain


class RunEvents:
    """Writes what a run and its steps do. Threads may share it, other processes have their own."""

    def __init__(
        self,
        store: ArtifactStore,
        *,
        recipe: Recipe,
        run_id: str,
        flow_run_id: str,
        nominal_time: str,
    ) -> None:
        self._file = EventFile(store, run_id)
        self._recipe = recipe
        self._namespace = store_namespace(store.root)
        self._run_id = run_id
        self._flow_run_id = flow_run_id
        self._nominal_time = nominal_time
        self._id = run_uuid(run_id, namespace=self._namespace)
        self._open: dict[str, _OpenStep] = {}
        self._datasets: dict[tuple[str, str, str], Plain] = {}
        self._lock = threading.Lock()

    # The run

    def run_started(self) -> None:
        """START of the run."""
        # Not the runner's own options, which may be anything, credentials too.
        shown = self._recipe.model_dump(
            mode="json",
            include={"execution": {"runner", "workers", "parallel_steps"}, "code_identity": True},
        )
        self._write_run("START", {"executionParameters": parameters_facet(shown)})

    def run_ended(self, kind: Kind, *, error: str) -> None:
        """The end of the run."""
        failed = {"errorMessage": error_facet(error or _NO_REASON)} if kind != "COMPLETE" else {}
        self._write_run(kind, failed)

    # Its steps

    def step_started(self, step: Step, inputs: Mapping[str, Manifest]) -> None:
        """START of a step; a step that is tried again starts a run of its own."""
        given = [self._input(step, name, inputs[name]) for name in step.inputs if name in inputs]
        job = Serde.to_dict(step_job(self._recipe.name, step))
        opened = _OpenStep(str(generate_new_uuid()), given, job)
        with self._lock:
            self._open[step.label] = opened
        config = parameters_facet(step.config.model_dump(mode="json"))
        self._write_step("START", step, opened, {"executionParameters": config})

    def step_completed(self, step: Step, manifest: Manifest, *, was_cached: bool) -> None:
        """COMPLETE of a step, with everything it read and the artifact it made or found."""
        opened = self._close(step)
        output = output_dataset(
            step,
            manifest,
            namespace=self._namespace,
            recipe=self._recipe.name,
            was_cached=was_cached,
        )
        tags = {"tags": cache_tags(manifest, was_cached=was_cached)}
        raw = [Serde.to_dict(dataset) for dataset in raw_datasets(manifest.raw_inputs)]
        read = opened._replace(inputs=[*opened.inputs, *raw])
        self._write_step("COMPLETE", step, read, tags, output=output, durable=not was_cached)

    def step_failed(self, step: Step, error: BaseException) -> None:
        """FAIL of a step, or ABORT where it was stopped from outside."""
        opened = self._close(step)
        kind: Kind = "FAIL" if isinstance(error, Exception) else "ABORT"
        facets = {"errorMessage": error_facet(error)}
        self._write_step(kind, step, opened, facets)

    def _close(self, step: Step) -> _OpenStep:
        with self._lock:
            opened = self._open.pop(step.label, None)
        if opened is None:
            raise RuntimeError(f"{step.label}: a step that has not started cannot end")
        return opened

    def _input(self, step: Step, name: str, manifest: Manifest) -> Plain:
        # Hundreds of cells read the same artifacts: each is described once.
        key = (step.stage.name, name, f"{step.inputs[name]}/{manifest.artifact_id}")
        found = self._datasets.get(key)
        if found is None:
            dataset = input_dataset(
                step, name, manifest, namespace=self._namespace, recipe=self._recipe.name
            )
            found = self._datasets[key] = Serde.to_dict(dataset)
        return found

    def _write_step(
        self,
        kind: Kind,
        step: Step,
        opened: _OpenStep,
        facets: Mapping[str, base.RunFacet],
        *,
        output: base.OutputDataset | None = None,
        durable: bool = False,
    ) -> None:
        about = {
            "bertloom_run": self._about(step.label),
            "processing_engine": engine_facet(step.stage, self._recipe.execution.runner),
            **facets,
        }
        event = self._event(kind, opened.run_id, about, opened.job)
        event["run"]["facets"]["parent"] = self._parent
        event["inputs"] = opened.inputs
        event["outputs"] = [Serde.to_dict(output)] if output else []
        self._file.append([json.dumps(event, sort_keys=True)], durable=durable)

    def _write_run(self, kind: Kind, facets: Mapping[str, base.RunFacet]) -> None:
        about = {
            "bertloom_run": self._about(None),
            "processing_engine": flow_engine_facet(is_prefect=bool(self._flow_run_id)),
            **facets,
        }
        job = Serde.to_dict(recipe_job(self._recipe.name))
        event = self._event(kind, self._id, about, job)
        self._file.append([json.dumps(event, sort_keys=True)], durable=kind != "START")

    def _event(
        self, kind: Kind, event_run: str, facets: dict[str, base.RunFacet], job: Plain
    ) -> Plain:
        if self._nominal_time:
            facets["nominalTime"] = nominal_facet(self._nominal_time)
        event = base.RunEvent(
            eventTime=now(),
            eventType=base.EventType(kind),
            run=base.Run(event_run, facets),
            job=base.Job(job["namespace"], job["name"]),
        )
        return {**Serde.to_dict(event), "job": job}

    def _about(self, label: str | None) -> RunOfRecipe:
        return RunOfRecipe(
            runId=self._run_id,
            recipe=self._recipe.name,
            label=label,
            flowRunId=self._flow_run_id or None,
            gitDirty=checkout().is_dirty,
        )

    @functools.cached_property
    def _parent(self) -> Plain:
        return Serde.to_dict(parent_facet(self._id, self._recipe.name))


def run_uuid(run_id: str, *, namespace: str) -> str:
    """OpenLineage's id of a run: the same in every process that has a part in it."""
    try:
        moment = datetime.strptime(run_id[:15], "%Y%m%dt%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        moment = datetime.fromtimestamp(0, UTC)
    return str(generate_static_uuid(moment, f"{namespace} {run_id}".encode()))


def open_runs(events: Iterable[RecordedEvent]) -> list[dict[str, Any]]:
    """START events without an end, steps before the run they are of."""
    started: dict[str, dict[str, Any]] = {}
    for found in events:
        run_id = found.event.get("run", {}).get("runId", "")
        kind = found.event.get("eventType")
        if kind == "START":
            started[run_id] = found.event
        elif kind in _ENDS:
            started.pop(run_id, None)
    return list(reversed(started.values()))


def abort_line(started: Mapping[str, Any], *, why: str) -> str:
    """An ABORT for the run that a START event began."""
    facets = dict(started["run"].get("facets", {}))
    facets.pop("executionParameters", None)
    facets["errorMessage"] = Serde.to_dict(error_facet(why))
    event = {
        **started,
        "eventTime": now(),
        "eventType": "ABORT",
        "run": {"runId": started["run"]["runId"], "facets": facets},
    }
    return Serde.to_json(event)
