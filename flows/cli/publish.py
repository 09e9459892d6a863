"""`bertloom rebuild` and `bertloom publish`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.console import echo, print_result
from flows.cli.options import (
    ChangesOption,
    DryRunOption,
    EngineOption,
    JsonOption,
    RecipeArgument,
    StoreOption,
    WorkersOption,
    open_store,
)
from flows.prefect_server import configure_prefect
from flows.publish.monthly_rebuild import RebuildRequest, execute_rebuild, plan_rebuild
from flows.publish.publish import CorpusChangeLimitError, built_corpus, roll_back
from flows.publish.publish import publish as publish_corpus
from flows.recipes.loader import load_recipe
from schemas.errors import UsageError

ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Publish even if the corpus changed beyond the recipe's limits."),
]


def rebuild(
    recipe: RecipeArgument,
    wiki: Annotated[
        str, typer.Option(help="Wiki, e.g. simplewiki. A source of the recipe has this name.")
    ],
    date: Annotated[
        str, typer.Option(help="Date of the dump: YYYYMMDD, or latest for the newest complete one.")
    ] = "latest",
    download_dir: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for dumps: FOLDER/WIKI/DATE.")
    ] = "dumps",
    keep_downloads: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of dumps to keep there. Older ones that this command downloaded are "
            "deleted after publishing.",
        ),
    ] = 2,
    mirror: Annotated[
        str | None, typer.Option(help="URL in place of the official site of the dumps.")
    ] = None,
    changes: ChangesOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "prefect",
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Bring a published corpus up to the newest dump: fetch, build, compare, publish or refuse."""
    request = RebuildRequest(
        recipe, wiki, date=date, downloads=download_dir, keep_downloads=keep_downloads,
        overrides=changes or (), store=store, mirror=mirror, force=force, workers=workers,
    )  # fmt: skip
    if engine == "prefect" and not dry_run:
        configure_prefect()  # before the next line loads Prefect
        from flows.rebuild import rebuild_with_prefect

        rebuild_with_prefect(request, log=echo)
        return
    plan = plan_rebuild(request, log=echo)
    if dry_run and not plan.skip_reason:
        echo(f"would fetch {wiki} {plan.date} to {plan.folder}, build, and publish")
    elif not plan.skip_reason:
        execute_rebuild(request, plan, engine=engine, log=echo)


def publish(
    recipe: Annotated[
        str, typer.Argument(help="Recipe file, or name of a packaged recipe. Not with --to.")
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="REF",
            help="Roll back to an earlier version, e.g. corpus/simplewiki/20261001. Limits are "
            "not checked.",
        ),
    ] = "",
    force: ForceOption = False,
    changes: ChangesOption = None,
    store: StoreOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Compare without moving a ref.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish the corpus that a recipe built last: move NAME/latest to it. Exit 1: over a limit."""
    if bool(recipe) == bool(to):
        raise UsageError("expected either a RECIPE to publish or --to with an earlier version")
    try:
        if to:
            publication = roll_back(open_store(store), to, dry_run=dry_run)
        else:
            loaded = load_recipe(recipe, overrides=changes or (), store=store)
            opened = open_store(loaded.store)
            built = built_corpus(loaded, store=opened)
            publication = publish_corpus(loaded, built, store=opened, force=force, dry_run=dry_run)
    except CorpusChangeLimitError as error:
        refused = {"outcome": "refused", "comparison": error.comparison.to_json()}
        print_result(refused, [*error.comparison.lines(), ""], as_json=as_json)
        raise
    print_result(publication.to_json(), publication.lines(), as_json=as_json)
