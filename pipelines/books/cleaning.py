"""Extract the paragraphs of prose from a book.

Excluded are Project Gutenberg's header, license and notes; title page, lines of the publisher,
dedication; lists of contents and illustrations; headings; captions; ornaments; advertisements after
the last page. All paragraphs, letters, verses, prefaces and introductions are kept. Unclear blocks
are kept too, because a lost sentence is worse than an extra line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pipelines.books.blocks import BlockKind
from pipelines.books.gutenberg import drop_brackets, strip_gutenberg
from pipelines.books.layout import LineJoiner, split_blocks
from pipelines.books.matter import is_breaking_heading
from pipelines.books.sections import classify_blocks
from pipelines.io.encodings import normalise

_BOX = re.compile(r"^[ \t]*\+[-=+]{3,}\+[ \t]*$|^[ \t]*\|(?P<inside>.*)\|[ \t]*$", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!_)_(?!_)([^_]*)(?<!_)_(?!_)")
_STRAY_EMPHASIS = re.compile(r"(?<![\w_])_(?=[^\s_])|(?<=[^\s_])_(?![\w_])")
_BOLD = re.compile(r"(?<![\w=])=(?=\S)([^=]*\S)=(?![\w=])")
_FOOTNOTE_MARK = re.compile(r"(?<=\S)\[(?:\d{1,3}|[A-Z]|\*{1,3}|[†‡§])\]|\{\d{1,3}\}")
_SPACES_RUN = re.compile(r" {2,}")


class CleanedBook(NamedTuple):
    """Prose of one book."""

    title: str
    """Title in Project Gutenberg's header, or ""."""

    author: str
    paragraphs: list[str]
    """Paragraphs and stanzas in order, without line breaks. May be empty."""


def clean_book(text: str) -> CleanedBook:
    """Return the prose of one book.

    Args:
        text: Decoded text with any line ends, hard-wrapped or with one line per paragraph.
    """
    source = strip_gutenberg(normalise(text))
    body = _BOX.sub(lambda match: match["inside"] or "", drop_brackets(source.body))
    blocks = split_blocks(body.split("\n"), is_heading=is_breaking_heading)
    joiner = LineJoiner(body)
    paragraphs = []
    for kind, block in classify_blocks(blocks, title=source.title):
        if kind is BlockKind.TEXT:
            paragraph = _finish(joiner.join(block.lines))
            if any(character.isalnum() for character in paragraph):
                paragraphs.append(paragraph)
    return CleanedBook(source.title, source.author, paragraphs)


def _finish(paragraph: str) -> str:
    """Remove the marks of emphasis (`_italics_`, `=bold=`) and of footnotes (`[1]`)."""
    if "_" in paragraph:
        paragraph = _STRAY_EMPHASIS.sub("", _EMPHASIS.sub(r"\1", paragraph))
    if "=" in paragraph:
        paragraph = _BOLD.sub(r"\1", paragraph)
    if "[" in paragraph or "{" in paragraph:
        paragraph = _FOOTNOTE_MARK.sub("", paragraph)
    return _SPACES_RUN.sub(" ", paragraph).strip()
