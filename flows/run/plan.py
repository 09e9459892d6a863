"""The plan of a run: each step's key, whether its artifact is in the store, and if not, why."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from flows.run.cache_keys import StepKey, changed_fields, describe_changes, step_key
from flows.run.estimates import expected_seconds
from flows.run.graph import Step, StepGraph
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest
from schemas.recipe import Recipe
from schemas.trial_names import entry_label

_MAX_CHANGES = 4
_MAX_NAMES = 5
_MAX_MEASURED = 3
"""Number of newest artifacts of a stage that an estimate uses."""

_MAX_COMPARED = 20
"""Number of newest artifacts of a stage that a step is compared with."""


class PlannedStep(NamedTuple):
    """State of a step in a plan."""

    label: str
    state: Literal["cached", "build", "unknown"]
    """`unknown`: its key depends on inputs that are built first."""

    cache_key: str = ""
    artifact_id: str = ""
    reason: str = ""
    """Why it would be built."""

    expected_seconds: float | None = None
    """Median time of earlier artifacts of its stage; None without one, and if it is cached."""


def plan_steps(
    recipe: Recipe,
    graph: StepGraph,
    *,
    store: ArtifactStore | None,
    rebuild: Collection[str] = (),
) -> list[PlannedStep]:
    """Look up every step in the store, and change nothing.

    Args:
        recipe: Recipe to run.
        graph: Its steps.
        store: Artifact store; None if it does not exist yet.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.

    Raises:
        InputError: A raw file is missing or does not match its checksum list.
        UnknownStepError: `rebuild` names no step.
    """
    planner = _Planner(recipe, store, graph.select_all(rebuild))
    return [planner.plan_step(step) for step in graph]


class _Planner:
    """Looks up steps, each after its inputs."""

    def __init__(
        self, recipe: Recipe, store: ArtifactStore | None, rebuilt: frozenset[str]
    ) -> None:
        self._recipe, self._store, self._rebuilt = recipe, store, rebuilt
        self.manifests: dict[str, Manifest] = {}
        self._newest: dict[str, list[Manifest]] = {}

    def plan_step(self, step: Step) -> PlannedStep:
        """Return the state of a step, with the time that building it is expected to take."""
        planned = self._look_up_step(step)
        if planned.state == "cached":
            return planned
        earlier = self._newest_of(step.stage.name)[:_MAX_MEASURED]
        return planned._replace(expected_seconds=expected_seconds(earlier))

    def _look_up_step(self, step: Step) -> PlannedStep:
        unknown = [label for label in step.inputs.values() if label not in self.manifests]
        if unknown:
            entries = dict.fromkeys(entry_label(label) for label in unknown)
            return PlannedStep(step.label, "unknown", reason=f"after {_join_names(list(entries))}")
        inputs = {name: self.manifests[label] for name, label in step.inputs.items()}
        key = step_key(step, inputs=inputs)
        manifest, reason = self._look_up(step, key)
        if manifest is not None:
            self.manifests[step.label] = manifest
        if manifest is None or step.label in self._rebuilt:
            reason = reason or "--rebuild"
            return PlannedStep(step.label, "build", key.cache_key, reason=reason)
        return PlannedStep(step.label, "cached", key.cache_key, manifest.artifact_id)

    def _look_up(self, step: Step, key: StepKey) -> tuple[Manifest | None, str]:
        """Return the cached artifact of a step, or None and the reason to build it."""
        if self._store is None:
            return None, "no store yet"
        try:
            if (pointer := self._store.pointer(step.stage.name, key.cache_key)) is not None:
                manifest = self._store.manifest(pointer.manifest)
                self._store.check_files(manifest)
                return manifest, ""
        except (ArtifactNotFoundError, ArtifactCorruptError) as error:
            return None, str(error)
        nearest = self._nearest(step, key, self._store)
        return None, _compare(key, nearest) if nearest else "never built"

    def _nearest(self, step: Step, key: StepKey, store: ArtifactStore) -> Manifest | None:
        """Return the artifact with the most similar key; the recipe's last one wins a tie."""
        last = self._read(store.ref(f"{self._recipe.name}/{step.label}"))
        return min(
            [*last, *self._newest_of(step.stage.name)],
            key=lambda manifest: len(changed_fields(manifest.cache_key_inputs, key.spec)),
            default=None,
        )

    def _newest_of(self, stage: str) -> list[Manifest]:
        """Return the newest artifacts of a stage, newest first."""
        if self._store is None:
            return []
        if stage not in self._newest:
            pointers = self._store.pointers(stage)[:_MAX_COMPARED]
            self._newest[stage] = [item for pointer in pointers for item in self._read(pointer)]
        return self._newest[stage]

    def _read(self, pointer: Pointer | None) -> list[Manifest]:
        if pointer is not None and self._store is not None:
            # A damaged manifest explains nothing; `bertloom verify` reports it.
            with contextlib.suppress(ArtifactNotFoundError, ArtifactCorruptError):
                return [self._store.manifest(pointer.manifest)]
        return []


def _compare(key: StepKey, earlier: Manifest) -> str:
    if earlier.cache_key == key.cache_key:
        return f"{earlier.artifact_id} was quarantined (see quarantine/)"
    changes = describe_changes(
        earlier.cache_key_inputs, key.spec, old_files=earlier.raw_inputs, new_files=key.raw_inputs
    )
    shown = changes[:_MAX_CHANGES]
    if len(changes) > len(shown):
        shown.append(f"and {len(changes) - len(shown)} more")
    return f"{'; '.join(shown)} (compared with {earlier.artifact_id})"


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def plan_rows(planned: Sequence[PlannedStep]) -> list[tuple[str, ...]]:
    """Return the cells of a table: step, key, state, artifact or reason.

    Trials of an entry with the same state and reason share one row.
    """
    rows: list[tuple[str, ...]] = []
    for (name, state, reason), group in itertools.groupby(
        planned, key=lambda step: (entry_label(step.label), step.state, step.reason)
    ):
        steps = list(group)
        if len(steps) == 1:
            step = steps[0]
            rows.append((step.label, step.cache_key[:16], state, step.artifact_id or reason))
        else:
            rows.append((f"{name} ({len(steps)} trials)", "", state, reason))
    return rows
