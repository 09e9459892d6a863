"""What the people of a region built, founded, wrote and lived through."""

from __future__ import annotations

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
    Person,
    Region,
    Ship,
    Town,
    Work,
)
from flows.sample.facts import (
    ADJECTIVES,
    BEASTS,
    BUILDING_KINDS,
    CARGOES,
    COLOURS,
    EVENT_KINDS,
    FESTIVAL_NOUNS,
    FOODS,
    INSTRUMENT_KINDS,
    MONTHS,
    SEASONS,
    SHIP_KINDS,
    SHIP_NOUNS,
    STONES,
    WOODS,
    WORK_KINDS,
    WORK_NOUNS,
)
from flows.sample.names import Namer

_MOTTOES = ("Slow hands, long work", "Measure twice", "What is made well stays",
            "Open door, honest weight", "By the river and the fire")  # fmt: skip
_SECRETS = ("a handful of river sand in the mixture", "water drawn before sunrise",
            "ash of apple wood", "a second firing that nobody outside was allowed to watch",
            "a knot that cannot be seen from the front", "oil pressed from walnuts")  # fmt: skip

_DAYS = {
    "Flood": (3, 19), "Fire": (2, 5), "Frost": (21, 90), "Siege": (20, 160), "Strike": (9, 60),
    "Council": (3, 24), "Drought": (60, 150), "Storm": (2, 4),
}  # fmt: skip
"""Shortest and longest of each kind of event."""


def add_makings(region: Region, draws: Draws, namer: Namer) -> None:
    """Fill the region with everything that needs its towns and people first."""
    _add_events(region, draws)
    _add_buildings(region, draws)
    _add_guilds(region, draws, namer)
    _add_crafts(region, draws)
    _add_festivals(region, draws)
    _add_instruments(region, draws, namer)
    _add_animals_and_dishes(region, draws, namer)
    _add_ships(region, draws)
    _add_works(region, draws)
    for person in region.persons:
        adjective = draws.pick(ADJECTIVES)
        person.masterpiece = f"the {adjective} {person.trade.ware.title()}"
        person.masterpiece_year = person.moved + draws.between(3, 18)


def _active(region: Region, draws: Draws, *roles: str, home: Town | None = None) -> Person:
    """Someone with one of the roles, from the town if it has such a person."""
    able = [person for person in region.persons if person.role in roles]
    local = [person for person in able if person.home is home]
    return draws.pick(local or able)


def _working_year(person: Person, draws: Draws) -> int:
    return draws.between(person.moved + 2, max(person.moved + 4, person.died - 6))


def _add_events(region: Region, draws: Draws) -> None:
    titles: set[str] = set()
    kinds = draws.shuffled(EVENT_KINDS)
    for facts in kinds:
        hero = draws.pick(region.persons)
        year = _working_year(hero, draws)
        town = hero.home
        alive = [
            person
            for person in region.persons
            if person is not hero and person.born + 18 <= year < person.died
        ]
        witness = draws.pick(alive or [region.persons[0 if hero is not region.persons[0] else 1]])
        title = f"{town.name} {facts.noun} of {year}"
        titles.add(title)
        event = Event(
            name=title, title=title, facts=facts, town=town, year=year,
            day=f"{draws.between(1, 28)} {draws.pick(MONTHS)}",
            days=draws.between(*_DAYS[facts.noun]),
            hero=hero, witness=witness, houses=draws.between(14, 240),
        )  # fmt: skip
        region.events.append(event)
        hero.events.append(event)
        witness.events.append(event)


def _add_buildings(region: Region, draws: Draws) -> None:
    for town, sort in zip(region.towns, draws.shuffled(BUILDING_KINDS), strict=True):
        architect = _active(region, draws, "craft", "steward", home=town)
        name = f"{town.name} {sort.title()}"
        building = Building(
            name=name, title=name, sort=sort, town=town, built=_working_year(architect, draws),
            architect=architect, stone=draws.pick(STONES), height=draws.between(9, 58),
        )  # fmt: skip
        for event in region.events:
            if event.town is town and event.year > building.built:
                building.damaged_by = event
                building.restored = event.year + draws.between(2, 30)
        region.buildings.append(building)
        architect.made.append(building)


def _add_guilds(region: Region, draws: Draws, namer: Namer) -> None:
    # Six towns, so six trades: each trade of the region has its guild.
    for town, hall in zip(region.towns[:6], region.buildings, strict=False):
        members = [p for p in region.persons if p.role == "craft" and p.trade == town.trade]
        founder = members[0] if members else region.persons[0]
        name = f"{town.name} Guild of {town.trade.workers.title()}"
        guild = Guild(
            name=name, title=name, trade=town.trade, town=town, founder=founder,
            founded=founder.moved + draws.between(4, 16), colour=draws.pick(COLOURS),
            master=members[-1] if members else region.persons[-1], members=draws.between(24, 310),
            motto=" ".join(namer.word() for _ in range(3)).capitalize(),
            meaning=draws.pick(_MOTTOES), hall=hall,
        )  # fmt: skip
        region.guilds.append(guild)
        for person in members:
            person.guild = guild


def _add_crafts(region: Region, draws: Draws) -> None:
    for guild in region.guilds[:5]:
        trade = guild.trade
        title = f"{trade.gerund.capitalize()} in {region.name}"
        craft = Craft(
            name=f"{region.people} {trade.gerund}", title=title, trade=trade, town=guild.town,
            since=guild.founder.moved, founder=guild.founder, secret=draws.pick(_SECRETS),
            years=draws.between(4, 9),
        )  # fmt: skip
        region.crafts.append(craft)


def _add_festivals(region: Region, draws: Draws) -> None:
    nouns = draws.some(FESTIVAL_NOUNS, 4)
    for noun, event in zip(nouns, draws.some(region.events, 4), strict=True):
        name = f"{event.town.name} {noun}"
        region.festivals.append(Festival(
            name=name, title=name, town=event.town, month=draws.pick(MONTHS),
            since=event.year + draws.between(1, 9), origin=event, food=draws.pick(FOODS),
            colour=draws.pick(COLOURS), days=draws.between(2, 6),
        ))  # fmt: skip


def _add_instruments(region: Region, draws: Draws, namer: Namer) -> None:
    for number, kind in enumerate(draws.some(INSTRUMENT_KINDS, 3)):
        sort, played_with, parts, sound = kind
        inventor = _active(region, draws, "craft", "musician")
        year = _working_year(inventor, draws)
        festival = region.festivals[number]
        musicians = [p for p in region.persons if p.role == "musician" and p is not inventor]
        name = namer.word()
        instrument = Instrument(
            name=name, title=f"{name.capitalize()} ({region.people} instrument)", sort=sort,
            played_with=played_with, parts=parts,
            count=draws.between(3, 12), sound=sound, wood=draws.pick(WOODS), inventor=inventor,
            year=year, town=inventor.home, player=draws.pick(musicians), festival=festival,
        )  # fmt: skip
        region.instruments.append(instrument)
        inventor.made.append(instrument)
    for number, festival in enumerate(region.festivals):
        festival.instrument = region.instruments[number % 3]


def _add_animals_and_dishes(region: Region, draws: Draws, namer: Namer) -> None:
    for beast, group, habitat, diet in draws.some(BEASTS, 3):
        discoverer = _active(region, draws, "naturalist")
        colour = draws.pick(COLOURS)
        name = f"{region.people} {beast}"
        region.animals.append(Animal(
            name=name, title=name, beast=beast, group=group, habitat=habitat, diet=diet,
            colour=colour, length=draws.between(2, 9) * (1 if group == "insect" else 11),
            young=draws.between(2, 9), discoverer=discoverer,
            year=_working_year(discoverer, draws), river=draws.pick(region.rivers),
        ))  # fmt: skip
    for festival in region.festivals[:2]:
        cook = draws.pick(region.persons)
        name = namer.word()
        region.dishes.append(Dish(
            name=name, title=f"{name.capitalize()} ({region.people} dish)",
            foods=draws.some(FOODS, 3), town=festival.town,
            season=draws.pick(SEASONS), festival=festival, cook=cook,
            year=_working_year(cook, draws),
        ))  # fmt: skip


def _add_ships(region: Region, draws: Draws) -> None:
    nouns = draws.some(SHIP_NOUNS, 4)
    for noun in nouns:
        captain = _active(region, draws, "captain")
        built = _working_year(captain, draws) - 2
        name = f"{draws.pick(ADJECTIVES)} {noun}"
        alive = [p for p in region.persons if p.role == "craft" and p.moved <= built <= p.died]
        builder = draws.pick(alive or region.persons[:1])
        sort = draws.pick(SHIP_KINDS)
        town, harbour = draws.some(region.towns, 2)
        ship = Ship(
            name=f"''{name}''", title=f"{name} ({region.people} {sort})", sort=sort, built=built,
            town=town, builder=builder, captain=captain, length=draws.between(11, 42),
            cargo=draws.pick(CARGOES), harbour=harbour, lost=built + draws.between(8, 60),
            fate=draws.pick(("wrecked", "broken up", "kept")),
        )  # fmt: skip
        region.ships.append(ship)
        captain.made.append(ship)


def _add_works(region: Region, draws: Draws) -> None:
    subjects: list[Entity] = [*region.rivers, *region.towns, *region.events]
    nouns = draws.some(WORK_NOUNS, 5)
    for noun in nouns:
        author = _active(region, draws, "writer")
        name = f"The {draws.pick(ADJECTIVES)} {noun}"
        sort = draws.pick(WORK_KINDS)
        year = _working_year(author, draws)
        subject = draws.pick([s for s in subjects if not (isinstance(s, Event) and s.year > year)])
        work = Work(
            name=f"''{name}''", title=f"{name} ({region.people} {sort})", sort=sort,
            author=author, year=year, town=author.home, subject=subject,
            parts=draws.between(4, 28),
        )  # fmt: skip
        region.works.append(work)
        author.made.append(work)
