"""Classify the blocks of a book by their text and position."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pipelines.books import back_matter, matter
from pipelines.books.back import classify_back
from pipelines.books.blocks import MAX_TITLE_LINES, BlockKind, Book
from pipelines.books.front import classify_front
from pipelines.books.layout import Block

_OPENING_CHARACTERS = 120  # the first paragraph of a chapter, but for speech, is at least so long
_LONG_TEXT = 400  # characters: longer blocks are text without looking closer
_MAX_CAPITALS = 120
_MAX_REPETITION = 160
_MAX_PERSONS = 30  # blocks, where each person has one


def classify_blocks(blocks: list[Block], *, title: str) -> Iterator[tuple[BlockKind, Block]]:
    """Yield the blocks in order with their kinds. Only `BlockKind.TEXT` is text of the book.

    Args:
        blocks: Blocks from `pipelines.books.layout.split_blocks`.
        title: Title of the book, or "". Its repetitions are not text.
    """
    book = Book(blocks, title)
    _classify_kinds(book)
    _classify_listings(book)
    _classify_repetitions(book)
    classify_front(book)
    classify_back(book)
    yield from zip(book.kinds, book.blocks, strict=True)


def _classify_kinds(book: Book) -> None:
    """Classify each block by its text, and titles after chapter numbers."""
    expects_title = False
    for number, (block, text) in enumerate(zip(book.blocks, book.texts, strict=True)):
        kind = _kind(book, block, text)
        if (
            kind is BlockKind.TEXT
            and expects_title
            and len(block.lines) <= MAX_TITLE_LINES
            and not book.is_dialogue_turn(number)
            and _is_chapter_title(book, number)
        ):
            book.kinds[number] = BlockKind.HEADING
            expects_title = False  # one title to a number
            continue
        book.kinds[number] = kind
        if kind is BlockKind.HEADING:
            expects_title = matter.is_numeral(text) or not matter.entry_key(text)
        elif kind is not BlockKind.ORNAMENT:
            expects_title = False


def _is_chapter_title(book: Book, number: int) -> bool:
    """Return whether a block directly after a chapter number is its title."""
    text = book.texts[number]
    if matter.is_title(text, strict=True):
        return True
    following = book.texts[number + 1] if number + 1 < len(book.texts) else ""
    opens = len(following) >= _OPENING_CHARACTERS or following.startswith(matter.QUOTES)
    return opens and matter.is_title(text)


def _kind(book: Book, block: Block, text: str) -> BlockKind:
    if back_matter.is_errata_heading(block.lines[0]):
        return BlockKind.NOTE  # with its table, however long
    if len(text) > _LONG_TEXT:
        return BlockKind.TEXT
    if matter.is_ornament(text):
        return BlockKind.ORNAMENT
    if matter.is_list_heading(block.lines[0]):
        return BlockKind.LIST_HEADING
    if matter.is_end_marker(text):
        return BlockKind.ENDING
    if matter.is_note_heading(text):
        return BlockKind.NOTE
    return BlockKind.HEADING if _is_heading(book, block, text) else BlockKind.TEXT


def _is_heading(book: Book, block: Block, text: str) -> bool:
    if len(block.lines) > MAX_TITLE_LINES:
        return False
    if matter.is_part_heading(text) or matter.is_numeral(text):
        return True
    if matter.is_named_heading(text) or matter.is_numbered_title(block.lines[0].strip()):
        return len(block.lines) == 1 or matter.is_title(text)
    spaced = block.gap > max(1, book.usual_gap)
    quoted = text.startswith(matter.QUOTES)
    return spaced and not quoted and len(text) < _MAX_CAPITALS and matter.is_capitals(text)


def _classify_listings(book: Book) -> None:
    """Classify lists of contents and illustrations, from their headings to the first sentence."""
    number = 0
    while number < len(book.kinds):
        if book.kinds[number] is not BlockKind.LIST_HEADING:
            number += 1
            continue
        number = _classify_listing(book, number)


def _classify_listing(book: Book, start: int) -> int:
    """Classify one list. Return the index of the first block after it."""
    seen: set[str] = set()
    entries: set[str] = set()
    persons = matter.is_persons_heading(book.blocks[start].lines[0])
    end = start
    while end < len(book.blocks):
        block = book.blocks[end]
        lines = block.lines[1:] if end == start else block.lines
        if end > start and persons and _ends_persons(book, end, end - start):
            break
        if end > start and not persons and _ends_listing(book, end, seen=seen, entries=entries):
            break
        seen.update(_heading_key(line) for line in lines)
        keys = [matter.entry_key(line) for line in lines]
        entries.update(key for key in keys if key)
        entries.update(" ".join(pair) for pair in itertools.pairwise(keys))
        end += 1
    book.entries |= entries
    behind = end
    while end > start + 1 and book.kinds[end - 1] is BlockKind.HEADING:
        end -= 1  # the headings right before the text are its own
    for number in range(start, end):
        book.kinds[number] = BlockKind.LISTING
    return max(behind, start + 1)


def _ends_persons(book: Book, number: int, passed: int) -> bool:
    """Return whether the list of persons of a play ends: at an act, a turn, or its maximum length.

    Unlike other lists it can have sentences: "PELL, a miller, who is in love with Orla."
    """
    heading = book.kinds[number] in (BlockKind.HEADING, BlockKind.NOTE, BlockKind.ENDING)
    running = passed == 1 and "," not in book.blocks[number].lines[0]
    return heading or running or passed > _MAX_PERSONS or book.is_dialogue_turn(number)


def _ends_listing(book: Book, number: int, *, seen: set[str], entries: set[str]) -> bool:
    block, kind = book.blocks[number], book.kinds[number]
    if kind in (BlockKind.LIST_HEADING, BlockKind.ORNAMENT):
        return False
    if kind in (BlockKind.NOTE, BlockKind.ENDING):
        return True
    first = block.lines[0]
    repeated = _heading_key(first) in seen or matter.entry_key(first) in entries
    return repeated or not (kind is BlockKind.HEADING or matter.is_listing(block.lines))


def _classify_repetitions(book: Book) -> None:
    """Classify blocks that repeat the title or an entry of the contents as headings."""
    for number, (block, text) in enumerate(zip(book.blocks, book.texts, strict=True)):
        short = len(block.lines) <= MAX_TITLE_LINES and len(text) < _MAX_REPETITION
        if book.kinds[number] is BlockKind.TEXT and short and _repeats(book, text):
            book.kinds[number] = BlockKind.HEADING


def _repeats(book: Book, text: str) -> bool:
    if text.startswith(matter.QUOTES) and not matter.is_capitals(text):
        return False
    key = matter.entry_key(text)
    return key != "" and (key == book.title_key or key in book.entries)


def _heading_key(line: str) -> str:
    return " ".join(line.lower().strip(" .:_*").split())
