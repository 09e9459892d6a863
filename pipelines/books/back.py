"""Where a book's text ends: notes, advertisements and printers' lines stand behind it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from pipelines.books import back_matter as behind
from pipelines.books import matter
from pipelines.books.blocks import Book, Kind

_BACK_SHARE = 0.75  # of the blocks: notes stand behind this
_MAX_BACK_SHARE = 0.3  # of the words: no advertisement, however long, is more of a book
_TAIL_SHARE = 0.03  # of the words may follow "THE END", in ...
_TAIL_PROSE_BLOCKS = 3  # ... so many paragraphs
_ADVERTISED_BLOCKS = 6
_MAX_LAST_LINE = 120
_MAX_BACK_WORDS = 80
_MAX_BACK_CAPITALS = 10
_MIN_ENTRIES = 3  # of a catalogue, with prices or formats ...
_MAX_BETWEEN = 3  # ... and at most so many blocks of praise between two of them
_MIN_ERRATA = 2
_MIN_NOTES = 2


def judge_back(book: Book) -> None:
    """Notes, advertisements and printers' lines behind the text."""
    end = len(book.texts)
    for number in range(_last_chapter(book), end):
        if _ends_book(book, number):
            end = number
            break
    end = min(end, _notes_start(book, end))
    listed = _tail_start(book, end, behind.is_catalogued, least=_MIN_ENTRIES)
    tabled = _tail_start(book, listed, behind.is_erratum, least=_MIN_ERRATA)
    end = _tail_start(book, tabled, _is_numbered_note, least=_MIN_NOTES)
    while end and _is_back(book, end - 1):
        end -= 1
    for number in range(end, len(book.texts)):
        if book.kinds[number] is Kind.TEXT:
            book.kinds[number] = Kind.LEFT_OUT


def _notes_start(book: Book, end: int) -> int:
    """Index of the heading of the notes that end a book; `end` where there is none."""
    first = int(_BACK_SHARE * len(book.texts))
    notes = [int(behind.is_endnote(text)) for text in book.texts[first:end]]
    noted = list(itertools.accumulate(notes, initial=0))
    for number in range(first, end):
        if not behind.is_endnotes_heading(book.texts[number]) or _is_much(book, number):
            continue
        numbered = noted[-1] - noted[number - first]
        if "foot" in book.texts[number].lower() or numbered >= max(1, (end - number - 1) // 2):
            return number
    return end


def _tail_start(book: Book, end: int, is_listed: Callable[[str], bool], *, least: int) -> int:
    """Index of the first of the listed blocks that end a book, with others between them.

    Args:
        book: the book.
        end: where the text ends as far as is known.
        is_listed: whether a block by itself is one of a catalogue, a table of errata, of notes.
        least: fewer make no list; then it is `end`.
    """
    start, found, between = end, 0, 0
    for number in range(end - 1, int(_BACK_SHARE * len(book.texts)) - 1, -1):
        if between > _MAX_BETWEEN or _is_much(book, number):
            break
        if is_listed(book.texts[number]):
            start, found, between = number, found + 1, 0
        elif book.kinds[number] is Kind.TEXT and not _is_back(book, number):
            between += 1
    return start if found >= least else end


def _is_numbered_note(text: str) -> bool:
    return behind.is_endnote(text, bracketed=True)


def _is_much(book: Book, number: int) -> bool:
    return book.words(number) > _MAX_BACK_SHARE * book.words()


def _last_chapter(book: Book) -> int:
    """Index of the last chapter's heading, but before an end that advertisements follow."""
    last = 0
    for number, kind in enumerate(book.kinds):
        if kind is Kind.HEADING and matter.is_part_heading(book.texts[number]):
            last = number
        elif kind is Kind.NOTE and number >= _BACK_SHARE * len(book.texts):
            return last  # a note may name chapters, too
        elif kind is Kind.ENDING and _advertises(book, number + 1):
            return last
    return last


def _advertises(book: Book, number: int) -> bool:
    shown = book.texts[number : number + _ADVERTISED_BLOCKS]
    behind = book.words(number) <= _MAX_BACK_SHARE * book.words()
    return behind and any(map(matter.is_advertisement, shown))


def _ends_book(book: Book, number: int) -> bool:
    """Whether nothing of the book's text follows block `number`."""
    kind, text = book.kinds[number], book.texts[number]
    behind = number >= _BACK_SHARE * len(book.texts)
    if kind is Kind.NOTE:
        return behind
    if kind is Kind.ENDING:
        return book.kinds[number - 1] is not Kind.HEADING and _is_tail(book, number + 1)
    if len(text) > _MAX_LAST_LINE or kind not in (Kind.TEXT, Kind.HEADING):
        return False
    if matter.is_author_note(text):
        return behind
    if not matter.is_printer(text) or book.words(number) > _MAX_BACK_SHARE * book.words():
        return False
    return matter.is_capitals(text) or _is_tail(book, number + 1)


def _is_tail(book: Book, start: int) -> bool:
    """Whether the blocks from `start` on are what stands behind a text, not more of it."""
    shown = book.texts[start : start + _ADVERTISED_BLOCKS]
    share = book.words(start) / max(1, book.words())
    if share <= _MAX_BACK_SHARE and any(map(matter.is_publisher, shown)):
        return True
    return share <= _TAIL_SHARE and book.prose_from[start] <= _TAIL_PROSE_BLOCKS


def _is_back(book: Book, number: int) -> bool:
    text = book.texts[number]
    if book.kinds[number] is not Kind.TEXT:
        return True
    if number < _BACK_SHARE * len(book.texts):
        return False
    words = text.count(" ") + 1
    if words > _MAX_BACK_WORDS:
        return False
    lone = 1 < words <= _MAX_BACK_CAPITALS and matter.is_capitals(text)
    return lone or matter.is_publisher(text)
