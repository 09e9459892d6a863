"""Names in running text, as CoNLL-2003 has them: people, places, organisations and the rest.

The tags come from the world itself: every name that an article may say is known with its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from flows.sample.entities import Region
from flows.sample.labelled_cast import Cast, sentences
from flows.sample.prose import plain_text

_TAGS = {
    "person": "PER", "region": "LOC", "town": "LOC", "river": "LOC", "lake": "LOC",
    "building": "LOC", "guild": "ORG", "event": "MISC", "festival": "MISC", "animal": "MISC",
    "ship": "MISC", "work": "MISC",
}  # fmt: skip
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")  # noqa: RUF001
_LONGEST = 30
_FEWEST_WORDS = 6


class Word(NamedTuple):
    """A word or mark with its columns."""

    text: str
    part: str
    """NNP, CD or the mark itself; -X- for all other words, which nobody has parsed."""
    chunk: str
    tag: str
    """IOB1, as the files of 2003 have it."""


def tagged(cast: Cast, count: int, *, known: set[str]) -> list[list[list[Word]]]:
    """`count` sentences in documents of ten, at least one name in each.

    Sentences `known` from another split are left out; those taken are added.
    """
    draws = cast.draws("names")
    names = {}
    for region in cast.regions:
        names.update(_names(region))
    found: dict[str, list[Word]] = {}
    for paragraph in sentences(cast, "names"):
        for text in paragraph:
            words = _tagged(_WORD.findall(text), names)
            if text not in known and _is_fit(words):
                found.setdefault(text, words)
    chosen = draws.some(list(found), count)
    known.update(chosen)
    return [[found[text] for text in chosen[i : i + 10]] for i in range(0, len(chosen), 10)]


def _is_fit(words: list[Word]) -> bool:
    is_named = any(word.tag != "O" for word in words)
    return is_named and _FEWEST_WORDS <= len(words) <= _LONGEST


def _names(region: Region) -> dict[tuple[str, ...], str]:
    """All names of a region, as words, with their tags; those of other regions that it knows."""
    found: dict[tuple[str, ...], str] = {}

    def add(names: Iterable[str], tag: str) -> None:
        for name in names:
            found.setdefault(tuple(_WORD.findall(plain_text(name) or name)), tag)

    for entity in region.entities():
        if entity.kind in _TAGS:
            add([entity.name], _TAGS[entity.kind])
    for person in region.persons:
        add([person.given, person.surname], "PER")
        add([person.masterpiece.removeprefix("the ")] if person.masterpiece else [], "MISC")
    for river in region.rivers:
        add([river.source], "LOC")
    for town in region.towns:
        legend = town.legend.rpartition(" called ")
        add([legend[2]] if legend[1] else [], "PER")
    for near in region.neighbours:
        add([near.name, near.capital], "LOC")
        add([near.people, f"{near.people}s"], "MISC")
    add([region.people, f"{region.people}s"], "MISC")
    add([guild.motto for guild in region.guilds], "MISC")
    return found


def _tagged(words: list[str], names: dict[tuple[str, ...], str]) -> list[Word]:
    """The words with the longest names that start at each of them."""
    longest = max(map(len, names))
    rows: list[Word] = []
    start = 0
    while start < len(words):
        for end in range(min(len(words), start + longest), start, -1):
            tag = names.get(tuple(words[start:end]))
            if tag is not None:
                # IOB1: B- only where a name follows another of its kind at once.
                is_next = bool(rows) and rows[-1].tag.endswith(f"-{tag}")
                for position in range(start, end):
                    mark = "B" if is_next and position == start else "I"
                    rows.append(Word(words[position], "NNP", "I-NP", f"{mark}-{tag}"))
                start = end
                break
        else:
            rows.append(Word(words[start], _part(words[start]), "O", "O"))
            start += 1
    return rows


def _part(word: str) -> str:
    if word[0].isdigit():
        return "CD"
    return "-X-" if word[0].isalpha() else word
