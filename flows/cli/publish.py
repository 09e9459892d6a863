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
from flows.publish.publishing import CorpusRefusedError, built_corpus, roll_back
from flows.publish.publishing import publish as publish_corpus
from flows.publish.rebuilding import RebuildOrder, find_work, rebuild_corpus
from flows.recipes.loader import load_recipe
from schemas.errors import UsageError

ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Publish even if the corpus changed beyond the recipe's limits."),
]


def rebuild(
    recipe: RecipeArgument,
    wiki: Annotated[
        str, typer.Option(help="The wiki, such as simplewiki; a source of the recipe has its name.")
    ],
    date: Annotated[
        str, typer.Option(help="Of the dump: YYYYMMDD, or latest, the newest that is complete.")
    ] = "latest",
    download_dir: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where dumps are downloaded: to WIKI/DATE in it.")
    ] = "dumps",
    keep_downloads: Annotated[
        int,
        typer.Option(
            min=1,
            help="Dumps to keep there; older ones that this command fetched are deleted once a "
            "corpus is published.",
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
    order = RebuildOrder(
        recipe, wiki, date=date, downloads=download_dir, keep_downloads=keep_downloads,
        changes=changes or (), store=store, mirror=mirror, force=force, workers=workers,
    )  # fmt: skip
    if dry_run:
        work = find_work(order, say=echo)
        if not work.done:
            echo(f"would fetch {wiki} {work.date} to {work.folder}, build, and publish")
    elif engine == "prefect":
        configure_prefect()  # before the next line loads Prefect
        from flows.rebuild import rebuild_with_prefect  # loads Prefect

        rebuild_with_prefect(order, say=echo)
    else:
        rebuild_corpus(order, say=echo)


def publish(
    recipe: Annotated[
        str, typer.Argument(help="A recipe file, or the name of a packaged one; not with --to.")
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="REF",
            help="Go back to an earlier publication: its name, such as corpus/simplewiki/20261001. "
            "No limit is looked at.",
        ),
    ] = "",
    force: ForceOption = False,
    changes: ChangesOption = None,
    store: StoreOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Compare and say what would be done; move nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish the corpus that a recipe last built: move NAME/latest to it, or refuse with 1."""
    if bool(recipe) == bool(to):
        raise UsageError(
            "expected either a RECIPE, whose corpus is published, or --to, an earlier publication "
            "to go back to"
        )
    try:
        if to:
            found = roll_back(open_store(store), to, dry_run=dry_run)
        else:
            loaded = load_recipe(recipe, overrides=changes or (), store=store)
            opened = open_store(loaded.store)
            built = built_corpus(loaded, store=opened)
            found = publish_corpus(loaded, built, store=opened, force=force, dry_run=dry_run)
    except CorpusRefusedError as error:
        refused = {"outcome": "refused", "comparison": error.comparison.to_json()}
        print_result(refused, [*error.comparison.lines(), ""], as_json=as_json)
        raise
    print_result(found.to_json(), found.lines(), as_json=as_json)
