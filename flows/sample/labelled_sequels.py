"""What comes next: pairs of sentences as RTE has them, four-way choices as SWAG.

A sentence of an article is followed by the next one of its paragraph, or by a sentence that comes
next somewhere else, about another kind of thing. What goes with what, the corpus tells.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from flows.sample.draws import Draws
from flows.sample.labelled_cast import Cast, told

_STARTS = ("It", "Its", "The", "In", "He", "She", "His", "Her", "A", "On")
"""First words of a sentence that may go on in any way."""

_MOST = 150
"""Pairs of each topic to draw from, so that none is the answer by being frequent."""


class Pair(NamedTuple):
    """Two sentences and whether the second goes on from the first."""

    first: str
    second: str
    follows: bool


class Choice(NamedTuple):
    """A sentence, the first word of the next one, its four endings and which of them is right."""

    context: str
    start: str
    endings: list[str]
    right: int


class _Step(NamedTuple):
    topic: str
    first: str
    second: str


def pairs(cast: Cast, count: int, *, known: set[str]) -> list[Pair]:
    """Up to `count` different pairs, in half of which the second goes on from the first.

    A second sentence that does not go on comes next in another topic, and those are drawn like the
    ones that do, so that no sentence tells the label. Sentences `known` from another split are left
    out; those taken are added.
    """
    draws = cast.draws("pairs")
    steps = _steps(cast, "pairs", draws, known, tellings=3)
    rows: dict[tuple[str, str], Pair] = {}
    for number, step in enumerate(draws.some(steps, count)):
        follows = number % 2 == 0
        others = [step] if follows else [other for other in steps if other.topic != step.topic]
        pair = (step.first, draws.pick(others).second)
        rows.setdefault(pair, Pair(*pair, follows))
    known.update(text for pair in rows for text in pair)
    return list(rows.values())


def choices(cast: Cast, count: int, *, known: set[str]) -> list[Choice]:
    """Up to `count` choices; the right ending is as often in one place as in another.

    All four endings come next after some sentence and start with the same word. Sentences `known`
    from another split are left out; those taken are added.
    """
    draws = cast.draws("choices")
    groups: dict[str, list[_Step]] = {}
    for step in _steps(cast, "choices", draws, known, tellings=8):
        groups.setdefault(step.second.split()[0], []).append(step)
    usable = [step for start in _STARTS for step in groups.get(start, [])]
    rows: dict[tuple[str, str], Choice] = {}
    for step in draws.shuffled(usable):
        start = step.second.split()[0]
        # An ending is wrong as often as it is right: drawn from steps, not from different endings.
        others = [other for other in groups[start] if other.topic != step.topic]
        mixed = dict.fromkeys(other.second for other in draws.shuffled(others))
        wrong = [second for second in mixed if second != step.second][:3]
        if len(wrong) == 3 and (step.first, step.second) not in rows and len(rows) < count:
            right = len(rows) % 4
            taken = [*wrong[:right], step.second, *wrong[right:]]
            known.update((step.first, *taken))
            endings = [text[len(start) + 1 :] for text in taken]
            rows[step.first, step.second] = Choice(step.first, start, endings, right)
    return draws.shuffled(list(rows.values()))


def _steps(
    cast: Cast, purpose: str, draws: Draws, known: set[str], *, tellings: int
) -> list[_Step]:
    """Sentences with the next ones; of the common topics only a part."""
    topics: dict[str, dict[str, _Step]] = {}
    for paragraph in told(cast, purpose, tellings=tellings):
        for first, second in pairwise(paragraph):
            if known.isdisjoint((first.text, second.text)):
                step = _Step(first.topic, first.text, second.text)
                topics.setdefault(first.topic, {})[first.text + second.text] = step
    found: list[_Step] = []
    for steps in topics.values():
        found += draws.some(list(steps.values()), _MOST)
    return found
