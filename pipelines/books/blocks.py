"""Classify the blocks of a book: text, headings, lists, front matter.

The rules know no language. They look at the length of a block, at the blank lines above it, at
numbers, and at the mark at its end: a heading ends with a letter or a number, and a sentence with a
punctuation mark, in any script. Unclear blocks are text: a lost sentence is worse than an extra
line.
"""

# ruff: noqa: RUF001 - this module is about the quotes and dashes of books
from __future__ import annotations

import re
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pipelines.books.gutenberg import has_credits, has_license, is_transcribers_note
from pipelines.books.layout import Block
from pipelines.books.words import count_words

Reason = Literal["license", "front-matter", "heading", "list", "note", "ornament", "markup"]
"""Reason why words of a raw book are dropped. `markup` is scripts and styles of a page."""

_MAX_HEADING_LINES = 4
_MAX_HEADING = 60  # characters, below more blank lines than usual
_MAX_PLAIN_HEADING = 36  # characters, below the usual number of blank lines
_MAX_NUMBERED_WORDS = 6  # of a heading with a number at its end
_MIN_SERIES = 2
_MAX_EQUAL_HEADINGS = 3  # more equal blocks are names of speakers, refrains, ...
_MIN_PROSE_WORDS = 15  # of the first paragraph
_OUTER_BLOCKS = 40  # blocks at either end that can be lists of contents, illustrations ...
_OUTER_SHARE = 0.05  # ... or this share of all blocks
_MIN_PROSE_RUN = 3  # consecutive blocks of sentences that begin the text, however short
_CREDITED_BLOCKS = 12  # at both ends of a book
_WRAPPING = " \t_*=\"'“”‘’«»‹›()[]{}<>「」『』（）［］【】〈〉《》"
_SPEECH = ('"', "“", "„", "‘", "'", "«", "‹", "「", "『", "—", "–", "-", "¿", "¡")
_CONTINUING = frozenset(",;:-–—、，；：،؛")
_NUMBER = r"(?:\d{1,4}|[IVXLCDM]{1,8})"
_LONE_NUMBER = re.compile(rf"\W*{_NUMBER}\W*$")
_NUMBERED = re.compile(
    rf"[\W_]*(?P<series>[^\s\d]+(?:\s[^\s\d]+)?)(?:\s*\d{{1,4}}|\s+{_NUMBER})\W*$"
)
_FIRST_NUMBER = re.compile(rf"[\W_]*(?:{_NUMBER}(?:[.):]|\s{{2,}})|\d{{1,4}}\s)")
_LEADERS = ' \t.·…_-"“”'
_SIGNED = re.compile(r"(?:--|—)[\s_=]{0,3}[^\W\d_][^.!?]{0,40}$")


class _Book:
    """Blocks of one book, and what most of them have in common."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.texts = list[str]()
        self.words = list[int]()
        for block in blocks:
            tokens = " ".join(block.lines).split()
            text = " ".join(tokens)
            self.texts.append(text)
            self.words.append(len(tokens) if text.isascii() else count_words(text))
        self.has_end = [_has_end_mark(text) for text in self.texts]
        self.usual_gap = max(1, statistics.median_low(block.gap for block in blocks))
        self.times = Counter(text for text in self.texts if len(text) <= _MAX_HEADING)
        self.uses_marks = self._uses_marks()
        self.series = self._find_series()

    def is_spaced(self, number: int) -> bool:
        """Return whether more blank lines than usual are above a block."""
        return self.blocks[number].gap > self.usual_gap

    def is_outer(self, number: int) -> bool:
        """Return whether a block is near the start or the end of a book, where lists are."""
        distance = min(number, len(self.blocks) - 1 - number)
        return distance < max(_OUTER_BLOCKS, _OUTER_SHARE * len(self.blocks))

    def _uses_marks(self) -> bool:
        """Return whether paragraphs end with marks, which they do not in Thai."""
        ends = [
            has_end
            for has_end, words in zip(self.has_end, self.words, strict=True)
            if words >= _MIN_PROSE_WORDS
        ]
        return 2 * sum(ends) >= len(ends)

    def _find_series(self) -> frozenset[str]:
        """Return the words that several numbers follow: `Chapter` of `Chapter 2.`"""
        members = defaultdict[str, set[str]](set)
        for text, words in zip(self.texts, self.words, strict=True):
            is_short = words <= _MAX_NUMBERED_WORDS and len(text) <= _MAX_HEADING
            if is_short and (match := _NUMBERED.match(text)):
                members[match["series"]].add(text)
        return frozenset(name for name, texts in members.items() if len(texts) >= _MIN_SERIES)


class ClassifiedBlock(NamedTuple):
    """A block of lines of a book."""

    reason: Reason | None
    """Reason why it is dropped; None for text of the book."""

    lines: list[str]
    text: str
    """The lines, joined with single spaces."""

    words: int


def classify_blocks(blocks: list[Block]) -> Iterator[ClassifiedBlock]:
    """Yield all blocks of a book in order."""
    if not blocks:
        return
    book = _Book(blocks)
    reasons = [_find_reason(book, number) for number in range(len(blocks))]
    _drop_notes(book, reasons)
    _drop_front_matter(book, reasons)
    for reason, block, text, words in zip(reasons, blocks, book.texts, book.words, strict=True):
        yield ClassifiedBlock(reason, block.lines, text, words)


def _find_reason(book: _Book, number: int) -> Reason | None:
    lines, text = book.blocks[number].lines, book.texts[number]
    if has_license(text):
        return "license"
    if book.is_outer(number) and _is_list(lines, text, has_end=book.has_end[number]):
        return "list"
    if len(lines) > _MAX_HEADING_LINES or len(text) > _MAX_HEADING:
        return None
    if not any(map(str.isalnum, text)):
        return "ornament"
    return "heading" if _is_heading(book, number) else None


def _is_heading(book: _Book, number: int) -> bool:
    text, lines = book.texts[number], book.blocks[number].lines
    if book.times[text] > _MAX_EQUAL_HEADINGS:
        return False
    numbered = _NUMBERED.match(text)
    if _LONE_NUMBER.match(text) or (numbered and numbered["series"] in book.series):
        return True
    starts_lower = text.lstrip(_WRAPPING)[:1].islower()
    if book.has_end[number] or starts_lower or _is_verse(lines):
        return False
    if book.is_spaced(number):
        return True
    is_below_sentence = number == 0 or not _continues(book.texts[number - 1])
    is_short = len(text) <= _MAX_PLAIN_HEADING and not text.startswith(_SPEECH)
    return book.uses_marks and is_below_sentence and is_short


def _has_end_mark(text: str) -> bool:
    """Return whether a text ends with a punctuation mark, not with a letter or a number."""
    last = text.rstrip(_WRAPPING)[-1:]
    return last != "" and not last.isalnum() and not unicodedata.category(last).startswith("M")


def _continues(text: str) -> bool:
    """Return whether a text continues in the next block: `I remain, yours truly,`."""
    return text.rstrip(_WRAPPING)[-1:] in _CONTINUING


def _is_verse(lines: list[str]) -> bool:
    """Return whether lines continue in the next one, or the last one names the author."""
    return len(lines) > 1 and (
        any(map(_continues, lines[:-1])) or _SIGNED.search(lines[-1]) is not None
    )


def _is_list(lines: list[str], text: str, *, has_end: bool) -> bool:
    """Return whether lines are a list of contents, of illustrations or the like."""
    if len(lines) > _MAX_HEADING_LINES and text.isupper():
        return True
    if has_end:
        return False
    numbered = sum(
        line.rstrip(_WRAPPING)[-1:].isdigit() or _FIRST_NUMBER.match(line) is not None
        for line in lines
    )
    return numbered >= max(2, len(lines) / 2) or _names_page(lines[-1])


def _names_page(line: str) -> bool:
    """Return whether a line ends with a page: `The River . . . 12`."""
    text = line.rstrip(_WRAPPING)
    entry = text.rstrip("0123456789")
    leaders = entry[len(entry.rstrip(_LEADERS)) :]
    return entry != text and any(gap in leaders for gap in ("  ", "..", ". ."))


def _drop_notes(book: _Book, reasons: list[Reason | None]) -> None:
    """Drop notes of transcribers, each to the next heading, and their names at both ends."""
    is_note = False
    for number, text in enumerate(book.texts):
        if is_transcribers_note(text):
            is_note = not book.has_end[number]
            reasons[number] = "note"
        elif reasons[number] == "heading":
            is_note = False
        elif is_note and reasons[number] is None:
            reasons[number] = "note"
        is_outer = min(number, len(reasons) - 1 - number) < _CREDITED_BLOCKS
        if is_outer and reasons[number] is None and has_credits(text):
            reasons[number] = "license"


def _drop_front_matter(book: _Book, reasons: list[Reason | None]) -> None:
    """Drop short blocks and lists before the heading above the first prose."""
    start = _find_first_prose(book, reasons)
    last_heading = max((n for n in range(start) if reasons[n] == "heading"), default=-1)
    for number in range(start):
        lines = book.blocks[number].lines
        is_short = book.words[number] < _MIN_PROSE_WORDS and not _is_verse(lines)
        is_outside = number < last_heading or not book.has_end[number]
        if reasons[number] is None and is_outside and is_short:
            reasons[number] = "front-matter"
        if reasons[number] is None and len(lines) > _MAX_HEADING_LINES:
            reasons[number] = None if any(map(_has_end_mark, lines)) else "list"


def _find_first_prose(book: _Book, reasons: list[Reason | None]) -> int:
    """Return the index of the first long paragraph, or of the first of several short ones."""
    run = 0
    for number, reason in enumerate(reasons):
        is_text = reason is None and (book.has_end[number] or not book.uses_marks)
        is_long = book.words[number] >= _MIN_PROSE_WORDS
        is_text = is_text and (is_long or not book.texts[number].isupper())
        run = run + 1 if is_text else 0
        if run >= _MIN_PROSE_RUN or (is_text and is_long):
            return number - run + 1
    return len(reasons)
