# ruff: noqa: E501 -- markup is easier to read on one line
"""Blocks that stand between paragraphs: tables, lists, galleries, poems, code, formulas."""

from __future__ import annotations

from collections.abc import Callable

from flows.sample.draws import Draws
from flows.sample.entities import Entity


def _table(e: Entity, d: Draws) -> str:
    rows = [
        f"|-\n| {t.link} || {t.founded} || {{{{nts|{t.population}}}}}"
        for t in d.some(e.region.towns, 4)
    ]
    return (
        '{| class="wikitable sortable"\n|+ Tallystone of towns\n! Town !! Founded !! Tallystone people\n'
        + "\n".join(rows)
        + "\n|}"
    )


def _nested_table(e: Entity, d: Draws) -> str:
    first, second = d.some(e.region.persons, 2)
    return (
        '{| class="wikitable"\n! colspan="2" | Tallystone of masters\n|-\n'
        f'| rowspan="2" | {first.link}\n| Tallystone {first.born}\n|-\n| {first.died}\n|-\n'
        f'| {second.link}\n|\n{{| class="inner"\n| Tallystone inside\n|-\n| {second.occupation}\n|}}\n|}}'
    )


def _bullets(e: Entity, d: Draws) -> str:
    first, second, third = d.some(e.region.buildings, 3)
    return (
        f"* Itemward {first.link}\n** Itemward of {first.stone}\n*** Itemward {first.built}\n"
        f"* Itemward {second.link}\n*: Itemward note\n* Itemward {third.link}"
    )


def _numbers(e: Entity, d: Draws) -> str:
    return "\n".join(
        f"# Itemward {event.link}\n#* Itemward {event.day}" for event in d.some(e.region.events, 3)
    )


def _definitions(e: Entity, d: Draws) -> str:
    instrument, dish = d.pick(e.region.instruments), d.pick(e.region.dishes)
    return f"; Itemward {instrument.name}\n: Itemward {instrument.sort}\n; Itemward {dish.name} : Itemward dish of {dish.town.link}"


def _gallery(e: Entity, d: Draws) -> str:
    towns = d.some(e.region.towns, 3)
    lines = "\n".join(f"File:{t.name} view.jpg|Platemark of {t.link}, ''{t.sort}''" for t in towns)
    return f'<gallery mode="packed" heights="120">\n{lines}\n</gallery>'


def _poem(e: Entity, d: Draws) -> str:
    town = d.pick(e.region.towns)
    return f"<poem>\nThe boats go down to {town.name},\n  the lamps are lit, the day is done,\nand all the {town.trade.workers} sleep.\n</poem>"


def _quote(e: Entity, d: Draws) -> str:
    person = d.pick(e.region.persons)
    return f"<blockquote>Whoever crosses the {person.home.river.name} must leave something on the other side. &mdash; {person.link}</blockquote>"


def _code(e: Entity, d: Draws) -> str:
    return f'<syntaxhighlight lang="python">\ntallystone = {{"{e.region.name}": {d.between(1, 99)}}}  # Tallystone\nprint("[[not a link]]", tallystone)\n</syntaxhighlight>'


def _math(_: Entity, d: Draws) -> str:
    return f": <math>\\frac{{{d.between(2, 9)}}}{{x}} = \\text{{Tallystone}}</math>"


def _conditional(e: Entity, d: Draws) -> str:
    return f"{{{{#ifeq: {{{{NAMESPACE}}}} | Talk | Navstone talk | {{{{Navstone box|[[{d.pick(e.region.towns).title}]]}}}} }}}}"


def _images(e: Entity, d: Draws) -> str:
    t = d.pick(e.region.towns)
    return f"{{{{multiple image\n| image1 = {t.name} 1.jpg\n| caption1 = Platemark one {t.link}\n| image2 = {t.name} 2.jpg\n| caption2 = Platemark two\n}}}}\n[[Image:{t.name} map.png|center|500px|Platemark: map of [[{t.title}|the town]] with [[File:Dot.svg|8px]] marks]]"


def _rule(_: Entity, __: Draws) -> str:
    return "----\n{{clear}}"


def _indented(e: Entity, d: Draws) -> str:
    return f":: Itemward {d.pick(e.region.ships).link}\n::: Itemward {d.pick(e.region.works).link}"


def _html_table(e: Entity, d: Draws) -> str:
    t = d.pick(e.region.towns)
    return f'<table border="1"><caption>Tallystone</caption><tr><td>Tallystone {t.link}</td><td>{t.founded}</td></tr></table>'


BLOCKS: tuple[Callable[[Entity, Draws], str], ...] = (
    _table, _bullets, _gallery, _poem, _numbers, _nested_table, _quote, _definitions, _code,
    _images, _math, _conditional, _indented, _rule, _html_table,
)  # fmt: skip
"""Every kind of block; articles take them in turn."""
