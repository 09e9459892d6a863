"""The command `card`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cards.cards import card_of, recorded_cards_config
from flows.cli import options
from flows.cli.console import echo, echo_raw, write_file
from flows.lineage.resolve import open_artifact
from flows.recipes.loader import load_recipe
from flows.store.artifact import Artifact
from schemas.publish_configs import CardsConfig


def card(
    artifact: options.Artifact,
    recipe: options.CardsRecipe = None,
    store: options.Store = None,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead.")] = None,
) -> None:
    """Print the card of an artifact: sources, licenses, scores, how to load it."""
    opened = open_artifact(artifact, store)
    cards = read_cards_config(opened, recipe)
    text = card_of(opened.manifest, store=opened.store, cards=cards).rstrip("\n")
    if out is None:
        echo_raw(text)
    else:
        write_file(out, f"{text}\n")
        echo(options.relative(str(out)))


def read_cards_config(artifact: Artifact, recipe: str | None) -> CardsConfig:
    """Return the `cards` section of a recipe. None: the one recorded with the artifact."""
    if recipe is not None:
        return load_recipe(recipe).cards
    return recorded_cards_config(artifact.manifest, store=artifact.store)
