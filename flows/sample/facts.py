"""What can be stated, asked and thought of things: the tables of facts and of opinions."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

from flows.sample.draws import Draws
from flows.sample.wording import Sentence, cap, tables, texts
from flows.sample.world import Entity


class Fact(NamedTuple):
    """A fact that is known of each thing of a kind."""

    path: str
    """The answer to its questions, as `trade.wares`."""
    questions: Sentence
    statements: Sentence
    implied: Sentence | None
    """What follows from it for one who knows the world."""

    def answer(self, thing: Any) -> str:
        return str(attrgetter(self.path)(thing))


@cache
def facts_of(kind: str) -> list[Fact]:
    """The facts that are known of a kind of thing."""
    found = []
    for title, _, paragraphs in texts("facts")[kind].parts:
        sentences = [item for items in paragraphs for item in items if isinstance(item, Sentence)]
        questions, statements, implied = (*sentences, None)[:3]
        if questions and statements:
            found.append(Fact(title, questions, statements, implied))
    return found


def in_brief(thing: Entity, draws: Draws) -> list[str]:
    """All that is known of a thing, a sentence or two for each fact."""
    said = [(fact.statements, fact.implied) for fact in facts_of(thing.kind)]
    return [sentence.say(thing, draws) for pair in said for sentence in pair if sentence]


def opinions(kind: str, draws: Draws, *, is_praise: bool, part: slice = slice(None)) -> list[str]:
    """What people thought of something about a thing of a kind: sentences of one polarity.

    `part` says which of the words of praise and blame are used.
    """
    table = tables("opinions")
    if kind not in table["objects"]:
        return []
    own, opposite = (table[side] for side in ("praise", "blame")[:: 1 if is_praise else -1])
    best, other = draws.some(own["adjectives"][part], 2)
    scope = SimpleNamespace(
        thing=draws.pick(table["objects"][kind]), critic=draws.pick(table["critics"]),
        best=best, other=other, less=draws.pick(opposite["adjectives"][part]),
        deed=draws.pick(own["deeds"]), consequence=draws.pick(own["consequences"]),
    )  # fmt: skip
    return [cap(sentence) for sentence in texts("opinions")["opinion"].sentences(scope, draws)]
