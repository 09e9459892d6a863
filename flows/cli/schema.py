"""The command `schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.console import echo, echo_raw, write_file
from flows.recipes.json_schema import SCHEMA_FILE, schema_text
from schemas.errors import ConfigError


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to this file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Print the JSON Schema of a recipe, for editors.

    `bertloom init` writes it next to the recipe, whose first line names it:
    `# yaml-language-server: $schema=...`. See docs/editors.md.
    """
    text = schema_text()
    if output is None:
        echo_raw(text.rstrip("\n"))
    elif output.exists() and output.read_bytes() == text.encode():
        echo(f"{output} is up to date")
    elif output.exists() and not force:
        raise ConfigError(f"{output} exists. Name another file, or pass --force")
    else:
        write_file(output, text)
        echo(f"wrote {output}")


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
        f"To replace it: bertloom schema --output {file} --force"
    )
