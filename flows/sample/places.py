# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Articles about places: regions, towns and buildings."""

from __future__ import annotations

from flows.sample import mentions
from flows.sample.draws import Draws
from flows.sample.entities import Building, Region, Town
from flows.sample.prose import Section, a, cap, num


def write_region(r: Region, d: Draws) -> list[Section]:
    capital = r.capital_town
    near = d.pick(r.neighbours)
    lead = [
        f"'''{r.name}''' is {a(r.terrain)} region of {num(r.area)} square kilometres.",
        d.pick(
            (
                f"Its capital is {capital.link}, and its people are called {r.people}s.",
                f"The largest town is {capital.link}, where about {num(capital.population)} people live.",
            )
        ),
        d.pick(
            (
                f"It borders on [[{near.name}]], whose capital is {near.capital}.",
                f"To the east and west lie other regions, among them [[{near.name}]].",
            )
        ),
    ]
    land = [
        d.pick(
            (
                f"The landscape is made up of {r.landscape}.",
                f"Visitors remember {r.landscape}, which cover most of the land.",
            )
        ),
        *mentions.of_river(r.rivers[0], d),
        f"Its largest tributary is the {r.rivers[1].link}, on which {r.rivers[1].towns[0].link} and {r.rivers[1].towns[-1].link} lie.",
    ]
    history = [
        d.pick(
            (
                f"{r.name} is first named in a deed of {r.founded}.",
                f"In {r.founded} ten villages swore to help one another, and this is taken as the beginning of {r.name}.",
            )
        ),
        f"For a long time it was ruled from {capital.name}, but every town kept its own laws.",
        d.pick(
            (
                f"Trade with {near.capital} brought wealth, and {r.exports} left the region by road and river.",
                f"Its wealth came from {r.exports}, which merchants carried to {near.capital}.",
            )
        ),
    ]
    events = [mentions.of_event(event, d) for event in d.some(r.events, 3)]
    people = [mentions.of_person(person, d) for person in d.some(r.persons, 3)]
    return [
        Section("", [lead]),
        Section("Geography", [land, *(mentions.of_town(t, d) for t in d.some(r.towns[1:], 2))]),
        Section("Wildlife", [mentions.of_animal(x, d) for x in r.animals]),
        Section("History", [history, *events]),
        Section(
            "Crafts and trade",
            [
                mentions.of_craft(c, d) + mentions.of_guild(g, d)
                for c, g in zip(r.crafts[:3], r.guilds, strict=False)
            ],
        ),
        Section(
            "Culture",
            [
                mentions.of_festival(r.festivals[0], d),
                mentions.of_instrument(r.instruments[0], d),
                mentions.of_work(r.works[0], d),
            ],
        ),
        Section("People", people),
    ]


def write_town(t: Town, d: Draws) -> list[Section]:
    r = t.region
    where = "in the middle of" if t.capital else f"in the {t.direction} of"
    lead = [
        d.pick(
            (
                f"'''{t.name}''' is {a(t.sort)} on the {t.river.link}, {where} {r.link}.",
                f"'''{t.name}''' is a town of about {num(t.population)} inhabitants {where} {r.link}, on the {t.river.link}.",
            )
        ),
        d.pick(
            (
                f"It is known for its {t.trade.wares} and for its {_sort_of_building(t)}.",
                f"{cap(t.trade.gerund)} has been its main trade for centuries.",
            )
        ),
        f"It is the capital of {r.name}."
        if t.capital
        else f"The distance to {r.capital_town.link}, the capital, is {num(t.distance)} kilometres.",
    ]
    land = [
        d.pick(
            (
                f"The town lies {num(t.elevation)} metres above the sea, on a bend of the {t.river.link}.",
                f"Most of {t.name} stands on the left bank of the {t.river.link}, at a height of {num(t.elevation)} metres.",
            )
        ),
        d.pick(
            (
                f"Around it stretch {r.landscape}.",
                "The old quarter is small enough to be crossed on foot in ten minutes.",
                "Three roads meet at its northern gate, and the oldest of them follows the river.",
            )
        ),
    ]
    origin = [
        d.pick(
            (
                f"{t.name} was founded in {t.founded}, when settlers from {d.pick(r.towns).name if not t.capital else 'the coast'} built a wooden tower at the ford.",
                f"The first record of {t.name} is a tax list of {t.founded}.",
                f"A charter of {t.founded} allowed the people of {t.name} to hold a market.",
            )
        ),
        d.pick(
            (
                f"The name is said to come from {t.legend}.",
                f"According to local tradition, the place was named after {t.legend}."
                if t.legend.startswith("a ")
                else f"Scholars derive the name from {t.legend}.",
            )
        ),
        d.pick(
            (
                "Walls were built soon afterwards, and two of their gates still stand.",
                "For two hundred years it remained a village of fishermen and farmers.",
                f"It grew quickly once {t.trade.gerund} had brought money into the town.",
            )
        ),
    ]
    history = [origin, *(mentions.of_event(e, d) for e in r.events if e.town is t)]
    trade = [
        d.pick(
            (
                f"The {t.trade.workers} of {t.name} use {t.trade.material} from the surrounding country.",
                f"Most families once lived by {t.trade.gerund}.",
            )
        ),
        d.pick(
            (
                f"Their {t.trade.wares} were sold in {d.pick(r.neighbours).capital} and beyond.",
                f"In every yard there stood {a(t.trade.tool)}, and the noise could be heard from the river.",
            )
        ),
    ]
    economy = [trade]
    economy += [mentions.of_craft(c, d) for c in r.crafts if c.town is t]
    economy += [mentions.of_guild(g, d) for g in r.guilds if g.town is t]
    economy += [mentions.of_ship(s, d) for s in r.ships if s.town is t or s.harbour is t]
    sights = [mentions.of_building(b, d) for b in r.buildings if b.town is t]
    culture = [mentions.of_festival(f, d) for f in r.festivals if f.town is t]
    culture += [mentions.of_dish(x, d) for x in r.dishes if x.town is t]
    culture += [mentions.of_instrument(i, d) for i in r.instruments if i.town is t]
    natives = [p for p in r.persons if p.birthplace is t or p.home is t][:4]
    sections = [
        Section("", [lead]),
        Section("Geography", [land, mentions.of_river(t.river, d)]),
        Section("History", history),
        Section("Economy", economy),
        Section("Sights", sights),
    ]
    if culture:
        sections.append(Section("Culture", culture))
    if natives:
        sections.append(Section("Notable people", [mentions.of_person(p, d) for p in natives]))
    return sections


def _sort_of_building(t: Town) -> str:
    return next((b.sort for b in t.region.buildings if b.town is t), "market")


def write_building(b: Building, d: Draws) -> list[Section]:
    t = b.town
    lead = [
        f"The '''{b.name}''' is {a(b.sort)} in {t.link}, {b.region.name}.",
        d.pick(
            (
                f"It was built in {b.built} to plans by {b.architect.link}.",
                f"{b.architect.link} designed it in {b.built}.",
            )
        ),
        f"With its height of {num(b.height)} metres it can be seen from far down the {t.river.link}.",
    ]
    history = [
        d.pick(
            (
                f"Before {b.built} there was only a wooden shed on the site.",
                f"The council of {t.name} decided to build the {b.sort} after a long debate.",
            )
        ),
        d.pick(
            (
                f"The {b.stone} was brought on barges from a quarry near {d.pick([x for x in b.region.towns if x is not t]).link}.",
                f"Some {num(b.height * 4)} workers took part, many of them {t.trade.workers} who had no other work that year.",
            )
        ),
        f"{b.architect.given} {b.architect.habit}, even on the day when the last stone was set.",
    ]
    later = []
    if b.damaged_by is not None:
        later = [
            [
                *mentions.of_event(b.damaged_by, d),
                f"The {b.sort} lost its roof and part of its eastern wall, and it was not restored until {b.restored}.",
            ]
        ]
    form = [
        d.pick(
            (
                f"The walls are of {b.stone} and more than a metre thick.",
                f"It is built of {b.stone} on a base of oak piles.",
            )
        ),
        d.pick(
            (
                "Above the door one can see a carved fish, the mark of the masons.",
                "A narrow stair leads to the top, from which the whole valley can be seen.",
            )
        ),
        d.pick(
            (
                f"Inside hang {t.trade.wares} given by the {t.trade.workers} of the town.",
                "The inside is plain, apart from a painted ceiling that shows the twelve months.",
            )
        ),
    ]
    guilds = [g for g in b.region.guilds if g.hall is b]
    use = [mentions.of_guild(g, d) for g in guilds] or [
        [
            f"The {b.sort} is still in use.",
            "It is open to visitors in summer, and a bell is rung from it at noon.",
        ]
    ]
    return [
        Section("", [lead]),
        Section("History", [history, *later]),
        Section("Description", [form]),
        Section("Use", use),
        Section("The builder", [mentions.of_person(b.architect, d)]),
        Section("Surroundings", [mentions.of_town(t, d)]),
    ]
