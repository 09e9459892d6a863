"""The sample world: regions made one at a time from (seed, index), so that it can be any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flows.sample.draws import Draws
from flows.sample.entities import Entity, Lake, Person, Region, River, Town
from flows.sample.facts import (
    COLOURS,
    DIRECTIONS,
    HABITS,
    MONTHS,
    TERRAINS,
    TOWN_KINDS,
    TRADES,
    TRAITS,
)
from flows.sample.makings import add_makings
from flows.sample.names import PHONOLOGIES, Namer, region_name

ARTICLES_PER_REGION = 100
_ROLES = ("craft", "craft", "writer", "craft", "craft", "captain", "craft", "musician", "craft",
          "steward", "craft", "craft", "naturalist", "craft", "craft", "writer", "craft",
          "craft")  # fmt: skip
_OCCUPATIONS = {
    "writer": ("writer", "poet", "chronicler"), "captain": ("ship's captain", "river pilot"),
    "musician": ("musician", "composer"), "steward": ("town steward", "judge"),
    "naturalist": ("naturalist", "physician"),
}  # fmt: skip


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

    def region(self, index: int) -> Region:
        """Region `index` with all its entities, the same whenever it is asked for."""
        return build_region(self.seed, index)

    def regions(self) -> Iterator[Region]:
        """The regions that the articles come from, one in memory at a time."""
        for index in range(-(-self.articles // ARTICLES_PER_REGION)):
            yield self.region(index)

    def entities(self) -> Iterator[Entity]:
        """What there is an article about, in the order of the articles."""
        left = self.articles
        for region in self.regions():
            for entity in articles_order(self.seed, region)[:left]:
                yield entity
                left -= 1


def articles_order(seed: int, region: Region) -> list[Entity]:
    """The region's entities in the order of their pages: the region, then all kinds mixed."""
    first, *others = region.entities()
    return [first, *Draws(seed, "order", region.index).shuffled(others)]


def build_region(seed: int, index: int) -> Region:
    """A region with its towns, people and everything they made or lived through."""
    draws = Draws(seed, "region", index)
    sounds = PHONOLOGIES[index % len(PHONOLOGIES)]
    own = region_name(seed, index)
    neighbours = [region_name(seed, other) for other in (index - 1, index + 1) if other >= 0]
    terrain, landscape, exports = draws.pick(TERRAINS)
    region = Region(
        name=own.name, title=own.name, index=index, sounds=sounds, people=own.people,
        terrain=terrain, landscape=landscape, exports=exports, founded=draws.between(1180, 1390),
        area=draws.between(12, 95) * 100, neighbours=neighbours,
    )  # fmt: skip
    namer = Namer(draws, sounds, own.name, own.capital)
    _add_towns(region, draws, namer, own.capital)
    _add_waters(region, draws, namer)
    _add_persons(region, draws, namer)
    add_makings(region, draws, namer)
    for entity in region.entities():
        entity.region = region
    return region


def _add_towns(region: Region, draws: Draws, namer: Namer, capital: str) -> None:
    trades = draws.some(TRADES, 6)
    directions = draws.shuffled(DIRECTIONS) + draws.shuffled(DIRECTIONS)
    for number in range(10):
        name = capital if number == 0 else namer.name(region.sounds.towns)
        founder = namer.name(region.sounds.men, syllables=1)
        legend = draws.pick((
            f"a ferryman called {founder}", f"a chieftain called {founder}",
            "an old word for a ford", "an old word for a clearing", "a white stone by the road",
        ))  # fmt: skip
        region.towns.append(Town(
            name=name, title=f"{name}, {region.name}",
            sort=draws.pick(TOWN_KINDS), founded=region.founded + draws.between(4, 120),
            population=draws.between(9, 99) * (310 if number == 0 else 83),
            elevation=draws.between(4, 720), trade=trades[number % len(trades)],
            direction=directions[number], distance=draws.between(6, 84), legend=legend,
            capital=number == 0,
        ))  # fmt: skip


def _add_waters(region: Region, draws: Draws, namer: Namer) -> None:
    # Five towns on each river; the second one runs into the first.
    for number in range(2):
        name = namer.name(region.sounds.waters)
        towns = region.towns[number::2]
        mouth = "the sea" if number == 0 else f"the {region.rivers[0].link}"
        river = River(
            name=name, title=f"{name} (river)", length=draws.between(40, 310),
            source=f"Mount {namer.name(region.sounds.men)}", mouth=mouth,
            colour=draws.pick(COLOURS), mills=draws.between(12, 60), towns=towns,
        )  # fmt: skip
        region.rivers.append(river)
        for town in towns:
            town.river = river
    name = namer.name(region.sounds.waters, syllables=1)
    region.lakes.append(Lake(
        name=f"Lake {name}", title=f"Lake {name}", area=draws.between(5, 90),
        depth=draws.between(9, 140), islands=draws.between(2, 9), river=region.rivers[1],
        town=region.rivers[1].towns[1],
    ))  # fmt: skip


def _add_persons(region: Region, draws: Draws, namer: Namer) -> None:
    surnames = [namer.name(region.sounds.men) for _ in range(24)]
    titles: set[str] = set()
    year = 1490 + draws.below(20)
    for number in range(36):
        # Couples are born close together, generations about twelve years apart.
        year += draws.between(1, 6) if number % 2 else draws.between(10, 16)
        woman = draws.chance(50) if number % 2 == 0 else not region.persons[-1].woman
        ending = region.sounds.women if woman else region.sounds.men
        given = surname = ""
        while not given or f"{given} {surname}" in titles:
            given, surname = namer.name(ending, syllables=draws.between(1, 2)), draws.pick(surnames)
        titles.add(f"{given} {surname}")
        role = _ROLES[number % len(_ROLES)]
        trade = draws.pick(region.towns).trade
        birthplace, home = draws.some(region.towns, 2)
        occupation = trade.worker if role == "craft" else draws.pick(_OCCUPATIONS[role])
        day = f"{draws.between(1, 28)} {draws.pick(MONTHS)}"
        person = Person(
            name=f"{given} {surname}", title=f"{given} {surname}", given=given, surname=surname,
            woman=woman, role=role, occupation=occupation, born=year,
            died=year + draws.between(44, 83), birth_day=day, birthplace=birthplace, home=home,
            trade=trade, trait=draws.pick(TRAITS), habit=draws.pick(HABITS),
            children=draws.between(2, 7), moved=year + draws.between(19, 24),
        )  # fmt: skip
        person.teacher = _teacher(region, person, draws)
        region.persons.append(person)
        if number % 2 and draws.chance(70):
            other = region.persons[-2]
            person.spouse, other.spouse = other, person
            person.home, person.children = other.home, other.children


def _teacher(region: Region, person: Person, draws: Draws) -> Person | None:
    """Someone with the same role, and old enough, but still alive when the person is 14."""
    able = [
        other
        for other in region.persons
        if other.role == person.role
        and other.born + 18 <= person.born
        and person.born + 20 <= other.died
        and (person.role != "craft" or other.trade == person.trade)
    ]
    return draws.pick(able) if able else None
