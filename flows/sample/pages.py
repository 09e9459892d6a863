# ruff: noqa: E501 -- markup is easier to read on one line
"""The pages of the sample wiki: articles, and everything else that a dump holds beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flows.sample.articles import Article, write_article
from flows.sample.draws import Draws
from flows.sample.entities import Entity, Person, Region
from flows.sample.markup import summary
from flows.sample.world import ARTICLES_PER_REGION, World, articles_order


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
    for region in world.regions():
        first = region.index * ARTICLES_PER_REGION
        entities = articles_order(world.seed, region)[: world.articles - first]
        yield from region_pages(world.seed, region, entities)


def region_pages(seed: int, region: Region, entities: list[Entity]) -> Iterator[Page]:
    """The pages about these entities of a region, with its redirects and odd pages among them."""
    draws = Draws(seed, "pages", region.index)
    others = _others(region, entities, draws)
    # Spread over the articles, as in a real dump.
    places = sorted(draws.below(len(entities)) for _ in others)
    waiting = list(zip(places, others, strict=True))[::-1]
    first: Article | None = None
    for position, entity in enumerate(entities):
        number = region.index * ARTICLES_PER_REGION + position
        article = write_article(entity, seed=seed, number=number)
        first = first or article
        text = article.wikitext()
        yield Page(0, article.title, text)
        while waiting and waiting[-1][0] == position:
            yield waiting.pop()[1]
        if position % 50 == 7:
            yield Page(0, f"{article.title} (copy)", text, sort="duplicate")
    if region.index == 0 and first is not None:
        yield _malformed(first)


def _malformed(article: Article) -> Page:
    """A page whose author closed neither the infobox nor the table."""
    text = article.wikitext().replace("\n}}", "\n", 1) + "\n{| class=unclosed\n| [[never closed"
    return Page(0, f"{article.title} (draft)", text, sort="malformed")


def _others(region: Region, entities: list[Entity], d: Draws) -> list[Page]:
    pages: list[Page] = []
    for number, entity in enumerate(d.some(entities, 14)):
        pages.append(_redirect(entity, number))
    surnames = dict.fromkeys(entity.surname for entity in entities if isinstance(entity, Person))
    for surname in list(surnames)[:2]:
        namesakes = [summary(p) for p in region.persons if p.surname == surname]
        lines = [f"'''{surname}''' may refer to:", *(f"* {line}" for line in namesakes)]
        lines += [f"* {summary(region.towns[0])}", "", "{{disambiguation|surname}}"]
        title = f"{surname} (disambiguation)"
        pages.append(Page(0, title, "\n".join(lines), sort="disambiguation"))
    for entity in d.some(entities, 2):
        text = f"{{{{stub}}}}\n{summary(entity)}.\n\n[[Category:Stubs]]"
        pages.append(Page(0, f"{entity.title} (stub)", text, sort="stub"))
    pages.append(Page(0, f"Blank page of {region.name}", "", sort="empty"))
    pages += _other_namespaces(region)
    return d.shuffled(pages)


def _redirect(entity: Entity, number: int) -> Page:
    target = entity.title
    if isinstance(entity, Person):
        title = f"{entity.surname}, {entity.given}"
    else:
        title = f"The {entity.title}" if number % 2 else entity.title.upper()
    word = ("#REDIRECT", "#redirect", "#Redirect:")[number % 3]
    section = "#History" if number % 5 == 0 else ""
    text = f"{word} [[{target}{section}]]\n\n{{{{R from other name}}}}"
    return Page(0, title, text, redirect=target, sort="redirect")


def _other_namespaces(region: Region) -> list[Page]:
    name, capital = region.name, region.capital_town
    texts = (
        (1, f"Talk:{capital.title}", f"== Wording ==\nIs {capital.link} a town? --[[User:Ada]] 12:00\n: Yes. ~~~~"),
        (2, f"User:{name} friend", f"I write about [[{name}]]. {{{{Babel|en|de-2}}}}"),
        (3, f"User talk:{name} friend", "{{welcome}} Hello and welcome!"),
        (4, f"Samplewiki:Project {name}", f"A project about [[{name}]].\n\n{{| class=wikitable\n| task\n|}}"),
        (6, f"File:{capital.name} view.jpg", "== Licence ==\n{{PD-self}}"),
        (10, f"Template:{name}", f"<noinclude>{{{{doc}}}}</noinclude><includeonly>{{{{#if:{{{{{{1|}}}}}}|[[{name}|{{{{{{1}}}}}}]]|[[{name}]]}}}}</includeonly>"),
        (10, f"Template:{name} map", "<onlyinclude>{{Location map|{{{place|}}}}}</onlyinclude>"),
        (14, f"Category:{name}", f"{{{{Catmain|{name}}}}}\nEverything about [[{name}]].\n\n[[Category:Regions]]"),
        (828, f"Module:{name}", f'local p = {{}}\nfunction p.area() return "{region.area} < {region.area + 1} & more" end\nreturn p'),
    )  # fmt: skip
    return [Page(key, title, text, sort="other") for key, title, text in texts]
