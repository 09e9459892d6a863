"""Steps that the variants of a sweep share, and the steps that each of them adds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flows.run.graph import StepGraph
from flows.run.plan import PlannedStep
from schemas.recipe import Recipe

_TRAINING_STAGES = ("pretrain", "finetune")
_MAX_ROWS = 30


class VariantSteps(NamedTuple):
    """Steps that a combination of variants needs and none before it."""

    variants: dict[str, str]
    """Variant by axis; empty for the steps that all combinations share."""

    steps: dict[str, int]
    """Number of steps by stage."""

    to_build: int
    """Number of steps that are not in the store."""


def summarize_sweep(
    recipe: Recipe, graph: StepGraph, planned: Sequence[PlannedStep]
) -> list[VariantSteps]:
    """Return what the combinations of a sweep share, then what each adds; empty without a sweep.

    Args:
        recipe: Recipe of the sweep.
        graph: All steps of the recipe.
        planned: Plan of the steps that would be run.
    """
    if not recipe.sweep:
        return []
    needed = {
        variants: {step.label for step in graph.with_upstream(evaluations)}
        for variants, evaluations in _evaluations(recipe).items()
    }
    in_some, in_all = set.union(*needed.values()), set.intersection(*needed.values())
    shared = {step.label for step in planned if step.label in in_all or step.label not in in_some}
    rows, seen = list[VariantSteps](), set[str]()
    for variants, labels in {(): shared, **needed}.items():
        steps = [step for step in planned if step.label in labels - seen]
        by_stage = Counter(step.label.partition(".")[0] for step in steps)
        to_build = sum(step.state != "cached" for step in steps)
        names = dict(zip(recipe.sweep, variants, strict=False))
        rows.append(VariantSteps(names, dict(by_stage), to_build))
        seen |= labels
    return rows


def _evaluations(recipe: Recipe) -> Mapping[tuple[str, ...], set[str]]:
    """Return the labels of the evaluations of each combination of variants."""
    return {
        combination: {
            f"evaluate.{item.entry}"
            for item in recipe.expanded_sweep or ()
            if item.variants.items() <= dict(zip(recipe.sweep, combination, strict=True)).items()
        }
        for combination in itertools.product(*(axis.variants for axis in recipe.sweep.values()))
    }


def sweep_rows(rows: Sequence[VariantSteps]) -> list[tuple[str, ...]]:
    """Return the cells of a table: variants, steps, steps to build, trainings; header first."""
    if not rows:
        return []
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.steps)
    cells = [
        (", ".join(row.variants.values()) or "shared", *_count_cells(row.steps, row.to_build))
        for row in rows
    ]
    if len(cells) > _MAX_ROWS:
        cells[_MAX_ROWS:] = [(f"... and {len(cells) - _MAX_ROWS:,} more", "", "", "")]
    return [
        (f"sweep of {' x '.join(rows[-1].variants)}", "steps", "to build", "trainings"),
        *cells,
        ("total", *_count_cells(total, sum(row.to_build for row in rows))),
    ]


def _count_cells(steps: Mapping[str, int], to_build: int) -> tuple[str, str, str]:
    trainings = [f"{steps[stage]:,} {stage}" for stage in _TRAINING_STAGES if stage in steps]
    return f"{sum(steps.values()):,}", f"{to_build:,}", ", ".join(trainings)
