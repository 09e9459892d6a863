"""The command `publish`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.tables import print_result
from flows.lineage.resolve import open_store
from flows.publish.publish import CorpusChangeLimitError, built_corpus, roll_back
from flows.publish.publish import publish as publish_corpus
from flows.recipes.loader import load_recipe
from schemas.errors import UsageError


def publish(
    recipe: Annotated[str, typer.Argument(help="Recipe file or packaged recipe.")] = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="REF",
            help="Go back to an earlier publication, such as corpus/simplewiki/20261001. Limits "
            "are not checked.",
        ),
    ] = "",
    force: options.Force = False,
    overrides: options.Overrides = None,
    store: options.Store = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Publish the corpus that a recipe last built: move NAME/latest to it.

    Exits with 1 if the corpus changed beyond the recipe's limits.
    """
    if bool(recipe) == bool(to):
        raise UsageError("expected either RECIPE to publish its corpus, or --to REF to go back")
    try:
        if to:
            result = roll_back(open_store(store), to, dry_run=dry_run)
        else:
            loaded = load_recipe(recipe, overrides=overrides or (), store=store)
            opened = open_store(loaded.store)
            corpus = built_corpus(loaded, store=opened)
            result = publish_corpus(loaded, corpus, store=opened, force=force, dry_run=dry_run)
    except CorpusChangeLimitError as error:
        data = {"outcome": "refused", "comparison": error.comparison.to_json()}
        print_result(data, *error.comparison.lines(), "", as_json=as_json)
        raise
    print_result(result.to_json(), *result.lines(), as_json=as_json)
