# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Articles about rivers and lakes."""

from __future__ import annotations

from flows.sample import mentions
from flows.sample.draws import Draws
from flows.sample.entities import Lake, River
from flows.sample.prose import Section, a, num


def write_river(r: River, d: Draws) -> list[Section]:
    first, last = r.towns[0], r.towns[-1]
    lead = [
        f"The '''{r.name}''' is a river in {r.region.link}.",
        f"It is {num(r.length)} kilometres long and flows from {r.source} to {r.mouth}.",
        d.pick(
            (
                f"The largest town on its banks is {max(r.towns, key=lambda t: t.population).link}.",
                f"It is known for its {r.colour} water.",
            )
        ),
    ]
    course = [
        d.pick(
            (
                f"The river rises on the northern slope of {r.source}, where three springs run together under a rock.",
                f"Its source is a small pond on {r.source}, which never freezes.",
            )
        ),
        f"It first reaches {first.link}, {a(first.sort)} at a height of {num(first.elevation)} metres.",
        f"Below {first.name} the valley widens, and the river turns towards {r.towns[1].link}.",
        d.pick(
            (
                f"After {r.towns[2].link} it divides into two arms, which meet again before {r.towns[3].link}.",
                f"Between {r.towns[2].link} and {r.towns[3].link} it is slow and deep.",
            )
        ),
        f"The last town on its course is {last.link}; from there it is not far to {r.mouth}.",
    ]
    use = [
        d.pick(
            (
                f"At one time {num(r.mills)} mills stood on the {r.name}.",
                f"Its water drove {num(r.mills)} mills, most of which are gone.",
            )
        ),
        d.pick(
            (
                f"Barges brought {r.towns[1].trade.wares} down to {last.link} and came back with grain.",
                "Timber was floated down in spring, and whole families lived on the rafts.",
            )
        ),
        d.pick(
            (
                "Since the building of the railway the boats have become few.",
                "Today the river is used mainly by anglers and by children learning to swim.",
            )
        ),
    ]
    floods = [mentions.of_event(e, d) for e in r.region.events if e.town in r.towns][:3]
    wild = [mentions.of_animal(x, d) for x in r.region.animals if x.river is r]
    boats = [mentions.of_ship(s, d) for s in r.region.ships if s.town in r.towns]
    sections = [Section("", [lead]), Section("Course", [course]), Section("Use", [use, *boats])]
    if floods:
        sections.append(Section("History", floods))
    if wild:
        sections.append(Section("Wildlife", wild))
    sections.append(Section("Towns", [mentions.of_town(t, d) for t in r.towns]))
    return sections


def write_lake(k: Lake, d: Draws) -> list[Section]:
    lead = [
        f"'''{k.name}''' is a lake in {k.region.link}, near {k.town.link}.",
        f"It covers {num(k.area)} square kilometres and is up to {num(k.depth)} metres deep.",
        f"The {k.river.link} feeds it from the north.",
    ]
    nature = [
        f"There are {num(k.islands)} islands in the lake, and only the largest of them has ever been inhabited.",
        d.pick(
            (
                "The water is clear in winter and brown with peat after the autumn rains.",
                "On calm days one can see the trunks of drowned trees at the bottom.",
            )
        ),
        "In hard winters it freezes over, and sledges then take the place of boats.",
    ]
    legend = [
        d.pick(
            (
                "An old story says that a village lies beneath the water.",
                "According to a legend, a bell was sunk here to save it from thieves.",
            )
        ),
        "Fishermen claim to hear it ring before a storm.",
        f"{d.pick(k.region.persons).link} searched for it for three summers and found nothing but an anchor.",
    ]
    return [
        Section("", [lead]),
        Section("Nature", [nature, *(mentions.of_animal(x, d) for x in k.region.animals[:2])]),
        Section("Legends", [legend]),
        Section("Surroundings", [mentions.of_town(k.town, d), mentions.of_river(k.river, d)]),
    ]
