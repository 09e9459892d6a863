# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Articles about what people make together: guilds and crafts."""

from __future__ import annotations

from flows.sample import mentions
from flows.sample.draws import Draws
from flows.sample.entities import Craft, Guild, Person
from flows.sample.prose import Section, a, cap, num


def write_guild(g: Guild, d: Draws) -> list[Section]:
    t = g.trade
    lead = [
        f"The '''{g.name}''' is a guild in {g.town.link}, {g.region.name}.",
        f"It was founded in {g.founded} by {g.founder.link} and brings together the {t.workers} of the town.",
        f"Its motto is ''{g.motto}'', which means \"{g.meaning}\".",
    ]
    history = [
        d.pick(
            (
                f"Before {g.founded} the {t.workers} of {g.town.name} had worked each for themselves, and prices were low.",
                f"The guild grew out of a burial club that {g.founder.link} had set up in {g.founded}.",
            )
        ),
        d.pick(
            (
                f"{g.founder.given} persuaded the masters to buy {t.material} together.",
                f"{g.founder.given}, who was {g.founder.trait}, went from house to house until all had signed.",
            )
        ),
        d.pick(
            (
                f"By the end of the century it counted {num(g.members)} members.",
                f"At its height it had {num(g.members)} members, more than any other guild in {g.region.name}.",
            )
        ),
        d.pick(
            (
                "It lost its privileges when the old laws were abolished, but it was never dissolved.",
                f"A quarrel with the merchants of {d.pick(g.region.neighbours).capital} nearly ruined it.",
            )
        ),
    ]
    rules = [
        d.pick(
            (
                f"Whoever wished to become a master had to {t.first}, {t.then} and {t.last} before the eyes of three judges.",
                f"A candidate had to make {a(t.ware)} without help, and it was broken in public if it was bad.",
            )
        ),
        d.pick(
            (
                f"No member was allowed to lend {t.tool}s to strangers.",
                f"Work after dark was forbidden, because bad light makes bad {t.wares}.",
            )
        ),
        "Widows kept the rights of their husbands, and several of them led large workshops.",
    ]
    custom = [
        d.pick(
            (
                f"On feast days the members wear {g.colour} and walk in order of age.",
                f"The guild's colour is {g.colour}, and its banner shows {a(t.tool)}.",
            )
        ),
        f"They meet in {g.hall.the}, where a chair is always left empty for {g.founder.given}.",
    ]
    return [
        Section("", [lead]),
        Section("History", [history, mentions.of_person(g.founder, d)]),
        Section("Rules", [rules]),
        Section("Customs", [custom, mentions.of_building(g.hall, d)]),
        Section("Members", [mentions.of_person(p, d) for p in _members(g)]),
    ]


def _members(g: Guild) -> list[Person]:
    return [p for p in g.region.persons if p.guild is g and p is not g.founder][:3] or [g.master]


def write_craft(c: Craft, d: Draws) -> list[Section]:
    t = c.trade
    lead = [
        f"'''{cap(t.gerund)}''' has been practised in {c.region.link} since {c.since}, above all in {c.town.link}.",
        f"The {t.workers} of the region make {t.wares} from {t.material}.",
        f"The craft was brought to the region by {c.founder.link}.",
    ]
    method = [
        d.pick(
            (
                f"The work begins with the {t.material}.",
                f"Everything depends on good {t.material}.",
            )
        ),
        d.pick(
            (
                f"It is the task of the youngest to {t.first}.",
                f"In the first weeks of the year the apprentices {t.first}.",
            )
        ),
        d.pick(
            (
                f"After that two people are needed to {t.then}.",
                f"When this is done, they {t.then}, which may take several days.",
            )
        ),
        d.pick(
            (
                f"Only a master is allowed to {t.last}.",
                f"At the end the master comes to {t.last}.",
            )
        ),
        f"The best {t.wares} are said to owe their quality to {c.secret}.",
    ]
    learning = [
        f"An apprenticeship takes {num(c.years)} years.",
        d.pick(
            (
                f"During this time the apprentice lives in the {t.place} and receives no pay.",
                f"On the last day the apprentice is given {a(t.tool)}, which is kept for life.",
            )
        ),
        d.pick(
            (
                f"Daughters were admitted from the beginning, and many {t.workers} of note were women.",
                f"Few who begin ever finish: of ten apprentices, perhaps four become {t.workers}.",
            )
        ),
    ]
    history = [
        d.pick(
            (
                f"Before {c.since} all {t.wares} in {c.region.name} came from {d.pick(c.region.neighbours).capital}.",
                f"The beginnings lie in {c.since}, when {c.founder.link} moved to {c.founder.home.link}.",
            )
        ),
        f"{c.founder.given} brought {a(t.tool)} along and taught whoever wished to learn.",
        d.pick(
            (
                f"A generation later every street in {c.town.name} had its {t.place}.",
                f"Soon the {t.wares} of {c.town.name} were better than those of any other town.",
            )
        ),
    ]
    makers = [
        p for p in c.region.persons if p.role == "craft" and p.trade == t and p is not c.founder
    ]
    sections = [
        Section("", [lead]),
        Section("Method", [method]),
        Section("Apprenticeship", [learning]),
        Section("History", [history, mentions.of_person(c.founder, d)]),
        Section("Guild", [mentions.of_guild(g, d) for g in c.region.guilds if g.trade == t]),
    ]
    if makers:
        sections.append(Section("Masters", [mentions.of_person(p, d) for p in makers[:4]]))
    return sections
