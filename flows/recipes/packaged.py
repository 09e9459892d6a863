"""Recipes that come with bertloom: what each is for, and which variables it needs."""

from __future__ import annotations

import re
from typing import NamedTuple

from flows.recipes.loader import packaged_recipes, packaged_text

_COMMENT = re.compile(r"^ *#.*", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_EXTENDS = re.compile(r"^extends: *(\S+)", re.MULTILINE)
_FIRST_SENTENCE = re.compile(r"# (.*?)[.:](?= |\n)", re.DOTALL)


class PackagedRecipe(NamedTuple):
    """A recipe that comes with bertloom."""

    name: str
    about: str
    """First sentence of the file, up to a full stop or a colon."""

    variables: tuple[str, ...]
    """Environment variables that the recipe needs, sorted."""


def described_recipes() -> list[PackagedRecipe]:
    """Return all packaged recipes, sorted by name."""
    return [described_recipe(name) for name in packaged_recipes()]


def described_recipe(name: str) -> PackagedRecipe:
    """Return a packaged recipe with what its file says about it."""
    text = packaged_text(name)
    sentence = _FIRST_SENTENCE.match(text)
    about = sentence[1].replace("\n# ", " ") if sentence else ""
    variables = set(_VARIABLE.findall(_COMMENT.sub("", text)))
    if extended := _EXTENDS.search(text):
        variables.update(described_recipe(extended[1]).variables)
    return PackagedRecipe(name, about, tuple(sorted(variables)))
