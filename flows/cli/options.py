"""Options and endings that several commands have. Beam and Prefect are loaded only when run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.completion import recipe_names, stage_names
from flows.cli.console import print_json, say
from pipelines.runners.launch import RUNNERS
from schemas.errors import UsageError

if TYPE_CHECKING:
    from flows.engine.steps import StepResult
    from flows.store.artifacts import ArtifactStore
    from schemas.recipe import Recipe

StoreOption = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it at run time
    typer.Option(
        "--store",
        help="The artifact store: a folder or a memory://, s3:// or gs:// URL. Else what the "
        "recipe says, $BERTLOOM_STORE, or ./store.",
    ),
]
ChangesOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RecipeArgument = Annotated[
    str,
    typer.Argument(
        help="A recipe file, or the name of a packaged one.", autocompletion=recipe_names
    ),
]
RebuildOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="STAGE",
        help="Build this stage even if it is there; or: all.",
        autocompletion=stage_names,
    ),
]
UntilOption = Annotated[
    str,
    typer.Option(
        metavar="STAGE",
        help="Run this stage and what it needs, no more.",
        autocompletion=stage_names,
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        help="prefect, or local: without a server, in this process.",
        autocompletion=lambda incomplete: [
            name for name in ("prefect", "local") if name.startswith(incomplete)
        ],
    ),
]


def check_engine(name: str) -> None:
    """That an engine is one.

    Raises:
        UsageError: it is none.
    """
    from flows.engine.engines import ENGINES

    if name not in ENGINES:
        raise UsageError(f"--engine {name}: choose one of {', '.join(ENGINES)}")


def check_runner(name: str) -> None:
    """That a runner is one.

    Raises:
        UsageError: it is none.
    """
    if name not in RUNNERS:
        raise UsageError(f"--runner {name}: choose one of {', '.join(RUNNERS)}")


def open_store(root: str | None) -> ArtifactStore:
    """The store that is named, or the default one; it has to be there."""
    from flows.recipes.files import default_store
    from flows.store.artifacts import ArtifactStore

    return ArtifactStore(root or default_store(), create=False)


def print_lines(lines: Sequence[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        say(line)


def print_plan(
    recipe: Recipe, rebuild: Sequence[str], *, until: str, as_json: bool = False
) -> None:
    """Say what a run would do."""
    from flows.engine.extras import lacking
    from flows.engine.graph import steps
    from flows.engine.plan import plan, planned_rows
    from flows.engine.stages import steps_until
    from flows.formats import columns
    from flows.store.artifacts import ArtifactStore
    from schemas.errors import ArtifactNotFoundError

    try:
        store = ArtifactStore(recipe.store, create=False)
    except ArtifactNotFoundError:
        store = None
    planned = plan(recipe, store=store, rebuild=rebuild, until=until)
    if as_json:
        rows = [step._asdict() for step in planned]
        print_json({"recipe": recipe.name, "store": recipe.store, "steps": rows})
        return
    print_lines(columns([("step", "key", "state", ""), *planned_rows(planned)]))
    waiting = sum(step.state != "cached" for step in planned)
    say(f"\n{len(planned):,} steps, {waiting:,} to build")
    say(f"store: {recipe.store}")
    if lack := lacking(steps_until(steps(recipe), until)):
        say(f"note: {lack}", err=True)


def run_and_report(
    recipe: Recipe,
    *,
    engine: str,
    rebuild: Sequence[str] = (),
    until: str = "",
    as_json: bool = False,
) -> None:
    """Run a recipe; print what came of it, and where the last number came from."""
    check_engine(engine)
    from flows.cli.last_screen import screen_lines
    from flows.engine.engines import run_recipe
    from flows.engine.running import FAILED, opened_store

    def tell(line: str) -> None:
        say(line, err=as_json or FAILED in line)  # standard output may be the JSON's

    results = run_recipe(recipe, say=tell, engine=engine, rebuild=rebuild, until=until)
    opened = opened_store(recipe.store)
    page = opened.url(f"reports/{recipe.name}.html")
    if as_json:
        steps = [_result_json(result) for result in results]
        print_json({"recipe": recipe.name, "store": opened.root, "report": page, "steps": steps})
        return
    say("")
    print_lines(screen_lines(results, store=opened, recipe=recipe.name, report=page))


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
