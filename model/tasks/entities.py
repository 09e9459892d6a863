"""Entities of tagged words, found and counted as conlleval does (Tjong Kim Sang 2000, 2003).

A tag is `O` or a role, a hyphen and a type, as in `B-LOC`. What conlleval does with tags that no
scheme allows is part of the score, for a model may give any: an `I-LOC` after anything but an open
entity of type LOC begins one. Read so, IOB1, IOB2, IO and BIOES need not be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OUTSIDE = "O"
TAG_SHAPE = re.compile(r"([BIESLU])-(.*\S.*)", re.DOTALL)
"""A tag of a word inside an entity: role and type. L and U are BILOU's names of E and S."""

_ROLES = {"L": "E", "U": "S"}


class Entity(NamedTuple):
    """Words start .. end - 1 of a sentence."""

    start: int
    end: int
    type: str


def is_tag(text: str) -> bool:
    """Whether a text is a tag: `O`, or one of the roles B I E S L U, a hyphen, and a type."""
    return text == OUTSIDE or TAG_SHAPE.fullmatch(text) is not None


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence, in order; they never overlap.

    Raises:
        ValueError: a tag is none (`is_tag`).
    """
    found: list[Entity] = []
    start, type_, is_open = 0, "", False  # of the entity that the word before is in
    for place, tag in enumerate(tags):
        role, of_type = _parts(tag)
        goes_on = is_open and role in "IE" and of_type == type_
        if is_open and not goes_on:
            found.append(Entity(start, place, type_))
            is_open = False
        if role == OUTSIDE:
            continue
        if not goes_on:
            start, type_ = place, of_type
        if role in "ES":
            found.append(Entity(start, place + 1, type_))
        is_open = role not in "ES"
    if is_open:
        found.append(Entity(start, len(tags), type_))
    return found


def iob2(entities: Iterable[Entity], *, words: int) -> list[str]:
    """The IOB2 tags of a sentence of so many words: every entity begins with B-."""
    tags = [OUTSIDE] * words
    for start, end, type_ in entities:
        tags[start] = f"B-{type_}"
        tags[start + 1 : end] = [f"I-{type_}"] * (end - start - 1)
    return tags


def _parts(tag: str) -> tuple[str, str]:
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = TAG_SHAPE.fullmatch(tag)
    if match is None:
        raise ValueError(f"expected O or a tag such as B-LOC, found {tag!r}")
    role, type_ = match.groups()
    return _ROLES.get(role, role), type_


@dataclass
class Tally:
    """Entities counted; all counts are at least 0."""

    gold: int = 0
    predicted: int = 0
    correct: int = 0
    """Same first word, last word and type."""

    @property
    def precision(self) -> float:
        """Share of the predicted entities that are right, 0 where none is predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the true entities that are found, 0 where there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both, 0 where both are."""
        both = self.gold + self.predicted
        return 2 * self.correct / both if both else 0.0


@dataclass
class EntityCounts:
    """What conlleval counts, sentence by sentence."""

    of_all: Tally = field(default_factory=Tally)
    of_type: dict[str, Tally] = field(default_factory=dict)
    words: int = 0
    equal_words: int = 0
    """Words whose tag is, letter for letter, the true one."""

    def add(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        """Count one sentence; entities do not reach over its ends.

        Raises:
            ValueError: the numbers of words differ, or a tag is none.
        """
        self.words += len(gold)
        self.equal_words += sum(one == other for one, other in zip(gold, predicted, strict=True))
        true, given = set(entities_of(gold)), set(entities_of(predicted))
        for entity in true:
            self._tally(entity.type).gold += 1
        for entity in given:
            self._tally(entity.type).predicted += 1
        for entity in true & given:
            self._tally(entity.type).correct += 1
        self.of_all.gold += len(true)
        self.of_all.predicted += len(given)
        self.of_all.correct += len(true & given)

    def metrics(self) -> dict[str, float]:
        """Shares of 1: `entity-f1`, `-precision` and `-recall` over all types together (micro),
        `word-accuracy`, and `entity-f1:TYPE` of each type met, sorted."""
        scores = {
            "entity-f1": self.of_all.f1,
            "entity-precision": self.of_all.precision,
            "entity-recall": self.of_all.recall,
            "word-accuracy": self.equal_words / self.words if self.words else 0.0,
        }
        by_type = {f"entity-f1:{name}": self.of_type[name].f1 for name in sorted(self.of_type)}
        return scores | by_type

    def _tally(self, type_: str) -> Tally:
        return self.of_type.setdefault(type_, Tally())
