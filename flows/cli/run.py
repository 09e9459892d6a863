"""The commands about a recipe: `run`, `plan` and `adopt`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from flows.bert import plan as plan_recipe
from flows.bert import run_recipe, steps
from flows.cli.console import print_found, print_json, print_lines, say
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
from flows.cli.step_lines import step_printer
from flows.cli.terminal import in_terminal, terminal_size
from flows.engine.adopting import adopt as adopt_artifacts
from flows.engine.extras import lacking
from flows.engine.plan import planned_rows
from flows.engine.preflight import raw_paths
from flows.engine.sharing import addition_rows, additions
from flows.engine.steps import StepResult, opened_store
from flows.formats import columns
from flows.recipes.files import load_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.runners.checks import launch_lines
from pipelines.runners.launch import RUNNERS_HERE
from schemas.errors import ArtifactNotFoundError
from schemas.recipe import Recipe


def run(
    recipe: RecipeArgument,
    changes: ChangesOption = None,
    store: StoreOption = None,
    runner: RunnerOption = None,
    workers: WorkersOption = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Steps that may run at once, where none needs another."),
    ] = None,
    engine: EngineOption = "prefect",
    detach: Annotated[
        bool,
        typer.Option("--detach", help="When stopped, leave jobs to their engine; rerun attaches."),
    ] = False,
    dry_run: DryRunOption = False,
    rebuild: RebuildOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run a recipe: build what is not in the store yet."""
    loaded = load_recipe(
        recipe,
        changes=changes or (),
        store=store,
        runner=runner,
        workers=workers,
        parallel=parallel,
        detach=detach or None,
    )
    if dry_run:
        print_plan(loaded, rebuild=rebuild or (), until=until, as_json=as_json)
        return
    say_step = step_printer(loaded, as_json=as_json)
    results = run_recipe(loaded, say=say_step, engine=engine, rebuild=rebuild or (), until=until)
    print_results(loaded, results, as_json=as_json)


def plan(
    recipe: RecipeArgument,
    changes: ChangesOption = None,
    store: StoreOption = None,
    rebuild: RebuildOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what a run would do: each step, cached or to build, and why."""
    loaded = load_recipe(recipe, changes=changes or (), store=store)
    print_plan(loaded, rebuild=rebuild or (), until=until, as_json=as_json)


def print_plan(
    recipe: Recipe, *, rebuild: Sequence[str] = (), until: str = "", as_json: bool = False
) -> None:
    """Print what a run would do."""
    try:
        store = ArtifactStore(recipe.store, create=False)
    except ArtifactNotFoundError:
        store = None
    planned = plan_recipe(recipe, store=store, rebuild=rebuild, until=until)
    launched = [] if recipe.execution.runner in RUNNERS_HERE else _launch_lines(recipe, until)
    found = {
        "recipe": recipe.name,
        "store": recipe.store,
        "steps": [step._asdict() for step in planned],
        **({"launch": launched} if launched else {}),
    }
    waiting = sum(step.state != "cached" for step in planned)
    added = additions(recipe, steps(recipe), planned)
    if added:
        found["sweep"] = [one._asdict() for one in added]
    lines = [
        *columns([("step", "key", "state", ""), *planned_rows(planned)]),
        *(["", *columns(addition_rows(added), right=(1, 2))] if added else []),
        f"\n{len(planned):,} steps, {waiting:,} to build",
        f"store: {recipe.store}",
        *launched,
    ]
    print_found(found, lines, as_json=as_json)
    if not as_json and (lack := lacking(steps(recipe, until))):
        say(f"note: {lack}", err=True)


def _launch_lines(recipe: Recipe, until: str) -> list[str]:
    places = [recipe.store, *raw_paths(steps(recipe, until))]
    return launch_lines(recipe.execution, places=places)


def adopt(
    recipe: RecipeArgument,
    changes: ChangesOption = None,
    store: StoreOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Take the artifacts that are there as those of today's code, as you know them to be.

    Those of the recipe whose keys differ in nothing but code: for an edit that changes no byte.
    Manifests and lineage say which were adopted.
    """
    loaded = load_recipe(recipe, changes=changes or (), store=store)
    opened = ArtifactStore(loaded.store, create=False)
    done = adopt_artifacts(loaded, steps(loaded, until), store=opened)
    rows = [
        (step.label, step.state, step.artifact_id, f"of {step.of}" if step.of else step.reason)
        for step in done
    ]
    count = sum(step.state == "adopted" for step in done)
    lines = [
        *columns([("step", "state", "artifact", ""), *rows]),
        f"{count} of {len(done)} adopted; `bertloom plan {recipe}` says what a run would build",
    ]
    print_found([step._asdict() for step in done], lines, as_json=as_json)


def print_results(recipe: Recipe, results: Sequence[StepResult], *, as_json: bool = False) -> None:
    """Print what a run built and where the last number came from."""
    opened = opened_store(recipe.store)
    page = opened.url(f"reports/{recipe.name}.html")
    if as_json:
        built = [_result_json(result) for result in results]
        print_json({"recipe": recipe.name, "store": opened.root, "report": page, "steps": built})
        return
    from flows.cli.last_screen import LINES, WIDTH, screen_lines  # start-up: 40 ms

    size = terminal_size() if in_terminal() else (WIDTH, LINES + 1)
    say("")
    print_lines(screen_lines(results, store=opened, recipe=recipe.name, report=page, size=size))


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
        "warning": result.warning,
    }
