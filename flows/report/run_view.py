"""What a run did, as the page shows it: its head, and every step."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from flows.engine.task_amounts import cells_amount
from flows.engine.task_steps import entry_label
from flows.formats import byte_text, time_text
from flows.show import amount
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, StepRecord
from schemas.disclosure import without_secrets
from schemas.errors import StoreError
from schemas.manifest import Manifest, Reuse


@dataclass(frozen=True, kw_only=True)
class StepView:
    """A row of the list of steps."""

    label: str
    state: str
    """`built`, `cached`, `failed`, `running` or `not run`."""

    anchor: str = ""
    """Id in the page; "" where another step has the same artifact."""

    took: str = ""
    holds: str = ""
    size: str = ""
    artifact_id: str = ""
    reused: str = ""
    warning: str = ""
    error: str = ""
    """Why it failed, or why its artifact cannot be read."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Group:
    """Steps that are shown as one: the cells of a grid, or a step alone."""

    name: str
    anchor: str
    steps: tuple[StepView, ...]
    holds: str = ""
    states: str = ""
    """Such as `3 built, 2 cached`."""

    took: str = ""


class Steps(NamedTuple):
    """The artifacts of a run that can be read, and the rows of all its steps."""

    manifests: dict[str, Manifest]
    """By label, in the run's order."""

    groups: tuple[Group, ...]


def read_steps(store: ArtifactStore, record: RunRecord) -> Steps:
    """Read the manifests of a run; one that is gone or damaged is said in its row."""
    manifests: dict[str, Manifest] = {}
    problems: dict[str, str] = {}
    for step in record.steps:
        try:
            manifests[step.label] = store.manifest(step.manifest)
        except StoreError as error:
            problems[step.label] = str(error)
    done = {step.label: step for step in record.steps}
    labels = list(dict.fromkeys([*record.planned, *done, *record.failures]))
    seen: set[str] = set()
    views = []
    for label in labels:
        manifest = manifests.get(label)
        first = manifest is not None and manifest.artifact_id not in seen
        if manifest is not None:
            seen.add(manifest.artifact_id)
        if (found := done.get(label)) is not None:
            views.append(_done(found, manifest, problem=problems.get(label, ""), has_anchor=first))
        else:
            views.append(_not_done(label, record))
    groups = []
    for name, given in itertools.groupby(views, key=lambda view: entry_label(view.label)):
        groups.append(_group(name, tuple(given), manifests))
    return Steps(manifests, tuple(groups))


def artifact_anchor(artifact_id: str) -> str:
    """The id of an artifact's row in the page."""
    return f"artifact-{artifact_id}"


def entry_anchor(label: str) -> str:
    """The id of a group of steps in the page."""
    return "step-" + re.sub(r"[^A-Za-z0-9]+", "-", entry_label(label)).strip("-")


def _done(
    step: StepRecord, manifest: Manifest | None, *, problem: str, has_anchor: bool
) -> StepView:
    state = "cached" if step.was_cached else "built"
    took = time_text(step.seconds)
    warning = without_secrets(step.warning)
    if manifest is None:
        error = without_secrets(problem)
        return StepView(label=step.label, state=state, took=took, warning=warning, error=error)
    return StepView(
        label=step.label,
        state=state,
        anchor=artifact_anchor(manifest.artifact_id) if has_anchor else "",
        took=took,
        holds=amount(manifest),
        size=byte_text(manifest.size),
        artifact_id=manifest.artifact_id,
        reused="" if step.was_cached else _reused(manifest.produced_by.reuse),
        warning=warning,
        notes=tuple(without_secrets(note) for note in manifest.notes),
    )


def _not_done(label: str, record: RunRecord) -> StepView:
    if label in record.failures:
        return StepView(label=label, state="failed", error=without_secrets(record.failures[label]))
    return StepView(label=label, state="not run")


def _reused(reuse: Reuse | None) -> str:
    if reuse is None or not reuse.pieces_reused:
        return ""  # as on a first run, where there was nothing to take over
    share = f", {100 * reuse.work_reused / reuse.work:.0f} % of the work" if reuse.work else ""
    return f"{reuse.pieces_reused:,} of {reuse.pieces:,} pieces reused{share}"


def _group(name: str, steps: tuple[StepView, ...], manifests: Mapping[str, Manifest]) -> Group:
    counted = {view.state: sum(v.state == view.state for v in steps) for view in steps}
    cells = [manifests[view.label].statistics for view in steps if view.label in manifests]
    holds = cells_amount(cells) if len(steps) > 1 and cells else ""
    states = ", ".join(f"{number} {state}" for state, number in counted.items())
    return Group(name=name, anchor=entry_anchor(name), steps=steps, holds=holds, states=states)


class Fact(NamedTuple):
    """A name with a value."""

    name: str
    value: str
    note: str = ""


def head_facts(record: RunRecord, steps: Steps) -> list[Fact]:
    """What, when, how long, where, from which code."""
    runners = sorted({item.produced_by.runner for item in steps.manifests.values()})
    dirty = {True: "with uncommitted changes", False: "clean", None: ""}[record.git_dirty]
    facts = [
        Fact("Recipe", str(record.recipe.get("name", "?"))),
        Fact("Run", record.run_id),
        Fact("Started", _when(record.started)),
        Fact("Took", run_time(record)),
        Fact("Engine", record.engine, record.flow_run_id),
        Fact("Runner", ", ".join(runners)),
        Fact("Code", record.git_commit[:12], dirty),
    ]
    return [fact for fact in facts if fact.value]


def run_time(record: RunRecord) -> str:
    """From the run's start to its last record."""
    try:
        began, ended = (datetime.fromisoformat(t) for t in (record.started, record.written))
    except ValueError:
        return ""
    return time_text(max(0.0, (ended - began).total_seconds()))


def _when(moment: str) -> str:
    try:
        return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return moment


def step_counts(groups: Sequence[Group]) -> dict[str, int]:
    """How many steps are in each state."""
    counts: dict[str, int] = {}
    for view in (view for group in groups for view in group.steps):
        counts[view.state] = counts.get(view.state, 0) + 1
    return counts
