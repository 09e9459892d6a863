# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Paragraphs about daily life in a town: what was usual, told for the places an article touches."""

from __future__ import annotations

from flows.sample.draws import Draws
from flows.sample.entities import Town
from flows.sample.prose import a, cap, num


def _market(t: Town, d: Draws) -> list[str]:
    other = d.pick([x for x in t.region.towns if x is not t])
    return [
        d.pick(
            (
                f"Every {d.pick(('Tuesday', 'Thursday', 'Saturday'))} a market is held in {t.link}.",
                f"Market day in {t.link} begins before sunrise, when the first carts cross the bridge.",
                f"For as long as anyone can remember, {t.link} has held its market in the square by the river.",
            )
        ),
        d.pick(
            (
                f"Farmers bring eggs, cabbages and cheese, and the {t.trade.workers} put their {t.trade.wares} on long tables.",
                f"One side of the square belongs to the {t.trade.workers}, the other to the fish sellers, and they seldom speak to each other.",
            )
        ),
        d.pick(
            (
                f"Traders from {other.link} have a corner of their own, because they once arrived late and were laughed at.",
                f"Until a bridge was built, the traders of {other.link} had to wait for the ferry, and their bread was cold when it came.",
            )
        ),
        d.pick(
            (
                "A bell ends the market at noon, and whatever is left is given to the poor.",
                "Prices are called out aloud, since a written price was long thought to be an insult.",
                "When the bell rings at noon, the stalls are cleared within minutes and the children look for lost coins.",
            )
        ),
    ]


def _winter(t: Town, d: Draws) -> list[str]:
    return [
        d.pick(
            (
                f"Winters in {t.link} are long, and the {t.river.link} is often covered with ice until March.",
                f"At {num(t.elevation)} metres above the sea, {t.link} sees its first snow in November.",
                f"The cold months are a quiet time in {t.link}.",
            )
        ),
        d.pick(
            (
                f"In the old days families moved into a single room then, and {t.trade.gerund} went on beside the stove.",
                "Firewood was shared out by lot, and nobody was allowed to burn a fence.",
            )
        ),
        d.pick(
            (
                "Stories were told in the evenings, and the best ones were saved for the darkest week of the year.",
                "Those who could read did so aloud, while the others mended nets and shoes.",
            )
        ),
        d.pick(
            (
                "When the ice broke, the whole town came to the bank to listen.",
                "The first boat of spring was greeted with a song, and its captain drank for nothing.",
                "Whoever saw the first stork was given a new hat by the council.",
            )
        ),
    ]


def _school(t: Town, d: Draws) -> list[str]:
    return [
        d.pick(
            (
                f"The school of {t.link} was founded by a widow who could not read.",
                f"Children in {t.link} went to school only in winter, because in summer their hands were needed.",
                f"There has been a school in {t.link} for more than two hundred years.",
            )
        ),
        d.pick(
            (
                "The children sat on the floor, wrote with chalk on slate and paid the teacher in apples.",
                f"The youngest learned to count with pebbles from the {t.river.link} and to write with goose feathers.",
            )
        ),
        d.pick(
            (
                f"At the age of twelve most of them left it for a {t.trade.place}, and only a few went on to {t.region.capital_town.link}.",
                "The teacher was also the clerk, the organist and the man who wound the clock.",
            )
        ),
        d.pick(
            (
                "Still, there was hardly a house without a book.",
                "Even so, visitors were surprised by how well the people of the town could spell.",
                "As a result, most people could at least sign their own names.",
            )
        ),
    ]


def _travel(t: Town, d: Draws) -> list[str]:
    near = d.pick(t.region.neighbours)
    return [
        d.pick(
            (
                f"Before the railway came, the journey from {t.link} to {near.capital} took {num(d.between(3, 9))} days.",
                f"An old road leads from {t.link} to [[{near.name}]], and parts of its paving can still be seen.",
                f"Travellers to [[{near.name}]] usually spent the night in {t.link}.",
            )
        ),
        d.pick(
            (
                "Carts left at dawn and stopped at every inn, and the horses knew the way better than the drivers.",
                "Those who had no money walked behind the carts and helped to push them uphill.",
            )
        ),
        d.pick(
            (
                "In wet years the road turned to mud, and it was quicker to go by boat.",
                "Robbers were rare, but bad beds were not, and many travellers complained of fleas.",
            )
        ),
        d.pick(
            (
                f"Letters took as long as people did, so news from {near.capital} was always old.",
                f"Today the same journey can be made in an hour, yet few people of {t.name} ever make it.",
            )
        ),
    ]


def _law(t: Town, d: Draws) -> list[str]:
    return [
        d.pick(
            (
                f"The laws of {t.link} were written on the back of a door, which is kept in the council chamber.",
                f"In {t.link} the council met under a lime tree until a storm blew it down.",
                f"Justice in {t.link} was simple and quick.",
            )
        ),
        d.pick(
            (
                f"Whoever sold bad {t.trade.wares} had to eat a meal alone in the market square.",
                "A thief had to work for the person he had robbed until both agreed that it was enough.",
            )
        ),
        d.pick(
            (
                "Quarrels between neighbours were settled by the oldest woman of the street.",
                "Twelve people were chosen by lot each year to hear complaints, and none could refuse.",
            )
        ),
        d.pick(
            (
                "The system worked well enough to last for three centuries.",
                f"Visitors from {d.pick(t.region.neighbours).capital} found this strange, but some of them copied it.",
            )
        ),
    ]


def _work(t: Town, d: Draws) -> list[str]:
    k = t.trade
    return [
        d.pick(
            (
                f"The day of {a(k.worker)} in {t.link} began at five in summer and at seven in winter.",
                f"{cap(k.gerund)} was hard work, and few {k.workers} of {t.link} grew old in it.",
                f"In {t.link} {a(k.worker)} could be known by the hands.",
            )
        ),
        d.pick(
            (
                f"The youngest had to {k.first}, while the others prepared to {k.then}.",
                f"First one had to {k.first}, and that alone could take the whole morning.",
            )
        ),
        d.pick(
            (
                f"A good {k.tool} was worth more than a cow and was handed down from mother to daughter or from father to son.",
                f"Nobody was allowed to talk in the {k.place} when the time had come to {k.last}.",
            )
        ),
        d.pick(
            (
                f"The finished {k.wares} were carried to the river and loaded on boats the same night.",
                f"On Saturdays the floor of the {k.place} was swept, and the wages were paid in silver.",
            )
        ),
    ]


def _belief(t: Town, d: Draws) -> list[str]:
    animal = d.pick(t.region.animals)
    return [
        d.pick(
            (
                f"Old people in {t.link} still hold to beliefs that are found nowhere else.",
                f"Many stories are told in {t.link} about the {t.river.link}.",
                f"A number of customs in {t.link} go back to a time before the town had walls.",
            )
        ),
        d.pick(
            (
                f"To see {a(animal.link.replace('[[', '').replace(']]', ''))} before breakfast means that a guest will come.",
                f"It is thought that {a(animal.beast)} at the window brings a letter.",
            )
        ),
        d.pick(
            (
                "Bread must never be laid upside down, and a knife must not be given as a present.",
                "Nobody counts the steps of the old bridge, because whoever counts them must come back at night and count again.",
            )
        ),
        d.pick(
            (
                "Young people laugh at this, but they are careful all the same.",
                "The priest preached against it for years and was then seen doing it himself.",
            )
        ),
    ]


TOPICS = (
    ("Market", _market), ("Winter", _winter), ("School", _school), ("Roads", _travel),
    ("Law", _law), ("Work", _work), ("Beliefs", _belief),
)  # fmt: skip


def paragraphs(towns: list[Town], d: Draws, *, count: int) -> list[list[str]]:
    """`count` paragraphs on different topics, each about one of the towns."""
    return [topic(d.pick(towns), d) for _, topic in d.some(TOPICS, count)]
