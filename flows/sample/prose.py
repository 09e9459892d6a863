"""What an article's text is made of before it becomes markup."""

from __future__ import annotations

import re
from typing import NamedTuple

from flows.sample.facts import NUMBERS


class Section(NamedTuple):
    """A heading ("" for the lead) and its paragraphs, each a list of sentences in wikitext.

    The sentences have links, italics and bold, nothing else, unless they carry a template or a
    tag on purpose; `plain_text` tells the two apart.
    """

    heading: str
    paragraphs: list[list[str]]


def num(number: int) -> str:
    """A count as an encyclopedia writes it: `seven`, `14`, `12,300`."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def a(noun: str) -> str:
    """The noun with `a` or `an`, by its first letter, past any markup."""
    return f"an {noun}" if noun.lstrip("'[")[:1].lower() in "aeiou" else f"a {noun}"


def cap(sentence: str) -> str:
    """The sentence with its first letter, past the brackets of a link, made a capital."""
    if sentence.startswith("[["):
        end = sentence.index("]]")
        inside = sentence[2:end]
        target, bar, text = inside.rpartition("|")
        return f"[[{target}{bar}{text[:1].upper()}{text[1:]}{sentence[end:]}"
    return sentence[:1].upper() + sentence[1:]


_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]")
_HARD = re.compile(r"\{\{|<|&lt;|\[https?:|'''s|''s|\|\]\]|__|~~~|&(?!nbsp;|ndash;)")
_QUOTES = re.compile(r"'{2,5}")


def plain_text(sentence: str) -> str | None:
    """The sentence as a reader sees it, or None where what a reader sees is a matter of taste.

    Templates, tags and odd quotes give None: what stays of them is the cleaner's decision, not
    ours. This knows only the shapes that the sample writes; it is no cleaner.
    """
    if _HARD.search(sentence):
        return None
    text = _QUOTES.sub("", _LINK.sub(r"\1", sentence))
    return text.replace("&nbsp;", " ").replace("&ndash;", "\N{EN DASH}")
