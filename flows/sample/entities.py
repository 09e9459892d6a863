"""The typed things of the sample world and how they hang together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from flows.sample.facts import Disaster, Trade
from flows.sample.names import Phonology, RegionName


@dataclass(eq=False, repr=False, kw_only=True)
class Entity:
    """Anything that has an article."""

    kind: ClassVar[str] = "entity"
    article: ClassVar[str] = ""
    """`the ` for kinds whose names take it in a sentence."""

    name: str
    """What it is called in running text."""
    title: str
    """Title of its page, unique in its region."""
    link: str = field(init=False)
    """Wikitext that links to its page and reads as its name."""
    the: str = field(init=False)
    """The link as a sentence names it, with `the` where that belongs to it."""
    region: Region = field(init=False)

    def __post_init__(self) -> None:
        plain = self.title == self.name
        self.link = f"[[{self.name}]]" if plain else f"[[{self.title}|{self.name}]]"
        self.the = self.article + self.link

    def __repr__(self) -> str:
        return f"<{self.kind} {self.title!r}>"


@dataclass(eq=False, repr=False, kw_only=True)
class Town(Entity):
    kind: ClassVar[str] = "town"

    sort: str
    """`market town`, `mill town`, ..."""
    founded: int
    population: int
    elevation: int
    """Metres above the sea."""
    trade: Trade
    """The craft it is known for."""
    direction: str
    """Where it lies as seen from the region's capital (the capital: from the region's middle)."""
    distance: int
    """Kilometres from the capital."""
    legend: str
    """Who or what it is said to be named after."""
    river: River = field(init=False)
    capital: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class River(Entity):
    kind: ClassVar[str] = "river"
    article: ClassVar[str] = "the "

    length: int
    """Kilometres."""
    source: str
    mouth: str
    colour: str
    mills: int
    towns: list[Town]
    """From the source to the mouth."""


@dataclass(eq=False, repr=False, kw_only=True)
class Lake(Entity):
    kind: ClassVar[str] = "lake"

    area: int
    """Square kilometres."""
    depth: int
    """Metres."""
    islands: int
    river: River
    town: Town


@dataclass(eq=False, repr=False, kw_only=True)
class Person(Entity):
    kind: ClassVar[str] = "person"

    given: str
    surname: str
    woman: bool
    role: str
    """`craft`, `writer`, `musician`, `captain`, `steward` or `naturalist`."""
    occupation: str
    """With it in a sentence: "was a ..."."""
    born: int
    died: int
    birth_day: str
    """Day and month, `14 March`."""
    birthplace: Town
    home: Town
    """Where the person worked and died."""
    trade: Trade
    """The person's own craft, or that of the parents."""
    trait: str
    habit: str
    children: int
    moved: int
    """Year of coming to `home`."""
    teacher: Person | None = None
    spouse: Person | None = None
    guild: Guild | None = None
    events: list[Event] = field(default_factory=list)
    made: list[Entity] = field(default_factory=list)
    """Buildings, ships, instruments and works of this person."""
    masterpiece: str = ""
    """`the Winter Clock`: the best-known thing from the person's hands."""
    masterpiece_year: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.she, self.her, self.hers = (
            ("she", "her", "her") if self.woman else ("he", "him", "his")
        )  # subject, object, possessive
        self.She, self.Hers = self.she.capitalize(), self.hers.capitalize()


@dataclass(eq=False, repr=False, kw_only=True)
class Guild(Entity):
    kind: ClassVar[str] = "guild"
    article: ClassVar[str] = "the "

    trade: Trade
    town: Town
    founded: int
    founder: Person
    master: Person
    colour: str
    motto: str
    meaning: str
    members: int
    hall: Building


@dataclass(eq=False, repr=False, kw_only=True)
class Craft(Entity):
    """A craft as one region practises it."""

    kind: ClassVar[str] = "craft"

    trade: Trade
    town: Town
    since: int
    founder: Person
    secret: str
    years: int
    """Length of an apprenticeship."""


@dataclass(eq=False, repr=False, kw_only=True)
class Building(Entity):
    kind: ClassVar[str] = "building"
    article: ClassVar[str] = "the "

    sort: str
    town: Town
    built: int
    architect: Person
    stone: str
    height: int
    """Metres."""
    damaged_by: Event | None = None
    restored: int = 0


@dataclass(eq=False, repr=False, kw_only=True)
class Event(Entity):
    kind: ClassVar[str] = "event"
    article: ClassVar[str] = "the "

    facts: Disaster
    town: Town
    year: int
    day: str
    days: int
    hero: Person
    witness: Person
    houses: int


@dataclass(eq=False, repr=False, kw_only=True)
class Festival(Entity):
    kind: ClassVar[str] = "festival"

    town: Town
    month: str
    since: int
    origin: Event
    food: str
    colour: str
    days: int
    instrument: Instrument = field(init=False)


@dataclass(eq=False, repr=False, kw_only=True)
class Instrument(Entity):
    kind: ClassVar[str] = "instrument"
    article: ClassVar[str] = "the "

    sort: str
    played_with: str
    parts: str
    count: int
    sound: str
    wood: str
    inventor: Person
    year: int
    town: Town
    player: Person
    festival: Festival


@dataclass(eq=False, repr=False, kw_only=True)
class Animal(Entity):
    kind: ClassVar[str] = "animal"
    article: ClassVar[str] = "the "

    beast: str
    group: str
    habitat: str
    diet: str
    colour: str
    length: int
    """Centimetres."""
    young: int
    discoverer: Person
    year: int
    river: River


@dataclass(eq=False, repr=False, kw_only=True)
class Dish(Entity):
    kind: ClassVar[str] = "dish"

    foods: list[str]
    town: Town
    season: str
    festival: Festival
    cook: Person
    year: int


@dataclass(eq=False, repr=False, kw_only=True)
class Ship(Entity):
    kind: ClassVar[str] = "ship"
    article: ClassVar[str] = "the "

    sort: str
    built: int
    town: Town
    builder: Person
    captain: Person
    length: int
    """Metres."""
    cargo: str
    harbour: Town
    lost: int
    fate: str
    """`wrecked`, `broken up` or `kept`."""


@dataclass(eq=False, repr=False, kw_only=True)
class Work(Entity):
    """A book, play or song cycle."""

    kind: ClassVar[str] = "work"

    sort: str
    author: Person
    year: int
    town: Town
    subject: Entity
    parts: int


@dataclass(eq=False, repr=False, kw_only=True)
class Region(Entity):
    """A region with all its entities: about a hundred articles that refer to one another."""

    kind: ClassVar[str] = "region"

    index: int
    sounds: Phonology
    people: str
    """Adjective of the region and name of its people."""
    terrain: str
    landscape: str
    exports: str
    founded: int
    area: int
    """Square kilometres."""
    neighbours: list[RegionName]
    """The regions next to it, by name only: no region is built to describe another."""
    towns: list[Town] = field(default_factory=list)
    rivers: list[River] = field(default_factory=list)
    lakes: list[Lake] = field(default_factory=list)
    persons: list[Person] = field(default_factory=list)
    guilds: list[Guild] = field(default_factory=list)
    crafts: list[Craft] = field(default_factory=list)
    buildings: list[Building] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    festivals: list[Festival] = field(default_factory=list)
    instruments: list[Instrument] = field(default_factory=list)
    animals: list[Animal] = field(default_factory=list)
    dishes: list[Dish] = field(default_factory=list)
    ships: list[Ship] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)

    @property
    def capital_town(self) -> Town:
        return self.towns[0]

    def entities(self) -> list[Entity]:
        """Everything in the region that has an article, the region itself first."""
        groups: tuple[list[Entity], ...] = (
            [*self.rivers, *self.lakes, *self.towns, *self.buildings, *self.guilds],
            [*self.crafts, *self.persons, *self.events, *self.festivals, *self.instruments],
            [*self.animals, *self.dishes, *self.ships, *self.works],
        )
        return [self, *(entity for group in groups for entity in group)]
