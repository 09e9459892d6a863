"""Articles: what the sample wiki says about an entity, as wikitext and as the truth behind it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

from flows.sample.draws import Draws
from flows.sample.wording import Section, Sentence, cap, pieces, plain_text, tables, texts
from flows.sample.world import Entity, World


class Article(NamedTuple):
    """One article: as its authors left it, and what it says."""

    entity: Entity
    sections: list[Section]
    wikitext: str  # infobox, references, tables, lists and all

    def paragraphs(self) -> list[list[str | None]]:
        """The prose: sentences as a reader sees them; None where `plain_text` gives none."""
        paragraphs = [paragraph for section in self.sections for paragraph in section.paragraphs]
        return [[plain_text(sentence) for sentence in paragraph] for paragraph in paragraphs]

    def sentences(self) -> list[str]:
        """Every sentence whose words are certain, in order."""
        return [text for paragraph in self.paragraphs() for text in paragraph if text is not None]


def write_articles(world: World) -> Iterator[Article]:
    """All articles of a world, in the order of their pages, one in memory at a time."""
    about = (entity for _, entities in world.regions() for entity in entities)
    for number, entity in enumerate(about):
        yield write_article(entity, Draws(world.seed, "article", entity.title), number=number)


def write_article(entity: Entity, draws: Draws, *, number: int) -> Article:
    """The article about an entity. `number` counts articles: kinds of markup are taken in turn."""
    sections, scope = told(entity, draws), _around(entity, draws)
    _enrich(sections, scope, draws, number=number)
    return Article(entity, sections, _page(sections, scope, draws, number=number))


_NEARBY = ("town1", "town2", "town3", "river1", "building1", "building2", "building3", "person1",
           "person2", "event1", "event2", "instrument1", "dish1", "ship1", "work1")  # fmt: skip


def told(entity: Entity, draws: Draws) -> list[Section]:
    """What there is to tell about an entity, without any markup but links and quotes."""
    sections = texts("articles")[entity.kind].tell(entity, draws, texts("mentions"))
    # Every article tells something of life in the places that it touches, the short ones more.
    is_short = sum(len(section.paragraphs) for section in sections) < 11
    sections.append(Section("In brief", [in_brief(entity, draws)]))
    said = [opinions(entity.kind, draws, is_praise=draws.chance(50)) for _ in range(2)]
    if said[0]:
        sections.append(Section("Opinions", said))
    sections.append(Section("House and yard", [household(entity.region, draws, 5)]))
    sections.append(Section("Daily life", daily_life(entity, draws, 2 if is_short else 1)))
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


# A path to the answer, the questions, the ways to state it, and what follows from it.
Fact = tuple[str, Sentence, Sentence, Sentence | None]


@cache
def facts_of(kind: str) -> list[Fact]:
    """The facts that are known of a kind of thing."""
    found = list[Fact]()
    for path, _, paragraphs in texts("facts")[kind].parts:
        said = [item for items in paragraphs for item in items if isinstance(item, Sentence)]
        found.append((path, said[0], said[1], said[2] if said[2:] else None))
    return found


def in_brief(thing: Entity, draws: Draws) -> list[str]:
    """All that is known of a thing, a sentence or two for each fact; now and then it is asked."""
    said = (text for fact in facts_of(thing.kind) for text in fact[1 + draws.chance(60) :])
    return [text.say(thing, draws) for text in said if isinstance(text, Sentence)]


def opinions(kind: str, draws: Draws, *, is_praise: bool, part: slice = slice(None)) -> list[str]:
    """What people thought of something about a thing of a kind: sentences of one polarity.

    `part` says which of the words of praise and blame are used.
    """
    table = tables("opinions")
    if kind not in table["objects"]:
        return []
    own, opposite = (table[side] for side in ("praise", "blame")[:: 1 if is_praise else -1])
    best, other = draws.some(own["adjectives"][part], 2)
    scope = SimpleNamespace(
        thing=draws.pick(table["objects"][kind]), critic=draws.pick(table["critics"]),
        best=best, other=other, less=draws.pick(opposite["adjectives"][part]),
        deed=draws.pick(own["deeds"]), consequence=draws.pick(own["consequences"]),
    )  # fmt: skip
    return [cap(sentence) for sentence in texts("opinions")["opinion"].sentences(scope, draws)]


@cache
def nouns(seed: int, *splits: str) -> list[tuple[str, str]]:
    """The made-up nouns of the splits (all of them for none), each with its class."""
    table = tables("nouns")
    words, found = Draws(seed, "nouns").some(table["words"]), []
    for split, count in table["counts"].items():
        for sort in table["tails"]:
            dealt, words = words[:count], words[count:]
            found += [(word, sort) for word in dealt if not splits or split in splits]
    return found


def household(region: Entity, draws: Draws, count: int) -> list[str]:
    """What is told of so many beasts and tools, in a sentence or two each."""
    forms, tails, said = texts("household"), tables("nouns")["tails"], list[str]()
    for _ in range(count):
        noun, sort = draws.pick(nouns(region.seed))
        scope = SimpleNamespace(
            noun=noun, tail=draws.pick(tails[sort]), town=draws.pick(region.towns),
            person=draws.pick(region.persons),
        )  # fmt: skip
        for form in ("place", "fact") if draws.chance(40) else ("whole",):
            said += forms[form].sentences(scope, draws)
    return said


def _around(entity: Entity, draws: Draws) -> SimpleNamespace:
    """What markup speaks of: the entity, numbers, and things of its region."""
    few, year, start = draws.between(2, 9), draws.between(1510, 1890), draws.below(3600)
    known = {
        "e": entity, "kinds": f"{entity.kind.capitalize()}s", "few": few, "more": few + 1,
        "year": year, "later": year + 1, "many": draws.between(20, 400),
        "script": entity.region.sounds["script"], "native": entity.region.sounds["native"],
    }  # fmt: skip
    for name in _NEARBY:
        things = entity.region.of_kind[name[:-1]]
        known[name] = things[(start + int(name[-1])) % len(things)]
    return SimpleNamespace(**known)


def _enrich(sections: list[Section], scope: SimpleNamespace, draws: Draws, *, number: int) -> None:
    """Add a few sentences that carry templates or tags."""
    forms, lead = pieces("markup"), sections[0].paragraphs[0]
    if number % 3 == 0:
        head, bold, tail = lead[0].rpartition("'''")
        lead[0] = f"{head}{bold}{forms['gloss'][0](scope, draws)}{tail}"
    for turn in range(2):
        paragraphs = sections[1 + (number + turn) % (len(sections) - 1)].paragraphs
        inline = forms["inline"][(2 * number + turn) % len(forms["inline"])]
        paragraphs[0].append(inline(scope, draws))


def _page(sections: list[Section], scope: SimpleNamespace, draws: Draws, *, number: int) -> str:
    """The whole page."""
    forms, entity = pieces("markup"), scope.e
    scope.rows = "".join(
        f"\n{say(scope, draws)}" for say in forms.get(f"infobox.{entity.kind}", ())
    )
    page = [forms["top"][number % 5](scope, draws), forms["infobox"][0](scope, draws)]
    for index, section in enumerate(sections):
        if section.heading:
            page.append(f"== {section.heading} ==" if number % 2 else f"=={section.heading}==")
        if index == 1 and number % 5 != 4:
            page.append(draws.pick(forms["file"])(scope, draws))
        paragraphs = [_paragraph(sentences, draws, scope) for sentences in section.paragraphs]
        if len(paragraphs) > 2:
            paragraphs.insert(1, f"=== {draws.pick(forms['subheading'])(scope, draws)} ===")
        if len(paragraphs) > 4:
            paragraphs.insert(3, "==== Other matters ====")
        page += paragraphs
        if index in (1, 3):
            page.append(forms["blocks"][(number + index) % len(forms["blocks"])](scope, draws))
    extras = (
        ("reading", not number % 4),
        ("languages", not number % 3),
        ("sort_key", entity.kind == "person"),
    )
    for name, is_there in extras:
        setattr(scope, name, forms[name][0](scope, draws) if is_there else "")
    scope.references = forms["references"][number % 2](scope, draws)
    return "\n\n".join([*page, forms["bottom"][0](scope, draws)])


def _paragraph(sentences: list[str], draws: Draws, scope: SimpleNamespace) -> str:
    # A reference at every sixth sentence or so, a remark to other authors now and then.
    remark, position = divmod(draws.below(24 * 6), 6)
    if position < len(sentences):
        sentences = [*sentences]
        sentences[position] += draws.pick(pieces("markup")["reference"])(scope, draws)
    if remark == 0:
        sentences = [sentences[0], pieces("markup")["remark"][0](scope, draws), *sentences[1:]]
    return " ".join(sentences)
