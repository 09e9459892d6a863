# ruff: noqa: E501 -- markup is easier to read on one line
"""From sections of sentences to a wiki page with every kind of markup around them.

Words of `NEVER_PROSE` occur in infoboxes, references, tables, lists, captions and navigation, and
nowhere else: a cleaner that lets one of them through has let through what it should have dropped.
"""

from __future__ import annotations

from flows.sample.blocks import BLOCKS
from flows.sample.draws import Draws
from flows.sample.entities import Building, Entity, Person, Region, Town
from flows.sample.names import gloss
from flows.sample.prose import Section, a, num

NEVER_PROSE = ("Quillmark", "Tallystone", "Itemward", "Platemark", "Navstone", "Boxstone",
               "Hatnoteworthy", "Unseenremark")  # fmt: skip


def enrich(entity: Entity, sections: list[Section], draws: Draws, *, number: int) -> list[Section]:
    """The sections with a few sentences that carry templates or tags, kinds taken in turn."""
    extras = _inline_sentences(entity, draws)
    lead = sections[0].paragraphs[0]
    if number % 3 == 0:
        lead[0] = _with_gloss(entity, lead[0])
    for step in range(2):
        paragraphs = sections[1 + (number + step) % (len(sections) - 1)].paragraphs
        paragraphs[0].append(extras[(2 * number + step) % len(extras)])
    return sections


def _with_gloss(entity: Entity, sentence: str) -> str:
    """The first sentence with the name in the region's own script, and how to say it."""
    script = entity.region.sounds.script
    name = entity.name.strip("'")
    written = gloss(name.split()[0], script)
    head, bold, tail = sentence.rpartition("'''")
    return f"{head}{bold} ({{{{lang|{script}|{written}}}}}, {{{{IPA|/{name.split()[0].lower()}/}}}}){tail}"


def _inline_sentences(e: Entity, d: Draws) -> tuple[str, ...]:
    """Sentences with inline templates, tags and quotes; most of them of no certain plain text."""
    town = d.pick(e.region.towns)
    person = d.pick(e.region.persons)
    river, near = town.river, d.pick(e.region.neighbours)
    year, many, few = d.between(1510, 1890), d.between(20, 400), d.between(2, 9)
    return (
        f"The road from here to {town.link} is {{{{convert|{many}|km|mi}}}} long.",
        f"The nearest house stands {{{{convert|{town.elevation}|m|ft|abbr=on}}}} above the sea and {{{{convert|{few}|km|0}}}} from the {river.link}.",
        f"An older source, of {{{{circa|{year}}}}}, does not mention it.",
        f"In [[{near.name}]] it has a name of its own, {{{{lang|{near.script}|{gloss(river.name, near.script)}}}}}.",
        f"About {{{{frac|{few}|{few + 1}}}}} of the people of {town.link} had heard of it in {year}.",
        f"A permit from {{{{nowrap|{few} May {year}}}}} is kept in {town.link}.",
        f"The price, {many}&nbsp;silver pieces, was paid in {year}&ndash;{year + 1} by {person.link}.",
        f"See also the [[{town.title}#History|history of {town.name}]] for the years after {year}.",
        f"Several [[{river.title}|river]]s and [[bridge]]s of {e.region.link} are named after it.",
        f"{town.name}'s part in the matter was small, but the town's {town.trade.workers} thought '''otherwise'''.",
        f"In ''{d.pick(e.region.works).title.split(' (')[0]}'''s second chapter it goes by another name.",
        f"Its surface was measured as {many}&nbsp;m<sup>2</sup> in {year}, and the water, or H<sub>2</sub>O, was found to be clean.",
        f"Nothing of this is known in [[{town.title}|]].",
        f"The firm of {person.surname} &amp;amp; Daughter of {town.link} kept the accounts.",
        f"The figure of {many} is given by {{{{abbr|cf.|compare}}}} {person.link}, ''{{{{lang|{e.region.sounds.script}|{gloss(person.given, e.region.sounds.script)}}}}}'', who counted twice.",
        f"Later writers put the number at <math>{few}^2 + {few}</math>, which nobody has checked.",
        f"The clerk wrote <nowiki>[[{town.name}]]</nowiki> with brackets, as was then the custom.",
        f"The catalogue number is <code>{e.region.sounds.script.upper()}-{many}</code>.",
        f"A copy of the deed may be read at [https://archive.example.org/{many} the archive of {town.name}].",
        f"A newer edition bears the number ISBN 978-3-16-{140000 + many}-{few} and follows RFC {2000 + many}.",
        f"It was counted{{{{#if: {few} | &#32;again }}}} in {year + few}.",
        f"The old measure of {{{{val|{many}|ul=m}}}} was given up in {year}<!-- Unseenremark: date checked -->, to general relief.",
        f"A proverb of {town.link} is often quoted here.{{{{quote|Whoever counts twice counts once.}}}}",
        f'The poet {person.link} called it "{{{{transliteration|{e.region.sounds.script}|{person.given.lower()}}}}}", a word of her own making.'
        if person.woman
        else f'The poet {person.link} called it "{{{{transliteration|{e.region.sounds.script}|{person.given.lower()}}}}}", a word of his own making.',
    )


def render(entity: Entity, sections: list[Section], draws: Draws, *, number: int) -> str:
    """The whole page."""
    parts = [_top(entity, number), _infobox(entity, draws)]
    for index, section in enumerate(sections):
        if section.heading:
            parts.append(f"== {section.heading} ==" if number % 2 else f"=={section.heading}==")
        if index == 1:
            parts.append(_file(entity, draws, number))
        paragraphs = [_paragraph(paragraph, draws, entity) for paragraph in section.paragraphs]
        if len(paragraphs) > 2:
            paragraphs.insert(1, f"=== {_subheading(draws)} ===")
        if len(paragraphs) > 4:
            paragraphs.insert(3, "==== Other matters ====")
        parts += paragraphs
        if index in (1, 3):
            parts.append(BLOCKS[(number + index) % len(BLOCKS)](entity, draws))
    parts.append(_bottom(entity, draws, number))
    return "\n\n".join(part for part in parts if part)


def _subheading(d: Draws) -> str:
    return d.pick(("In detail", "Further facts", "More", "Details"))


def _paragraph(sentences: list[str], d: Draws, e: Entity) -> str:
    # A reference after every fourth sentence or so, a remark to other authors now and then.
    written = [s + _reference(d, e) if d.chance(17) else s for s in sentences]
    if d.chance(4):
        written.insert(1, "<!-- Unseenremark: please do not change without a source -->")
    return " ".join(written)


def _reference(d: Draws, e: Entity) -> str:
    page, key = d.between(3, 400), e.region.index * 10 + d.below(9)
    author = e.region.persons[d.below(36)].surname
    kind = d.below(8)
    if kind == 0:
        return f'<ref name="q{key}">{{{{cite book |last={author} |title=Collected Papers |publisher=Quillmark |year={{{{circa|1900}}}} |page={page}}}}}</ref>'
    if kind == 1:
        return f'<ref name="q{key}" />'
    if kind == 2:
        return f"{{{{sfn|{author}|1901|p={page}}}}}"
    if kind == 3:
        return f"<ref>Quillmark Yearbook, {page}.</ref><ref name=q{key}/>"
    if kind == 4:
        return f"<ref group=note>[https://quillmark.example.org/{page} Quillmark notes], ''{author}'' [[{e.title}|here]].</ref>"
    if kind == 5:
        return f"{{{{citation needed|date=May 20{10 + page % 15}}}}}"
    if kind == 6:
        return f"{{{{refn|Quillmark doubts this.<ref>{author}, {page}.</ref>}}}}"
    return f"<ref>{{{{cite web\n | url = https://quillmark.example.org/{page}\n | title = Quillmark {page} }}}}</ref>"


def _top(e: Entity, number: int) -> str:
    lines = [f"{{{{Short description|Hatnoteworthy {e.kind} in {e.region.name}}}}}"]
    if number % 4 == 0:
        lines.append(f"{{{{about|the {e.kind}|other uses|{e.title} (disambiguation)}}}}")
    if number % 4 == 1:
        lines.append(
            f":''Hatnoteworthy: for other things of this name see [[{e.title} (disambiguation)]].''"
        )
    if number % 9 == 2:
        lines.append("__NOTOC__")
    if number % 9 == 5:
        lines.append(
            "{{Use dmy dates|date=January 2025}}\n{{Unreferenced section|date={{CURRENTMONTHNAME}} 2025}}"
        )
    return "\n".join(lines)


def _infobox(e: Entity, d: Draws) -> str:
    rows = [f"| name = {e.name}", f"| image = {e.title}.jpg", f"| caption = Platemark of {e.link}"]
    if isinstance(e, Town):
        rows += [
            f"| native_name = {{{{lang|{e.region.sounds.script}|{gloss(e.name, e.region.sounds.script)}}}}}",
            f"| population = {e.population:,} <small>(2020)</small>",
            f"| elevation = {{{{convert|{e.elevation}|m|ft|abbr=on}}}}",
            f"| coordinates = {{{{coord|{d.between(30, 60)}|{d.below(60)}|N|{d.below(30)}|{d.below(60)}|E|display=inline,title}}}}",
        ]
    elif isinstance(e, Person):
        rows += [
            f"| birth_date = {{{{birth date|{e.born}|1|1|df=yes}}}}<br />{e.birthplace.link}",
            f"| death_date = {{{{death year and age|{e.died}|{e.born}}}}}",
            f"| occupation = {{{{hlist|{e.occupation}|Boxstone {e.role}}}}}",
        ]
    elif isinstance(e, Region):
        rows.append(
            f"| area = {{{{convert|{e.area}|km2|sqmi|abbr=on}}}}{{{{efn|Boxstone survey.}}}}"
        )
    elif isinstance(e, Building):
        rows.append(f"| height = {{{{nowrap|{{{{convert|{e.height}|m|ft}}}}}}}}")
    rows.append(f"| notes = {{{{small|Boxstone {{{{nowrap|no. {d.between(100, 999)}}}}}}}}}")
    return f"{{{{Infobox {e.kind}\n" + "\n".join(rows) + "\n}}"


def _file(e: Entity, d: Draws, number: int) -> str:
    town = d.pick(e.region.towns)
    if number % 5 == 4:
        return ""
    size = d.pick(("thumb", "thumb|left|upright=1.2", "thumb|220px|alt=Platemark", "frame|right"))
    prefix = d.pick(("File", "File", "Image"))
    return f"[[{prefix}:{e.title} {d.between(1, 99)}.jpg|{size}|Platemark: {e.link} seen from {town.link}, ''about'' {{{{circa|1890}}}}]]"


def _bottom(e: Entity, d: Draws, number: int) -> str:
    others = [entity for entity in (*e.region.towns[:2], *e.region.rivers) if entity is not e]
    lines = ["== See also ==", *(f"* Itemward {other.link}" for other in others), ""]
    lines += ["== References ==", "{{reflist|30em}}" if number % 2 else "<references />", ""]
    if number % 4 == 0:
        author = d.pick(e.region.persons)
        lines += [
            "== Further reading ==",
            f"* {{{{cite book|last={author.surname}|title=Itemward Studies|publisher=Quillmark}}}}",
            "",
        ]
    lines += [
        "== External links ==",
        f"* [https://itemward.example.org/{number} Itemward page on {e.name}]",
        "",
    ]
    lines.append(
        f"{{{{Navbox | name = {e.region.name} | title = Navstone {{{{nowrap|[[{e.region.name}]]}}}} | list1 = {' {{·}} '.join(t.link for t in e.region.towns[:3])} }}}}"
    )
    if isinstance(e, Person):
        lines.append(f"{{{{DEFAULTSORT:{e.surname}, {e.given}}}}}")
    lines += [
        f"[[Category:{e.kind.capitalize()}s in {e.region.name}]]",
        f"[[Category:{e.region.name}| ]]",
    ]
    if number % 3 == 0:
        lines += [f"[[de:{e.title}]]", f"[[fr:{e.title}]]"]
    return "\n".join(lines)


def summary(e: Entity) -> str:
    """One line on an entity, for disambiguation pages and stubs."""
    where = f"in {e.region.link}"
    if isinstance(e, Person):
        return f"{e.link} ({e.born}&ndash;{e.died}), {a(e.occupation)} {where}"
    if isinstance(e, Town):
        return f"{e.link}, {a(e.sort)} of {num(e.population)} people {where}"
    return f"{e.link}, {a(e.kind)} {where}"
