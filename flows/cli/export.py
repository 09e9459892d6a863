"""`bertloom export` and `bertloom card`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cards.cards import card_of, card_path, recorded_cards_config, write_card
from flows.cli.console import echo, echo_raw
from flows.cli.options import ArtifactArgument, StoreOption
from flows.cli.show import find_artifact
from flows.export.export import export as export_artifact
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from schemas.card_configs import CardsConfig
from schemas.manifest import Manifest

_RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Recipe whose `cards` section states licenses and attribution. Default: the recipe "
        "that built the artifact.",
    ),
]


def export(
    artifact: ArtifactArgument,
    folder: Annotated[
        str, typer.Argument(help="New or empty folder: a path, or an s3:// or gs:// URL.")
    ],
    format: Annotated[
        str,
        typer.Option(
            help="hf (Parquet, or a model in the layout of Hugging Face), parquet, or arrow-stream "
            "(for datasets.Dataset.from_file)."
        ),
    ] = "hf",
    recipe: _RecipeOption = None,
    store: StoreOption = None,
) -> None:
    """Write an artifact in a format that datasets, transformers and pandas open."""
    found = find_artifact(artifact, store=store)
    manifest, opened = found.manifest, found.store
    cards = _cards(manifest, opened, recipe)
    checked: Any = format  # `export` raises a UsageError for an unknown format
    summary = export_artifact(manifest, folder, store=opened, format=checked, cards=cards)
    echo(f"{folder}: {summary}")


def card(
    artifact: ArtifactArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write the card next to the artifact, or replace it.")
    ] = False,
    recipe: _RecipeOption = None,
    store: StoreOption = None,
) -> None:
    """Print the card of an artifact: sources, licenses, scores, how to load it."""
    found = find_artifact(artifact, store=store)
    manifest, opened = found.manifest, found.store
    cards = _cards(manifest, opened, recipe)
    if write:
        write_card(manifest, store=opened, cards=cards)
        echo(opened.url(card_path(manifest)))
    else:
        echo_raw(card_of(manifest, store=opened, cards=cards).rstrip("\n"))


def _cards(manifest: Manifest, store: ArtifactStore, recipe: str | None) -> CardsConfig:
    if recipe is not None:
        return load_recipe(recipe).cards
    return recorded_cards_config(manifest, store=store)
