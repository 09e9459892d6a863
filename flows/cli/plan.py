"""The command `plan`, and plans as other commands print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from flows.bert import plan_recipe, recipe_steps
from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result, table
from flows.formatting import format_count
from flows.recipes.loader import load_recipe
from flows.run.dependencies import missing_dependencies
from flows.run.plan import PlannedStep, plan_rows
from flows.run.preflight import raw_paths
from flows.run.run import find_store
from pipelines.runners.registry import get_runner
from schemas.recipe import Recipe

_TRAINING_STAGES = ("pretrain", "finetune")


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


def print_plan(
    recipe: Recipe, *, rebuild: Sequence[str] = (), until: str = "", as_json: bool = False
) -> None:
    """Print what a run would do."""
    planned = plan_recipe(recipe, store=find_store(recipe.store), rebuild=rebuild, until=until)
    steps = recipe_steps(recipe, until=until)
    data: dict[str, Any] = {
        "recipe": recipe.name,
        "store": recipe.store,
        "steps": [step._asdict() for step in planned],
    }
    if launch_options := get_runner(recipe.execution).describe([recipe.store, *raw_paths(steps)]):
        data["launch_options"] = launch_options
    parts = _parts(recipe, planned, data.get("launch_options", []))
    print_result(data, *parts, as_json=as_json)
    if not as_json and (missing := missing_dependencies(steps)):
        echo(f"note: {missing}", err=True)


def _parts(
    recipe: Recipe, planned: Sequence[PlannedStep], launch_options: Sequence[str]
) -> Iterator[str | Table]:
    yield table(("step", "key", "state", "reason"), plan_rows(planned), optional=(1,))
    to_build = Counter(step.label.partition(".")[0] for step in planned if step.state != "cached")
    yield f"\n{format_count(len(planned), 'step')}, {_count_steps(to_build)} to build"
    yield f"store: {recipe.store}"
    yield from launch_options


def _count_steps(by_stage: Mapping[str, int]) -> str:
    """Return the number of steps, and how many of them train: "40 (8 pretrain, 12 finetune)"."""
    trainings = [f"{by_stage[stage]:,} {stage}" for stage in _TRAINING_STAGES if stage in by_stage]
    more = f" ({', '.join(trainings)})" if trainings else ""
    return f"{sum(by_stage.values()):,}{more}"
