"""The command `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.bert import plan_recipe, recipe_steps
from flows.cli.console import echo, print_json, print_lines
from flows.cli.options import (
    ChangesOption,
    JsonOption,
    RebuildOption,
    RecipeArgument,
    StoreOption,
    UntilOption,
)
from flows.cli.terminal import in_terminal, print_table
from flows.formatting import align_columns, format_bytes, format_count, format_duration
from flows.recipes.loader import load_recipe
from flows.run.dependencies import missing_dependencies
from flows.run.estimates import (
    StepEstimate,
    check_disk_space,
    format_estimate,
    free_bytes,
)
from flows.run.plan import PlannedStep, estimate_run, plan_rows
from flows.run.preflight import raw_paths
from flows.run.run import find_store
from flows.run.sweep_summary import summarize_sweep, sweep_rows
from pipelines.runners.checks import launch_lines
from pipelines.runners.launch import RUNNERS_HERE
from schemas.recipe import Recipe


def plan(
    recipe: RecipeArgument,
    changes: ChangesOption = None,
    store: StoreOption = None,
    rebuild: RebuildOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what a run would do: each step, cached or to build, and why."""
    loaded = load_recipe(recipe, overrides=changes or (), store=store)
    print_plan(loaded, rebuild=rebuild or (), until=until, as_json=as_json)


def print_estimate(
    planned: Sequence[PlannedStep], *, store: str, ignore_disk_space: bool = False
) -> None:
    """Print to standard error what a run needs, if there is anything to build.

    Raises:
        ConfigError: The disk is too small, and `ignore_disk_space` is not set.
    """
    if all(step.state == "cached" for step in planned):
        return
    estimate = estimate_run(planned)
    echo(format_estimate(estimate, store=store), err=True)
    if not ignore_disk_space:
        check_disk_space(estimate, store=store)


def print_plan(
    recipe: Recipe, *, rebuild: Sequence[str] = (), until: str = "", as_json: bool = False
) -> Sequence[PlannedStep]:
    """Print what a run would do, and return it."""
    planned = plan_recipe(recipe, store=find_store(recipe.store), rebuild=rebuild, until=until)
    launched = [] if recipe.execution.runner in RUNNERS_HERE else _launch_lines(recipe, until)
    found: dict[str, Any] = {
        "recipe": recipe.name,
        "store": recipe.store,
        "steps": [_step_json(step) for step in planned],
        **({"launch_options": launched} if launched else {}),
    }
    waiting = sum(step.state != "cached" for step in planned)
    estimate = estimate_run(planned)
    if waiting:
        found["estimate"] = {**estimate._asdict(), "free_bytes": free_bytes(recipe.store)}
    added = summarize_sweep(recipe, recipe_steps(recipe), planned)
    if added:
        found["sweep"] = [one._asdict() for one in added]
    if as_json:
        print_json(found)
        return planned
    _print_steps(planned)
    print_lines(
        [
            *(["", *align_columns(sweep_rows(added), right=(1, 2))] if added else []),
            f"\n{format_count(len(planned), 'step')}, {waiting:,} to build",
            *([format_estimate(estimate, store=recipe.store)] if waiting else []),
            f"store: {recipe.store}",
            *launched,
        ]
    )
    if lack := missing_dependencies(recipe_steps(recipe, until=until)):
        echo(f"note: {lack}", err=True)
    return planned


def _step_json(step: PlannedStep) -> dict[str, Any]:
    estimate = step.estimate._asdict() if step.estimate is not None else None
    return {**step._asdict(), "estimate": estimate}


def _print_steps(planned: Sequence[PlannedStep]) -> None:
    """A row a step; where somebody sees them, with what each is expected to take."""
    rows = plan_rows(planned)
    if not in_terminal():
        print_lines(align_columns([("step", "key", "state", ""), *rows]))
        return
    estimates = {step.label: step.estimate for step in planned}
    shown = []
    for label, _, state, reason in rows:
        taken = estimates.get(label)
        about = (_about(taken), format_bytes(taken.disk_bytes)) if taken is not None else ("", "")
        shown.append((label, state, *about, reason))
    print_table(("step", "state", "time", "disk", ""), shown, right=(2, 3), folds=(4,))


def _about(estimate: StepEstimate) -> str:
    return "?" if estimate.seconds is None else format_duration(estimate.seconds)


def _launch_lines(recipe: Recipe, until: str) -> list[str]:
    places = [recipe.store, *raw_paths(recipe_steps(recipe, until=until))]
    return launch_lines(recipe.execution, places=places)
