"""Articles: what the sample wiki says about an entity, as wikitext and as the truth behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flows.sample import markup
from flows.sample.draws import Draws
from flows.sample.facts import in_brief, opinions
from flows.sample.wording import Section, plain_text, texts
from flows.sample.world import Entity, World


@dataclass(frozen=True)
class Article:
    """One article. `number` counts articles from 0 and decides which markup it carries."""

    seed: int
    number: int
    entity: Entity
    sections: list[Section]

    @property
    def title(self) -> str:
        return self.entity.title

    def wikitext(self, draws: Draws | None = None) -> str:
        """The page as its authors left it: infobox, references, tables, lists and all."""
        draws = draws or Draws(self.seed, "markup", self.title)
        return markup.render(self.entity, self.sections, draws, number=self.number)

    def paragraphs(self) -> list[list[str | None]]:
        """The prose: sentences as a reader sees them; None where a sentence carries a template,
        a tag or odd quotes, so that its exact words are the cleaner's decision."""
        paragraphs = [paragraph for section in self.sections for paragraph in section.paragraphs]
        return [[plain_text(sentence) for sentence in paragraph] for paragraph in paragraphs]

    def sentences(self) -> list[str]:
        """Every sentence whose words are certain, in order."""
        return [text for paragraph in self.paragraphs() for text in paragraph if text is not None]


def told(entity: Entity, draws: Draws) -> list[Section]:
    """What there is to tell about an entity, without any markup but links and quotes."""
    sections = texts("articles")[entity.kind].tell(entity, draws, texts("mentions"))
    # Every article tells something of life in the places that it touches, the short ones more.
    is_short = sum(len(section.paragraphs) for section in sections) < 11
    sections.append(Section("In brief", [in_brief(entity, draws)]))
    said = [opinions(entity.kind, draws, is_praise=draws.chance(50)) for _ in range(2)]
    if said[0]:
        sections.append(Section("Opinions", said))
    sections.append(Section("Daily life", daily_life(entity, draws, 3 if is_short else 2)))
    return sections


def daily_life(entity: Entity, draws: Draws, count: int) -> list[list[str]]:
    """`count` paragraphs on life in the towns that the entity touches, each on its own topic."""
    towns = [entity]
    if entity.kind == "person":
        towns = [entity.birthplace, entity.home]
    elif entity.kind != "town":
        place = entity.river if entity.kind == "animal" else entity
        towns = getattr(place, "towns", None) or [entity.town]
    topics = draws.some([*texts("daily").values()], count)
    return [topic.sentences(draws.pick(towns), draws) for topic in topics]


def write_article(entity: Entity, *, seed: int, number: int, draws: Draws | None = None) -> Article:
    """The article about an entity. `draws` are those of its own, if they are there already."""
    draws = draws or Draws(seed, "article", entity.title)
    sections = markup.enrich(entity, told(entity, draws), draws, number=number)
    return Article(seed, number, entity, sections)


def write_articles(world: World) -> Iterator[Article]:
    """All articles of a world, in the order of their pages, one in memory at a time."""
    for number, entity in enumerate(world.entities()):
        yield write_article(entity, seed=world.seed, number=number)
