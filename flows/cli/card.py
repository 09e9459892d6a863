"""The command `card`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cards.cards import card_of, card_path, recorded_cards_config, write_card
from flows.cli import options
from flows.cli.console import echo, echo_raw
from flows.lineage.resolve import open_artifact
from flows.recipes.loader import load_recipe
from flows.store.artifact import Artifact
from schemas.publish_configs import CardsConfig


def card(
    artifact: options.Artifact,
    write: Annotated[bool, typer.Option("--write", help="Write it next to the artifact.")] = False,
    recipe: options.CardsRecipe = None,
    store: options.Store = None,
) -> None:
    """Print the card of an artifact: sources, licenses, scores, how to load it."""
    opened = open_artifact(artifact, store)
    manifest, cards = opened.manifest, read_cards_config(opened, recipe)
    if write:
        write_card(manifest, store=opened.store, cards=cards)
        echo(opened.store.url(card_path(manifest)))
    else:
        echo_raw(card_of(manifest, store=opened.store, cards=cards).rstrip("\n"))


def read_cards_config(artifact: Artifact, recipe: str | None) -> CardsConfig:
    """Return the `cards` section of a recipe. None: the one recorded with the artifact."""
    if recipe is not None:
        return load_recipe(recipe).cards
    return recorded_cards_config(artifact.manifest, store=artifact.store)
