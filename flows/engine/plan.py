"""What a run would do: each step's key, whether its artifact is there, and if not, why not."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from flows.engine.estimates import RunEstimate, StepEstimate, estimate_steps, sum_estimates
from flows.engine.finding import find, keyed_steps
from flows.engine.keys import StepKey, describe_differences, differing_fields
from flows.engine.preflight import check_inputs
from flows.engine.stages import Step, rebuilt_labels
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest
from schemas.recipe import Recipe
from schemas.trial_names import entry_label

_SHOWN_DIFFERENCES = 4
_SHOWN_NAMES = 5
_MEASURED = 3
"""Newest artifacts of a stage that say how long another takes."""

_COMPARED = 20
"""Newest artifacts of a stage that a step may be compared with."""


class PlannedStep(NamedTuple):
    """What a run would do with a step."""

    label: str
    state: Literal["cached", "build", "unknown"]
    """`unknown`: its inputs have to be built first, and only then can its key be told."""

    cache_key: str = ""
    artifact_id: str = ""
    reason: str = ""
    estimate: StepEstimate | None = None
    """What building it needs; None if it is in the store."""


def plan_steps(
    recipe: Recipe,
    found: Sequence[Step],
    *,
    store: ArtifactStore | None,
    rebuild: Collection[str] = (),
) -> list[PlannedStep]:
    """Look up every step, and change nothing.

    Args:
        recipe: what would be run.
        found: its steps.
        store: where artifacts are; None where there is no store yet.
        rebuild: stages that would be built even if they are there; see `rebuilt_labels`.

    Raises:
        InputError: a raw file is missing or is not what its checksum list says.
    """
    check_inputs(found)
    rebuilt = rebuilt_labels(rebuild, found)
    manifests: dict[str, Manifest] = {}
    newest: dict[str, list[Manifest]] = {}
    planned, raw_bytes = [], dict[str, int]()
    for step, _, key, missing in keyed_steps(found, manifests=manifests):
        if key is None:
            entries = dict.fromkeys(entry_label(label) for label in missing)
            reason = f"after {_few(list(entries))}"
            planned.append(PlannedStep(step.label, "unknown", reason=reason))
            continue
        raw_bytes[step.label] = sum(item.size for item in key.raw_inputs)
        manifest, reason = _look(recipe, step, key, store=store, newest=newest)
        if manifest is not None:
            manifests[step.label] = manifest
        if manifest is None or step.label in rebuilt:
            reason = reason or "asked for"
            planned.append(PlannedStep(step.label, "build", key.cache_key, reason=reason))
        else:
            at = manifest.artifact_id
            planned.append(PlannedStep(step.label, "cached", key.cache_key, at))
    waiting = frozenset(step.label for step in planned if step.state != "cached")
    if not waiting:
        return planned
    estimates = estimate_steps(
        found,
        built=waiting,
        manifests=manifests,
        raw_bytes=raw_bytes,
        execution=recipe.execution,
        earlier=lambda stage: _earlier(stage, store=store, newest=newest),
    )
    return [step._replace(estimate=estimates.get(step.label)) for step in planned]


def estimate_run(planned: Sequence[PlannedStep]) -> RunEstimate:
    """Return what all steps need that are to be built."""
    return sum_estimates({step.label: step.estimate for step in planned if step.estimate})


def _earlier(
    stage: str, *, store: ArtifactStore | None, newest: dict[str, list[Manifest]]
) -> list[Manifest]:
    """The newest artifacts of a stage, which say how long another will take."""
    if store is None:
        return []
    if stage not in newest:
        pointers = sorted(store.pointers(stage), key=lambda item: item.committed)
        newest[stage] = []
        for pointer in pointers[: -_MEASURED - 1 : -1]:
            with contextlib.suppress(ArtifactNotFoundError, ArtifactCorruptError):
                newest[stage].append(store.read_manifest(pointer.manifest))
    return newest[stage][:_MEASURED]


def _look(
    recipe: Recipe,
    step: Step,
    key: StepKey,
    *,
    store: ArtifactStore | None,
    newest: dict[str, list[Manifest]],
) -> tuple[Manifest | None, str]:
    """The artifact that a run would take, or None and the reason why it would build one."""
    if store is None:
        return None, "no store yet"
    found = find(step, key, store=store, changes_nothing=True)
    if found.manifest is not None or found.damage:
        return found.manifest, found.damage
    nearest = _nearest(recipe, step, key, store=store, newest=newest)
    return None, _compare(key, nearest) if nearest else "never built"


def _nearest(
    recipe: Recipe,
    step: Step,
    key: StepKey,
    *,
    store: ArtifactStore,
    newest: dict[str, list[Manifest]],
) -> Manifest | None:
    """The artifact whose key has the fewest differences; what the recipe last used wins a tie.

    Args:
        recipe, step, key: of what has to be built.
        store: whose artifacts it is compared with.
        newest: the newest of each stage, as they are read.
    """

    def read(pointer: Pointer | None) -> list[Manifest]:
        try:
            return [store.read_manifest(pointer.manifest)] if pointer else []
        except (ArtifactNotFoundError, ArtifactCorruptError):
            return []  # it can be no help here; `bertloom verify` is for finding that out

    stage = step.stage.name
    if stage not in newest:
        pointers = sorted(store.pointers(stage), key=lambda item: item.committed)
        newest[stage] = [m for item in pointers[: -_COMPARED - 1 : -1] for m in read(item)]
    candidates = [*read(store.ref(f"{recipe.name}/{step.label}")), *newest[stage]]
    return min(candidates, key=lambda m: len(differing_fields(m.key_spec, key.spec)), default=None)


def _compare(key: StepKey, earlier: Manifest) -> str:
    if earlier.cache_key == key.cache_key:
        return f"{earlier.artifact_id} was withdrawn: damaged, or taken back (see quarantine/)"
    differences = describe_differences(earlier.key_spec, key.spec)
    shown = differences[:_SHOWN_DIFFERENCES]
    if len(differences) > len(shown):
        shown.append(f"and {len(differences) - len(shown)} more")
    return f"{'; '.join(shown)} (compared with {earlier.artifact_id})"


def _few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def planned_rows(planned: Sequence[PlannedStep]) -> list[tuple[str, ...]]:
    """(step, key, state, artifact or reason) by line; trials that fare alike are one line."""
    rows: list[tuple[str, ...]] = []
    for (name, state, reason), group in itertools.groupby(
        planned, key=lambda step: (entry_label(step.label), step.state, step.reason)
    ):
        alike = list(group)
        if len(alike) == 1:
            step = alike[0]
            rows.append((step.label, step.cache_key[:16], state, step.artifact_id or reason))
        else:
            rows.append((f"{name} ({len(alike)} trials)", "", state, reason))
    return rows
