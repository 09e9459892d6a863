# ruff: noqa: E501 -- a question is easier to read and to mend on one line
"""Passages with questions, some of which they do not answer, as SQuAD 2.0 has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from flows.sample import mentions
from flows.sample.draws import Draws
from flows.sample.entities import Entity
from flows.sample.labelled_cast import Cast
from flows.sample.prose import plain_text


class Asked(NamedTuple):
    """What may be asked about a kind of thing, and what the answer is."""

    questions: tuple[str, ...]
    """With `{name}`."""
    answer: Callable[[Any], str]


_ASKED: dict[str, tuple[Asked, ...]] = {
    "animal": (
        Asked(("Where does the {name} live?", "In what place is the {name} found?"), lambda x: x.habitat),
        Asked(("What does the {name} feed on?", "What is the food of the {name}?"), lambda x: x.diet),
        Asked(("Who described the {name}?",), lambda x: x.discoverer.name),
    ),
    "building": (
        Asked(("What is the {name} built of?", "Of which stone are the walls of the {name}?"), lambda b: b.stone),
        Asked(("Who designed the {name}?",), lambda b: b.architect.name),
    ),
    "craft": (
        Asked(("What material does {name} need?",), lambda c: c.trade.material),
        Asked(("Who practises {name}?",), lambda c: c.trade.workers),
    ),
    "dish": (
        Asked(("In which season is {name} served?",), lambda x: x.season),
        Asked(("Who is said to have cooked the first {name}?",), lambda x: x.cook.name),
    ),
    "event": (
        Asked(("What was the cause of the {name}?", "How did the {name} begin?"), lambda e: e.facts.cause),
        Asked(("What happened during the {name}?",), lambda e: e.facts.harm),
        Asked(("What was the result of the {name}?",), lambda e: e.facts.outcome),
        Asked(("Who is remembered for the {name}?",), lambda e: e.hero.name),
    ),
    "festival": (
        Asked(("What is served at {name}?", "What do people eat at {name}?"), lambda f: f.food),
        Asked(("In which month is {name} held?", "When do people celebrate {name}?"), lambda f: f.month),
        Asked(("What colour do people wear at {name}?",), lambda f: f.colour),
    ),
    "guild": (
        Asked(("Who founded the {name}?",), lambda g: g.founder.name),
        Asked(("Where does the {name} meet?",), lambda g: g.hall.name),
        Asked(("What is the colour of the {name}?",), lambda g: g.colour),
    ),
    "instrument": (
        Asked(("What wood is the {name} made of?",), lambda i: i.wood),
        Asked(("How does the {name} sound?", "What is the sound of the {name} like?"), lambda i: i.sound),
        Asked(("Who built the first {name}?",), lambda i: i.inventor.name),
    ),
    "person": (
        Asked(("Where was {name} born?",), lambda p: p.birthplace.name),
        Asked(("What was the occupation of {name}?",), lambda p: p.occupation),
        Asked(("What was {name} like?",), lambda p: p.trait),
    ),
    "river": (
        Asked(("Where does the {name} rise?", "What is the source of the {name}?"), lambda r: r.source),
        Asked(("What colour is the water of the {name}?",), lambda r: r.colour),
    ),
    "ship": (
        Asked(("What was the cargo of the {name}?", "What did the {name} carry?"), lambda s: s.cargo),
        Asked(("Who was captain of the {name}?",), lambda s: s.captain.name),
    ),
    "town": (
        Asked(("What kind of town is {name}?",), lambda t: t.sort),
        Asked(("What is {name} known for?", "What do the people of {name} sell?"), lambda t: t.trade.wares),
    ),
    "work": (
        Asked(("Who wrote {name}?",), lambda w: w.author.name),
        Asked(("What kind of book is {name}?",), lambda w: w.sort),
    ),
}  # fmt: skip


class Question(NamedTuple):
    """A question about a passage; an empty answer means that the passage has none."""

    text: str
    answer: str
    start: int
    """Characters of the passage before the answer; -1 without one."""


class Passage(NamedTuple):
    title: str
    text: str
    questions: list[Question]


def passages(cast: Cast, count: int, *, known: set[str]) -> list[Passage]:
    """`count` different passages with up to three questions, about a third of them unanswered.

    An unanswered question is about the thing of the passage too: it asks for what is not said of it.
    Passages `known` from another split are left out; those taken are added.
    """
    draws = cast.draws("questions")
    found: list[Passage] = []
    while len(found) < count:
        region = draws.pick(cast.regions)
        kinds: dict[str, list[Entity]] = {}
        for entity in region.entities():
            if entity.kind in _ASKED:
                kinds.setdefault(entity.kind, []).append(entity)
        thing = draws.pick(kinds[draws.pick(list(kinds))])
        passage = _passage(region.name, thing, draws)
        if passage is not None and passage.questions and passage.text not in known:
            known.add(passage.text)
            found.append(passage)
    return found


def _passage(title: str, thing: Entity, draws: Draws) -> Passage | None:
    told = [plain_text(sentence) for sentence in mentions.of(thing, draws)]
    if None in told:
        return None
    text = " ".join(sentence for sentence in told if sentence is not None)
    questions = _questions(thing, text, draws)
    answered = [question for question in questions if question.answer]
    unanswered = [question for question in questions if not question.answer]
    # Two of three have an answer, as in the data that this imitates.
    chosen = [*draws.some(answered, 2), *draws.some(unanswered, 1)]
    return Passage(title, text, draws.shuffled(chosen))


def _questions(thing: Entity, told: str, draws: Draws) -> list[Question]:
    name = plain_text(thing.name) or thing.name
    if name not in told:
        return []
    found = []
    for asked in _ASKED[thing.kind]:
        text = draws.pick(asked.questions).format(name=name)
        answer = asked.answer(thing)
        place = re.search(rf"\b{re.escape(answer)}\b", told, re.IGNORECASE)
        if place is None:
            found.append(Question(text, "", -1))
        else:
            found.append(Question(text, place.group(), place.start()))
    return found
