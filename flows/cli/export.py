"""The command `export`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.card import read_cards_config
from flows.cli.console import echo
from flows.export.export import Format
from flows.export.export import export as export_artifact
from flows.lineage.resolve import open_artifact


def export(
    artifact: options.Artifact,
    folder: Annotated[str, typer.Argument(help="New or empty folder, local or a URL.")],
    format: Annotated[
        Format,
        typer.Option(
            help="hf (Parquet, or a model in the layout of Hugging Face), parquet, or arrow-stream "
            "(for datasets.Dataset.from_file)."
        ),
    ] = "hf",
    recipe: options.CardsRecipe = None,
    store: options.Store = None,
) -> None:
    """Write an artifact in a format that datasets, transformers and pandas open."""
    opened = open_artifact(artifact, store)
    cards = read_cards_config(opened, recipe)
    summary = export_artifact(
        opened.manifest, folder, store=opened.store, format=format, cards=cards
    )
    echo(f"{folder}: {summary}")
