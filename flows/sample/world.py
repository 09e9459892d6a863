"""The sample world, of any size: regions by (seed, index) and the rules of `texts/world.yaml`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import cycle, pairwise
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from flows.sample.draws import Draws
from flows.sample.wording import Sentence, tables

ARTICLES_PER_REGION = 100
KINDS = ("region", "river", "lake", "town", "building", "guild", "craft", "person", "event",
         "festival", "instrument", "animal", "dish", "ship", "work")  # fmt: skip


class World(NamedTuple):
    """A made-up world that is a function of its seed. `articles` says how much of it is meant."""

    seed: int
    articles: int

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


class Entity:
    """Anything that has an article. Its facts are attributes, so that texts call them by name:
    `name` in running text, `title` of its page, `link`, and `the`, a link with its article."""

    if TYPE_CHECKING:

        def __getattr__(self, fact: str) -> Any: ...

        def __setattr__(self, fact: str, value: Any) -> None: ...

    def __init__(self, kind: str, builder: _Builder, **facts: Any) -> None:
        self.kind = kind
        self.__dict__.update(facts)
        for fact, find in _rules(kind):
            if fact not in facts:
                self.__dict__[fact] = find(self, builder)
        name, title = self.name, self.__dict__.setdefault("title", self.name)
        self.link = f"[[{name}]]" if title == name else f"[[{title}|{name}]]"
        self.the = f"the {self.link}" if kind in tables("world")["named_with_the"] else self.link


def everything(region: Entity) -> list[Entity]:
    """All of a region that has an article, the region itself first."""
    return [region, *(thing for kind in KINDS[1:] for thing in region.of_kind[kind])]


Find = Callable[[Any, "_Builder"], Any]  # a compiled rule: finds a fact of a thing
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv,
    "=": operator.eq, "!=": operator.ne, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@cache
def _rules(kind: str) -> list[tuple[str, Find]]:
    rules = tables("world")["kinds"][kind].items()
    return [(fact, _rule(rule)) for fact, rule in rules if fact not in ("many", "joins", "marks")]


def _rule(rule: Any) -> Find:
    """A rule of `texts/world.yaml`, compiled."""
    match rule:
        case None | []:
            return lambda _thing, _builder: None if rule is None else []
        case {"name": str(sort)}:
            return lambda thing, builder: builder.namer.name(
                vars(thing)[sort[1:]] if sort[0] == "$" else sort,
                syllables=rule.get("syllables", 2),
            )
        case {"word": count}:
            return lambda _, builder: " ".join(builder.namer.word() for _ in range(count))
        case {"deal": table}:
            return lambda _, builder: builder.deal(table, of=rule.get("of", 99))
        case {"each": things}:
            return lambda thing, _: getattr(thing.region, things)[thing.number]
        case {"one": things} | {"all": things}:
            return _chosen(things, is_one="one" in rule, where=rule.get("where", ((),)))
    if isinstance(rule, str):
        if rule.startswith("= "):
            same = attrgetter(rule[2:])
            return lambda thing, _: same(thing)
        if ends := re.fullmatch(r"([\w.]+)-([\w.]+)", rule):
            low, high = map(_number, ends.groups())
            return lambda thing, builder: builder.draws.between(low(thing), high(thing))
        if parts := re.fullmatch(r"([\w.]+) ([-+*/]) ([\w.]+)", rule):
            first, result, second = _number(parts[1]), _OPERATORS[parts[2]], _number(parts[3])
            return lambda thing, _: result(first(thing), second(thing))
    say = Sentence([rule] if isinstance(rule, str) else rule).say
    return lambda thing, builder: say(thing, builder.draws)


def _number(text: str) -> Callable[[Any], int]:
    fact = attrgetter("number" if text.isdigit() else text)
    return (lambda _: int(text)) if text.isdigit() else lambda thing: int(fact(thing))


def _chosen(things: str, *, is_one: bool, where: Sequence[Sequence[str]]) -> Find:
    tests = [[_condition(text) for text in texts] for texts in where]

    def find(thing: Any, builder: _Builder) -> Any:
        for conditions in tests:
            fit = getattr(builder.region, things)
            for fitting in conditions:
                fit = fitting(fit, thing)
            if fit:
                break
        return fit if not is_one else builder.draws.pick(fit) if fit else None

    return find


def _condition(text: str) -> Callable[[list[Any], Any], list[Any]]:
    """`role = writer`, `born < $year`: those of a list that fit, or have no such fact."""
    fact, sign, value = text.split(" ")
    compared, options, wanted = _OPERATORS[sign], value.split("|"), attrgetter(value.lstrip("$"))
    if value[0] != "$":
        return lambda others, _: [x for x in others if getattr(x, fact) in options]

    def fitting(others: list[Any], thing: Any) -> list[Any]:
        limit = wanted(thing)
        return [x for x in others if compared(getattr(x, fact, limit), limit)]

    return fitting


def sounds_of(index: int) -> dict[str, str]:
    """The syllable system of region `index`: neighbours sound unlike each other."""
    systems: list[dict[str, str]] = tables("world")["sounds"]
    return systems[index % len(systems)]


@lru_cache(64)
def region_name(seed: int, index: int) -> SimpleNamespace:
    """What is known of region `index` without building it. The `name` and that of its `people` are
    different for every index below a hundred thousand."""
    sounds, letters = sounds_of(index), list[str]()
    onsets = sounds["onsets"].split()
    vowels = [vowel for vowel in sounds["vowels"].split() if vowel.isascii()]
    # Mixed-radix digits of a permuted index: no two regions share them. A stem can be parsed back
    # (every syllable is consonants and one vowel), so no two names are the same either.
    total = len(onsets) ** 2 * len(vowels) ** 2 * 4
    # A prime above every `total`, so multiplying by it permutes.
    turn = index // len(tables("world")["sounds"])
    number = (turn * 999_983 + Draws(seed, "regions").below(total)) % total
    for choice in (onsets, vowels, ["l", "n", "r", "m"], onsets, vowels):
        number, digit = divmod(number, len(choice))
        letters.append(choice[digit])
    if sounds["region"][0] in "aeiou":
        letters.append({"l": "l", "n": "t", "r": "r", "m": "n"}[letters[2]])
    stem, script = "".join(letters).capitalize(), sounds["script"]
    name, people = stem + sounds["region"], stem + sounds["people"]
    capital = Namer(Draws(seed, "capital", index), sounds).name("towns")
    return SimpleNamespace(name=name, people=people, capital=capital, script=script,
                           native=sounds["native"], link=f"[[{name}]]")  # fmt: skip


class Namer:
    """Makes names of one region, no two alike. None is meant to be a real person or place."""

    def __init__(self, draws: Draws, sounds: dict[str, str], *taken: str) -> None:
        self._draws = draws
        self._endings = {sort: text.split() for sort, text in sounds.items()}
        self._taken = {*tables("world")["no_names"], *taken}
        # Each region speaks with a part of its system's sounds: neighbours of a kind differ too.
        self._onsets = draws.some(self._endings["onsets"], 11)
        self._vowels = draws.some(self._endings["vowels"], 4)

    def _open(self) -> str:
        return self._draws.pick(self._onsets) + self._draws.pick(self._vowels)

    def _syllable(self) -> str:
        return self._open() + (
            self._draws.pick(self._endings["codas"]) if self._draws.chance(33) else ""
        )

    def name(self, sort: str, *, syllables: int = 2) -> str:
        """A fresh name of a sort: `towns`, `waters`, `women` or `men`."""
        while True:
            ending = self._draws.pick(self._endings[sort])
            name = "".join(self._syllable() for _ in range(syllables - 1)) + self._open()
            name += self._draws.pick("nlrtm") if ending[0] in "aeiouåöéúüóíy" else ""
            name = (name + ending).capitalize()
            if name not in self._taken:
                self._taken.add(name)
                return name

    def word(self) -> str:
        """A word of the region's language, in lower case."""
        return self._syllable() + self._syllable()


@cache
def _table(name: str) -> list[Any]:
    """A list of words of `texts/world.yaml`, or a table, a record a row; empty if there is none."""
    table = tables("world")
    if name not in table["records"]:
        return list(table["words"].get(name, ()))
    columns, *rows = (line.split("|") for line in table["records"][name].strip().split("\n"))
    return [SimpleNamespace(**dict(zip(columns, row, strict=True))) for row in rows]


class _Builder:
    """Builds a region: one kind of thing after the other, and what belongs together."""

    def __init__(self, seed: int, index: int) -> None:
        self.draws = Draws(seed, "region", index)
        self._decks, self._surnames = dict[str, Iterator[Any]](), list[str]()
        own, sounds = region_name(seed, index), sounds_of(index)
        self.namer = Namer(self.draws, sounds, own.name, own.capital)
        near = [region_name(seed, other) for other in (index - 1, index + 1) if other >= 0]
        region = self.region = Entity(
            "region", self, name=own.name, seed=seed, index=index, sounds=sounds, near=near[0],
            people=own.people, neighbours=near, far=near[-1], of_kind={kind: [] for kind in KINDS},
            terrain=self.draws.pick(_table("terrain")),
        )  # fmt: skip
        region.region, self._capital = region, own.capital
        for kind in KINDS[1:]:
            setattr(region, _plural(kind), region.of_kind[kind])
        for kind in [*tables("world")["kinds"]][1:]:
            for number in range(tables("world")["kinds"][kind]["many"]):
                self._add(kind, number)
            self._after(kind)
        region.around = [region, *near]
        self._relate()

    def deal(self, name: str, *, of: int = 99) -> Any:
        """The next of a table's records, or of the region's things, which are dealt in turn."""
        if name not in self._decks:
            known = _table(name) or getattr(self.region, name)
            self._decks[name] = cycle(self.draws.some(known, of))
        return next(self._decks[name])

    def _add(self, kind: str, number: int) -> None:
        facts: dict[str, Any] = {"number": number, "region": self.region}
        if kind == "person":
            facts |= self._birth(number)
        elif kind == "town" and number == 0:
            facts["name"] = self._capital
        made, rules = Entity(kind, self, **facts), tables("world")["kinds"][kind]
        vars(self.region).setdefault(kind, made)
        self.region.of_kind[kind].append(made)
        for path in rules.get("joins", ()):
            attrgetter(path)(made).append(made)
        for path, fact in rules.get("marks", {}).items():
            marked = attrgetter(path)(made)
            for other in marked if isinstance(marked, list) else [marked]:
                setattr(other, fact, made)

    def _birth(self, number: int) -> dict[str, Any]:
        # Couples are born close together, generations about twelve years apart.
        draws, before = self.draws, self.region.persons[-1:]
        born = before[0].born if before else 1490 + draws.below(20)
        woman = not before[0].woman if number % 2 else draws.chance(50)
        self._surnames = self._surnames or [self.namer.name("men") for _ in range(24)]
        return {
            "born": born + (draws.between(1, 6) if number % 2 else draws.between(10, 16)),
            "woman": woman, "sex": "women" if woman else "men",
            "surname": draws.pick(self._surnames),
            "role": _table("role")[number % len(_table("role"))],
        }  # fmt: skip

    def _after(self, kind: str) -> None:
        """What belongs together once all things of a kind are there."""
        region = self.region
        if kind == "town":
            region.capital, *region.villages = region.towns
            for town in region.towns:
                town.others = [other for other in region.towns if other is not town]
        elif kind == "river":  # five towns on each; the second one runs into the first
            region.tributary = region.rivers[1]
            for number, river in enumerate(region.rivers):
                river.towns = region.towns[number::2]
                river.first, river.second, river.third, river.fourth, river.last = river.towns
                river.largest = max(river.towns, key=lambda town: int(town.population))
                for town in river.towns:
                    town.river = river
        elif kind == "person":
            for one, other in [*pairwise(region.persons)][::2]:
                if self.draws.chance(70):
                    one.spouse, other.spouse = other, one
                    other.home, other.children = one.home, one.children
                    one.wedding = other.wedding = max(one.moved, other.moved) + 2
        elif kind == "event":
            region.subjects = [*region.rivers, *region.towns, *region.events]

    def _relate(self) -> None:
        """What belongs to each place, event and person, for texts to name."""
        region = self.region
        for place in (*region.towns, *region.rivers):
            towns = [place] if place.kind == "town" else place.towns
            for kind in KINDS[4:]:
                things = [x for x in region.of_kind[kind] if vars(x).get("town") in towns]
                setattr(place, _plural(kind), things)
            place.natives = [p for p in region.persons if {p.birthplace, p.home} & {*towns}]
            place.animals = [x for x in region.animals if x.river is place]
        for event in region.events:
            event.memory = [
                x for x in (*region.festivals, *region.works, *region.buildings)
                if any(vars(x).get(f) is event for f in ("origin", "subject", "damaged_by"))
            ]  # fmt: skip
        for person in region.persons:
            person.thing = person.made[0] if person.made and person.role != "craft" else None
            person.known = person.thing or person.role == "craft"
            if person.events:
                person.event = person.events[0]
                person.event_age = person.event.year - person.born
                person.hero = person.event.hero is person
                person.onlooker_of = None if person.hero else person.event


def _plural(kind: str) -> str:
    return "dishes" if kind == "dish" else f"{kind}s"
