"""The command `plan`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from flows.bert import plan_recipe, recipe_steps
from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes, format_count, format_duration
from flows.recipes.loader import load_recipe
from flows.run.dependencies import missing_dependencies
from flows.run.estimates import format_estimate, free_bytes
from flows.run.plan import PlannedStep, estimate_run, plan_rows
from flows.run.preflight import check_disk_space, raw_paths
from flows.run.run import find_store
from flows.run.sweep_summary import summarize_sweep, sweep_rows
from pipelines.runners.registry import get_runner
from schemas.recipe import Recipe


def plan(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    store: options.Store = None,
    rebuild: options.Rebuild = None,
    until: options.Until = "",
    as_json: options.Json = False,
) -> None:
    """Show what a run would do: each step, cached or to build, and why."""
    loaded = load_recipe(recipe, overrides=overrides or (), store=store)
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
    steps = recipe_steps(recipe, until=until)
    data: dict[str, Any] = {
        "recipe": recipe.name,
        "store": recipe.store,
        "steps": [
            {**step._asdict(), "estimate": step.estimate._asdict() if step.estimate else None}
            for step in planned
        ],
    }
    if launch_options := get_runner(recipe.execution).describe([recipe.store, *raw_paths(steps)]):
        data["launch_options"] = launch_options
    if any(step.state != "cached" for step in planned):
        estimate = estimate_run(planned)
        data["estimate"] = {**estimate._asdict(), "free_bytes": free_bytes(recipe.store)}
    sweep = summarize_sweep(recipe, recipe_steps(recipe), planned)
    if sweep:
        data["sweep"] = [variant._asdict() for variant in sweep]
    parts = _parts(recipe, planned, sweep_rows(sweep), data.get("launch_options", []))
    print_result(data, *parts, as_json=as_json)
    if not as_json and (missing := missing_dependencies(steps)):
        echo(f"note: {missing}", err=True)
    return planned


def _parts(
    recipe: Recipe,
    planned: Sequence[PlannedStep],
    sweep: Sequence[tuple[str, ...]],
    launch_options: Sequence[str],
) -> Iterator[str | Table]:
    estimates = {step.label: step.estimate for step in planned if step.estimate is not None}
    rows = []
    for label, key, state, reason in plan_rows(planned):
        estimate, time, disk = estimates.get(label), "", ""
        if estimate is not None:
            time = "?" if estimate.seconds is None else format_duration(estimate.seconds)
            disk = format_bytes(estimate.disk_bytes)
        rows.append((label, key, state, time, disk, reason))
    yield table(
        ("step", "key", "state", "time", "disk", "reason"), rows, right=(3, 4), optional=(1,)
    )
    if sweep:
        header, *variants = sweep
        yield ""
        yield table(header, variants, right=(1, 2))
    waiting = sum(step.state != "cached" for step in planned)
    yield f"\n{format_count(len(planned), 'step')}, {waiting:,} to build"
    if waiting:
        yield format_estimate(estimate_run(planned), store=recipe.store)
    yield f"store: {recipe.store}"
    yield from launch_options
