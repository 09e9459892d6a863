"""Extract the paragraphs of prose from a book.

Excluded are Project Gutenberg's header, license and notes; title page, lines of the publisher,
dedication; lists of contents and illustrations; headings; captions; ornaments; advertisements after
the last page. All paragraphs, letters, verses, prefaces and introductions are kept. Unclear blocks
are kept too, because a lost sentence is worse than an extra line.

All generations of Project Gutenberg's markers are recognized:
`*** START OF THE PROJECT GUTENBERG EBOOK ... ***` (2003 on),
`*END THE SMALL PRINT! ...*END*` (to 2003), `End of the Project Gutenberg Etext of ...`, and the
editorial brackets (`[Illustration: ...]`, `[Transcriber's Note: ...]`, `[Footnote 1: ...]`).
"""

# ruff: noqa: RUF001 - this module is about the quotes and dashes of books
from __future__ import annotations

import enum
import functools
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pipelines.books import matter
from pipelines.books.layout import Block, LineJoiner, split_blocks
from pipelines.books.matter import is_breaking_heading
from pipelines.io.encodings import normalise

_NAME = r"Project\s+Gutenberg"
_START = re.compile(
    r"^[ \t]*\*{2,}[ \t]*START[ \t]+OF[ \t]+(?:THE|THIS)[ \t]+PROJECT[ \t]+GUTENBERG"
    r"[^*]*(?:\*{2,}[^\n]*|\n[ \t]*\n)",
    re.IGNORECASE | re.MULTILINE,
)
_SMALL_PRINT_END = re.compile(
    r"^[^\n]*\*END[* ]+THE SMALL PRINT[^\n]*\n(?:[^\n]*\*END\*[^\n]*\n)?",
    re.IGNORECASE | re.MULTILINE,
)
_END = re.compile(
    r"^[ \t]*+(?:"
    r"\*{2,}[ \t]*END[ \t]+OF[ \t]+(?:THE|THIS)[ \t]+PROJECT[ \t]+GUTENBERG"
    rf"|\**+[ \t]*+(?:The[ \t]+)?End[ \t]+of[ \t]+(?:(?:the|this)[ \t]+)?{_NAME}"
    rf"|\**+[ \t]*+This[ \t]+is[ \t]+the[ \t]+end[ \t]+of[ \t]+(?:the[ \t]+)?{_NAME}"
    r"|\*{3,}[ \t]*START:?[ \t]+FULL[ \t]+LICENSE"
    r"|\*{3,}[ \t]*This[ \t]+file[ \t]+should[ \t]+be[ \t]+named"
    r")",
    re.IGNORECASE | re.MULTILINE,
)
_TITLE = re.compile(r"^Title:[ \t]*(\S[^\n]*(?:\n[ \t]+[^\s:][^\n:]*)*)", re.MULTILINE)
_AUTHOR = re.compile(r"^(?:Author|Creator):[ \t]*(\S[^\n]*)", re.MULTILINE)
_FIRST_LINE = re.compile(
    rf"\W*+(?:The\s++)?{_NAME}(?:['’]s)?(?:\s++(?:E-?Book|Etext|E-text)(?:\s*+(?:of|,))?"
    r"|\s++(?:of|,)|\s)\s++(?P<title>\S.*?)(?:,?\s+by\s+(?P<author>\S.*?))?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_FIRST_CHARACTERS = 600
_HEADER_CHARACTERS = 40_000  # the longest header with small print is about 20,000
_BRACKET = re.compile(
    r"\[[ \t\n]*+[_*]*+(?:Illustrations?|Picture|Frontispiece|Image|Plate|Map|Decoration|Drawing"
    r"|Cover|Blank Page|Page \d+|Pg \d+|Transcri(?:ber|ption)\w*|Etext|E-text|Proofread"
    r"|Footnote|Sidenote|Editor(?:'s|’s)? Note|Typographical|Music|Greek|Hebrew|Arabic)"
    r"\b[^\[\]]*+",
    re.IGNORECASE,
)
_KEEPS_TEXT = re.compile(r"\[[ \t\n]*+[_*]*+(?:Greek|Hebrew|Arabic)\b", re.IGNORECASE)
_FOOTNOTE = re.compile(r"\[[ _*]*+Footnote[ ]*+\w{0,3}[ _*]*+:\s*+", re.IGNORECASE)
_OWN_PARAGRAPH = re.compile(r"\n[ ]*\n[ ]*\Z")
_ANY_BRACKET = re.compile(r"[\[\]]")
_MAX_BRACKET = 20_000


class GutenbergText(NamedTuple):
    """A text without Project Gutenberg's header and license."""

    body: str
    title: str
    """Title in the header, or ""."""

    author: str


def strip_gutenberg(text: str) -> GutenbergText:
    """Remove header, small print, license and footer, if the text has them."""
    head = text[:_HEADER_CHARACTERS]
    start = 0
    for marker in (_START, _SMALL_PRINT_END):
        for match in marker.finditer(head):
            start = max(start, match.end())
    footer = _END.search(text, start)
    end = len(text) if footer is None else footer.start()
    header = text[:start] if start else ""
    title, author = _names(header, text)
    return GutenbergText(text[start:end], title, author)


def _names(header: str, text: str) -> tuple[str, str]:
    title, author = _TITLE.search(header), _AUTHOR.search(header)
    first = _FIRST_LINE.match(text[:_FIRST_CHARACTERS].strip().split("\n\n", 1)[0])
    found = title[1] if title else first["title"] if first else ""
    writer = author[1] if author else (first["author"] or "") if first else ""
    return " ".join(found.split()), " ".join(writer.split())


def drop_brackets(text: str) -> str:
    """Remove editorial brackets, also nested ones and those over several lines.

    A footnote in a separate paragraph is kept without its bracket, because it is the author's
    prose. An unclosed bracket ends at the next blank line.
    """
    parts: list[str] = []
    at = 0
    ends = _bracket_ends(text)
    for match in _BRACKET.finditer(text):
        if match.start() < at or _KEEPS_TEXT.match(match[0]):
            continue
        parts.append(text[at : match.start()])
        at = _bracket_end(text, match.start(), ends)
        note = _FOOTNOTE.match(text, match.start(), at)
        own = _OWN_PARAGRAPH.search(text, max(0, match.start() - 80), match.start())
        if note is not None and own is not None:
            parts.append(text[note.end() : at].removesuffix("]"))
    parts.append(text[at:])
    return "".join(parts)


def _bracket_ends(text: str) -> dict[int, int]:
    """Return the end of the closing bracket by the offset of each closed `[`."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for match in _ANY_BRACKET.finditer(text):
        if match[0] == "[":
            opened.append(match.start())
        elif opened:
            ends[opened.pop()] = match.end()
    return ends


def _bracket_end(text: str, start: int, ends: dict[int, int]) -> int:
    end = ends.get(start)
    if end is not None and end - start <= _MAX_BRACKET:
        return end
    blank = text.find("\n\n", start)
    return len(text) if blank < 0 else blank


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
    listed = _tail_start(book, end, matter.is_catalogued, least=_MIN_ENTRIES)
    end = _tail_start(book, listed, matter.is_erratum, least=_MIN_ERRATA)
    end = _notes_start(book, end)
    end = _tail_start(book, end, matter.is_bracketed_note, least=_MIN_NOTES, max_between=0)
    while end and _is_back(book, end - 1):
        end -= 1
    for number in range(end, len(book.texts)):
        if book.kinds[number] is BlockKind.TEXT:
            book.kinds[number] = BlockKind.EXCLUDED


def _notes_start(book: Book, end: int) -> int:
    """Return the index of the heading of the notes at the end of a book, or `end` without notes."""
    start = end
    for number in range(end - 1, int(_BACK_SHARE * len(book.texts)) - 1, -1):
        if not matter.is_endnotes_heading(book.texts[number]):
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
        if matter.is_endnote(text) and not is_heading[index]
    ]
    if len(texts) == 1 and matter.is_footnotes_heading(book.texts[heading]):
        return True
    if not noted or noted[0] != 0 or noted[-1] != len(texts) - 1 or 2 * len(noted) < len(texts):
        return False
    for is_above_heading, text in zip(is_heading, texts[1:], strict=False):
        if is_above_heading and not matter.is_bracketed_note(text):
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


_OPENING_CHARACTERS = 120  # the first paragraph of a chapter, but for speech, is at least so long
_LONG_TEXT = 400  # characters: longer blocks are text without looking closer
_MAX_CAPITALS = 120
_MAX_REPETITION = 160
_MAX_PERSONS = 30  # blocks, where each person has one


def classify_blocks(blocks: list[Block], *, title: str) -> Iterator[tuple[BlockKind, Block]]:
    """Yield the blocks in order with their kinds. Only `BlockKind.TEXT` is text of the book."""
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
    if matter.is_errata_heading(block.lines[0]):
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
