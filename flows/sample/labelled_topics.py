"""How much two sentences have to do with each other, from 0 to 5, as STS-B has it.

Five: the same said in other words, perhaps of another place. Three: another sentence of the same
topic. One: another topic of the same sort. Nothing: something else altogether. Two sentences never
have the same wording, so what words they share says little; what belongs together, the corpus
tells.
"""

from __future__ import annotations

from typing import NamedTuple

from flows.sample.draws import Draws
from flows.sample.labelled_cast import Cast, Told, told

_JUDGES = 5
_LEVELS = (0, 1, 3, 5)
_TELLINGS = 3


class Rated(NamedTuple):
    """A pair and the mean of what five judges give it."""

    first: str
    second: str
    score: float


def rated(cast: Cast, count: int, *, known: set[str]) -> list[Rated]:
    """`count` different pairs, as many of each level; the judges differ by one at most.

    Sentences `known` from another split are left out; those taken are added.
    """
    draws = cast.draws("topics")
    found: dict[str, dict[str, Told]] = {}
    for paragraph in told(cast, "topics", tellings=_TELLINGS):
        for sentence in paragraph:
            if sentence.text not in known:
                found.setdefault(sentence.topic, {})[sentence.text] = sentence
    pool = {topic: list(sentences.values()) for topic, sentences in found.items()}
    topics = list(pool)
    rows: dict[tuple[str, str], Rated] = {}
    while len(rows) < count:
        level = _LEVELS[len(rows) % len(_LEVELS)]
        topic = draws.pick(topics)
        first = draws.pick(pool[topic])
        second = draws.pick(pool[topic if level > 1 else draws.pick(topics)])
        if first.wording() == second.wording() or _level(first, second) != level:
            continue
        pair = (first.text, second.text)
        rows.setdefault(pair, Rated(*pair, _score(level, draws)))
    known.update(text for pair in rows for text in pair)
    return draws.shuffled(list(rows.values()))


def _level(first: Told, second: Told) -> int:
    if first.sort != second.sort:
        return 0
    if first.topic != second.topic:
        return 1
    return 5 if first.position == second.position else 3


def _score(level: int, draws: Draws) -> float:
    judged = [min(5, max(0, level + draws.pick((-1, 0, 0, 0, 1)))) for _ in range(_JUDGES)]
    return sum(judged) / _JUDGES
