"""Project Gutenberg's additions to a book: marks, header, license, editorial brackets.

`*** START OF THE PROJECT GUTENBERG EBOOK ... ***` and `*** END OF ...` delimit a book since 2003,
`*END*THE SMALL PRINT! ...*END*` and `End of the Project Gutenberg Etext of ...` did before. A file
of several books has them several times.
"""

# ruff: noqa: RUF001 - this module is about the quotes and dashes of books
from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pipelines.io.encodings import normalise

_MarkKind = Literal["header", "start", "small-print", "end-of-small-print", "end"]

_PROJECT = r"Proje[ck]t\s+Gutenberg"
_NAMES_OF_MARKS = (
    *("GUTENBERG", "Gutenberg", "SMALL PRINT", "Small Print", "FULL LICENSE"),
    *("This file should be named", "Title:"),
)
_KINDS: tuple[tuple[_MarkKind, re.Pattern[str]], ...] = (
    (
        "start",
        re.compile(
            rf"[\s*]*\*\*\s*START\s+OF\s+(?:\w+\s+){{0,2}}{_PROJECT}"
            rf"|\W*Beginning\s+of\s+(?:\w+\s+)?{_PROJECT}",
            re.IGNORECASE,
        ),
    ),
    ("small-print", re.compile(r"[\s*]*START[*\s]+(?:THE\s+)?SMALL\s+PRINT", re.IGNORECASE)),
    (
        "end-of-small-print",
        re.compile(r".{0,80}\*\s*END[*\s]+(?:THE\s+)?SMALL\s+PRINT", re.IGNORECASE),
    ),
    (
        "end",
        re.compile(
            r"[\s*]*(?:(?:The\s+|This\s+is\s+the\s+)?(?:End|Ende|Einde|Fin|Fine|Fim|Slut|Loppu)"
            rf"\s+(?:\w+\s+){{0,3}}{_PROJECT}"
            rf"|START:?\s+FULL\s+LICENSE|THE\s+FULL\s+{_PROJECT}|This\s+file\s+should\s+be\s+named)",
            re.IGNORECASE,
        ),
    ),
    (
        "header",
        re.compile(
            rf"\W*(?:The\s+)?{_PROJECT}(?:['’]s)?\s+(?:E-?Book|E-?text)\s+of\s|Title:\s*\S",
            re.IGNORECASE,
        ),
    ),
)
_MAX_MARK = 300  # characters before a mark's name in its line
_MAX_START = 1000  # characters of a START mark over several lines
_START_END = re.compile(r"[*\s]*[^*]*?(?:\*{2,}[^\r\n]*|(?=\r?\n[ \t]*\r?\n)|\Z)")
_SMALL_PRINT_END = re.compile(r"[^\r\n]*(?:\r?\n[^\r\n]*\*END\*[^\r\n]*)?")
_MAX_HEADER = 40_000  # characters; the longest header with small print has about 20,000

_TITLE = re.compile(r"^Title:[ \t]*(\S[^\n]*(?:\n[ \t]+[^\s:][^\n:]*)*)", re.MULTILINE)
_FIRST_LINE = re.compile(
    rf"\W*+(?:The\s++)?{_PROJECT}(?:['’]s)?(?:\s++(?:E-?Book|E-?text)(?:\s*+(?:of|,))?"
    r"|\s++(?:of|,)|\s)\s++(?P<title>\S.*?)(?:,?\s+by\s+\S.*?)?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_FIRST_CHARACTERS = 600

_LABEL = re.compile(
    r"\[[ \t\n]*+[_*]*+(?:Illustrations?|Picture|Frontispiece|Image|Plate|Map|Decoration|Drawing"
    r"|Cover|Blank Page|Page \d+|Pg \d+|Transcri(?:ber|ption)\w*|E-?text|Proofread"
    r"|Sidenote|Editor(?:'s|’s)? Note|Typographical|Music)\b",
    re.IGNORECASE,
)
_NOTE = re.compile(
    r"\[[ _*]*+(?!Greek|Hebrew|Arabic)(?P<label>[^\W\d_]{1,20})[ ]*+(?P<number>\w{1,4})?+[ _*]*+"
    r":\s*+"
)
_PARAGRAPH_BEFORE = re.compile(r"(?:\A|\n[ ]*\n)[ ]*\Z")
_ANY_BRACKET = re.compile(r"[\[\]]")
_MAX_BRACKET = 20_000
_LICENSE = re.compile(r"<<(?=[^<>]{0,4000}?(?:GUTENBERG|COPYRIGHT))[^<>]{1,4000}>>", re.IGNORECASE)
_LEGAL = re.compile(r"licen[cs]e|copyright|\be-?text|\be-?book|donat|distribut|html", re.IGNORECASE)
_CREDITS = re.compile(
    r"distributed\s+proofread|pgdp|gutenberg\.org|\be-?text\b|\be-?book\b|internet archive"
    r"|transcribed (?:from|by)|produced by|https?:|www\.",
    re.IGNORECASE,
)
_TRANSCRIBER = re.compile(
    r"[\W_]*(?:transcriber|transcription|e-?text editor)['’]?s?['’]?\s+"
    r"(?:note|comment|errat|correction|remark|amendment)",
    re.IGNORECASE,
)


class BookText(NamedTuple):
    """One book of a file."""

    start: int
    """Offset of the book, with its header, in the text of the file."""

    end: int
    """Offset behind the book and its license."""

    header: str
    """Project Gutenberg's header, normalized like `body` and `license`."""

    body: str
    license: str

    @property
    def title(self) -> str:
        """Title in the header, or ""."""
        if match := _TITLE.search(self.header):
            return " ".join(match[1].split())
        beginning = (self.header or self.body)[:_FIRST_CHARACTERS].strip()
        first = _FIRST_LINE.match(beginning.split("\n\n", 1)[0])
        return " ".join(first["title"].split()) if first else ""


def split_books(text: str) -> list[BookText]:
    """Return the books of a file. A file without marks is one book."""
    spans = list(_find_spans(text))
    ends = [span.header for span in spans[1:]] + [len(text)]
    starts = [0, *ends[:-1]]
    return [
        BookText(
            start,
            end,
            normalise(text[start : span.body]),
            normalise(text[span.body : span.end]),
            normalise(text[span.end : end]),
        )
        for start, end, span in zip(starts, ends, spans, strict=True)
    ]


class _Mark(NamedTuple):
    kind: _MarkKind
    start: int
    end: int


class _Span(NamedTuple):
    """Offsets of a book in its file."""

    header: int
    body: int
    end: int


def _find_spans(text: str) -> Iterator[_Span]:
    """Yield the books of a file, at least one.

    A book begins at a START mark or behind small print, and ends at its END mark. Small print at
    the end of a book belongs to no other book.
    """
    header: int | None = 0  # start of the current book; None behind END
    body, is_marked = 0, False
    next_header: int | None = None
    small_print: int | None = None
    for mark, following in _pairs(_find_marks(text), end=len(text)):
        if mark.kind == "small-print":
            small_print = mark.start
        elif mark.kind == "end-of-small-print" and not text[mark.end : following].strip():
            if header is not None:
                yield _Span(header, body, mark.start if small_print is None else small_print)
            header = None
        elif mark.kind == "end":
            if header is not None:
                yield _Span(header, body, mark.start)
            header = None
        elif header is None:
            if mark.kind != "end-of-small-print":
                header, body, is_marked = mark.start, mark.end, mark.kind == "start"
            next_header = small_print = None
        elif mark.kind == "header":
            if next_header is None or mark.start - next_header > _MAX_HEADER:
                next_header = mark.start
        elif next_header is not None and (is_marked or next_header - body > _MAX_HEADER):
            yield _Span(header, body, next_header)
            header, body, is_marked, next_header = next_header, mark.end, True, None
        elif mark.start - body <= _MAX_HEADER:
            body, is_marked, next_header = mark.end, True, None
    if header is not None and (is_marked or header == 0):
        yield _Span(header, body, len(text))


def _pairs(marks: Iterator[_Mark], *, end: int) -> Iterator[tuple[_Mark, int]]:
    """Yield each mark with the start of the next one, or the end of the text."""
    previous: _Mark | None = None
    for mark in marks:
        if previous is not None:
            yield previous, mark.start
        previous = mark
    if previous is not None:
        yield previous, end


def _find_marks(text: str) -> Iterator[_Mark]:
    end = 0
    for position in sorted(itertools.chain(*(_find_all(text, name) for name in _NAMES_OF_MARKS))):
        if position < end:
            continue
        first = max(end, position - _MAX_MARK)
        start = 1 + max(text.rfind("\n", first, position), text.rfind("\r", first, position))
        start = start or first
        line = text[start : position + _MAX_MARK].splitlines()[0]
        end = start + len(line)
        for kind, pattern in _KINDS:
            if pattern.match(line):
                end = _end_of_mark(text, kind, start, end)
                yield _Mark(kind, start, end)
                break


def _find_all(text: str, name: str) -> Iterator[int]:
    position = text.find(name)
    while position >= 0:
        yield position
        position = text.find(name, position + len(name))


def _end_of_mark(text: str, kind: _MarkKind, start: int, end: int) -> int:
    """Return the end of a mark, which can have several lines."""
    if kind == "start":
        match = _START_END.match(text, start, start + _MAX_START)
    elif kind == "end-of-small-print":
        match = _SMALL_PRINT_END.match(text, start)
    else:
        return end
    return max(end, match.end()) if match else end


def drop_licenses(text: str) -> str:
    """Remove licenses in `<<...>>` between the works of a collection."""
    return _LICENSE.sub("", text) if "<<" in text else text


def has_license(text: str) -> bool:
    """Return whether a paragraph is about the use of a text of Project Gutenberg."""
    return ("Gutenberg" in text or "GUTENBERG" in text) and _LEGAL.search(text) is not None


def has_credits(text: str) -> bool:
    """Return whether a paragraph names those who made an electronic text."""
    return _CREDITS.search(text) is not None


def is_transcribers_note(text: str) -> bool:
    """Return whether a paragraph begins a note of the transcriber."""
    return _TRANSCRIBER.match(text) is not None


def drop_brackets(text: str) -> str:
    """Remove editorial brackets, also nested ones and those over several lines.

    They are the brackets with a usual label (`[Illustration: ...]`) and paragraphs in brackets with
    any label (`[Nota: ...]`). A numbered note in a separate paragraph is kept without its bracket,
    because it is the author's prose. An unclosed bracket ends at the next blank line.
    """
    if "[" not in text:
        return text
    parts: list[str] = []
    position = 0
    ends = _bracket_ends(text)
    for start in (match.start() for match in re.finditer(r"\[", text)):
        if start < position:
            continue
        is_labeled = _LABEL.match(text, start) is not None
        is_paragraph = _PARAGRAPH_BEFORE.search(text, max(0, start - 80), start) is not None
        note = None if is_labeled else _NOTE.match(text, start)
        is_footnote = note is not None and note["label"].lower() == "footnote"
        if not (is_labeled or is_footnote or (is_paragraph and note is not None)):
            continue
        parts.append(text[position:start])
        position = _bracket_end(text, start, ends)
        if note is not None and is_paragraph and (is_footnote or note["number"]):
            parts.append(text[note.end() : position].removesuffix("]"))
    parts.append(text[position:])
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
