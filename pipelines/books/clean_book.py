"""Extract the paragraphs of prose from the books of a file, and count all other words by reason.

The rules know no language. They remove what Project Gutenberg adds (`pipelines.books.gutenberg`),
headings, lists, and the title page (`pipelines.books.blocks`). All other paragraphs, letters,
verses, notes and postscripts are kept.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from pipelines.books.blocks import classify_blocks
from pipelines.books.gutenberg import BookText, drop_brackets, drop_licenses
from pipelines.books.layout import LineJoiner, split_blocks
from pipelines.books.words import count_words

_BOX = re.compile(r"^[ \t]*\+[-=+]{3,}\+[ \t]*$|^[ \t]*\|(?P<inside>.*)\|[ \t]*$", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!_)_(?!_)([^_]*)(?<!_)_(?!_)")
_STRAY_EMPHASIS = re.compile(r"(?<![\w_])_(?=[^\s_])|(?<=[^\s_])_(?![\w_])")
_BOLD = re.compile(r"(?<![\w=])=(?=\S)([^=]*\S)=(?![\w=])")
_FOOTNOTE_MARK = re.compile(r"(?<=\S)\[(?:\d{1,3}|[A-Z]|\*{1,3}|[†‡§])\]|\{\d{1,3}\}")


class CleanedBook(NamedTuple):
    """Prose of one book."""

    text: BookText
    """Raw text, title and position in the file."""

    paragraphs: list[str]
    """Paragraphs and stanzas in order, without line breaks. May be empty."""

    words: int
    """Words of the raw book with header and license. A word cut at a line end counts twice."""

    kept_words: int

    dropped_words: Counter[str]
    """Other words by `pipelines.books.blocks.Reason`."""


def clean_book(book: BookText) -> CleanedBook:
    """Return the prose of one book of `pipelines.books.gutenberg.split_books`."""
    dropped: Counter[str] = Counter()
    body, words = book.body, count_words(book.body)
    outside = count_words(book.header) + count_words(book.license)
    dropped["license"] = outside
    total = outside + words
    for reason, drop in (
        ("license", drop_licenses),
        ("note", drop_brackets),
        ("ornament", _drop_boxes),
    ):
        remaining = drop(body)
        if remaining is not body:
            dropped[reason] += words - count_words(remaining)
            body, words = remaining, count_words(remaining)
    joiner = LineJoiner(body)
    paragraphs, kept = list[str](), 0
    for block in classify_blocks(split_blocks(body.split("\n"))):
        if block.reason is None:
            kept += block.words
            paragraphs.append(_drop_marks(joiner.join(block.lines, joined=block.text)))
        else:
            dropped[block.reason] += block.words
    return CleanedBook(book, paragraphs, total, kept, dropped)


def _drop_boxes(text: str) -> str:
    """Remove the frames of texts in boxes of `+---+` and `|`."""
    return _BOX.sub(lambda match: match["inside"] or "", text) if "|" in text else text


def _drop_marks(paragraph: str) -> str:
    """Remove the marks of emphasis (`_italics_`, `=bold=`) and of footnotes (`[1]`)."""
    if "_" in paragraph:
        paragraph = _STRAY_EMPHASIS.sub("", _EMPHASIS.sub(r"\1", paragraph))
    if "=" in paragraph:
        paragraph = _BOLD.sub(r"\1", paragraph)
    if "[" in paragraph or "{" in paragraph:
        paragraph = _FOOTNOTE_MARK.sub("", paragraph)
    return " ".join(paragraph.split()) if "  " in paragraph else paragraph.strip()
