"""A book as a list of blocks with their kinds."""

from __future__ import annotations

import enum
import functools
import itertools
import statistics
from collections import Counter
from collections.abc import Iterator

from pipelines.books import matter
from pipelines.books.layout import Block

MAX_TITLE_LINES = 4
_MAX_HEADING_LINE = 150
_MIN_TURNS = 3  # of one speaker
_TURNS_SHARE = 0.2  # of the blocks of a book that is, or has, a play


class BlockKind(enum.Enum):
    """Kind of a block."""

    TEXT = "text"
    HEADING = "heading"
    LIST_HEADING = "list heading"
    LISTING = "listing"
    ORNAMENT = "ornament"
    ENDING = "ending"
    NOTE = "note"
    EXCLUDED = "excluded"
    """Front matter, back matter, a publisher's line."""


class Book:
    """Blocks of one book.

    Args:
        blocks: Blocks from `pipelines.books.layout.split_blocks`.
        title: Title of the book, or "".

    Attributes:
        blocks: The blocks, with headings separated from the text around them.
        texts: Text of each block in one line.
        kinds: Kind of each block. Initially all are text.
        title_key: Key of the title (`pipelines.books.matter.entry_key`).
        entries: Keys of the entries of the lists of contents and illustrations.
        usual_gap: Usual number of blank lines between two blocks.
    """

    def __init__(self, blocks: list[Block], title: str) -> None:
        self.blocks = list(_split_headings(blocks))
        self.texts = [" ".join(" ".join(block.lines).split()) for block in self.blocks]
        self.kinds = [BlockKind.TEXT] * len(self.blocks)
        self.title_key = matter.entry_key(title)
        self.entries: set[str] = set()
        gaps = [block.gap for block in self.blocks[1:]]
        self.usual_gap = statistics.median_low(gaps) if gaps else 1
        self._prose: dict[int, bool] = {}

    def words(self, start: int = 0) -> int:
        """Return the number of words of the blocks from `start`."""
        return self._words_from[start]

    def is_prose(self, number: int) -> bool:
        """Return whether a block consists of sentences. The result is cached."""
        if number not in self._prose:
            self._prose[number] = matter.is_prose(self.texts[number])
        return self._prose[number]

    def is_dialogue_turn(self, number: int) -> bool:
        """Return whether a block is a turn in a play: the name of a speaker and a text."""
        return bool(self._speakers) and matter.speaker_name(self.texts[number]) in self._speakers

    @functools.cached_property
    def _speakers(self) -> frozenset[str]:
        """Return the speakers of a play. A book with few turns or one speaker has none."""
        turns = Counter(name for text in self.texts if (name := matter.speaker_name(text)))
        often = {name: count for name, count in turns.items() if count >= _MIN_TURNS}
        share = sum(often.values()) / max(1, len(self.texts))
        return frozenset(often) if len(often) > 1 and share >= _TURNS_SHARE else frozenset()

    @functools.cached_property
    def prose_from(self) -> list[int]:
        """Return the number of blocks of sentences from each block to the end."""
        return _sums_from([self.is_prose(number) for number in range(len(self.texts))])

    @functools.cached_property
    def _words_from(self) -> list[int]:
        return _sums_from([text.count(" ") + 1 for text in self.texts])


def _sums_from(values: list[int]) -> list[int]:
    """Return the sum from each value to the end, and a final 0."""
    return list(itertools.accumulate(reversed(values), initial=0))[::-1]


def is_speech(text: str) -> bool:
    """Return whether a block ends like a sentence or a turn of a dialogue."""
    ended = text.endswith(tuple(".!?-:;,\"'\u201d\u2019\u2014"))
    return ended and not matter.is_capitals(text) and not matter.is_date_line(text)


def _split_headings(blocks: list[Block]) -> Iterator[Block]:
    """Separate a chapter heading from text that follows without a blank line."""
    for block in _split_inner_headings(blocks):
        first, rest = block.lines[0], block.lines[1:]
        headed = matter.is_part_heading(first) or matter.is_end_marker(first)
        if not rest or not headed or len(first) > _MAX_HEADING_LINE:
            yield block
            continue
        heading, at = [first], 0
        while at < len(rest) and _continues(rest, at):
            heading.append(rest[at].lstrip())
            at += 1
        yield Block([" ".join((*map(str.rstrip, heading[:-1]), heading[-1]))], block.gap)
        if at < len(rest):
            yield Block(rest[at:], 0)


def _split_inner_headings(blocks: list[Block]) -> Iterator[Block]:
    """Separate a heading from lines of the title page above it: "By A. Writer" / "CHAPTER I"."""
    for block in blocks:
        inner = [n for n, line in enumerate(block.lines) if n and matter.is_part_heading(line)]
        if not inner or len(block.lines) > MAX_TITLE_LINES + 1:
            yield block
            continue
        yield Block(block.lines[: inner[0]], block.gap)
        yield Block(block.lines[inner[0] :], 0)


def _continues(lines: list[str], at: int) -> bool:
    """Return whether the heading above line `at` of a block continues there."""
    return matter.is_capitals(lines[at]) or (len(lines) - at <= 3 and _is_lone_title(lines[at:]))


def _is_lone_title(lines: list[str]) -> bool:
    return matter.is_title(" ".join(line.strip() for line in lines))
