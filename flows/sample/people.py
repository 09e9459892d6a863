# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Articles about people."""

from __future__ import annotations

from flows.sample import mentions
from flows.sample.draws import Draws
from flows.sample.entities import Person
from flows.sample.prose import Section, a, cap, num


def write_person(p: Person, d: Draws) -> list[Section]:
    """A life in order: birth, learning, work, the things made, the last years, memory."""
    sections = [
        Section("", [_lead(p, d)]),
        Section("Early life", [_childhood(p, d), _learning(p, d)]),
        Section("Life and work" if p.role == "craft" else "Career", _career(p, d)),
    ]
    if p.events:
        event = p.events[0]
        sections.append(Section(f"The {event.facts.noun.lower()} of {event.year}", [_event(p, d)]))
    sections.append(Section("Family and character", [_family(p, d)]))
    sections.append(Section("Last years and legacy", [_death(p, d), mentions.of_town(p.home, d)]))
    return sections


def _lead(p: Person, d: Draws) -> list[str]:
    first = f"'''{p.name}''' ({p.birth_day} {p.born} &ndash; {p.died}) was {a(p.region.people + ' ' + p.occupation)} who worked in {p.home.link}."
    if p.role == "craft":
        second = d.pick(
            (
                f"{p.She} is best known for {p.masterpiece}, finished in {p.masterpiece_year}.",
                f"{p.Hers} fame rests on {p.masterpiece} of {p.masterpiece_year}.",
                f"Among {p.hers} many {p.trade.wares}, {p.masterpiece} of {p.masterpiece_year} is the most admired.",
            )
        )
    elif p.made:
        second = d.pick(
            (
                f"{p.She} is remembered for {p.made[0].the}.",
                f"{p.Hers} name is known today mainly because of {p.made[0].the}.",
            )
        )
    else:
        second = f"{p.She} was one of the best-known people in {p.region.link} in {p.hers} time."
    third = d.pick(
        (
            f"Born in {p.birthplace.link}, {p.she} spent most of {p.hers} life on the banks of the {p.home.river.link}.",
            f"{p.She} came from {p.birthplace.link} and died in {p.home.name} at the age of {num(p.died - p.born)}.",
            f"A {p.trait} and private person, {p.she} left few letters."
            if p.trait[0] not in "aeiou"
            else f"{p.She} left few letters.",
        )
    )
    return [first, second, third]


def _childhood(p: Person, d: Draws) -> list[str]:
    t = p.trade
    return [
        d.pick(
            (
                f"{p.given} was born on {p.birth_day} {p.born} in {p.birthplace.link}, the child of {a(t.worker)}.",
                f"{p.Hers} parents were {t.workers} in {p.birthplace.link}, where {p.she} was born on {p.birth_day} {p.born}.",
                f"{p.surname} came into the world in {p.birthplace.link} in {p.born}, in a house beside the {p.birthplace.river.link}.",
            )
        ),
        d.pick(
            (
                f"The family lived near the river, and {p.hers} earliest memory was of boats loaded with {t.material}.",
                f"As a child {p.she} played between stacks of {t.material}, and {p.she} later said that {p.she} could name every tool in the house before {p.she} could count.",
                f"There was little money, and {p.she} was sent to work in {a(t.place)} at the age of nine.",
                f"{p.Hers} grandmother taught {p.her} to read from an old almanac, and it was the only book in the house.",
            )
        ),
        d.pick(
            (
                f"At school {p.she} was thought {p.trait}, but {p.hers} teachers praised {p.hers} steady hand.",
                f"Even then people noticed how {p.trait} {p.she} was.",
                f"When {p.she} was twelve, {p.hers} father died, and the household moved to an uncle's {t.place}.",
            )
        ),
    ]


def _learning(p: Person, d: Draws) -> list[str]:
    t, master = p.trade, p.teacher
    if master is not None:
        opening = d.pick(
            (
                f"At fourteen {p.she} became the pupil of {master.link}, who was then {num(p.born + 14 - master.born)} years old.",
                f"{p.Hers} teacher was {master.link}, a {master.trait} master from {master.birthplace.link}."
                if master.trait[0] not in "aeiou"
                else f"{p.Hers} teacher was {master.link}, a master from {master.birthplace.link}.",
                f"In {p.born + 14} {p.she} was sent to {master.link}, and {p.she} stayed for five years.",
            )
        )
        close = d.pick(
            (
                f"{master.given} {master.habit}, and the pupil soon did the same.",
                f"The two often quarrelled, yet {p.she} always spoke of {master.given} with respect.",
                f"Years later {p.she} wrote that everything {p.she} knew had come from {master.given}.",
            )
        )
    else:
        opening = d.pick(
            (
                f"{p.She} had no master and taught {p.her}self from what {p.she} saw in other people's workshops."
                if p.woman
                else "He had no master and taught himself from what he saw in other people's workshops.",
                f"At fifteen {p.she} left home and walked from town to town, working wherever {p.she} was wanted.",
                f"{p.She} learned from several masters, none of whom kept {p.her} longer than a year.",
            )
        )
        close = f"It was a hard time, but {p.she} called it the best school in {p.region.name}."
    middle = d.pick(
        (
            f"There {p.she} learned to {t.first}, to {t.then} and to {t.last}.",
            f"For the first two years {p.she} was only allowed to {t.first}; later {p.she} was shown how to {t.last}.",
            f"By the end {p.she} could {t.then} faster than anyone in the house.",
        )
    )
    return [opening, middle, close]


def _career(p: Person, d: Draws) -> list[list[str]]:
    arrival = [
        d.pick(
            (
                f"In {p.moved} {p.she} moved to {p.home.link}, which was then {a(p.home.sort)} of a few hundred houses.",
                f"{p.She} settled in {p.home.link} in {p.moved}, at the age of {num(p.moved - p.born)}.",
                f"When {p.she} arrived in {p.home.link} in {p.moved}, {p.she} owned nothing but a coat and {a(p.trade.tool)}.",
            )
        ),
        d.pick(
            (
                f"The town was known for its {p.home.trade.wares}, and strangers were not always welcome.",
                f"{p.She} rented a room above {a(p.home.trade.place)} and paid for it with work.",
                f"At first {p.she} lived in the house of a cousin near the market.",
            )
        ),
    ]
    if p.role == "craft":
        arrival += [
            d.pick(
                (
                    f"{p.Hers} first large order was {a(p.trade.ware)} for the town council.",
                    f"Within two years {p.she} had a {p.trade.place} of {p.hers} own and three apprentices.",
                )
            ),
            d.pick(
                (
                    f"The work that made {p.her} famous was {p.masterpiece}, which took four winters and was shown to the public in {p.masterpiece_year}.",
                    f"In {p.masterpiece_year} {p.she} finished {p.masterpiece}; people came from {d.pick(p.region.neighbours).capital} to see it.",
                    f"{cap(p.masterpiece)} was completed in {p.masterpiece_year}, and no {p.trade.worker} of the region has equalled it since.",
                )
            ),
        ]
        if p.guild is not None:
            arrival += mentions.of_guild(p.guild, d)
    else:
        arrival.append(
            {
                "writer": f"{p.She} earned a living by writing letters for others and read {p.hers} own pages aloud in the inns.",
                "musician": f"{p.She} played at weddings and funerals until the council gave {p.her} a place in the town band.",
                "captain": f"{p.She} worked {p.hers} way up from deckhand, and by thirty {p.she} had a ship of {p.hers} own.",
                "steward": f"{p.She} kept the town's accounts and settled quarrels, and both sides usually thanked {p.her}.",
                "naturalist": f"{p.She} walked the banks of the {p.home.river.link} with a notebook, and drew everything that moved.",
            }[p.role]
        )
    paragraphs = [arrival]
    paragraphs += [mentions.of(thing, d) for thing in p.made[:3]]
    return paragraphs


def _event(p: Person, d: Draws) -> list[str]:
    event = p.events[0]
    age = num(event.year - p.born)
    if event.hero is p:
        return [
            d.pick(
                (
                    f"{p.given} was {age} years old when {event.facts.what} came over {event.town.link}.",
                    f"In {event.year}, at the age of {age}, {p.she} lived through {event.the}.",
                )
            ),
            f"As {event.facts.harm}, {p.she} {event.facts.effort}.",
            d.pick(
                (
                    f"{p.She} never spoke of it afterwards, but {event.witness.link} set it down in a letter.",
                    f"Our main source is a letter by {event.witness.link}, who saw it all.",
                )
            ),
            d.pick(
                (
                    f"The town thanked {p.her} with a silver cup, and {event.facts.outcome}.",
                    f"When it was over, {event.facts.outcome}.",
                )
            ),
        ]
    return [
        f"{p.given} was among those who saw {event.the}.",
        *mentions.of_event(event, d),
        d.pick(
            (
                f"A letter in which {p.she} describes those days is kept in {event.town.name}.",
                f"{p.She} was {age} at the time, and the memory stayed with {p.her}.",
            )
        ),
    ]


def _family(p: Person, d: Draws) -> list[str]:
    if p.spouse is not None:
        opening = [
            d.pick(
                (
                    f"{p.She} was married to {p.spouse.link}, {a(p.spouse.occupation)} from {p.spouse.birthplace.link}.",
                    f"In {max(p.moved, p.spouse.moved) + 2} {p.she} married {p.spouse.link}, who was {a(p.spouse.occupation)}.",
                )
            ),
            d.pick(
                (
                    f"They had {num(p.children)} children, and the eldest became {a(p.trade.worker)}.",
                    f"The couple had {num(p.children)} children, of whom two moved to {d.pick(p.region.neighbours).name}.",
                    f"{p.spouse.given} {p.spouse.habit}, and visitors found the house a strange but friendly place.",
                )
            ),
        ]
    else:
        opening = [
            d.pick(
                (
                    f"{p.surname} never married and shared a house with a sister.",
                    f"{p.She} had no children, but {p.she} brought up {num(p.children)} nephews and nieces.",
                    f"Nothing is known about a marriage; a niece kept the house in {p.home.name}.",
                )
            )
        ]
    return [
        *opening,
        d.pick(
            (
                f"Those who knew {p.her} agree that {p.she} was {p.trait}.",
                f"In the letters of friends {p.she} appears as {p.trait} and fond of bad jokes.",
            )
        ),
        d.pick(
            (
                f"{p.She} {p.habit}.",
                f"It was also known that {p.she} {p.habit}, and nobody ever learned why.",
                f"All {p.hers} life {p.she} {p.habit}.",
            )
        ),
    ]


def _death(p: Person, d: Draws) -> list[str]:
    age = num(p.died - p.born)
    return [
        d.pick(
            (
                f"{p.surname} died in {p.home.link} in {p.died}, at the age of {age}.",
                f"In {p.died}, aged {age}, {p.she} died in {p.hers} house in {p.home.name}.",
                f"Death came in {p.died}, when {p.she} was {age} years old.",
            )
        ),
        d.pick(
            (
                f"The whole town followed the coffin to the river, where {p.she} is buried under a plain stone.",
                f"{p.Hers} grave lies in {p.birthplace.link}, as {p.she} had wished.",
                f"{p.Hers} tools were shared among the apprentices."
                if p.role == "craft"
                else f"{p.Hers} papers were given to the town.",
            )
        ),
        d.pick(
            (
                f"A street in {p.home.name} bears {p.hers} name.",
                f"A small museum in {p.birthplace.link} shows {p.hers} chair and {p.hers} spectacles.",
                f"Today {p.she} is almost forgotten outside {p.region.link}.",
                f"Later generations in {p.region.link} counted {p.her} among the great names of the region.",
            )
        ),
    ]
