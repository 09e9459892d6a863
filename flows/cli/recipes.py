"""The commands that show recipes and what may stand in one, and write one: `recipes`, `schema`,
`init`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.completion import packaged_names
from flows.cli.console import print_found, say, say_text
from flows.cli.options import JsonOption
from flows.cli.writing import holds, write_whole
from flows.formatting import align_columns
from flows.recipes.json_schema import MODELINE, SCHEMA_FILE, schema_text
from flows.recipes.loader import packaged_recipes, packaged_text, template_text
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
    print_found([each._asdict() for each in found], lines, as_json=as_json)


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
    if file.exists():
        raise ConfigError(f"{file} is there already: name another file")
    said = write_schema_beside(file)
    try:
        with file.open("x", encoding="utf-8") as sink:
            sink.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{file} is there already: name another file") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error}") from error
    say(f"wrote {file}; edit it, then: bertloom run {file} --dry-run")
    if said:
        say(said)


def write_schema_beside(recipe: Path) -> str:
    """Write the schema that a recipe's first line names, unless something is there; what to say.

    Raises:
        ConfigError: it cannot be written.
    """
    schema_file, contents = recipe.parent / SCHEMA_FILE, schema_text()
    is_this = holds(schema_file, contents)
    if is_this is None:
        write_whole(schema_file, contents)
        return f"wrote {schema_file}, by which editors complete and check it"
    if is_this:
        return ""
    return (
        f"{schema_file} is there already, of another version of bertloom, and stays; to have "
        f"this one's: bertloom schema --output {schema_file} --force"
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
        say_text(text, nl=False)
        return
    found = holds(output, text)
    if found is False and not force:
        raise ConfigError(f"{output} is there already: name another file, or give --force")
    if not found:
        write_whole(output, text)
    say(f"{output} is there already, and the same" if found else f"wrote {output}")


def _needs(recipe: PackagedRecipe) -> tuple[str, ...]:
    return (" ".join(recipe.variables),) if recipe.variables else ()


def _text(origin: str) -> str:
    if not origin:
        return template_text()
    if origin not in packaged_recipes():
        known = ", ".join(packaged_recipes())
        raise UsageError(f"--from {origin}: expected a packaged recipe, one of {known}")
    return packaged_text(origin)
