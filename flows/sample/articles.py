"""Articles: what the sample wiki says about an entity, as wikitext and as the truth behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flows.sample import creations, daily, happenings, markup, people, places, things, waters
from flows.sample.draws import Draws
from flows.sample.entities import (
    Animal,
    Building,
    Craft,
    Dish,
    Entity,
    Event,
    Festival,
    Guild,
    Instrument,
    Lake,
    Person,
    Region,
    River,
    Ship,
    Town,
    Work,
)
from flows.sample.prose import Section, plain_text
from flows.sample.world import World

_Writer = Callable[[Any, Draws], list[Section]]

WRITERS: dict[str, _Writer] = {
    "person": people.write_person,
    "region": places.write_region,
    "town": places.write_town,
    "river": waters.write_river,
    "lake": waters.write_lake,
    "building": places.write_building,
    "event": happenings.write_event,
    "festival": happenings.write_festival,
    "animal": happenings.write_animal,
    "dish": happenings.write_dish,
    "guild": things.write_guild,
    "craft": things.write_craft,
    "instrument": creations.write_instrument,
    "ship": creations.write_ship,
    "work": creations.write_work,
}
"""Which function writes about which kind of entity."""


@dataclass(frozen=True)
class Article:
    """One article. `number` counts articles from 0 and decides which markup it carries."""

    seed: int
    number: int
    entity: Entity
    sections: list[Section]

    @property
    def title(self) -> str:
        return self.entity.title

    def wikitext(self) -> str:
        """The page as its authors left it: infobox, references, tables, lists and all."""
        draws = Draws(self.seed, "markup", self.title)
        return markup.render(self.entity, self.sections, draws, number=self.number)

    def paragraphs(self) -> list[list[str | None]]:
        """The prose: sentences as a reader sees them; None where a sentence carries a template,
        a tag or odd quotes, so that its exact words are the cleaner's decision."""
        return [
            [plain_text(sentence) for sentence in paragraph]
            for section in self.sections
            for paragraph in section.paragraphs
        ]

    def sentences(self) -> list[str]:
        """Every sentence whose words are certain, in order."""
        return [text for paragraph in self.paragraphs() for text in paragraph if text is not None]


def write_article(entity: Entity, *, seed: int, number: int) -> Article:
    """The article about an entity."""
    draws = Draws(seed, "article", entity.title)
    sections = WRITERS[entity.kind](entity, draws)
    # Every article tells something of life in the places that it touches, the short ones more.
    written = sum(len(section.paragraphs) for section in sections)
    sections.append(
        Section(
            "Daily life", daily.paragraphs(_places(entity), draws, count=4 if written < 11 else 3)
        )
    )
    return Article(seed, number, entity, markup.enrich(entity, sections, draws, number=number))


def _places(entity: Entity) -> list[Town]:
    match entity:
        case Town():
            return [entity]
        case Person():
            return [entity.birthplace, entity.home]
        case River():
            return entity.towns
        case Region():
            return entity.towns
        case Animal():
            return entity.river.towns
        case Building() | Craft() | Dish() | Event() | Festival() | Guild():
            return [entity.town]
        case Instrument() | Lake() | Ship() | Work():
            return [entity.town]
        case _:
            raise TypeError(f"no article is written about {entity!r}")


def write_articles(world: World) -> Iterator[Article]:
    """All articles of a world, in the order of their pages, one in memory at a time."""
    for number, entity in enumerate(world.entities()):
        yield write_article(entity, seed=world.seed, number=number)
