"""The pages of the sample wiki: articles, and everything else that a dump holds beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flows.sample.articles import write_article
from flows.sample.draws import Draws, fill
from flows.sample.markup import summary
from flows.sample.wording import pieces
from flows.sample.world import ARTICLES_PER_REGION, Entity, World


class Page(NamedTuple):
    """A page before it gets its numbers."""

    namespace: int
    title: str
    text: str
    redirect: str = ""
    """Title it redirects to, "" for other pages."""
    sort: str = "article"
    """`article`, `stub`, `duplicate`, `disambiguation`, `redirect`, `empty`, `malformed` or
    `other` (another namespace)."""


def write_pages(world: World) -> Iterator[Page]:
    """All pages of a world, region after region; the last region may be cut short."""
    for region, entities in world.regions():
        yield from _region_pages(world.seed, region, entities)


def _region_pages(seed: int, region: Entity, entities: list[Entity]) -> Iterator[Page]:
    """The pages about these entities of a region, with its redirects and odd pages among them."""
    draws = Draws(seed, "pages", region.index)
    others = _others(region, entities, draws)
    # Spread over the articles, as in a real dump.
    positions = sorted(draws.below(len(entities)) for _ in others)
    waiting = list(zip(positions, others, strict=True))[::-1]
    streams = [
        [Draws(seed, use, thing.title) for thing in entities] for use in ("article", "markup")
    ]
    fill([*streams[0], *streams[1]])
    for position, (entity, told, marked) in enumerate(zip(entities, *streams, strict=True)):
        number = region.index * ARTICLES_PER_REGION + position
        article = write_article(entity, seed=seed, number=number, draws=told)
        text = article.wikitext(marked)
        yield Page(0, entity.title, text)
        if number == 0:
            waiting.insert(0, (len(entities) - 1, _malformed(entity, text)))
        while waiting and waiting[-1][0] == position:
            yield waiting.pop()[1]
        if position % 50 == 7:
            yield Page(0, f"{entity.title} (copy)", text, sort="duplicate")


def _malformed(entity: Entity, text: str) -> Page:
    """A page whose author closed neither the infobox nor the table."""
    text = text.replace("\n}}", "\n", 1) + "\n{| class=unclosed\n| [[never closed"
    return Page(0, f"{entity.title} (draft)", text, sort="malformed")


def _others(region: Entity, entities: list[Entity], draws: Draws) -> list[Page]:
    pages = [_redirect(entity, n) for n, entity in enumerate(draws.some(entities, 14))]
    surnames = dict.fromkeys(entity.surname for entity in entities if entity.kind == "person")
    for surname in list(surnames)[:2]:
        namesakes = [person for person in region.persons if person.surname == surname]
        lines = [f"* {summary(thing, draws)}" for thing in (*namesakes, region.capital)]
        text = "\n".join(
            [f"'''{surname}''' may refer to:", *lines, "", "{{disambiguation|surname}}"]
        )
        pages.append(Page(0, f"{surname} (disambiguation)", text, sort="disambiguation"))
    for entity in draws.some(entities, 2):
        text = f"{{{{stub}}}}\n{summary(entity, draws)}.\n\n[[Category:Stubs]]"
        pages.append(Page(0, f"{entity.title} (stub)", text, sort="stub"))
    pages.append(Page(0, f"Blank page of {region.name}", "", sort="empty"))
    for write in pieces("markup")["pages"]:
        key, title, text = write(region, draws).split("|", 2)
        pages.append(Page(int(key), title, text, sort="other"))
    return draws.some(pages)


def _redirect(entity: Entity, number: int) -> Page:
    if entity.kind == "person":
        title = f"{entity.surname}, {entity.given}"
    else:
        title = f"The {entity.title}" if number % 2 else entity.title.upper()
    word = ("#REDIRECT", "#redirect", "#Redirect:")[number % 3]
    section = "#History" if number % 5 == 0 else ""
    text = f"{word} [[{entity.title}{section}]]\n\n{{{{R from other name}}}}"
    return Page(0, title, text, redirect=entity.title, sort="redirect")
