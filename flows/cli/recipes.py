"""The commands that show recipes and what may stand in one, and write one: `recipes`, `schema`,
`init`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.completion import packaged_names
from flows.cli.console import echo, echo_raw, print_result
from flows.cli.options import JsonOption
from flows.formatting import align_columns
from flows.recipes.json_schema import MODELINE, SCHEMA_FILE, schema_text
from flows.recipes.loader import packaged_recipes, packaged_text
from flows.recipes.packaged import PackagedRecipe, described_recipes
from schemas.errors import ConfigError, UsageError

_WIDTH = 86


def recipes(as_json: JsonOption = False) -> None:
    """List the recipes that come with bertloom.

    `needs`: variables of the environment that say where a recipe's input is. More of each, with
    data, disk and hours: docs/recipes.md, and the file itself (`bertloom init FILE --from NAME`).
    """
    found = described_recipes()
    rows = [
        (each.name, textwrap.shorten(each.about, _WIDTH, placeholder=" ..."), *_needs(each))
        for each in found
    ]
    lines = [
        *align_columns([("recipe", "", "needs"), *rows]),
        "\nto run one: bertloom run NAME; to edit one: bertloom init FILE --from NAME",
    ]
    print_result([each._asdict() for each in found], lines, as_json=as_json)


def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("recipe.yaml"),
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="RECIPE",
            help="A packaged recipe to begin with (see `recipes`).",
            autocompletion=packaged_names,
        ),
    ] = "",
    sample: Annotated[
        bool, typer.Option("--sample", help="The recipe of the embedded sample: --from sample.")
    ] = False,
) -> None:
    """Write a commented recipe to edit."""
    if sample and origin:
        raise UsageError("expected one of --from and --sample")
    text = MODELINE + _text(origin or ("sample" if sample else ""))
    with file.open("x", encoding="utf-8") as sink:
        sink.write(text)
    echo(f"wrote {file}; edit it, then: bertloom run {file} --dry-run")
    if message := write_schema_beside(file):
        echo(message)


def write_schema_beside(recipe: Path) -> str:
    """Write the schema that a recipe's first line names, if there is none; return a message."""
    schema_file, contents = recipe.parent / SCHEMA_FILE, schema_text()
    if not schema_file.exists():
        schema_file.write_text(contents, encoding="utf-8")
        return f"wrote {schema_file}, with which editors complete and check the recipe"
    if schema_file.read_bytes() == contents.encode():
        return ""
    return (
        f"{schema_file} exists and was written by another bertloom version; not overwritten. "
        f"To replace it: bertloom schema --output {schema_file} --force"
    )


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to this file.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that holds something else.")
    ] = False,
) -> None:
    """Print the JSON Schema of a recipe, for editors.

    `bertloom init` writes it beside the recipe, whose first line says where it is:
    `# yaml-language-server: $schema=...`. See docs/editors.md.
    """
    text = schema_text()
    if output is None:
        echo_raw(text, nl=False)
        return
    is_current = output.exists() and output.read_bytes() == text.encode()
    if output.exists() and not is_current and not force:
        raise ConfigError(f"{output} exists. Name another file, or use --force")
    if not is_current:
        output.write_text(text, encoding="utf-8")
    echo(f"{output} is up to date" if is_current else f"wrote {output}")


def _needs(recipe: PackagedRecipe) -> tuple[str, ...]:
    return (" ".join(recipe.variables),) if recipe.variables else ()


def _text(origin: str) -> str:
    if not origin:
        return packaged_text("_template")
    if origin not in packaged_recipes():
        known = ", ".join(packaged_recipes())
        raise UsageError(f"--from {origin}: expected a packaged recipe, one of {known}")
    return packaged_text(origin)
