"""Tables of text in the format of `texts/README.md`; each line is compiled once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import Any, NamedTuple

import yaml

from flows.sample.draws import Draws

Say = Callable[[Any, Draws], str]  # a compiled text: says it of a thing

_FIELD = re.compile(
    r"\$(?:(pick)\(([^()]*)\)\.(\w+(?:\.\w+)*)|(\w*)\(([^()]*)\)|([A-Za-z_]\w*(?:\.\w+)*))"
)


def num(number: int) -> str:
    """A count as an encyclopedia writes it: `seven`, `14`, `12,300`."""
    words: list[str] = tables("world")["words"]["number"]
    return words[number] if number < len(words) else f"{number:,}"


def a(noun: str) -> str:
    """The noun with `a` or `an`, by its first letter, past any markup."""
    return f"an {noun}" if noun.lstrip("'[")[:1].lower() in tuple("aeiou") else f"a {noun}"


def cap(sentence: str) -> str:
    """The sentence with its first letter, past the brackets of a link, made a capital."""
    if sentence.startswith("[["):
        end = sentence.index("]]")
        target, bar, text = sentence[2:end].rpartition("|")
        return f"[[{target}{bar}{text[:1].upper()}{text[1:]}{sentence[end:]}"
    return sentence[:1].upper() + sentence[1:]


_FILTERS: dict[str, Callable[[Any], object]] = {
    "": str, "a": a, "cap": cap, "num": num, "capnum": lambda number: cap(num(number)),
    "title": str.title,
}  # fmt: skip


def compiled(text: str) -> Say:
    """The text as a function of the thing that it speaks of."""
    values = [_value(field) for field in _FIELD.finditer(text)]
    if not values:
        return lambda _thing, _draws: text
    form = _FIELD.sub("%s", text.replace("%", "%%"))
    facts = attrgetter(*(path for path, _ in values))
    changes = [(index, change) for index, (_, change) in enumerate(values) if change]
    if not changes:
        return lambda thing, _: form % facts(thing)
    if len(values) == 1:
        only = changes[0][1]
        return lambda thing, draws: form % only(facts(thing), draws)

    def say(thing: Any, draws: Draws) -> str:
        found = list(facts(thing))
        for index, change in changes:
            found[index] = change(found[index], draws)
        return form % tuple(found)

    return say


def _value(field: re.Match[str]) -> tuple[str, Callable[[Any, Draws], object] | None]:
    """The fact that a field begins with, and what becomes of it."""
    pick, options, of_it, call, inside, path = field.groups()
    if path:
        return path, None
    if pick:
        one = attrgetter(of_it)
        return options, lambda things, draws: one(draws.pick(things))
    if "|" in inside:
        words = inside.split("|")
        return "__class__", lambda _, draws: draws.pick(words)  # of any thing
    if inside[:1].isdigit():
        low, high = map(int, inside.split("-"))
        shown = str if call == "int" else num
        return "__class__", lambda _, draws: shown(draws.between(low, high))
    changed = _FILTERS[call]
    return inside, lambda fact, _: changed(fact)


class Sentence:
    """A sentence with its wordings, each with what must (or must not) hold to say it: a fact, or
    that a fact is this (`role=writer`)."""

    def __init__(self, lines: Sequence[str]) -> None:
        found = [re.fullmatch(r"(?s)(?:([?!])(\w+)(?:=(\w+))? )?(.*)", line) for line in lines]
        self.wordings = [(compiled(m[4]), m[2], m[3], m[1] == "?") for m in found if m]
        self.says = tuple(say for say, *_ in self.wordings)
        self._is_choosy = any(fact for _, fact, _, _ in self.wordings)

    def fitting(self, thing: Any) -> list[Say]:
        """The wordings that fit the thing."""
        known = vars(thing)
        return [say for say, fact, value, expected in self.wordings if not fact or expected is (
            str(known.get(fact)) == value if value else bool(known.get(fact)))]  # fmt: skip

    def say(self, thing: Any, draws: Draws) -> str:
        """One of the wordings that fit the thing; "" where none does."""
        says: Sequence[Say] = self.fitting(thing) if self._is_choosy else self.says
        if len(says) == 1:
            return says[0](thing, draws)
        return draws.pick(says)(thing, draws) if says else ""


class Include:
    """Things that a text goes on to speak of, in a paragraph each or (`is_inline`) here."""

    def __init__(self, line: str) -> None:
        mark, *words = line.split()
        self._is_drawn = words[0] == "some"
        path, *count = words[self._is_drawn :]
        self._things, self._count = attrgetter(path), int(*count) if count else 99
        self.is_inline, self._skipped = mark != "+", int(mark == ">>")

    def told(self, thing: Any, draws: Draws, about: Mapping[str, Text]) -> list[list[str]]:
        """What there is to say of each."""
        found = self._things(thing)
        things = found if isinstance(found, list) else [found] if found else []
        things = draws.some(things, self._count) if self._is_drawn else things[: self._count]
        return [about[other.kind].sentences(other, draws)[self._skipped :] for other in things]


class Section(NamedTuple):
    """A heading ("" for the lead) and paragraphs of sentences in wikitext: with links, italics and
    bold, nothing else, unless they carry a template or a tag on purpose (see `plain_text`)."""

    heading: str
    paragraphs: list[list[str]]


class Text:
    """A named text: sections, each a title and paragraphs of sentences."""

    def __init__(self, body: str) -> None:
        self.parts: list[tuple[str, Say, list[list[Sentence | Include]]]] = []
        for number, section in enumerate(f"\n{body}".split("\n=")):
            title, _, text = section.partition("\n") if number else ("", "", section)
            paragraphs = [_items(block) for block in re.split(r"\n\s*\n", text.strip()) if block]
            if paragraphs:
                self.parts.append((title.strip(), compiled(title.strip()), paragraphs))
        # The sentences of its first paragraph.
        self.lead = [item for item in self.parts[0][2][0] if isinstance(item, Sentence)]

    def tell(self, thing: Any, draws: Draws, about: Mapping[str, Text]) -> list[Section]:
        """All its sections that have something to say of the thing; `about` says the rest."""
        sections = []
        for _, title, paragraphs in self.parts:
            told: list[list[str]] = []
            for items in paragraphs:
                here, apart = list[str](), list[list[str]]()
                for item in items:
                    if isinstance(item, Sentence):
                        here.append(item.say(thing, draws))
                    elif item.is_inline:
                        here += [said for one in item.told(thing, draws, about) for said in one]
                    else:
                        apart += item.told(thing, draws, about)
                here = [said for said in here if said]
                told += [here, *apart] if here else apart
            if told:
                sections.append(Section(title(thing, draws), told))
        return sections

    def sentences(self, thing: Any, draws: Draws) -> list[str]:
        """What its first paragraph says of the thing."""
        return [said for sentence in self.lead if (said := sentence.say(thing, draws))]


def _items(block: str) -> list[Sentence | Include]:
    lines = re.split(r"\n(?!/ )", block)
    return [Include(x) if x[0] in "+>" else Sentence(x.split("\n/ ")) for x in lines]


def read(name: str) -> str:
    """The file `texts/NAME`."""
    return (files("flows.sample") / "texts" / name).read_text(encoding="utf-8")


def _named(name: str) -> Iterator[tuple[str, str]]:
    for block in read(f"{name}.txt").split("\n@")[1:]:
        title, _, body = block.partition("\n")
        yield title, body.rstrip()


@cache
def texts(name: str) -> dict[str, Text]:
    """The texts of the file `texts/NAME.txt`, in its order."""
    return {title: Text(body) for title, body in _named(name)}


@cache
def pieces(name: str) -> dict[str, tuple[Say, ...]]:
    """The texts of the file `texts/NAME.txt`, whose lines are kept, with the forms of each."""
    return {title: tuple(map(compiled, body.split("\n/ "))) for title, body in _named(name)}


@cache
def tables(name: str) -> dict[str, Any]:
    """What the file `texts/NAME.yaml` holds."""
    found: dict[str, Any] = yaml.safe_load(read(f"{name}.yaml"))
    return found


_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]")
_HARD = re.compile(r"\{\{|<|&lt;|\[https?:|'''s|''s|\|\]\]|__|~~~|&(?!nbsp;|ndash;)")


def plain_text(sentence: str) -> str | None:
    """The sentence as a reader sees it, or None where it carries a template, a tag or odd quotes:
    what stays of them is the cleaner's decision. This knows the sample's shapes only."""
    if _HARD.search(sentence):
        return None
    text = re.sub("'{2,5}", "", _LINK.sub(r"\1", sentence))
    return text.replace("&nbsp;", " ").replace("&ndash;", "\N{EN DASH}")
