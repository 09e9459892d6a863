"""`bertloom export` and `bertloom card`: artifacts for other people's tools."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cards.cards import card_of, card_path, cards_said, write_card
from flows.cli.console import say, say_text
from flows.cli.options import ArtifactArgument, StoreOption
from flows.cli.show import find_artifact
from flows.export.exporting import export as write
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from schemas.card_configs import CardsConfig
from schemas.manifest import Manifest

_RecipeOption = Annotated[
    str | None,
    typer.Option("--recipe", help="A recipe whose `cards` say licences and attribution."),
]


def export(
    artifact: ArtifactArgument,
    folder: Annotated[str, typer.Argument(help="A new folder: a path, or an s3:// or gs:// URL.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="hf: Parquet, or a model's own layout; parquet; arrow-stream: for "
            "datasets.Dataset.from_file.",
        ),
    ] = "hf",
    recipe: _RecipeOption = None,
    store: StoreOption = None,
) -> None:
    """Write an artifact as datasets, transformers, pandas and others open it."""
    manifest, root = find_artifact(artifact, store=store)
    opened = ArtifactStore(root, create=False)
    given: Any = form
    cards = _cards(manifest, opened, recipe)
    said = write(manifest, folder, store=opened, form=given, cards=cards)
    say(f"{folder}: {said}")


def card(
    artifact: ArtifactArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write it beside the artifact, in place of one there.")
    ] = False,
    recipe: _RecipeOption = None,
    store: StoreOption = None,
) -> None:
    """Print the card of an artifact: whose texts, what was dropped, how to load it."""
    manifest, root = find_artifact(artifact, store=store)
    opened = ArtifactStore(root, create=False)
    cards = _cards(manifest, opened, recipe)
    if write:
        write_card(manifest, store=opened, cards=cards)
        say(opened.url(card_path(manifest)))
    else:
        say_text(card_of(manifest, store=opened, cards=cards).rstrip("\n"))


def _cards(manifest: Manifest, store: ArtifactStore, recipe: str | None) -> CardsConfig:
    """What a recipe says of licences, or said when the artifact was made."""
    return load_recipe(recipe).cards if recipe else cards_said(manifest, store=store)
