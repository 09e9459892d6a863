"""The command `run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from flows.bert import recipe_steps
from flows.cli.console import echo, print_json, print_lines
from flows.cli.final_summary import WIDTH, summary_lines
from flows.cli.options import (
    ChangesOption,
    DryRunOption,
    EngineOption,
    JsonOption,
    RebuildOption,
    RecipeArgument,
    RunnerOption,
    StoreOption,
    UntilOption,
    WorkersOption,
)
from flows.cli.plan import print_estimate, print_plan
from flows.cli.progress import StepPrinter
from flows.cli.terminal import in_terminal, terminal_size
from flows.preparation import prepare_run
from flows.recipes.loader import load_recipe
from flows.run.run import get_store
from flows.run.step_execution import StepResult
from flows.running import execute_run
from schemas.recipe import Recipe


def run(
    recipe: RecipeArgument,
    changes: ChangesOption = None,
    store: StoreOption = None,
    runner: RunnerOption = None,
    workers: WorkersOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Maximum number of concurrent steps. Default: 1."),
    ] = None,
    engine: EngineOption = "prefect",
    ignore_disk_space: Annotated[
        bool, typer.Option("--ignore-disk-space", help="Run even if the disk is too small.")
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="If interrupted, leave Beam jobs running; rerun attaches."),
    ] = False,
    dry_run: DryRunOption = False,
    rebuild: RebuildOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run a recipe: build what is not in the store yet."""
    loaded = load_recipe(
        recipe,
        overrides=changes or (),
        store=store,
        runner=runner,
        workers=workers,
        max_parallel_steps=jobs,
        detach=detach or None,
    )
    if dry_run:
        print_plan(loaded, rebuild=rebuild or (), until=until, as_json=as_json)
        return
    prepared = prepare_run(
        loaded,
        recipe_steps(loaded, until=until),
        listeners=[StepPrinter(as_json=as_json)],
        rebuild=rebuild or (),
        engine=engine,
    )
    print_estimate(prepared.planned, store=loaded.store, ignore_disk_space=ignore_disk_space)
    print_results(loaded, execute_run(prepared), as_json=as_json)


def print_results(recipe: Recipe, results: Sequence[StepResult], *, as_json: bool = False) -> None:
    """Print what a run built and where the last number came from."""
    opened = get_store(recipe.store)
    page = opened.url(f"reports/{recipe.name}.html")
    if as_json:
        built = [_result_json(result) for result in results]
        print_json({"recipe": recipe.name, "store": opened.root, "report": page, "steps": built})
        return
    width = terminal_size()[0] if in_terminal() else WIDTH
    echo("")
    print_lines(summary_lines(results, store=opened, recipe=recipe.name, report=page, width=width))


def _result_json(result: StepResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "step": result.label,
        "was_cached": result.was_cached,
        "seconds": round(result.seconds, 3),
        "artifact_id": manifest.artifact_id,
        "cache_key": manifest.cache_key,
        "content": manifest.content,
        "folder": manifest.location,
        "warnings": list(result.warnings),
    }
