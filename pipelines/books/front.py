"""Find the start of a book's text, after title page, imprint and dedication."""

from __future__ import annotations

from pipelines.books import matter
from pipelines.books.blocks import BlockKind, Book, is_speech
from pipelines.books.layout import Block

_FRONT_SHARE = 0.12  # of the characters: the first chapter begins before that ...
_FRONT_BLOCKS = 160  # ... or before this many blocks
_RUNNING_BLOCKS = 6  # this many in a row are the start of the text ...
_RUNNING_WORDS = 300  # ... or this many words in a row
_OPENING_BLOCKS = 4  # of speech or verse between a heading and the first prose
_PREPARER_BLOCKS = 40
_MAX_IMPRINT = 60  # characters
_RULE = 60  # characters of a line of underscores that ends a preparer's introduction


def classify_front(book: Book) -> None:
    """Exclude title page, publisher's lines and dedication before the first text."""
    preparer = _preparer_end(book)
    note = preface = False
    start = max(preparer, _front_end(book))
    _exclude_imprint(book, start)
    for number in range(start):
        block, text = book.blocks[number], book.texts[number]
        if book.kinds[number] is BlockKind.NOTE:
            note = True
        elif book.kinds[number] is not BlockKind.TEXT or block.gap > max(2, book.usual_gap):
            note = False
        if book.kinds[number] not in (BlockKind.TEXT, BlockKind.ORNAMENT):
            preface = matter.is_preface(text)
        if book.kinds[number] is not BlockKind.TEXT:
            continue
        stays = (preface and not matter.is_date_line(text)) or _is_front_text(block, text)
        if note or number < preparer or not stays:
            book.kinds[number] = BlockKind.EXCLUDED


def _exclude_imprint(book: Book, start: int) -> None:
    """Exclude dates and publisher's lines between the first heading and the first text."""
    for number in range(start, len(book.texts)):
        text = book.texts[number]
        imprint = matter.is_date_line(text) or matter.is_publisher(text)
        if book.kinds[number] is BlockKind.TEXT and not (imprint and len(text) <= _MAX_IMPRINT):
            return
        if book.kinds[number] is BlockKind.TEXT:
            book.kinds[number] = BlockKind.EXCLUDED


def _is_front_text(block: Block, text: str) -> bool:
    if matter.is_publisher(text):
        return False
    return matter.is_prose(text) or matter.is_verse(block.lines)


def _preparer_end(book: Book) -> int:
    """Return the end of an introduction by the producer, which ends with a rule of underscores."""
    for number in range(min(_PREPARER_BLOCKS, len(book.texts)) - 1, -1, -1):
        if book.kinds[number] is BlockKind.ORNAMENT and book.texts[number].count("_") >= _RULE:
            return number
    return 0


def _front_end(book: Book) -> int:
    """Return the index of the first block of the text, or of its heading."""
    total = sum(map(len, book.texts))
    passed, run, words = 0, 0, 0
    deciding = _next_deciding(book)
    for number, kind in enumerate(book.kinds):
        if number > _FRONT_BLOCKS and passed > _FRONT_SHARE * total:
            break
        if kind is BlockKind.HEADING and _opens_chapter(book, number, deciding):
            return number
        running = kind is BlockKind.TEXT and _is_running(book, number)
        run, words = (run + 1, words + book.texts[number].count(" ")) if running else (0, 0)
        if run >= _RUNNING_BLOCKS or words >= _RUNNING_WORDS:
            return number - run + 1
        passed += len(book.texts[number])
    return _first_prose(book)


def _is_running(book: Book, number: int) -> bool:
    """Return whether a block looks like running text: sentences or speech."""
    text = book.texts[number]
    if matter.is_publisher(text):
        return False
    return book.is_prose(number) or is_speech(text) or book.is_dialogue_turn(number)


def _next_deciding(book: Book) -> list[int]:
    """Return for each block, and for the end, the next block that is text or part of a list."""
    deciding, found = [len(book.kinds)], len(book.kinds)
    for number in range(len(book.kinds) - 1, -1, -1):
        if book.kinds[number] in (BlockKind.TEXT, BlockKind.LISTING, BlockKind.LIST_HEADING):
            found = number
        deciding.append(found)
    return deciding[::-1]


def _opens_chapter(book: Book, number: int, deciding: list[int]) -> bool:
    """Return whether prose follows soon after a numbered heading."""
    text = book.texts[number]
    first = book.blocks[number].lines[0].strip()
    numbered = matter.is_part_heading(text) or matter.is_numeral(text)
    if not (numbered or matter.is_numbered_title(first)):
        key = matter.entry_key(text)
        if key == book.title_key or key not in book.entries:
            return False
        if number + 1 == len(book.texts) or not book.is_prose(number + 1):
            return False
    after = number
    for _ in range(_OPENING_BLOCKS + 1):
        after = deciding[after + 1] if after < len(book.texts) else after
        if after == len(book.texts) or book.kinds[after] is not BlockKind.TEXT:
            return False
        if book.is_prose(after) or book.is_dialogue_turn(after):
            return True
    return False


def _first_prose(book: Book) -> int:
    for number, text in enumerate(book.texts):
        if book.kinds[number] is not BlockKind.TEXT or not book.is_prose(number):
            continue
        if matter.is_publisher(text):
            continue
        start = number  # a dialogue before the first long sentence belongs to the text
        while start and book.kinds[start - 1] is BlockKind.TEXT and _is_running(book, start - 1):
            start -= 1
        return start
    return len(book.texts)
