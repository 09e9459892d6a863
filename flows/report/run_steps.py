"""Steps of a run with their artifacts, the warnings of trainings, and versions of libraries."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, StepRecord
from model.training.health import read_warnings
from schemas.errors import StoreError
from schemas.manifest import Environment, Manifest
from schemas.trial_names import entry_label


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a run, finished or not."""

    label: str
    state: str
    """`built`, `cached`, `failed` or `not run`."""

    record: StepRecord | None = None
    manifest: Manifest | None = None
    anchor: str = ""
    """Id in the page; "" if an earlier step has the same artifact."""

    error: str = ""
    """Why the step failed, or why its artifact cannot be read."""

    @property
    def summary(self) -> str:
        """Summary of the artifact."""
        return summarize(self.manifest) if self.manifest else ""


@dataclass(frozen=True)
class Group:
    """Steps that the page shows as one: the trials of a grid, or a single step."""

    name: str
    steps: tuple[Step, ...]

    @property
    def anchor(self) -> str:
        """Id of the group in the page."""
        return group_anchor(self.name)

    @property
    def summary(self) -> str:
        """Number of trials and the range of their scores."""
        manifests = [step.manifest for step in self.steps if step.manifest]
        return get_stage(manifests[0].stage).summary_of(manifests) if manifests else ""

    @property
    def states(self) -> Counter[str]:
        """Number of steps in each state."""
        return Counter(step.state for step in self.steps)


class Built(NamedTuple):
    """A readable artifact of a run."""

    label: str
    """Label of the step."""

    manifest: Manifest

    @property
    def name(self) -> str:
        """Name of the step's entry in the recipe."""
        return self.label.partition(".")[2] or self.label

    @property
    def id(self) -> str:
        """Id of the artifact."""
        return self.manifest.artifact_id

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters of the manifest."""
        return self.manifest.counters

    @property
    def statistics(self) -> Mapping[str, Any]:
        """Statistics of the manifest."""
        return self.manifest.statistics


@dataclass(frozen=True)
class Steps:
    """The steps of a run and their readable artifacts, in the order of the run."""

    groups: tuple[Group, ...]
    built: tuple[Built, ...]

    @property
    def states(self) -> Counter[str]:
        """Number of steps in each state."""
        return sum((group.states for group in self.groups), Counter[str]())

    def of_type(self, *output_types: str) -> list[Built]:
        """Return the artifacts of these output types: `documents`, `checkpoint`, ..."""
        return [built for built, name in self._output_types if name in output_types]

    def last_of_type(self, output_type: str) -> Built | None:
        """Return the last artifact of an output type."""
        return next(reversed(self.of_type(output_type)), None)

    @property
    def environment(self) -> Environment | None:
        """Environment of the artifact that was built last."""
        manifests = [built.manifest for built in self.built]
        newest = max(manifests, key=lambda manifest: manifest.produced_by.ended_at, default=None)
        return newest.environment if newest else None

    def other_versions(self) -> list[tuple[str, str, list[str]]]:
        """Return libraries with versions other than in `environment`: name, version, labels."""
        own = _versions(self.environment)
        labels: dict[tuple[str, str], list[str]] = defaultdict(list)
        for built in self.built:
            versions = _versions(built.manifest.environment)
            for name in sorted({*own, *versions}):
                if versions.get(name) != own.get(name):
                    labels[name, versions.get(name, "not installed")].append(built.label)
        return [(*key, steps) for key, steps in labels.items()]

    @cached_property
    def _output_types(self) -> list[tuple[Built, str]]:
        return [(built, get_stage(built.manifest.stage).output_type) for built in self.built]


def _versions(environment: Environment | None) -> dict[str, str]:
    return {"python": environment.python, **environment.packages} if environment else {}


def read_steps(store: ArtifactStore, record: RunRecord) -> Steps:
    """Read the manifests of a run; a missing or damaged one is the error of its step."""
    finished = {step.label: step for step in record.steps}
    # A failure without a label is one of the whole run.
    labels = dict.fromkeys([*record.planned, *finished, *filter(None, record.failures)])
    built, steps = list[Built](), list[Step]()
    for label in labels:
        if (step := finished.get(label)) is None:
            state = "failed" if label in record.failures else "not run"
            steps.append(Step(label=label, state=state, error=record.failures.get(label, "")))
            continue
        state = "cached" if step.was_cached else "built"
        try:
            manifest = store.manifest(step.manifest)
        except StoreError as error:
            steps.append(Step(label=label, state=state, record=step, error=str(error)))
            continue
        anchor = f"artifact-{manifest.artifact_id}"
        if any(anchor == earlier.anchor for earlier in steps):
            anchor = ""
        built.append(Built(label, manifest))
        steps.append(Step(label=label, state=state, record=step, manifest=manifest, anchor=anchor))
    grouped = itertools.groupby(steps, key=lambda step: entry_label(step.label))
    return Steps(tuple(Group(name, tuple(group)) for name, group in grouped), tuple(built))


def group_anchor(label: str) -> str:
    """Return the id in the page of the group of a step."""
    return "step-" + re.sub(r"[^A-Za-z0-9]+", "-", entry_label(label)).strip("-")


def run_seconds(record: RunRecord) -> float | None:
    """Return the seconds from the start of a run to its end, or until now while it is running.

    None if a time is missing.
    """
    try:
        start, end = map(datetime.fromisoformat, (record.started, record.updated_at))
    except ValueError:
        return None
    if record.state == "running":
        end = datetime.now(UTC)
    return max(0.0, (end - start).total_seconds())


class StepWarning(NamedTuple):
    """A problem of a step's training."""

    label: str
    """Label of the step."""

    kind: str
    """Key of `model.training.health.SECTIONS`."""

    text: str


def collect_warnings(built: Iterable[Built]) -> list[StepWarning]:
    """Return the warnings of all steps, cached ones included.

    An evaluation repeats the warnings of its trials, so trials with an evaluation are skipped.
    """
    steps = list(built)
    evaluated = {
        ref.artifact_id
        for step in steps
        if get_stage(step.manifest.stage).output_type == "evaluation"
        for ref in step.manifest.inputs
    }
    return [
        StepWarning(step.label, warning.kind, warning.text)
        for step in steps
        if step.manifest.artifact_id not in evaluated
        for warning in read_warnings(step.statistics)
    ]
