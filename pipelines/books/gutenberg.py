# ruff: noqa: RUF001 - this module is about the quotes and dashes of books
"""Remove Project Gutenberg's additions to a text: header, license, footer, notes of producers.

All generations of markers are recognized:
`*** START OF THE PROJECT GUTENBERG EBOOK ... ***` (2003 on),
`*END THE SMALL PRINT! ...*END*` (to 2003), `End of the Project Gutenberg Etext of ...`, and the
editorial brackets (`[Illustration: ...]`, `[Transcriber's Note: ...]`, `[Footnote 1: ...]`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
    """Remove header, small print, license and footer, if the text has them.

    Args:
        text: Text of a book with LF line ends.
    """
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
