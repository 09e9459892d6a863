# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Tales: stories in chapters about the people and places of the sample world."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flows.sample import road_scenes, town_scenes
from flows.sample.draws import Draws
from flows.sample.prose import a, cap, num
from flows.sample.teller import Teller
from flows.sample.world import World

CHAPTERS = 14
_Scene = Callable[[Teller], list[str]]
_SCENES: tuple[_Scene, ...] = (
    town_scenes.meal, town_scenes.ask, town_scenes.story, town_scenes.work, town_scenes.market,
    town_scenes.rumour, town_scenes.hall, road_scenes.night, road_scenes.river,
    road_scenes.quarrel,
)  # fmt: skip


class Chapter(NamedTuple):
    title: str
    paragraphs: list[str]
    """Running text; _underscores_ are italics, as in the books it imitates."""


class Tale(NamedTuple):
    """A tale with its title page."""

    title: str
    author: str
    year: int
    region: str
    chapters: list[Chapter]

    def paragraphs(self) -> list[str]:
        """The story's paragraphs as a reader sees them, without titles and marks."""
        return [text.replace("_", "") for chapter in self.chapters for text in chapter.paragraphs]


def write_tale(world: World, number: int) -> Tale:
    """Tale `number`: a craftsperson goes after a stolen masterpiece, with a friend."""
    count = -(-world.articles // 100)
    region = world.region(number % count)
    draws = Draws(world.seed, "tale", number)
    teller = Teller(region, draws)
    others = [town for town in region.towns if town is not teller.here]
    route = [teller.here, *draws.some(others, CHAPTERS - 4)]
    # Out along the route, and home again at the end.
    route += [route[-1]] * (CHAPTERS - 1 - len(route)) + [teller.here]
    author = draws.pick([person for person in region.persons if person.role == "writer"])
    chapters = []
    for index, town in enumerate(route):
        teller.go(town, route[min(index + 1, CHAPTERS - 1)])
        chapters.append(_chapter(teller, index))
    titles = (
        f"The Search for {teller.thing}",
        f"{teller.hero.given} of {teller.hero.home.name}",
        f"{cap(teller.thing)}: A Tale of {region.name}",
        f"The Road from {teller.hero.home.name}",
    )
    title = titles[(number + number // count) % len(titles)]
    return Tale(title, author.name, author.moved + 20, region.name, chapters)


def _chapter(teller: Teller, index: int) -> Chapter:
    if index == 0:
        return Chapter(f"In which {teller.hero.given} loses something", _opening(teller))
    if index == CHAPTERS - 2:
        beats: tuple[_Scene, ...] = (road_scenes.weather, road_scenes.night, town_scenes.rumour)
        return Chapter(f"{teller.rival.given} speaks", [*_told(teller, beats), *_meeting(teller)])
    if index == CHAPTERS - 1:
        return Chapter("Home", _homecoming(teller))
    scenes = teller.d.shuffled(_SCENES)
    start = road_scenes.weather if index % 3 == 0 else road_scenes.arrival
    title = teller.say(
        "title",
        (
            f"The {teller.here.sort} of {teller.here.name}",
            f"What they heard in {teller.here.name}",
            f"On the {teller.here.river.name}",
            f"{teller.friend.given} loses patience",
            "A bed for the night",
            f"The {teller.here.trade.workers} of {teller.here.name}",
            "A mark in the dust",
            f"Three days in {teller.here.name}",
        ),
    )
    return Chapter(title, _told(teller, (start, *scenes[:7], road_scenes.road)))


def _told(teller: Teller, beats: tuple[_Scene, ...]) -> list[str]:
    return [paragraph for beat in beats for paragraph in beat(teller)]


def _opening(t: Teller) -> list[str]:
    h, f, v, k = t.hero, t.friend, t.rival, t.hero.trade
    return [
        f"In those days there lived in {h.home.name}, on the {h.home.river.name}, {a(k.worker)} called {h.name}. {h.She} had come from {h.birthplace.name} as a young {'woman' if h.woman else 'man'}, with one coat and one good {k.tool}, and {h.she} was thought to be {h.trait}. It was said of {h.her} that {h.she} {h.habit}.",
        f"Everybody in {t.region.name} knew what {h.given} had made. It was called {t.thing}, and people came from {t.d.pick(t.region.neighbours).capital} to look at it. {h.She} had worked at it for four winters. On the first day of spring {h.she} had carried it to the window, and the whole street had come out to see.",
        f"And now it was gone. The door of the {k.place} stood open, the lamp was still warm, and on the bench, where {t.thing} had been, lay a single glove.",
        f'"A glove," said {f.name}, who lived next door and was {a(f.occupation)}. "Somebody has left you a glove."',
        f'"Somebody has left me nothing at all," said {h.given}. {h.She} turned the glove over. On the inside two letters had been sewn with red thread. {h.She} looked at them for a long time, and then {h.she} sat down on the floor.',
        f'"You know whose it is," said {f.given}.',
        f'"It belongs to {v.name}," {h.given} answered. "We were apprentices together. {v.She} taught me to {k.first}, and I taught {v.her} to {k.last}. I have not seen {v.her} for {num(t.d.between(7, 19))} years."',
        f"{f.given} was {f.trait} and did not like long speeches. {f.She} went home, and when {f.she} came back {f.she} had a bag over {f.hers} shoulder, half a cheese under {f.hers} arm and a hat on {f.hers} head.",
        f'"What is that?" asked {h.given}.',
        f'"A cheese," said {f.given}. "It is a long way to {t.there.name}, and they cannot cook there. Are you coming, or must I look for it alone?"',
        f'So they locked the {k.place}, although there was nothing left in it to steal, and gave the key to the woman at the well. She asked when they would be back. "Before the river freezes," said {h.given}. It was then the middle of April.',
        *road_scenes.road(t),
    ]


def _meeting(t: Teller) -> list[str]:
    h, f, v = t.hero, t.friend, t.rival
    reason = t.say(
        "reason",
        (
            f'"I did not steal it," said {v.given}. "I saved it. The merchants of {t.d.pick(t.region.neighbours).capital} had paid three men to take it that same night. I came an hour before them."',
            f'"I wanted to see how you had done it," said {v.given}. "I took it apart, and I put it together again, and I still do not know."',
            f'"My eyes are failing," said {v.given}. "I wished to look at it once more while I could, alone, in a good light. I would have brought it back."',
        ),
    )
    return [
        f"They found {v.given} in the last house of {t.here.name}, where the street ends in a field. {v.She} was sitting at a table with {v.hers} back to the door. In front of {v.her}, on a white cloth, stood {t.thing}.",
        f'"You have been slow," {v.she} said without turning round. "I left you a glove."',
        f'"You left me a glove," said {h.given}. "I thought that you had dropped it."',
        f'"I have never dropped anything in my life," said {v.given}. {f.given} looked from one to the other, closed the door and sat down against it, so that nobody could leave.',
        f'For a long time there was only the sound of the rain. Then {h.given} asked, very quietly, "Why?"',
        reason,
        f"{h.given} went to the table. {h.She} laid one hand on {t.thing}, as one does with a horse that has been frightened. It was whole. There was not a scratch on it, and somebody had cleaned it better than {h.she} had ever done.",
        f'"You could have written," {h.she} said.',
        f'"Would you have read it?" asked {v.given}. And because {h.given} was {h.trait}, but not a liar, {h.she} did not answer.',
        f'It was {f.given} who broke the silence. "There is still some cheese," {f.she} said.',
    ]


def _homecoming(t: Teller) -> list[str]:
    h, f, v, k = t.hero, t.friend, t.rival, t.hero.trade
    festival = t.d.pick(t.region.festivals)
    return [
        f'They came back to {h.home.name} on the evening of the first frost, three people and a box on a borrowed cart. The {h.home.river.name} had a thin skin of ice along the banks. "Before it freezes, you said," remarked the woman at the well, and gave them the key.',
        f"The {k.place} was cold and smelled of {k.material}. {f.given} lit the stove, {h.given} opened the shutters, and {v.given} carried {t.thing} to the bench and set it down exactly where it had stood before. There was still a ring in the dust.",
        f'"And now?" asked {v.given}.',
        f'"Now we shall need a second bench," said {h.given}. "And somebody who can show the young ones how to {k.first}. My back is not what it was."',
        f'{v.given} looked out of the window for some time. "I get up late," {v.she} said at last.',
        f'"You always did," said {h.given}.',
        f"That year {festival.name} was kept as it had never been kept before. There was {festival.food} for everyone, the {festival.instrument.name} was played until the strings or the players gave way, and {f.given} told the whole story from the beginning, with three robbers in it who had not been there. Nobody minded.",
        f"{t.thing[:1].upper() + t.thing[1:]} can still be seen in {h.home.name}. If you look closely, you will find two marks on the underside, one beside the other. The first is that of {h.name}. The second was added later, by another hand, and it is the better cut of the two.",
    ]
