# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""What articles say about one another: each function gives a few sentences about one thing.

The same facts come back in other words in the articles of everything they touch.
"""

from __future__ import annotations

from collections.abc import Callable

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
    River,
    Ship,
    Town,
    Work,
)
from flows.sample.prose import a, cap, num


def of_person(p: Person, d: Draws) -> list[str]:
    first = d.pick(
        (
            f"{p.link}, {a(p.occupation)} born in {p.birthplace.link} in {p.born}, settled in {p.home.name} at the age of {num(p.moved - p.born)}.",
            f"The {p.occupation} {p.link} came from {p.birthplace.link} to {p.home.link} in {p.moved}.",
            f"Another name that is still remembered is that of {p.link} ({p.born}&ndash;{p.died}), {a(p.occupation)} of {p.home.link}.",
            f"{p.link}, who lived in {p.home.link} from {p.moved} until {p.hers} death in {p.died}, was {a(p.occupation)}.",
        )
    )
    second = d.pick(
        (
            f"{p.She} was known as {a(p.trait)} person who {p.habit}.",
            f"Neighbours called {p.her} {p.trait}, and it is told that {p.she} {p.habit}.",
            f"Though {p.trait} by nature, {p.she} was well liked, and children ran after {p.her} in the street.",
        )
    )
    if p.role == "craft":
        third = d.pick(
            (
                f"{p.Hers} best-known piece, {p.masterpiece}, was finished in {p.masterpiece_year}.",
                f"In {p.masterpiece_year} {p.she} completed {p.masterpiece}, which can still be seen in {p.home.name}.",
            )
        )
    elif p.made:
        thing = p.made[0]
        third = d.pick(
            (
                f"{p.Hers} name is bound up with {thing.the}.",
                f"Today {p.she} is remembered above all for {thing.the}.",
            )
        )
    else:
        third = f"{p.She} died in {p.home.name} at the age of {num(p.died - p.born)}."
    return [first, second, third]


def of_event(e: Event, d: Draws) -> list[str]:
    first = d.pick(
        (
            f"In {e.year} {e.facts.what} came over {e.town.link}, because {e.facts.cause}.",
            f"The year {e.year} brought {e.facts.what} to {e.town.link}: {e.facts.cause}, and soon {e.facts.harm}.",
            f"During {e.the}, which lasted {num(e.days)} days, {e.facts.harm}.",
            f"{cap(e.the)} began when {e.facts.cause}.",
        )
    )
    second = d.pick(
        (
            f"{e.hero.link} {e.facts.effort}, and was thanked by the whole town.",
            f"It was {e.hero.link} who {e.facts.effort}.",
            f"People still tell how {e.hero.link} {e.facts.effort}.",
        )
    )
    third = d.pick(
        (
            f"As a result, {e.facts.outcome}.",
            f"Afterwards {e.facts.outcome}.",
            f"Within a few years {e.facts.outcome}.",
        )
    )
    return [first, second, third]


def of_building(b: Building, d: Draws) -> list[str]:
    first = d.pick(
        (
            f"{cap(b.the)}, built of {b.stone} in {b.built}, is the work of {b.architect.link}.",
            f"In {b.built} {b.architect.link} designed {b.the}, which stands {num(b.height)} metres high.",
            f"The best-known building of {b.town.link} is {b.the}, {a(b.sort)} of {b.stone}.",
        )
    )
    if b.damaged_by is not None:
        second = d.pick(
            (
                f"It was badly damaged in the {b.damaged_by.facts.noun.lower()} of {b.damaged_by.year} and restored in {b.restored}.",
                f"After {b.damaged_by.the} it stood empty until {b.restored}.",
            )
        )
    else:
        second = d.pick(
            (
                f"It has never been rebuilt, and its walls of {b.stone} are still those of {b.built}.",
                f"Unlike most buildings of its age, the {b.sort} came through every flood and fire.",
            )
        )
    return [first, second]


def of_guild(g: Guild, d: Draws) -> list[str]:
    first = d.pick(
        (
            f"The {g.trade.workers} of {g.town.link} have had a guild since {g.founded}, when {g.founder.link} gathered the masters of the town.",
            f"{cap(g.the)} was founded in {g.founded} by {g.founder.link}.",
            f"In {g.founded} {g.founder.link} founded {g.the}, which at its height had {num(g.members)} members.",
        )
    )
    second = d.pick(
        (
            f"Its members wear {g.colour} on feast days and meet in {g.hall.the}.",
            f"Its {g.colour} banner hangs in {g.hall.the}.",
            f"The guild still meets in {g.hall.the}, under {a(g.colour)} banner.",
        )
    )
    return [first, second]


def of_craft(c: Craft, d: Draws) -> list[str]:
    t = c.trade
    first = d.pick(
        (
            f"{cap(t.gerund)} has been practised in {c.town.link} since {c.since}.",
            f"The {t.workers} of {c.town.link} work {t.material} into {t.wares}.",
            f"Since {c.since} the town of {c.town.link} has lived largely by [[{c.title}|{t.gerund}]].",
        )
    )
    second = d.pick(
        (
            f"Apprentices first learn to {t.first}, then to {t.then}, and only in their last year to {t.last}.",
            f"An apprentice needs {num(c.years)} years to learn how to {t.first}, {t.then} and {t.last}.",
            f"It is said that every child there can {t.first} before it can read.",
        )
    )
    return [first, second]


def of_river(r: River, d: Draws) -> list[str]:
    names = [town.link for town in r.towns[:3]]
    first = d.pick(
        (
            f"The {r.link} rises on {r.source} and flows past {names[0]}, {names[1]} and {names[2]} to {r.mouth}.",
            f"From {r.source} the {r.link} runs {r.length} kilometres to {r.mouth}.",
            f"The {r.colour} water of the {r.link} once turned {num(r.mills)} mills.",
        )
    )
    second = d.pick(
        (
            "In spring it carries so much melted snow that the lower meadows disappear.",
            f"Until the first bridge was built, the only way across was the ferry at {r.towns[1].link}.",
            "Barges can use it from April to November.",
        )
    )
    return [first, second]


def of_festival(f: Festival, d: Draws) -> list[str]:
    first = d.pick(
        (
            f"Every {f.month} the people of {f.town.link} celebrate {f.link}, which goes back to {f.origin.the}.",
            f"{f.link}, held each {f.month} since {f.since}, recalls {f.origin.the}.",
            f"The town's great feast is {f.link}, which lasts {num(f.days)} days.",
        )
    )
    second = d.pick(
        (
            f"Everybody wears something {f.colour}, and the {f.instrument.name} is played until morning.",
            f"On the first evening {f.food} is served at long tables, and nobody may eat alone.",
            f"The streets are hung with {f.colour} cloth, and there is {f.food} for everyone.",
        )
    )
    return [first, second]


def of_instrument(i: Instrument, d: Draws) -> list[str]:
    first = d.pick(
        (
            f"The {i.link}, {a(i.sort)} with {num(i.count)} {i.parts}, was first built by {i.inventor.link} in {i.year}.",
            f"In {i.year} {i.inventor.link} made the first {i.link} out of {i.wood}.",
            f"Visitors soon hear the {i.link}, {a(i.sort)} that was invented in {i.town.link}.",
        )
    )
    second = d.pick(
        (
            f"Its sound is {i.sound}.",
            f"Its greatest player was {i.player.link}.",
            f"No {i.festival.link} is complete without it.",
        )
    )
    return [first, second]


def of_animal(x: Animal, d: Draws) -> list[str]:
    first = d.pick(
        (
            f"The {x.link} keeps to {x.habitat} along the {x.river.link}.",
            f"{cap(x.habitat)} are home to the {x.link}, which {x.discoverer.link} described in {x.year}.",
            f"In {x.year} {x.discoverer.link} drew the first picture of the {x.link}.",
        )
    )
    second = d.pick(
        (
            f"It is {x.colour} and feeds on {x.diet}.",
            f"It lives on {x.diet} and has about {num(x.young)} young a year.",
        )
    )
    return [first, second]


def of_dish(x: Dish, d: Draws) -> list[str]:
    first, second, third = x.foods
    return [
        d.pick(
            (
                f"A dish of the town is {x.link}, made with {first}, {second} and {third}.",
                f"In {x.season} every inn of {x.town.link} serves {x.link}.",
                f"{x.cook.link} is said to have cooked the first {x.link} in {x.year}.",
            )
        ),
        d.pick(
            (
                f"It is eaten hot, above all at {x.festival.link}.",
                "Each family has its own way of making it, and no two agree.",
            )
        ),
    ]


def of_ship(s: Ship, d: Draws) -> list[str]:
    fate = {
        "wrecked": f"She was wrecked in {s.lost}.",
        "broken up": f"She was broken up in {s.lost}, and her timbers were sold.",
        "kept": f"Since {s.lost} she has been kept as a monument in {s.harbour.link}.",
    }[s.fate]
    return [
        d.pick(
            (
                f"The {s.sort} {s.link} was built in {s.town.link} in {s.built} and sailed under {s.captain.link}.",
                f"In {s.built} {s.builder.link} built the {s.sort} {s.link}, which carried {s.cargo} to {s.harbour.link}.",
                f"Most of the {s.cargo} for {s.harbour.link} came on the {s.link}, {a(s.sort)} of {num(s.length)} metres.",
            )
        ),
        fate,
    ]


def of_work(w: Work, d: Draws) -> list[str]:
    return [
        d.pick(
            (
                f"In {w.year} {w.author.link} published {w.link}, {a(w.sort)} about {w.subject.the}.",
                f"{w.subject.the[:1].upper() + w.subject.the[1:] if w.subject.article else w.subject.the} is the subject of {w.link}, {a(w.sort)} by {w.author.link}.",
                f"The {w.sort} {w.link}, which {w.author.link} wrote in {w.town.link}, appeared in {w.year}.",
            )
        ),
        d.pick(
            (
                f"It has {num(w.parts)} parts, and schoolchildren learn the first by heart.",
                "It was read aloud in inns long before it was praised by scholars.",
            )
        ),
    ]


def of_town(t: Town, d: Draws) -> list[str]:
    where = (
        "in the middle of the region"
        if t.capital
        else f"{num(t.distance)} kilometres {t.direction} of {t.region.capital_town.link}"
    )
    return [
        d.pick(
            (
                f"{t.link} is {a(t.sort)} on the {t.river.link}, {where}.",
                f"The {t.sort} of {t.link} lies {where}.",
                f"Travellers on the {t.river.link} soon come to {t.link}, {a(t.sort)} known for its {t.trade.wares}.",
            )
        ),
        d.pick(
            (
                f"It has about {num(t.population)} inhabitants.",
                f"Its {t.trade.workers} send {t.trade.wares} as far as {d.pick(t.region.neighbours).capital}.",
                f"Its name is thought to come from {t.legend}.",
            )
        ),
    ]


MENTIONS: dict[str, Callable[..., list[str]]] = {
    "person": of_person, "event": of_event, "building": of_building, "guild": of_guild,
    "craft": of_craft, "river": of_river, "festival": of_festival, "instrument": of_instrument,
    "animal": of_animal, "dish": of_dish, "ship": of_ship, "work": of_work, "town": of_town,
}  # fmt: skip


def of(entity: Entity, draws: Draws) -> list[str]:
    """A few sentences about any entity that has a mention."""
    return MENTIONS[entity.kind](entity, draws)
