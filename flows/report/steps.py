"""Steps of a run, their artifacts, and the software that built them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, StepRecord
from schemas.errors import StoreError
from schemas.manifest import Environment, Manifest
from schemas.trial_names import entry_label


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a run, done or not."""

    label: str
    state: str
    """`built`, `cached`, `failed` or `not run`."""

    record: StepRecord | None = None
    manifest: Manifest | None = None
    anchor: str = ""
    """Id in the page; "" where an earlier step has the same artifact."""

    error: str = ""
    """Why it failed, or why its artifact cannot be read."""

    @property
    def holds(self) -> str:
        """Summary of the artifact."""
        return summarize(self.manifest) if self.manifest else ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Steps that are shown as one: the trials of a grid, or a step alone."""

    name: str
    steps: tuple[Step, ...]

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return group_anchor(self.name)

    @property
    def holds(self) -> str:
        """Number of trials and the range of their scores."""
        found = [step.manifest for step in self.steps if step.manifest]
        return get_stage(found[0].stage).summary_of(found) if found else ""

    @property
    def states(self) -> Counter[str]:
        """Number of steps in each state."""
        return Counter(step.state for step in self.steps)


class Built(NamedTuple):
    """An artifact of a run that can be read."""

    label: str
    manifest: Manifest

    @property
    def name(self) -> str:
        """Name of its entry in the recipe."""
        return self.label.partition(".")[2] or self.label

    @property
    def counters(self) -> Mapping[str, int]:
        """The counters of its manifest."""
        return self.manifest.counters

    @property
    def statistics(self) -> Mapping[str, Any]:
        """The statistics of its manifest."""
        return self.manifest.statistics


class Steps(NamedTuple):
    """The steps of a run, and the artifacts of those that can be read."""

    groups: tuple[Group, ...]
    built: tuple[Built, ...]
    """Artifacts in the order of the run."""

    @property
    def states(self) -> Counter[str]:
        """Number of steps in each state."""
        return sum((group.states for group in self.groups), Counter[str]())

    def holding(self, *things: str) -> list[Built]:
        """Return the artifacts of these output types: `documents`, `checkpoint`, ..."""
        return [item for item in self.built if get_stage(item.manifest.stage).output_type in things]

    def last_holding(self, things: str) -> Built | None:
        """The last of them."""
        return next(reversed(self.holding(things)), None)


def read_steps(store: ArtifactStore, record: RunRecord) -> Steps:
    """Read the manifests of a run; one that is gone or damaged is the error of its step."""
    done = {step.label: step for step in record.steps}
    built: dict[str, Built] = {}
    steps = []
    # A failure without a label is of the whole run, and no step.
    for label in dict.fromkeys([*record.planned, *done, *filter(None, record.failures)]):
        if (found := done.get(label)) is None:
            state = "failed" if label in record.failures else "not run"
            steps.append(Step(label=label, state=state, error=record.failures.get(label, "")))
            continue
        manifest, error, anchor = None, "", ""
        try:
            manifest = store.manifest(found.manifest)
        except StoreError as caught:
            error = str(caught)
        else:
            known = {item.manifest.artifact_id for item in built.values()}
            anchor = "" if manifest.artifact_id in known else f"artifact-{manifest.artifact_id}"
            built[label] = Built(label, manifest)
        state = "cached" if found.was_cached else "built"
        step = Step(
            label=label, state=state, record=found, manifest=manifest, anchor=anchor, error=error
        )
        steps.append(step)
    grouped = itertools.groupby(steps, key=lambda step: entry_label(step.label))
    groups = (Group(name=name, steps=tuple(found)) for name, found in grouped)
    return Steps(tuple(groups), tuple(built.values()))


def group_anchor(label: str) -> str:
    """The id in the page of the group that a step is in."""
    return "step-" + re.sub(r"[^A-Za-z0-9]+", "-", entry_label(label)).strip("-")


def run_seconds(record: RunRecord) -> float | None:
    """From the run's start to its last record; None if either time is unknown."""
    return seconds_between(record.started, record.updated_at)


def seconds_between(started: str, ended: str) -> float | None:
    """Return the seconds between two ISO 8601 times; None if either is missing."""
    try:
        first, last = (datetime.fromisoformat(text) for text in (started, ended))
        return max(0.0, (last - first).total_seconds())
    except (ValueError, TypeError):  # no time, or one of them without a time zone
        return None


class OtherVersion(NamedTuple):
    """A library of which an artifact was made with another version than the newest artifact."""

    library: str
    newest: str
    other: str
    labels: tuple[str, ...]
    """Steps whose artifacts it made."""


@dataclass(frozen=True, kw_only=True)
class Software:
    """The environment of the newest artifact, and how that of others differs."""

    used: Environment
    others: tuple[OtherVersion, ...]


def read_software(built: Sequence[Built]) -> Software | None:
    """None where there is no artifact."""
    if not built:
        return None
    newest = max(built, key=lambda item: item.manifest.produced_by.ended_at).manifest.environment
    mine = _versions(newest)
    labels: dict[tuple[str, str], list[str]] = {}
    for item in built:
        theirs = _versions(item.manifest.environment)
        if theirs == mine:
            continue
        for library in sorted({*mine, *theirs}):
            version = theirs.get(library, "not installed")
            if version != mine.get(library, "not installed"):
                labels.setdefault((library, version), []).append(item.label)
    others = [
        OtherVersion(library, mine.get(library, "not installed"), version, tuple(found))
        for (library, version), found in labels.items()
    ]
    return Software(used=newest, others=tuple(others))


def _versions(environment: Environment) -> dict[str, str]:
    return {"python": environment.python, **environment.packages}
