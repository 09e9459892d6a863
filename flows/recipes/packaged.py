"""What each packaged recipe is for and what it needs, as its file says."""

from __future__ import annotations

import re
from typing import NamedTuple

from flows.recipes.files import packaged_recipes, packaged_text

_WANTED = re.compile(r"\$\{(\w+)\}")
_EXTENDED = re.compile(r"^extends: *([a-z0-9][a-z0-9_-]*)$", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.:](?= |$)")


class PackagedRecipe(NamedTuple):
    """A recipe that comes with bertloom.

    Attributes:
        name: to run it by.
        about: the first sentence of its file, to a full stop or a colon.
        variables: of the environment that it takes paths from and has no defaults for, sorted.
    """

    name: str
    about: str
    variables: tuple[str, ...]


def described_recipes() -> list[PackagedRecipe]:
    """All packaged recipes by name."""
    return [described_recipe(name) for name in packaged_recipes()]


def described_recipe(name: str) -> PackagedRecipe:
    """What the file of a packaged recipe says of it."""
    text = packaged_text(name)
    found = _wanted(text)
    while (extended := _EXTENDED.search(text)) is not None:
        text = packaged_text(extended[1])
        found |= _wanted(text)
    return PackagedRecipe(name, _first_sentence(packaged_text(name)), tuple(sorted(found)))


def _wanted(text: str) -> set[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return set(_WANTED.findall("\n".join(lines)))


def _first_sentence(text: str) -> str:
    """The first sentence of the comment that a file begins with; "" where it begins with none."""
    words: list[str] = []
    for line in text.splitlines():
        comment = line.removeprefix("#").strip()
        if comment == line.strip() or not comment:
            break
        words.append(comment)
    return _SENTENCE_END.split(" ".join(words), maxsplit=1)[0]
