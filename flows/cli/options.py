"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.completion import artifact_names, engine_names, recipe_names, stage_names
from flows.recipes.files import default_store
from flows.store.artifacts import ArtifactStore
from pipelines.runners.launch import RUNNERS
from schemas.errors import UsageError


def _known_engine(name: str) -> str:
    from flows.orchestration.part import ENGINES  # start-up: 700 ms

    if name not in ENGINES:
        raise UsageError(f"--engine {name}: choose one of {', '.join(ENGINES)}")
    return name


def _known_runner(name: str | None) -> str | None:
    if name is not None and name not in RUNNERS:
        raise UsageError(f"--runner {name}: choose one of {', '.join(RUNNERS)}")
    return name


RecipeArgument = Annotated[
    str,
    typer.Argument(
        help="A recipe file, or the name of a packaged one.", autocompletion=recipe_names
    ),
]
ArtifactArgument = Annotated[
    str,
    typer.Argument(
        help="Id, cache key, ref (RECIPE/STAGE), step of the newest run (evaluate.cola), stage "
        "(its newest), or path.",
        autocompletion=artifact_names,
    ),
]
TaskArgument = Annotated[str, typer.Argument(help="A task, such as sst-2, squad-1.1, conll-2003.")]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="The artifact store: a folder or a memory://, s3:// or gs:// URL. Else what the "
        "recipe says, $BERTLOOM_STORE, or ./store.",
    ),
]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe."),
]
RebuildOption = Annotated[
    list[str] | None,
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
        autocompletion=engine_names,
        callback=_known_engine,
    ),
]
RunnerOption = Annotated[
    str | None,
    typer.Option(
        help="Where Beam runs: local, threads, portable, dataflow, flink, spark.",
        callback=_known_runner,
    ),
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Worker processes on this machine.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllOption = Annotated[bool, typer.Option("--all", help="Leave nothing out.")]


def open_store(root: str | None) -> ArtifactStore:
    """The store that is named, or the default one; it has to be there."""
    return ArtifactStore(root or default_store(), create=False)
