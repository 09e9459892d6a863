"""Options and endings that several commands have. Beam and Prefect are loaded only when run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Optional

import fsspec
import typer

if TYPE_CHECKING:
    from flows.artifacts import ArtifactStore
    from flows.stages import StepResult
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
EngineOption = Annotated[
    str, typer.Option(help="prefect, or local: without a server, in this process.")
]


def open_store(root: str | None) -> ArtifactStore:
    """The store that is named, or the default one; it has to be there."""
    from flows.artifacts import ArtifactStore
    from flows.recipe_files import default_store

    return ArtifactStore(root or default_store(), create=False)


def print_lines(lines: Sequence[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        typer.echo(line)


def print_plan(recipe: Recipe, rebuild: Sequence[str], *, until: str) -> None:
    """Say what a run would do."""
    from flows.artifacts import ArtifactStore
    from flows.planning import plan
    from flows.show import columns
    from schemas.errors import ArtifactNotFoundError

    try:
        store = ArtifactStore(recipe.store, create=False)
    except ArtifactNotFoundError:
        store = None
    rows = [
        (step.label, step.cache_key[:16] or "?", step.state, step.artifact_id or step.reason)
        for step in plan(recipe, store=store, rebuild=rebuild, until=until)
    ]
    print_lines(columns([("step", "key", "state", ""), *rows]))
    typer.echo(f"\nstore: {recipe.store}")


def run_and_report(
    recipe: Recipe, *, engine: str, rebuild: Sequence[str] = (), until: str = ""
) -> None:
    """Run a recipe; print what there is now, the tables, and where the last number came from."""
    from flows.engines import run_recipe
    from flows.lineage import lineage_lines
    from flows.show import summary_lines

    results = run_recipe(recipe, say=typer.echo, engine=engine, rebuild=rebuild, until=until)
    opened = open_store(recipe.store)
    lines = summary_lines(results, store=recipe.store)
    lines += [*_tables(results, store=opened), "", "lineage:"]
    lines += lineage_lines(_last_number(results).manifest, store=opened)
    report = opened.write_report(recipe.name, "\n".join(lines) + "\n")
    typer.echo("")
    print_lines([*lines, "", f"report: {report}"])


def _last_number(results: Sequence[StepResult]) -> StepResult:
    """The result that the last number printed is of: tables only repeat it."""
    made = [result for result in results if result.manifest.stage != "tabulate"]
    return made[-1]


def _tables(results: Sequence[StepResult], *, store: ArtifactStore) -> list[str]:
    last = results[-1].manifest
    if last.stage != "tabulate":
        return []
    (entry,) = [entry for entry in last.files if entry.path == "tables.txt"]
    with fsspec.open(store.url(f"{last.data}/{entry.object}"), "rb") as source:
        text: str = source.read().decode()
    return ["", *text.rstrip().splitlines()]
