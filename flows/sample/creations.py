# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Articles about what single people made: instruments, ships and works."""

from __future__ import annotations

from flows.sample import mentions
from flows.sample.draws import Draws
from flows.sample.entities import Instrument, Ship, Work
from flows.sample.prose import Section, a, num


def write_instrument(i: Instrument, d: Draws) -> list[Section]:
    lead = [
        f"The '''{i.name}''' is {a(i.sort)} from {i.town.link} in {i.region.link}.",
        f"It has {num(i.count)} {i.parts} and is played with a {i.played_with}.",
        f"{i.inventor.link} built the first one in {i.year}.",
    ]
    form = [
        d.pick(
            (
                f"The body is made of {i.wood} and is about as long as an arm.",
                f"A good {i.name} is made of {i.wood} that has dried for ten years.",
            )
        ),
        d.pick(
            (
                f"Older ones have fewer {i.parts}, and some have none at all.",
                f"The number of {i.parts} was once smaller.",
            )
        ),
        f"The sound is {i.sound}.",
        "Players hold it against the left knee and look away from the audience.",
    ]
    history = [
        d.pick(
            (
                f"{i.inventor.link} is said to have invented it by accident, while mending a door.",
                f"The idea came to {i.inventor.link} on a ferry in the winter of {i.year}.",
            )
        ),
        d.pick(
            (
                f"{i.inventor.She} sold only three, and {i.inventor.she} gave a fourth to {i.player.link}."
                if i.player.born + 15 < i.year
                else f"{i.inventor.She} sold only three, and one of them later came to {i.player.link}.",
                f"At first {i.inventor.hers} neighbours complained about the noise.",
            )
        ),
        *mentions.of_person(i.inventor, d)[1:],
    ]
    music = [
        f"The greatest master of the instrument was {i.player.link}.",
        *mentions.of_person(i.player, d)[1:],
        f"It is heard above all at {i.festival.link}.",
    ]
    return [
        Section("", [lead]),
        Section("Form and sound", [form]),
        Section("History", [history]),
        Section("Music", [music, mentions.of_festival(i.festival, d)]),
        Section("The town", [mentions.of_town(i.town, d)]),
    ]


def write_ship(s: Ship, d: Draws) -> list[Section]:
    c = s.captain
    lead = [
        f"The '''{s.name}''' was {a(s.sort)} built in {s.town.link}, {s.region.name}, in {s.built}.",
        f"She was {num(s.length)} metres long and carried {s.cargo} to {s.harbour.link}.",
        f"Her best-known captain was {c.link}.",
    ]
    building = [
        d.pick(
            (
                f"She was ordered by three merchants of {s.harbour.link} and built by {s.builder.link}.",
                f"{s.builder.link} began to build her in {s.built - 1}, and she was launched a year later.",
            )
        ),
        d.pick(
            (
                "Her hull was of oak, and her mast came from a single spruce.",
                "She was broad in the bow and so flat that she could float in a wet meadow.",
            )
        ),
        "On the day of the launch the rope broke twice, which the sailors took for a bad sign.",
    ]
    service = [
        d.pick(
            (
                f"For years she sailed between {s.town.link} and {s.harbour.link} with {s.cargo}.",
                f"Her usual cargo was {s.cargo}, but she also carried letters, hens and once a bell.",
            )
        ),
        d.pick(
            (
                f"{c.link} took command in {s.built + 2} and stayed on board for the rest of {c.hers} working life.",
                f"Under {c.link} she became the fastest ship on the river.",
            )
        ),
        d.pick(
            (
                f"{c.She} {c.habit}, and the crew grew used to it.",
                f"The crew thought {c.her} {c.trait}, and they would not have sailed under anyone else.",
            )
        ),
        d.pick(
            (
                "Once she lay frozen in the ice for eleven weeks, and her crew lived on the cargo.",
                "She ran aground four times and was pulled off by oxen each time.",
            )
        ),
    ]
    end = {
        "wrecked": f"In {s.lost} she struck a rock in fog and sank within an hour; all on board were saved.",
        "broken up": f"In {s.lost} she was sold and broken up, and her timbers became the roof of a barn.",
        "kept": f"In {s.lost} the town of {s.harbour.link} bought her, and she has been kept there as a monument ever since.",
    }[s.fate]
    close = d.pick(
        (
            f"Her bell hangs in a school in {s.town.name}.",
            f"A model of her stands in the council chamber of {s.harbour.name}.",
        )
    )
    return [
        Section("", [lead]),
        Section("Building", [building, mentions.of_person(s.builder, d)]),
        Section("Service", [service]),
        Section("Fate", [[end, close]]),
        Section("The captain", [mentions.of_person(c, d)]),
        Section("Ports", [mentions.of_town(s.town, d), mentions.of_town(s.harbour, d)]),
    ]


def write_work(w: Work, d: Draws) -> list[Section]:
    au = w.author
    lead = [
        f"'''{w.name}''' is {a(w.sort)} by {au.link}, first published in {w.year}.",
        f"Its subject is {w.subject.the}.",
        f"It was written in {w.town.link} and has {num(w.parts)} parts.",
    ]
    content = [
        d.pick(
            (
                f"The work opens with a journey down the {w.town.river.link}.",
                f"In the first part a stranger comes to {w.town.link} and asks for work.",
            )
        ),
        d.pick(
            (
                f"What follows is an account of {w.subject.the}, told by an old {w.town.trade.worker}.",
                f"Each of the {num(w.parts)} parts looks at {w.subject.the} through other eyes.",
            )
        ),
        d.pick(
            (
                "The last part was left out of the first edition and was found in a drawer.",
                "The ending, in which nobody is punished, was much discussed.",
            )
        ),
    ]
    making = [
        d.pick(
            (
                f"{au.link} began it in {w.year - 4}, after a long illness.",
                f"{au.link} is said to have written it in a single winter.",
            )
        ),
        d.pick(
            (
                f"{au.She} read every page aloud to {au.hers} neighbours and struck out whatever made them yawn.",
                f"{au.She} wrote on the backs of old bills, many of which have been kept.",
            )
        ),
        d.pick(
            (
                f"The printer in {w.town.name} asked for payment in advance.",
                f"Only {num(w.parts * 9)} copies were printed at first.",
            )
        ),
    ]
    reception = [
        d.pick(
            (
                "The first review was unkind, and the second called it the book of the century.",
                f"It sold slowly until a teacher in {d.pick(w.region.neighbours).capital} read it to his class.",
            )
        ),
        d.pick(
            (
                f"Today it counts among the best-known {w.sort}s of {w.region.link}."
                if w.sort != "herbal"
                else f"Today no physician in {w.region.link} is without it.",
                "It has been translated into nine languages.",
            )
        ),
        "One sentence of it has become a proverb: the river does not ask the bridge.",
    ]
    return [
        Section("", [lead]),
        Section("Content", [content, mentions.of(w.subject, d)]),
        Section("Origin", [making]),
        Section("Reception", [reception]),
        Section("The author", [mentions.of_person(au, d)]),
        Section("Setting", [mentions.of_town(w.town, d)]),
    ]
