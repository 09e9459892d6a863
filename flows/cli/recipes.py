"""Commands that write recipes."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo, echo_raw, write_file
from flows.cli.tables import print_result, table
from flows.recipes.json_schema import MODELINE, SCHEMA_FILE, schema_text
from flows.recipes.packaged import describe_recipe, packaged_recipes, packaged_text
from pipelines.io.local_files import create_file
from schemas.errors import UsageError

_WIDTH = 86


def recipes(as_json: options.Json = False) -> None:
    """List the recipes that come with bertloom.

    `needs`: environment variables with the paths of a recipe's input. docs/recipes.md has the data,
    disk space and hours of each recipe; `bertloom init FILE --from NAME` writes its file.
    """
    described = [describe_recipe(name) for name in packaged_recipes()]
    rows = [
        (
            item.name,
            textwrap.shorten(item.about, _WIDTH, placeholder=" ..."),
            " ".join(item.variables),
        )
        for item in described
    ]
    print_result(
        [item._asdict() for item in described],
        table(("recipe", "about", "needs"), rows),
        "\nto run one: bertloom run NAME; to edit one: bertloom init FILE --from NAME",
        as_json=as_json,
    )


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
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of recipes, and write nothing.")
    ] = False,
) -> None:
    """Write a commented recipe to edit, and a JSON Schema for editors."""
    if schema:
        echo_raw(schema_text().rstrip("\n"))
        return
    if origin and origin not in packaged_recipes():
        raise UsageError(f"--from {origin}: expected one of {', '.join(packaged_recipes())}")
    create_file(file, (MODELINE + packaged_text(origin or "_template")).encode())
    echo(f"wrote {file}; edit it, then: bertloom run {file} --dry-run")
    if message := write_schema_next_to(file):
        echo(message)


def write_schema_next_to(recipe: Path) -> str:
    """Write the schema that a recipe's first line names if it is missing; return a message."""
    file, text = recipe.parent / SCHEMA_FILE, schema_text()
    if not file.exists():
        write_file(file, text)
        return f"wrote {file}, with which editors complete and check the recipe"
    if file.read_bytes() == text.encode():
        return ""
    return (
        f"{file} exists and was written by another bertloom version; not overwritten. "
        f"To replace it: bertloom init --schema > {shlex.quote(str(file))}"
    )
