"""The sample world: regions made one at a time from (seed, index), so that it can be any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flows.sample.draws import Draws
from flows.sample.names import Namer, gloss, region_name, sounds_of
from flows.sample.wording import num, tables

ARTICLES_PER_REGION = 100
KINDS = ("region", "river", "lake", "town", "building", "guild", "craft", "person", "event",
         "festival", "instrument", "animal", "dish", "ship", "work")  # fmt: skip


class Entity:
    """Anything that has an article. Its facts are attributes, so that texts call them by name."""

    if TYPE_CHECKING:

        def __getattr__(self, fact: str) -> Any: ...

        def __setattr__(self, fact: str, value: Any) -> None: ...

    def __init__(self, kind: str, name: str, title: str = "", **facts: Any) -> None:
        self.kind = kind
        self.name = name  # in running text
        self.title = title or name  # of its page, unique in its region
        self.link = f"[[{name}]]" if self.title == name else f"[[{self.title}|{name}]]"
        self.the = f"the {self.link}" if kind in tables("world")["named_with_the"] else self.link
        self.__dict__.update(facts)

    @property
    def native(self) -> str:
        """Its name in the script of its region."""
        return gloss(self.name.strip("'").split()[0], self.region.sounds["script"])


@dataclass(frozen=True)
class World:
    """A made-up world that is a function of its seed. `articles` says how much of it is meant."""

    seed: int
    articles: int

    @classmethod
    def build(cls, seed: int, articles: int) -> World:
        """The world of a seed, cut off after so many articles (at least 1)."""
        if articles < 1:
            raise ValueError(f"articles is {articles}, expected at least 1")
        return cls(seed, articles)

    def region(self, index: int) -> Entity:
        """Region `index` with all its entities, the same whenever it is asked for."""
        return _Builder(self.seed, index).region

    def regions(self) -> Iterator[tuple[Entity, list[Entity]]]:
        """The regions, one in memory at a time, with what there is an article about, in order."""
        for index in range(-(-self.articles // ARTICLES_PER_REGION)):
            region = self.region(index)
            first, *others = everything(region)
            order = [first, *Draws(self.seed, "order", index).some(others)]
            yield region, order[: self.articles - index * ARTICLES_PER_REGION]

    def entities(self) -> Iterator[Entity]:
        """What there is an article about, in the order of the articles."""
        for _, entities in self.regions():
            yield from entities


def everything(region: Entity) -> list[Entity]:
    """All of a region that has an article, the region itself first."""
    return [region, *(thing for kind in KINDS[1:] for thing in region.of_kind[kind])]


@cache
def _records(name: str) -> list[SimpleNamespace]:
    """A table of `texts/world.yaml`, a record a row."""
    columns, *rows = (
        line.split("|") for line in tables("world")["records"][name].strip().split("\n")
    )
    return [SimpleNamespace(**dict(zip(columns, row, strict=True))) for row in rows]


def _words(name: str) -> list[str]:
    found: list[str] = tables("world")["words"][name]
    return found


class _Builder:
    """Builds a region: its towns, then its people, then what they made and lived through."""

    def __init__(self, seed: int, index: int) -> None:
        self.draws = Draws(seed, "region", index)
        own = region_name(seed, index)
        self.namer = Namer(self.draws, sounds_of(index), own.name, own.capital)
        near = [region_name(seed, other) for other in (index - 1, index + 1) if other >= 0]
        self.region = Entity(
            "region", own.name, index=index, sounds=sounds_of(index), people=own.people,
            neighbours=near, near=near[0], far=near[-1], of_kind={kind: [] for kind in KINDS},
            terrain=self.draws.pick(_records("terrain")), **self._facts("region"),
        )  # fmt: skip
        self.region.region = self.region
        for kind in KINDS[1:]:
            setattr(self.region, _plural(kind), self.region.of_kind[kind])
        self._towns_and_waters(own.capital)
        self._persons()
        self._events_and_buildings()
        self._guilds_and_crafts()
        self._festivals_and_what_belongs_to_them()
        self._animals()
        self._ships_and_works()
        self._relations()

    def _facts(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for fact, choice in tables("world")["facts"].get(kind, {}).items():
            if isinstance(choice, list):
                found[fact] = self.draws.pick(choice)
            else:
                low, high = choice.split("-")
                found[fact] = self.draws.between(int(low), int(high))
        return found

    def _add(self, kind: str, name: str, title: str = "", **facts: Any) -> Entity:
        made = Entity(kind, name, title, **{"region": self.region} | self._facts(kind) | facts)
        self.region.of_kind[kind].append(made)
        return made

    def _towns_and_waters(self, capital: str) -> None:
        draws, region, namer = self.draws, self.region, self.namer
        trades = draws.some(_records("trade"), 6)
        directions = draws.some(_words("direction")) * 2
        for number in range(10):
            name = capital if number == 0 else namer.name("towns")
            way = directions[number]
            town = self._add("town", name, f"{name}, {region.name}", trade=trades[number % 6],
                             direction=way, capital=number == 0, eponym="")  # fmt: skip
            region.capital = region.towns[0]
            town.founded = region.founded + town.later
            town.population = town.people * (310 if town.capital else 83)
            town.where = "in the middle of" if town.capital else f"in the {way} of"
            town.lies = f"{num(town.distance)} kilometres {way} of {region.capital.link}"
            if town.capital:
                town.lies = "in the middle of the region"
            elif draws.chance(60):
                town.eponym = namer.name("men", syllables=1)
                town.legend = f"a {draws.pick(('ferryman', 'chieftain'))} called {town.eponym}"
        for town in region.towns:
            town.others = [other for other in region.towns if other is not town]
        # Five towns on each river; the second one runs into the first.
        for number in range(2):
            name = namer.name("waters")
            river = self._add("river", name, f"{name} (river)", towns=region.towns[number::2])
            river.source = f"Mount {namer.name('men')}"
            river.mouth = f"the {region.rivers[0].link}" if number else "the sea"
            river.first, river.second, river.third, river.fourth, river.last = river.towns
            river.largest = max(river.towns, key=lambda town: int(town.population))
            for town in river.towns:
                town.river = river
        region.river, second = region.rivers
        name = f"Lake {namer.name('waters')}"
        self._add("lake", name, river=second, town=second.second)
        region.tributary, region.villages = second, region.capital.others

    def _persons(self) -> None:
        draws, region = self.draws, self.region
        surnames = [self.namer.name("men") for _ in range(24)]
        year = 1490 + draws.below(20)
        for number in range(36):
            # Couples are born close together, generations about twelve years apart.
            year += draws.between(1, 6) if number % 2 else draws.between(10, 16)
            woman = draws.chance(50) if number % 2 == 0 else not region.persons[-1].woman
            # No two given names of a region are the same, so no two names are.
            given = self.namer.name("women" if woman else "men", syllables=draws.between(1, 2))
            role = _words("role")[number % len(_words("role"))]
            person = self._person(given, draws.pick(surnames), year, role, woman)
            if number % 2 and draws.chance(70):
                other = region.persons[-2]
                person.spouse, other.spouse = other, person
                person.home, person.children = other.home, other.children
                person.wedding = other.wedding = max(person.moved, other.moved) + 2

    def _person(self, given: str, surname: str, born: int, role: str, woman: bool) -> Entity:
        draws, region = self.draws, self.region
        trade = draws.pick(region.towns).trade
        birthplace, home = draws.some(region.towns, 2)
        able = tables("world")["occupations"].get(role, [trade.worker])
        person = self._add(
            "person", f"{given} {surname}", given=given, surname=surname, woman=woman, role=role,
            born=born, trade=trade, home=home, birthplace=birthplace, occupation=draws.pick(able),
            birth_day=f"{draws.between(1, 28)} {draws.pick(_words('month'))}", spouse=None,
            guild=None, made=[], events=[], event=None, onlooker_of=None,
        )  # fmt: skip
        person.she, person.her, person.hers = (
            ("she", "her", "her") if woman else ("he", "him", "his")
        )
        person.She, person.Hers = person.she.capitalize(), person.hers.capitalize()
        person.herself, person.girl = ("herself", "woman") if woman else ("himself", "man")
        setattr(person, role, True)  # texts ask `?craft`
        person.died, person.moved = born + person.years, born + person.moved_age
        person.fourteenth = born + 14
        person.masterpiece = f"the {draws.pick(_words('adjective'))} {trade.ware.title()}"
        person.masterpiece_year = person.moved + draws.between(3, 18)
        # A teacher has the same role, and is old enough, but still alive when the person is 20.
        masters = [other for other in region.persons if other.role == role
                   and other.born + 18 <= born and born + 20 <= other.died
                   and (role != "craft" or other.trade is trade)]  # fmt: skip
        person.teacher = draws.pick(masters) if masters else None
        person.teacher_age = born + 14 - person.teacher.born if masters else 0
        return person

    def _active(self, *roles: str, home: Entity | None = None) -> Entity:
        """Someone with one of the roles, from the town if it has such a person."""
        able: list[Entity] = [p for p in self.region.persons if p.role in roles]
        return self.draws.pick([person for person in able if person.home is home] or able)

    def _year(self, person: Entity) -> int:
        """A year in which the person was at work."""
        return self.draws.between(person.moved + 2, max(person.moved + 4, person.died - 6))

    def _events_and_buildings(self) -> None:
        draws, persons, towns = self.draws, self.region.persons, self.region.towns
        for facts in draws.some(_records("disaster")):
            alive: list[Entity] = []
            while not alive:
                hero = draws.pick(persons)
                year = self._year(hero)
                alive = [p for p in persons if p is not hero and p.born + 18 <= year < p.died]
            witness = draws.pick(alive)
            event = self._add(
                "event", f"{hero.home.name} {facts.noun.title()} of {year}", facts=facts,
                town=hero.home, year=year, hero=hero, witness=witness, hero_age=year - hero.born,
                day=f"{draws.between(1, 28)} {draws.pick(_words('month'))}",
                days=draws.between(int(facts.shortest), int(facts.longest)),
                people=hero.home.population // 4,
            )  # fmt: skip
            event.damage = event.houses * 12
            for person in (hero, witness):
                person.events.append(event)
        for town, sort in zip(towns, draws.some(_words("building")), strict=True):
            architect = self._active("craft", "steward", home=town)
            building = self._add(
                "building", f"{town.name} {sort.title()}", sort=sort, town=town, damaged_by=None,
                architect=architect, built=self._year(architect), guild=None,
            )  # fmt: skip
            building.workers, town.landmark = building.height * 4, sort
            for event in self.region.events:
                if event.town is town and event.year > building.built:
                    building.damaged_by = event
                    building.restored = event.year + draws.between(2, 30)
            architect.made.append(building)

    def _guilds_and_crafts(self) -> None:
        # Six towns, so six trades: each trade of the region has its guild.
        region = self.region
        for number, (town, hall) in enumerate(
            zip(region.towns[:6], region.buildings, strict=False)
        ):
            trade = town.trade
            members = [p for p in region.persons if p.role == "craft" and p.trade is trade]
            founder = members[0] if members else region.persons[0]
            guild = self._add(
                "guild", f"{town.name} Guild of {trade.workers.title()}", trade=trade, town=town,
                founder=founder, founded=founder.moved + self.draws.between(4, 16), hall=hall,
                motto=" ".join(self.namer.word() for _ in range(3)).capitalize(),
                followers=members[1:] or [region.persons[-1]],
            )  # fmt: skip
            for thing in (hall, *members):
                thing.guild = guild
            if number < 5:
                self._add(
                    "craft", f"{region.people} {trade.gerund}",
                    f"{trade.gerund.capitalize()} in {region.name}", trade=trade, town=town,
                    since=founder.moved, founder=founder, guild=guild, makers=members[1:],
                )  # fmt: skip

    def _festivals_and_what_belongs_to_them(self) -> None:
        draws, region = self.draws, self.region
        nouns = draws.some(_words("festival"), 4)
        for noun, event in zip(nouns, draws.some(region.events, 4), strict=True):
            self._add(
                "festival", f"{event.town.name} {noun}", town=event.town, origin=event,
                month=draws.pick(_words("month")), since=event.year + draws.between(1, 9),
            )  # fmt: skip
        kinds = draws.some(_records("music"), 3)
        for number, festival in enumerate(region.festivals):
            if number < 3:
                inventor, name = self._active("craft", "musician"), self.namer.word()
                musicians = [p for p in region.persons if p.role == "musician"]
                instrument = self._add(
                    "instrument", name, f"{name.capitalize()} ({region.people} instrument)",
                    inventor=inventor, year=self._year(inventor), town=inventor.home,
                    player=draws.pick([p for p in musicians if p is not inventor]),
                    festival=festival, music=kinds[number],
                )  # fmt: skip
                instrument.given_early = instrument.player.born + 15 < instrument.year
                inventor.made.append(instrument)
            festival.instrument = region.instruments[number % 3]
        for festival in region.festivals[:2]:
            cook, name = draws.pick(region.persons), self.namer.word()
            first, second, third = draws.some(_words("food"), 3)
            self._add(
                "dish", name, f"{name.capitalize()} ({region.people} dish)", town=festival.town,
                festival=festival, cook=cook, year=self._year(cook), first=first, second=second,
                third=third, first_is="are" if first[-1] == "s" else "is",
                third_is="are" if third[-1] == "s" else "is",
            )  # fmt: skip

    def _animals(self) -> None:
        for nature in self.draws.some(_records("nature"), 3):
            finder = self._active("naturalist")
            animal = self._add(
                "animal", f"{self.region.people} {nature.beast}", nature=nature, discoverer=finder,
                year=self._year(finder), river=self.draws.pick(self.region.rivers),
            )  # fmt: skip
            animal.length *= int(nature.size)

    def _ships_and_works(self) -> None:
        draws, region = self.draws, self.region
        for noun in draws.some(_words("ship"), 4):
            captain, facts = self._active("captain"), self._facts("ship")
            built = self._year(captain) - 2
            alive = [p for p in region.persons if p.role == "craft" and p.moved <= built <= p.died]
            town, harbour = draws.some(region.towns, 2)
            name = f"{draws.pick(_words('adjective'))} {noun}"
            ship = self._add(
                "ship", f"''{name}''", f"{name} ({region.people} {facts['sort']})", built=built,
                begun=built - 1, command=built + 2, town=town, harbour=harbour, captain=captain,
                builder=draws.pick(alive or region.persons[:1]), lost=built + facts["served"],
                **facts,
            )  # fmt: skip
            setattr(ship, ship.fate, True)  # texts ask `?wrecked`
            captain.made.append(ship)
        subjects = [*region.rivers, *region.towns, *region.events]
        for noun in draws.some(_words("work"), 5):
            author, facts = self._active("writer"), self._facts("work")
            name, year = f"The {draws.pick(_words('adjective'))} {noun}", self._year(author)
            work = self._add(
                "work", f"''{name}''", f"{name} ({region.people} {facts['sort']})", year=year,
                author=author, town=author.home, begun=year - 4, copies=facts["parts"] * 9,
                herbal=facts["sort"] == "herbal", **facts,
                subject=draws.pick([s for s in subjects if s.kind != "event" or s.year <= year]),
            )  # fmt: skip
            author.made.append(work)

    def _relations(self) -> None:
        """What belongs to each place, event and person, for texts to name."""
        region = self.region
        for place in (*region.towns, *region.rivers):
            towns = [place] if place.kind == "town" else place.towns
            for kind in KINDS[4:]:
                things = [x for x in region.of_kind[kind] if getattr(x, "town", None) in towns]
                setattr(place, _plural(kind), things)
            place.natives = [p for p in region.persons if {p.birthplace, p.home} & {*towns}]
            place.animals = [x for x in region.animals if x.river is place]
        for festival in region.festivals:
            festival.dishes = [x for x in region.dishes if x.festival is festival]
        for event in region.events:
            memory = [x for x in region.festivals if x.origin is event]
            memory += [x for x in region.works if x.subject is event]
            event.memory = memory + [x for x in region.buildings if x.damaged_by is event]
        for person in region.persons:
            person.maker = person.role != "craft" and bool(person.made)
            person.known = person.maker or person.role == "craft"
            person.thing = person.made[0] if person.made else None
            if person.events:
                person.event = person.events[0]
                person.event_age = person.event.year - person.born
                person.hero = person.event.hero is person
                person.onlooker_of = None if person.hero else person.event


def _plural(kind: str) -> str:
    return "dishes" if kind == "dish" else f"{kind}s"
