"""Recipes that come with bertloom: what each is for, and which variables it needs."""

from __future__ import annotations

import importlib.resources
import re
from typing import NamedTuple

from flows.recipes.safe_yaml import parse_yaml

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_FIRST_SENTENCE = re.compile(r"# (.*?)[.:](?= |\n)", re.DOTALL)


class PackagedRecipe(NamedTuple):
    """A recipe that comes with bertloom."""

    name: str
    about: str
    """First sentence of the file, up to a full stop or a colon."""

    variables: tuple[str, ...]
    """Environment variables that the recipe needs, sorted."""


def packaged_recipes() -> list[str]:
    """Return the names of the recipes that come with bertloom."""
    names = [file.name for file in importlib.resources.files("flows.recipes").iterdir()]
    return sorted(name[:-5] for name in names if name.endswith(".yaml") and name[0] != "_")


def packaged_text(name: str) -> str:
    """Return the YAML of a packaged recipe."""
    file = importlib.resources.files("flows.recipes") / f"{name}.yaml"
    return file.read_text(encoding="utf-8")


def describe_recipe(name: str) -> PackagedRecipe:
    """Return what a packaged recipe is for, and which variables it needs."""
    text = packaged_text(name)
    sentence = _FIRST_SENTENCE.match(text)
    about = sentence[1].replace("\n# ", " ") if sentence else ""
    fields = parse_yaml(text, where=name).value
    variables = set(_VARIABLE.findall(str(fields)))
    if extended := fields.get("extends"):
        variables.update(describe_recipe(extended).variables)
    return PackagedRecipe(name, about, tuple(sorted(variables)))
