"""Entities of tagged words, found and counted like conlleval (Tjong Kim Sang 2000, 2003).

A tag is `O` or a role, a hyphen and a type, such as `B-LOC`. A role alone (`B`) has the one type
`ENTITY`. Models may produce invalid sequences,
for which the rules of conlleval apply: an `I-LOC` that does not follow an entity of type LOC starts
one. These rules read IOB1, IOB2, IO and BIOES alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OUTSIDE = "O"
UNNAMED_TYPE = "ENTITY"
"""Type of entities whose tags have none."""

TAG_SHAPE = re.compile(r"([BIESLU])(?:-(.*\S.*))?", re.DOTALL)
"""Pattern of a tag inside an entity: role and type. L and U are BILOU's names of E and S."""

_ROLES = {"L": "E", "U": "S"}


class Entity(NamedTuple):
    """Words start .. end - 1 of a sentence."""

    start: int
    end: int
    type: str


def is_tag(text: str) -> bool:
    """Return whether a text is a tag: `O`, or a role of B I E S L U, alone or with a hyphen and a
    type."""
    return text == OUTSIDE or TAG_SHAPE.fullmatch(text) is not None


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of one sentence, in order and without overlaps.

    Raises:
        ValueError: A text is not a tag (`is_tag`).
    """
    entities: list[Entity] = []
    is_open = False  # whether the next tag can extend the last entity
    for position, tag in enumerate(tags):
        role, type_ = split_tag(tag)
        if is_open and role in "IE" and type_ == entities[-1].type:
            entities[-1] = entities[-1]._replace(end=position + 1)
        elif role != OUTSIDE:
            entities.append(Entity(position, position + 1, type_))
        is_open = role not in (OUTSIDE, "E", "S")
    return entities


def iob2(entities: Iterable[Entity], *, words: int) -> list[str]:
    """Return the IOB2 tags of a sentence: every entity begins with B-."""
    tags = [OUTSIDE] * words
    for start, end, type_ in entities:
        tags[start] = f"B-{type_}"
        tags[start + 1 : end] = [f"I-{type_}"] * (end - start - 1)
    return tags


def is_bare(tag: str) -> bool:
    """Return whether a tag is a role without a type."""
    return len(tag) == 1 and tag != OUTSIDE


def split_tag(tag: str) -> tuple[str, str]:
    """Return role (O B I E S) and type of a tag; the type of O is "".

    Raises:
        ValueError: The text is not a tag (`is_tag`).
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = TAG_SHAPE.fullmatch(tag)
    if match is None:
        raise ValueError(f"expected O or a tag such as B-LOC, found {tag!r}")
    role, type_ = match.groups()
    return _ROLES.get(role, role), type_ or UNNAMED_TYPE


@dataclass
class EntityCounts:
    """Counts of conlleval, accumulated by sentence."""

    gold: Counter[str] = field(default_factory=Counter)
    """True entities by type."""

    predicted: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)
    """Predicted entities with the first word, last word and type of a true one."""

    words: int = 0
    equal_words: int = 0
    """Words with exactly the true tag."""

    def add(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        """Count one sentence.

        Raises:
            ValueError: The numbers of words differ, or a text is not a tag.
        """
        self.words += len(gold)
        self.equal_words += sum(one == other for one, other in zip(gold, predicted, strict=True))
        golds, predictions = set(entities_of(gold)), set(entities_of(predicted))
        self.gold.update(entity.type for entity in golds)
        self.predicted.update(entity.type for entity in predictions)
        self.correct.update(entity.type for entity in golds & predictions)

    def metrics(self) -> dict[str, float]:
        """Return scores from 0 to 1, 0 if undefined: micro-averaged `entity-f1`, `-precision` and
        `-recall`, `word-accuracy`, and the sorted `entity-f1:TYPE` of each type."""
        gold, predicted = self.gold.total(), self.predicted.total()
        correct = self.correct.total()
        scores = {
            "entity-f1": _share(2 * correct, gold + predicted),
            "entity-precision": _share(correct, predicted),
            "entity-recall": _share(correct, gold),
            "word-accuracy": _share(self.equal_words, self.words),
        }
        return scores | {
            f"entity-f1:{name}": _share(
                2 * self.correct[name], self.gold[name] + self.predicted[name]
            )
            for name in sorted({*self.gold, *self.predicted})
        }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
