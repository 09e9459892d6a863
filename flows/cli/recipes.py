"""The command `recipes`."""

from __future__ import annotations

import textwrap

from flows.cli import options
from flows.cli.tables import print_result, table
from flows.recipes.packaged import describe_recipe, packaged_recipes

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
