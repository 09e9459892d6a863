# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Articles about what happens: events, festivals, animals and dishes."""

from __future__ import annotations

from flows.sample import mentions
from flows.sample.draws import Draws
from flows.sample.entities import Animal, Dish, Event, Festival
from flows.sample.prose import Section, a, cap, num


def write_event(e: Event, d: Draws) -> list[Section]:
    t, f = e.town, e.facts
    lead = [
        d.pick(
            (
                f"The '''{e.name}''' was {f.what} in {t.link}, {e.region.name}.",
                f"The '''{e.name}''' is the name given to {f.what} that came over {t.link} in {e.region.name}.",
            )
        ),
        f"It began on {e.day} {e.year} and lasted {num(e.days)} days.",
        d.pick(
            (
                f"It is remembered because of {e.hero.link}, who {f.effort}.",
                f"Its best-known figure is {e.hero.link}.",
            )
        ),
    ]
    before = [
        d.pick(
            (
                f"In {e.year} {t.name} was {a(t.sort)} of some {num(t.population // 4)} people, most of whom lived by {t.trade.gerund}.",
                f"The years before {e.year} had been good ones for {t.name}, and its {t.trade.wares} fetched high prices.",
            )
        ),
        d.pick(
            (
                "There had been warnings, but the council did not believe them.",
                "Nobody in the town was prepared for what followed.",
                f"An old {t.trade.worker} is said to have foretold it, and to have been laughed at.",
            )
        ),
    ]
    course = [
        d.pick(
            (
                f"It started when {f.cause}.",
                f"It all began on {e.day}: {f.cause}.",
            )
        ),
        d.pick(
            (
                f"By the evening of the second day {f.harm}.",
                f"Before long {f.harm}.",
            )
        ),
        d.pick(
            (
                f"In the middle of it {e.hero.link}, then {num(e.year - e.hero.born)} years old, {f.effort}.",
                f"It was then that {e.hero.link} {f.effort}.",
            )
        ),
        d.pick(
            (
                f"Many called {e.hero.her} {e.hero.trait}, but all followed {e.hero.hers} orders.",
                f"{e.hero.She} hardly slept, and {e.hero.hers} neighbours brought {e.hero.her} bread and soup.",
            )
        ),
        d.pick(
            (
                f"{e.witness.link}, {a(e.witness.occupation)}, wrote down what happened each day.",
                f"Most of what is known comes from a letter by {e.witness.link}.",
            )
        ),
        f"It was over after {num(e.days)} days.",
    ]
    after = [
        d.pick(
            (
                f"In all, {num(e.houses)} houses were lost or left empty.",
                f"The damage was later put at {num(e.houses * 12)} silver pieces.",
            )
        ),
        d.pick(
            (
                f"As a lasting result, {f.outcome}.",
                f"The council met in the open air, and by the next year {f.outcome}.",
            )
        ),
        d.pick(
            (
                f"Help came from {d.pick(e.region.towns).link} and even from {d.pick(e.region.neighbours).capital}.",
                f"Many families moved to {d.pick(e.region.towns).link} and did not come back.",
            )
        ),
    ]
    memory = [mentions.of_festival(x, d) for x in e.region.festivals if x.origin is e]
    memory += [mentions.of_work(x, d) for x in e.region.works if x.subject is e]
    memory += [mentions.of_building(x, d) for x in e.region.buildings if x.damaged_by is e]
    people = [mentions.of_person(e.hero, d), mentions.of_person(e.witness, d)]
    sections = [
        Section("", [lead]),
        Section("Background", [before, mentions.of_town(t, d)]),
        Section("Course", [course]),
        Section("Consequences", [after]),
    ]
    if memory:
        sections.append(Section("Memory", memory))
    return [*sections, Section("People", people)]


def write_festival(f: Festival, d: Draws) -> list[Section]:
    t = f.town
    lead = [
        f"'''{f.name}''' is a festival held every {f.month} in {t.link}, {f.region.name}.",
        f"It lasts {num(f.days)} days and recalls {f.origin.the}.",
        d.pick(
            (
                f"It was first held in {f.since}.",
                f"The custom dates from {f.since}.",
            )
        ),
    ]
    custom = [
        d.pick(
            (
                f"On the first morning the children of {t.name} carry {f.colour} ribbons from door to door.",
                f"At sunrise a {f.colour} flag is raised over the market."
                if f.colour[0] not in "aeiou"
                else "At sunrise a flag is raised over the market.",
            )
        ),
        d.pick(
            (
                f"At noon {f.food} is handed out, and strangers are served before the people of the town.",
                f"Every household cooks {f.food} and puts a bowl of it on the window sill.",
            )
        ),
        d.pick(
            (
                f"In the evening the {f.instrument.link} is played on the bank of the {t.river.link}.",
                f"After dark, boats with candles drift down the {t.river.link} to the sound of the {f.instrument.link}.",
            )
        ),
        d.pick(
            (
                "Whoever falls asleep before midnight must sweep the square next day.",
                "Old quarrels are to be settled before the last candle has burned down.",
                "Nobody may work, and even the mills stand still.",
            )
        ),
    ]
    history = [
        f"The festival goes back to {f.origin.facts.what} in {f.origin.year}.",
        *mentions.of_event(f.origin, d)[1:],
        d.pick(
            (
                f"In {f.since} the survivors met to give thanks, and they have met every {f.month} since.",
                f"The first feast, in {f.since}, was a modest one of bread and water.",
            )
        ),
        d.pick(
            (
                "It was forbidden twice, and both times it was held in the cellars.",
                f"In later years guests came from as far as {d.pick(f.region.neighbours).capital}.",
            )
        ),
    ]
    food = [mentions.of_dish(x, d) for x in f.region.dishes if x.festival is f]
    sections = [
        Section("", [lead]),
        Section("Origin", [history]),
        Section("Customs", [custom, mentions.of_instrument(f.instrument, d)]),
    ]
    if food:
        sections.append(Section("Food", food))
    return [
        *sections,
        Section("People", [mentions.of_person(f.origin.hero, d)]),
        Section("The town", [mentions.of_town(t, d), mentions.of_river(t.river, d)]),
    ]


def write_animal(x: Animal, d: Draws) -> list[Section]:
    who = x.discoverer
    lead = [
        f"The '''{x.name}''' is {a(x.colour)} {x.group} found only in {x.region.link}."
        if x.colour[0] not in "aeiou"
        else f"The '''{x.name}''' is {a(x.group)} found only in {x.region.link}.",
        f"It keeps to {x.habitat}, above all along the {x.river.link}.",
        f"It was first described by {who.link} in {x.year}.",
    ]
    body = [
        d.pick(
            (
                f"A grown {x.beast} is about {num(x.length)} centimetres long.",
                f"With a length of about {num(x.length)} centimetres, it is smaller than its relatives in {d.pick(x.region.neighbours).name}.",
            )
        ),
        d.pick(
            (
                f"Its back is {x.colour}, while its belly is pale.",
                f"Young animals are pale and turn {x.colour} in their second summer.",
            )
        ),
        "Males and females look alike.",
    ]
    life = [
        d.pick((f"It feeds on {x.diet}.", f"Its food consists of {x.diet}.")),
        d.pick(
            (
                f"In spring the female has about {num(x.young)} young, which stay with her until autumn.",
                f"There are about {num(x.young)} young in a year, and both parents feed them.",
            )
        ),
        d.pick(
            (
                "It is most active at dusk and sleeps through the worst of the winter.",
                "It lives alone for most of the year, but gathers in groups before a frost.",
            )
        ),
        "Its call is short and is often taken for a creaking door.",
    ]
    finding = [
        f"{who.link} came upon the animal in {x.year} near {d.pick(x.river.towns).link}.",
        d.pick(
            (
                f"{who.She} watched it for three summers before {who.she} dared to publish a drawing.",
                f"{who.Hers} notes on it fill two volumes and are kept in {who.home.link}.",
            )
        ),
        *mentions.of_person(who, d)[1:],
    ]
    culture = [
        d.pick(
            (
                f"In {x.region.name} it is thought unlucky to chase {a(x.beast)}.",
                f"Children in {x.region.name} are told that {a(x.beast)} carries the first snow.",
            )
        ),
        d.pick(
            (
                f"A {x.beast} appears on the seal of {d.pick(x.region.towns).link}."
                if x.beast[0] not in "aeiou"
                else f"An {x.beast} appears on the seal of {d.pick(x.region.towns).link}.",
                f"A song played on the {d.pick(x.region.instruments).link} imitates its call.",
            )
        ),
    ]
    return [
        Section("", [lead]),
        Section("Appearance", [body]),
        Section("Way of life", [life]),
        Section("Discovery", [finding]),
        Section("In culture", [culture]),
        Section(
            "Where it lives",
            [mentions.of_river(x.river, d), mentions.of_town(d.pick(x.river.towns), d)],
        ),
    ]


def write_dish(x: Dish, d: Draws) -> list[Section]:
    first, second, third = x.foods
    lead = [
        f"'''{cap(x.name)}''' is a dish from {x.town.link} in {x.region.link}.",
        f"It is made with {first}, {second} and {third}, and it is eaten mainly in {x.season}.",
    ]
    making = [
        d.pick(
            (
                f"First the {first} is cooked slowly in an iron pot."
                if not first.endswith("s")
                else f"First the {first} are cooked slowly in an iron pot.",
                "The pot is rubbed with salt before anything is put into it.",
            )
        ),
        f"Then the cook adds {second}, covers the pot and waits for an hour.",
        f"Finally {third} is stirred in, and the dish is left to rest."
        if not third.endswith("s")
        else f"Finally {third} are stirred in, and the dish is left to rest.",
        d.pick(
            (
                "It should be thick enough for a spoon to stand in it.",
                "Good cooks never taste it before it is served.",
            )
        ),
    ]
    story = [
        d.pick(
            (
                f"According to tradition, {x.cook.link} cooked it for the first time in {x.year}.",
                f"The dish is usually ascribed to {x.cook.link}, who is said to have made it in {x.year} from what was left in the house.",
            )
        ),
        *mentions.of_person(x.cook, d)[1:],
        f"Since then it has belonged to {x.festival.link}.",
    ]
    return [
        Section("", [lead]),
        Section("Preparation", [making]),
        Section("History", [story]),
        Section("Occasions", [mentions.of_festival(x.festival, d)]),
        Section("The town", [mentions.of_town(x.town, d)]),
    ]
