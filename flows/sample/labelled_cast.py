"""Who plays in which split of the labelled sets, so that no split tells on another.

Regions are dealt out: `train` speaks of other people, places and things than `dev`, and `test` of
others again. All of them are in the default corpus, so a model that read it has met them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from flows.sample import daily, mentions
from flows.sample.articles import WRITERS
from flows.sample.draws import Draws
from flows.sample.entities import Region
from flows.sample.prose import plain_text
from flows.sample.world import World

SPLITS = ("train", "dev", "test")
_REGIONS = {"train": (0, 1), "dev": (2,), "test": (3,)}


class Cast(NamedTuple):
    """What a split may speak of."""

    split: str
    seed: int
    regions: list[Region]

    def draws(self, purpose: str) -> Draws:
        """Draws of this split's own for one purpose."""
        return Draws(self.seed, "labelled", purpose, self.split)


def casts(seed: int) -> list[Cast]:
    """The casts of train, dev and test; a function of the sample's seed only."""
    world = World.build(seed, 1)
    return [Cast(split, seed, [world.region(i) for i in _REGIONS[split]]) for split in SPLITS]


class Told(NamedTuple):
    """A sentence and its place: sort (life or things), topic, position in the topic."""

    text: str
    sort: str
    topic: str
    position: int

    def wording(self) -> str:
        """The sentence without names and numbers."""
        return re.sub(r"[^\W\d_a-z]\w*|\d[\d,]*", "_", self.text)


def told(cast: Cast, purpose: str, *, tellings: int) -> Iterator[list[Told]]:
    """Paragraphs about daily life and about things, each told so many times, for other wordings."""
    for region in cast.regions:
        for telling in range(tellings):
            for town in region.towns:
                draws = Draws(cast.seed, "labelled", purpose, town.title, telling)
                for topic, tell in daily.TOPICS:
                    yield _told("life", topic, tell(town, draws))
            for entity in region.entities():
                if entity.kind in mentions.MENTIONS and entity.kind != "town":
                    draws = Draws(cast.seed, "labelled", purpose, entity.title, telling)
                    yield _told("things", entity.kind, mentions.of(entity, draws))


def _told(sort: str, topic: str, sentences: list[str]) -> list[Told]:
    texts = [plain_text(sentence) for sentence in sentences]
    return [
        Told(text, sort, topic, position) for position, text in enumerate(texts) if text is not None
    ]


def sentences(cast: Cast, purpose: str) -> Iterator[list[str]]:
    """Paragraphs of articles about the cast's regions, as lists of plain sentences.

    The articles are told anew, with draws of their own: the same facts as in the dump, often in
    other words.
    """
    for region in cast.regions:
        for entity in region.entities():
            draws = Draws(cast.seed, "labelled", purpose, entity.title)
            for section in WRITERS[entity.kind](entity, draws):
                for paragraph in section.paragraphs:
                    yield [text for text in map(plain_text, paragraph) if text is not None]
        for town in region.towns:
            draws = Draws(cast.seed, "labelled", purpose, "daily", town.title)
            for topic in daily.paragraphs([town], draws, count=len(daily.TOPICS)):
                yield [text for text in map(plain_text, topic) if text is not None]
