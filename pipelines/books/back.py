"""Find where the text of a book ends and notes, advertisements and printers' lines begin."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from pipelines.books import back_matter, matter
from pipelines.books.blocks import BlockKind, Book

_BACK_SHARE = 0.75  # of the blocks: notes are after this
_MAX_BACK_SHARE = 0.3  # of the words: no advertisement, however long, is more of a book
_TAIL_SHARE = 0.03  # of the words may follow "THE END", in ...
_TAIL_PROSE_BLOCKS = 3  # ... this many paragraphs
_ADVERTISED_BLOCKS = 6
_LISTED_BLOCKS = 12  # below the heading of a publisher's list, the first entry with a price
_MAX_LAST_LINE = 120
_MAX_BACK_WORDS = 80
_MAX_BACK_CAPITALS = 10
_MIN_ENTRIES = 3  # of a catalogue, with prices or formats ...
_MAX_BETWEEN = 3  # ... and this many blocks of praise between two of them
_MIN_ERRATA = 2
_MIN_NOTES = 2
_MAX_CONTINUATION = 4  # blocks of quotations and the like that continue a note


def classify_back(book: Book) -> None:
    """Exclude the notes, advertisements and printers' lines after the text."""
    end = len(book.texts)
    for number in range(_last_chapter(book), end):
        if _ends_book(book, number):
            end = number
            break
    end = _notes_start(book, end)
    listed = _tail_start(book, end, back_matter.is_catalogued, least=_MIN_ENTRIES)
    end = _tail_start(book, listed, back_matter.is_erratum, least=_MIN_ERRATA)
    end = _notes_start(book, end)
    end = _tail_start(book, end, back_matter.is_bracketed_note, least=_MIN_NOTES, max_between=0)
    while end and _is_back(book, end - 1):
        end -= 1
    for number in range(end, len(book.texts)):
        if book.kinds[number] is BlockKind.TEXT:
            book.kinds[number] = BlockKind.EXCLUDED


def _notes_start(book: Book, end: int) -> int:
    """Return the index of the heading of the notes at the end of a book, or `end` without notes."""
    start = end
    for number in range(end - 1, int(_BACK_SHARE * len(book.texts)) - 1, -1):
        if not back_matter.is_endnotes_heading(book.texts[number]):
            continue
        if _is_much(book, number) or not _holds_only_notes(book, number, start):
            break
        start = number
    return start


def _holds_only_notes(book: Book, heading: int, end: int) -> bool:
    """Return whether all blocks between a heading of notes and block `end` are notes.

    The first block, the last one and at least half of all must be numbered. Blocks without a number
    between two notes continue the upper one. One block below `FOOTNOTES` needs no number.
    """
    numbers = [
        number
        for number in range(heading + 1, end)
        if book.kinds[number] is BlockKind.HEADING
        or (book.kinds[number] is BlockKind.TEXT and not _is_back(book, number))
    ]
    texts = [book.texts[number] for number in numbers]
    is_heading = [_is_chapter(book, number) for number in numbers]
    noted = [
        index
        for index, text in enumerate(texts)
        if back_matter.is_endnote(text) and not is_heading[index]
    ]
    if len(texts) == 1 and back_matter.is_footnotes_heading(book.texts[heading]):
        return True
    if not noted or noted[0] != 0 or noted[-1] != len(texts) - 1 or 2 * len(noted) < len(texts):
        return False
    for is_above_heading, text in zip(is_heading, texts[1:], strict=False):
        if is_above_heading and not back_matter.is_bracketed_note(text):
            return False
    return all(lower - upper <= _MAX_CONTINUATION + 1 for upper, lower in itertools.pairwise(noted))


def _tail_start(
    book: Book,
    end: int,
    is_listed: Callable[[str], bool],
    *,
    least: int,
    max_between: int = _MAX_BETWEEN,
) -> int:
    """Return the index of the first of the listed blocks that end a book.

    Args:
        book: Book to search.
        end: Index of the block where the text ends as far as is known.
        is_listed: Function that tells from a block alone whether it is an entry of the list.
        least: Number of listed blocks that make a list. Fewer: `end` is returned.
        max_between: Number of other blocks that may follow a listed one.
    """
    start, found, between = end, 0, 0
    for number in range(end - 1, int(_BACK_SHARE * len(book.texts)) - 1, -1):
        if between > max_between or _is_much(book, number):
            break
        if is_listed(book.texts[number]):
            start, found, between = number, found + 1, 0
        elif book.kinds[number] is BlockKind.TEXT and not _is_back(book, number):
            between += 1
    return start if found >= least else end


def _is_much(book: Book, number: int) -> bool:
    return book.words(number) > _MAX_BACK_SHARE * book.words()


def _is_short(book: Book, number: int) -> bool:
    return book.words(number) <= _TAIL_SHARE * book.words()


def _is_list(book: Book, number: int) -> bool:
    """Return whether at most half of the blocks from `number` on are prose."""
    return 2 * book.prose_from[number] <= len(book.texts) - number


def _is_chapter(book: Book, number: int) -> bool:
    return book.kinds[number] is BlockKind.HEADING and matter.is_part_heading(book.texts[number])


def _last_chapter(book: Book) -> int:
    """Return the index of the last chapter's heading.

    What follows an end with advertisements does not count, and neither does a chapter that a
    transcriber's note names, since no text follows its name.
    """
    last, is_noted = 0, False
    for number, kind in enumerate(book.kinds):
        if _is_chapter(book, number):
            if not is_noted or not _is_short(book, number):
                last = number
        elif kind is BlockKind.NOTE and number >= _BACK_SHARE * len(book.texts):
            is_noted = True
        elif kind is BlockKind.ENDING and _advertises(book, number + 1):
            return last
    return last


def _advertises(book: Book, number: int) -> bool:
    shown = book.texts[number : number + _ADVERTISED_BLOCKS]
    behind = book.words(number) <= _MAX_BACK_SHARE * book.words()
    return behind and any(map(matter.is_advertisement, shown))


def _ends_book(book: Book, number: int) -> bool:
    """Return whether the text of the book ends before block `number`."""
    kind, text = book.kinds[number], book.texts[number]
    behind = number >= _BACK_SHARE * len(book.texts)
    if kind is BlockKind.NOTE:
        return behind and (_is_short(book, number) or _is_list(book, number))
    if kind is BlockKind.ENDING:
        return book.kinds[number - 1] is not BlockKind.HEADING and _is_tail(book, number + 1)
    if len(text) > _MAX_LAST_LINE or kind not in (BlockKind.TEXT, BlockKind.HEADING):
        return False
    if matter.is_author_note(text):
        listed = book.texts[number + 1 : number + 1 + _LISTED_BLOCKS]
        return behind and (_is_short(book, number) or any(map(matter.is_publisher, listed)))
    if not matter.is_printer(text) or book.words(number) > _MAX_BACK_SHARE * book.words():
        return False
    return matter.is_capitals(text) or _is_tail(book, number + 1)


def _is_tail(book: Book, start: int) -> bool:
    """Return whether the blocks from `start` are back matter."""
    shown = book.texts[start : start + _ADVERTISED_BLOCKS]
    share = book.words(start) / max(1, book.words())
    if share <= _MAX_BACK_SHARE and any(map(matter.is_publisher, shown)):
        return True
    return share <= _TAIL_SHARE and book.prose_from[start] <= _TAIL_PROSE_BLOCKS


def _is_back(book: Book, number: int) -> bool:
    text = book.texts[number]
    if book.kinds[number] is not BlockKind.TEXT:
        return True
    if number < _BACK_SHARE * len(book.texts):
        return False
    words = text.count(" ") + 1
    if words > _MAX_BACK_WORDS:
        return False
    lone = 1 < words <= _MAX_BACK_CAPITALS and matter.is_capitals(text)
    return lone or matter.is_publisher(text)
