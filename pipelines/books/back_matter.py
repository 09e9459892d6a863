"""Recognize back matter by its lines: catalogues, errata, notes.

Each function looks at one block. `pipelines.books.back` also considers its position in the book.
"""

from __future__ import annotations

import re

_CATALOGUED = re.compile(
    r"\b(?:4to|(?:8|12|16|18|24|32)[mv]o)\b|\bpost-?(?:paid|free)\b|\bprice,? (?:[$£]|\d)"
    r"|\bcloth[,;:]? (?:gilt|extra|boards|limp|elegant|[$£\d])"
    r"|(?:[$£]\d+\.\d\d|\b\d+s\.(?: ?\d+d\.)?|\b\d+d\.|\b\d+ cents)"
    r"(?: (?:net|each|per vol\w*))?[\W_]*$",
    re.IGNORECASE,
)
_ERRATUM = re.compile(
    r"(?:\bp(?:age|p?\.)|\bline|\bl\.)\s*\d+\b.{0,80}\b(?:for|read|dele)\b|\bfor\b.{1,60}\bread\b",
    re.IGNORECASE,
)
_ERRATA = re.compile(
    r"(?=[^a-zA-Z]{0,9}(?-i:[A-Z]))[ \t_*=|+-]*(?:LIST OF |THE )?"
    r"(?:TYPOGRAPHICAL ERRORS|ERRAT(?:A|UM)|CORRIGENDA|ADDENDA)"
    r"(?:(?: AND| ET| &) (?:ERRATA|CORRIGENDA|ADDENDA|CORRECTIONS))?\b[^a-z]*$",
    re.IGNORECASE,
)
_ENDNOTES = re.compile(
    r"(?=[^a-zA-Z]{0,9}(?-i:[A-Z]))[ \t_*=]*(?:FOOT-?NOTES|END-?NOTES|NOTES?)[ \t_*=.:]*$",
    re.IGNORECASE,
)
_ENDNOTE = re.compile(
    r"[ \t_]*(?:[\[({](?:\d{1,3}|[a-zA-Z]|[*†‡§]{1,3})[\])}]|(?:note )?\d{1,3}[.:)]|[*†‡§]{1,3})"
    r"\s*\S",
    re.IGNORECASE,
)
_BRACKETED_NOTE = re.compile(r"[ \t_]*[\[{](?:\d{1,3}|[*†‡§]{1,3})[\]}](?:\s*\S|$)")
_MAX_ENTRY_WORDS = 120
_MAX_ERRATUM_WORDS = 40


def is_catalogued(text: str) -> bool:
    """Return whether a block is an entry of a catalogue, with a format, binding or price."""
    return text.count(" ") < _MAX_ENTRY_WORDS and _CATALOGUED.search(text) is not None


def is_errata_heading(line: str) -> bool:
    """Return whether a line is `ERRATA` or `Addenda et Corrigenda`."""
    return _ERRATA.match(line) is not None


def is_erratum(text: str) -> bool:
    """Return whether a block is a line of an errata table: `Page 12, line 3, for x read y`."""
    return text.count(" ") < _MAX_ERRATUM_WORDS and _ERRATUM.search(text) is not None


def is_endnotes_heading(text: str) -> bool:
    """Return whether a line is `FOOTNOTES` or `NOTES`."""
    return _ENDNOTES.match(text) is not None


def is_footnotes_heading(text: str) -> bool:
    """Return whether a block is `FOOTNOTES` alone, which heads nothing but notes."""
    return is_endnotes_heading(text) and "foot" in text.lower()


def is_endnote(text: str) -> bool:
    """Return whether a block begins with the number or mark of a note."""
    return _ENDNOTE.match(text) is not None or is_bracketed_note(text)


def is_bracketed_note(text: str) -> bool:
    """Return whether a block begins with a number in brackets, which no list of a story has."""
    return _BRACKETED_NOTE.match(text) is not None
