"""`bertloom rebuild` and `bertloom publish`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.console import print_json, say
from flows.cli.options import (
    ChangesOption,
    EngineOption,
    StoreOption,
    check_engine,
    open_store,
    print_lines,
)
from schemas.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from flows.publish.publishing import Publication
    from flows.publish.rebuilding import RebuildOrder
    from schemas.recipe import Recipe

ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Publish even if the corpus changed beyond the recipe's limits."),
]


def rebuild(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of a packaged one.")],
    wiki: Annotated[
        str, typer.Option(help="The wiki, such as simplewiki; a source of the recipe has its name.")
    ],
    date: Annotated[
        str, typer.Option(help="Of the dump: YYYYMMDD, or latest, the newest that is complete.")
    ] = "latest",
    downloads: Annotated[
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
        Optional[str],  # noqa: UP045 - typer reads it at run time
        typer.Option(help="URL in place of the official site of the dumps."),
    ] = None,
    changes: ChangesOption = None,
    store: StoreOption = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Worker processes on this machine."),
    ] = None,
    engine: EngineOption = "prefect",
    force: ForceOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
) -> None:
    """Bring a published corpus up to the newest dump: fetch, build, compare, publish or refuse."""
    from flows.publish.rebuilding import RebuildOrder, find_work, rebuild_corpus

    check_engine(engine)
    order = RebuildOrder(
        recipe,
        wiki,
        date,
        downloads,
        keep_downloads,
        tuple(changes or ()),
        store,
        mirror,
        force,
        workers,
    )
    if dry_run:
        work = find_work(order, say=say)
        if not work.done:
            say(f"would fetch {wiki} {work.date} to {work.folder}, build, and publish")
    elif engine == "prefect":
        _rebuild_with_prefect(order)
    else:
        rebuild_corpus(order, say=say)


def _rebuild_with_prefect(order: RebuildOrder) -> None:
    from flows.orchestration.server import prepare_prefect

    prepare_prefect()
    try:
        from flows.rebuild import rebuild_with_prefect
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prefect":
            raise
        raise ConfigError(
            "Prefect is not installed: pip install 'bertloom[flows]', or use --engine local"
        ) from error
    rebuild_with_prefect(order, say=say)


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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the publication and the comparison as JSON.")
    ] = False,
) -> None:
    """Publish the corpus that a recipe last built: move NAME/latest to it, or refuse with 1."""
    from flows.publish.publishing import roll_back
    from flows.publish.rendering import publication_json, publication_lines

    if bool(recipe) == bool(to):
        raise UsageError(
            "expected either a RECIPE, whose corpus is published, or --to, an earlier publication "
            "to go back to"
        )
    if to:
        found = roll_back(open_store(store), to, dry_run=dry_run)
    else:
        from flows.recipes.files import load_recipe

        loaded = load_recipe(recipe, changes=changes or (), store=store)
        found = _publish_built(loaded, force=force, dry_run=dry_run, as_json=as_json)
    if as_json:
        print_json(publication_json(found))
    else:
        print_lines(publication_lines(found))


def _publish_built(recipe: Recipe, *, force: bool, dry_run: bool, as_json: bool) -> Publication:
    from flows.publish.publishing import CorpusRefusedError, built_corpus
    from flows.publish.publishing import publish as move
    from flows.publish.rendering import comparison_json, comparison_lines

    opened = open_store(recipe.store)
    made = built_corpus(recipe, store=opened)
    try:
        return move(recipe, made, store=opened, force=force, dry_run=dry_run)
    except CorpusRefusedError as error:
        if as_json:
            compared = comparison_json(error.comparison)
            print_json({"outcome": "refused", "comparison": compared})
        else:
            print_lines([*comparison_lines(error.comparison), ""])
        raise


COMMANDS: tuple[Any, ...] = (rebuild, publish)
"""In the order of `--help`."""
