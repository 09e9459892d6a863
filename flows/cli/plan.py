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
from flows.formatting import format_count, format_duration
from flows.recipes.loader import load_recipe
from flows.run.dependencies import missing_dependencies
from flows.run.estimates import format_estimate, low_disk_warning
from flows.run.events import Event, RunStarted
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


class EstimatePrinter:
    """Listener that prints to standard error how long a run takes, and that its disk is full."""

    def on_event(self, event: Event) -> None:
        """Print the estimate before the first step, unless all steps are cached."""
        if isinstance(event, RunStarted) and len(event.run.cached) < len(event.run.steps):
            store = event.run.recipe.store
            for line in filter(None, (format_estimate(event.run.planned), low_disk_warning(store))):
                echo(line, err=True)


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
    seconds = {step.label: step.expected_seconds for step in planned}
    rows = []
    for label, key, state, reason in plan_rows(planned):
        expected = seconds.get(label)
        time = "" if expected is None else format_duration(expected)
        rows.append((label, key, state, time, reason))
    yield table(("step", "key", "state", "time", "reason"), rows, right=(3,), optional=(1,))
    to_build = Counter(step.label.partition(".")[0] for step in planned if step.state != "cached")
    yield f"\n{format_count(len(planned), 'step')}, {_count_steps(to_build)} to build"
    if estimate := format_estimate(planned):
        yield estimate
    yield f"store: {recipe.store}"
    yield from launch_options


def _count_steps(by_stage: Mapping[str, int]) -> str:
    """Return the number of steps, and how many of them train: "40 (8 pretrain, 12 finetune)"."""
    trainings = [f"{by_stage[stage]:,} {stage}" for stage in _TRAINING_STAGES if stage in by_stage]
    more = f" ({', '.join(trainings)})" if trainings else ""
    return f"{sum(by_stage.values()):,}{more}"
