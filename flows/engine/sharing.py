"""What the variants of a sweep have in common, and what each of them adds: for a plan."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flows.engine.plan import PlannedStep
from flows.engine.stages import Step, with_inputs
from schemas.recipe import Recipe

_EVALUATION = "evaluate."  # begins the label of what an entry is evaluated by
_TRAIN = ("pretrain", "finetune")
_SHOWN = 30


class Addition(NamedTuple):
    """The steps that a combination of variants needs and none before it."""

    variants: dict[str, str]
    """By axis; empty for the steps that are of no combination more than of another."""

    steps: dict[str, int]
    """How many, by stage."""

    to_build: int
    """Of them."""


def additions(
    recipe: Recipe, whole: Sequence[Step], planned: Sequence[PlannedStep]
) -> list[Addition]:
    """What the combinations of a sweep share, then what each adds; empty without a sweep.

    Args:
        recipe: whose sweep it is.
        whole: all steps of the recipe.
        planned: what a run would do with those that are asked for.
    """
    if not recipe.sweep:
        return []
    needed = {
        chosen: {step.label for step in with_inputs(whole, evaluated)}
        for chosen, evaluated in _evaluated(recipe).items()
    }
    stage = {step.label: step.stage.name for step in whole}
    some, all_ = set.union(*needed.values()), set.intersection(*needed.values())

    def added(chosen: Sequence[str], labels: Collection[str]) -> Addition:
        own = [step for step in planned if step.label in labels]
        by_stage = Counter(stage[step.label] for step in own)
        waiting = sum(step.state != "cached" for step in own)
        return Addition(dict(zip(recipe.sweep, chosen, strict=False)), dict(by_stage), waiting)

    seen = {step.label for step in planned if step.label in all_ or step.label not in some}
    found = [added((), seen)]
    for chosen, labels in needed.items():
        found.append(added(chosen, labels - seen))
        seen = seen | labels
    return found


def _evaluated(recipe: Recipe) -> Mapping[tuple[str, ...], set[str]]:
    """Labels of the evaluations that each combination of variants makes a difference to."""
    return {
        chosen: {
            f"{_EVALUATION}{item.entry}"
            for item in recipe.swept or ()
            if item.variants.items() <= dict(zip(recipe.sweep, chosen, strict=True)).items()
        }
        for chosen in itertools.product(*(axis.variants for axis in recipe.sweep.values()))
    }


def addition_rows(found: Sequence[Addition]) -> list[tuple[str, ...]]:
    """(variants, steps, those to build, trainings) by line, below a line of titles."""
    if not found:
        return []
    total: Counter[str] = Counter()
    for one in found:
        total.update(one.steps)
    shown = [(", ".join(one.variants.values()) or "all share", one) for one in found]
    left = shown[_SHOWN:]
    rows = [(name, *_counts(one.steps, one.to_build)) for name, one in shown[:_SHOWN]]
    if left:
        rows.append((f"... and {len(left):,} more", "", "", ""))
    waiting = sum(one.to_build for one in found)
    title = f"sweep of {' x '.join(found[-1].variants)}"
    return [
        (title, "steps", "to build", "trainings"),
        *rows,
        ("together", *_counts(total, waiting)),
    ]


def _counts(steps: Mapping[str, int], to_build: int) -> tuple[str, str, str]:
    parts = ", ".join(f"{steps[stage]:,} {stage}" for stage in _TRAIN if stage in steps)
    return f"{sum(steps.values()):,}", f"{to_build:,}", parts
