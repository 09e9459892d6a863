"""A book as a list of blocks, each with what it has been judged to be so far."""

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
_MIN_TURNS = 3  # of somebody who speaks
_TURNS_SHARE = 0.2  # of the blocks of a book that is, or has, a play


class BlockKind(enum.Enum):
    """What a block is."""

    TEXT = "text"
    HEADING = "heading"
    LIST_HEADING = "list heading"
    LISTING = "listing"
    ORNAMENT = "ornament"
    ENDING = "ending"
    NOTE = "note"
    LEFT_OUT = "left out"
    """Front matter, back matter, a publisher's line."""


class Book:
    """The blocks of one book.

    Args:
        blocks: as `pipelines.books.layout.split_blocks` gives them.
        title: the book's title, "" where it is not known.

    Attributes:
        blocks: the blocks, headings parted from what stands around them.
        texts: each block in one line.
        kinds: what each block is; all text at first.
        title_key: the title as `pipelines.books.matter.entry_key` has it.
        entries: such keys of the entries of the book's lists of contents and illustrations.
        usual_gap: how many blank lines mostly stand between two blocks.
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
        """Words of the blocks from `start` on."""
        return self._words_from[start]

    def is_prose(self, number: int) -> bool:
        """Whether a block is sentences; asked of it by each heading before it, found once."""
        if number not in self._prose:
            self._prose[number] = matter.is_prose(self.texts[number])
        return self._prose[number]

    def is_dialogue_turn(self, number: int) -> bool:
        """Whether a block is somebody's turn in a play: a speaker's name, and what is said."""
        return bool(self._speakers) and matter.speaker(self.texts[number]) in self._speakers

    @functools.cached_property
    def _speakers(self) -> frozenset[str]:
        """Who speaks in a play; nobody does in a book with few turns, or with one speaker."""
        turns = Counter(name for text in self.texts if (name := matter.speaker(text)))
        often = {name: count for name, count in turns.items() if count >= _MIN_TURNS}
        share = sum(often.values()) / max(1, len(self.texts))
        return frozenset(often) if len(often) > 1 and share >= _TURNS_SHARE else frozenset()

    @functools.cached_property
    def prose_from(self) -> list[int]:
        """How many blocks of sentences there are from each block on."""
        return _sums_from([self.is_prose(number) for number in range(len(self.texts))])

    @functools.cached_property
    def _words_from(self) -> list[int]:
        return _sums_from([text.count(" ") + 1 for text in self.texts])


def _sums_from(values: list[int]) -> list[int]:
    """The sum from each value to the end, and the 0 behind the last."""
    return list(itertools.accumulate(reversed(values), initial=0))[::-1]


def is_speech(text: str) -> bool:
    """Whether a block ends like a sentence or a turn of a dialogue."""
    ended = text.endswith(tuple(".!?-:;,\"'\u201d\u2019\u2014"))
    return ended and not matter.is_capitals(text) and not matter.is_date_line(text)


def _split_headings(blocks: list[Block]) -> Iterator[Block]:
    """Part a chapter's heading from text that follows it without a blank line."""
    for block in _split_inner_headings(blocks):
        first, rest = block.lines[0], block.lines[1:]
        headed = matter.is_part_heading(first) or matter.is_end_marker(first)
        if not rest or not headed or len(first) > _MAX_HEADING_LINE:
            yield block
            continue
        heading, at = [first], 0
        while at < len(rest) and _goes_on(rest, at):
            heading.append(rest[at].lstrip())
            at += 1
        yield Block([" ".join((*map(str.rstrip, heading[:-1]), heading[-1]))], block.gap)
        if at < len(rest):
            yield Block(rest[at:], 0)


def _split_inner_headings(blocks: list[Block]) -> Iterator[Block]:
    """Part a heading from the title page's lines above it: "By A. Writer" / "CHAPTER I"."""
    for block in blocks:
        inner = [n for n, line in enumerate(block.lines) if n and matter.is_part_heading(line)]
        if not inner or len(block.lines) > MAX_TITLE_LINES + 1:
            yield block
            continue
        yield Block(block.lines[: inner[0]], block.gap)
        yield Block(block.lines[inner[0] :], 0)


def _goes_on(lines: list[str], at: int) -> bool:
    """Whether the heading above line `at` of a block goes on there."""
    return matter.is_capitals(lines[at]) or (len(lines) - at <= 3 and _is_lone_title(lines[at:]))


def _is_lone_title(lines: list[str]) -> bool:
    return matter.is_title(" ".join(line.strip() for line in lines))
