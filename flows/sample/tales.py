"""Tales: stories in chapters about the people and places of the sample world."""

from __future__ import annotations

from typing import NamedTuple

from flows.sample.draws import Deck
from flows.sample.wording import Sentence, texts
from flows.sample.world import Entity, World

_LENGTH = 14
"""Chapters of a tale."""
_SCENES = ("meal", "ask", "story", "work", "market", "rumour", "hall", "night", "river", "quarrel")


class Chapter(NamedTuple):
    title: str
    paragraphs: list[str]
    """Running text; _underscores_ are italics, as in the books it imitates."""


class Tale(NamedTuple):
    """A tale with its title page."""

    title: str
    author: str
    year: int
    region: str
    chapters: list[Chapter]

    def paragraphs(self) -> list[str]:
        """The story's paragraphs as a reader sees them, without titles and marks."""
        return [text.replace("_", "") for chapter in self.chapters for text in chapter.paragraphs]


def write_tale(world: World, number: int) -> Tale:
    """Tale `number`: a craftsperson goes after a stolen masterpiece, with a friend."""
    count = -(-world.articles // 100)
    teller = _Teller(world.region(number % count), Deck(world.seed, "tale", number))
    draws, region = teller.draws, teller.region
    author = draws.pick([person for person in region.persons if person.role == "writer"])
    # Out along the route, and home again at the end.
    route = [teller.here, *draws.some(teller.here.others, _LENGTH - 4)]
    route += [route[-1]] * (_LENGTH - 1 - len(route)) + [teller.here]
    chapters = []
    for index, town in enumerate(route):
        teller.here, teller.there = town, route[min(index + 1, _LENGTH - 1)]
        chapters.append(teller.chapter(index))
    title = texts("tales")["title"].lead[0].says[(number + number // count) % 4]
    return Tale(title(teller, draws), author.name, author.moved + 20, region.name, chapters)


class _Teller:
    """What the scenes of a tale speak of."""

    def __init__(self, region: Entity, draws: Deck) -> None:
        self.region, self.draws = region, draws
        self.hero, self.friend, self.rival = draws.some(region.persons, 3)
        self.thing: str = self.hero.masterpiece
        self.here: Entity = self.hero.home
        self.there: Entity = self.here
        self.festival = draws.pick(region.festivals)

    def chapter(self, index: int) -> Chapter:
        """The chapter of the place where the story is."""
        if index == 0:
            title, scenes = f"In which {self.hero.given} loses something", ["opening", "road"]
        elif index == _LENGTH - 2:
            title = f"{self.rival.given} speaks"
            scenes = ["weather", "night", "rumour", "meeting"]
        elif index == _LENGTH - 1:
            title, scenes = "Home", ["homecoming"]
        else:
            title = texts("tales")["chapter"].sentences(self, self.draws)[0]
            start = "arrival" if index % 3 else "weather"
            scenes = [start, *self.draws.some(_SCENES, 7), "road"]
        return Chapter(title, [text for scene in scenes for text in self._scene(scene)])

    def _scene(self, name: str) -> list[str]:
        draws, region = self.draws, self.region
        cast = (self.hero, self.friend, self.rival)
        free = [person for person in region.persons if person not in cast]
        self.met = draws.pick([p for p in free if p.home is self.here] or free)
        self.event, self.dish = draws.pick(region.events), draws.pick(region.dishes)
        self.guild = draws.pick(self.here.guilds or region.guilds)
        self.room = f"in the {self.guild.hall.name}"
        if not self.here.guilds:
            self.room = f"in the town hall of {self.here.name}, to which they had been invited"
        self.price = draws.between(6, 40)
        self.more, self.half = self.price + 2, self.price // 2
        self.chimneys = self.here.population // 40
        paragraphs = []
        for items in texts("tales")[name].parts[0].paragraphs:
            said = [item.say(self, draws) for item in items if isinstance(item, Sentence)]
            paragraphs += " ".join(said).split("|")
        return paragraphs
