"""The command `init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.console import echo
from flows.cli.schema import write_schema_next_to
from flows.recipes.json_schema import MODELINE
from flows.recipes.packaged import packaged_recipes, packaged_text
from pipelines.io.local_files import create_file
from schemas.errors import UsageError


def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("recipe.yaml"),
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="RECIPE",
            help="Packaged recipe to start from (see `recipes`).",
        ),
    ] = "",
    sample: Annotated[bool, typer.Option("--sample", help="Same as --from sample.")] = False,
) -> None:
    """Write a commented recipe to edit."""
    if sample and origin:
        raise UsageError("expected one of --from and --sample, got both")
    origin = "sample" if sample else origin
    if origin and origin not in packaged_recipes():
        raise UsageError(f"--from {origin}: expected one of {', '.join(packaged_recipes())}")
    create_file(file, (MODELINE + packaged_text(origin or "_template")).encode())
    echo(f"wrote {file}; edit it, then: bertloom run {file} --dry-run")
    if message := write_schema_next_to(file):
        echo(message)
