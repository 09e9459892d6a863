# ruff: noqa: RUF001 - this module is about the quotes and dashes of books
"""Join the lines of a book to paragraphs, depending on its layout.

There are three layouts, and some books mix them:

* hard-wrapped lines with a blank line or an indent between paragraphs: Project Gutenberg;
* one line per paragraph, with or without blank lines: BookCorpusOpen, many web editions;
* hard-wrapped lines without blank lines: a paragraph ends if the next word would fit on its last
  line.

A stanza of verse is one block. Its lines are joined like those of a paragraph.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

Layout = Literal["blank-lines", "one-line", "no-blank-lines"]

_LONG_LINE = 160  # no edition is wrapped wider, and most paragraphs of prose are longer
_LONG_SHARE = 0.4
_BLANK_SHARE = 0.03
_MIN_WIDTH = 30  # characters; narrower lines are entries of a list
_FULL_WIDTH = 0.9  # of the longest line: a full line and the next word are longer
_FULL_SHARE = 0.7
_SENTENCE_MARKS = frozenset(".!?…:;。！？।؟۔")
_CLOSING_MARKS = " \"'”’»)]_*」』"
_INDENT = 2
_MAX_INDENT = 8
_TITLE_SHARE = 0.7
_RULE_LINE = re.compile(r"[ \t]*+(?:[_*=~#-][ \t]*+){10,}+$|[ \t]*+(?:\*[ \t]*+){3,}+$")
_ENDS_STRONGLY = re.compile(r"[.!?][\"'”’»)\]_*]*\s*$")
_ENDS_SENTENCE = re.compile(r"[.!?:;][\"'”’»)\]_*]*\s*$|(?:--|[-—–])[\"'”’»]?\s*$")
_STARTS_PARAGRAPH = re.compile(r"[\"'“‘«(\[_]*[^\W\d_a-zß-öø-ÿ]|[\"'“‘«(\[_]*\d")
_STARTS_LOWER = re.compile(r"[\"'“‘«(\[_]*[a-zß-öø-ÿ]")
_HYPHENATED = re.compile(r"(?<![^\W\d_])([^\W\d_]++)-$")
_FIRST_WORD = re.compile(r"([a-zß-öø-ÿ]+)")
_CUT_WORD = re.compile(r"(?<!\S)\S++(?<=\S-)[ \t]*+\n\s*+\S++")
_WORDS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


class Block(NamedTuple):
    """Lines that belong together: a paragraph, a stanza, a heading, a title page's group."""

    lines: list[str]
    """Without trailing white space and never empty; leading spaces are kept."""

    gap: int
    """Blank lines before it."""


def find_layout(lines: list[str]) -> Layout:
    """Return the layout of most of a text."""
    written = [line for line in lines if line.strip()]
    characters = sum(map(len, written))
    long = sum(len(line) for line in written if len(line) > _LONG_LINE)
    if long > _LONG_SHARE * characters:
        return "one-line"
    blank = len(lines) - len(written)
    return "no-blank-lines" if blank < _BLANK_SHARE * len(written) else "blank-lines"


def split_blocks(lines: list[str], *, is_heading: Callable[[str], bool]) -> list[Block]:
    """Split the lines of a text into blocks.

    Args:
        lines: The text, without line ends.
        is_heading: Return whether a line is a heading in any context. It gets a separate block.
    """
    layout = find_layout(lines)
    width = _median_width(lines)
    blocks: list[Block] = []
    for group in _groups(lines):
        paragraphs = _paragraphs(group.lines, layout=layout, width=width, is_heading=is_heading)
        for number, paragraph in enumerate(paragraphs):
            blocks.append(Block(paragraph, group.gap if number == 0 else 0))
    return blocks


def _median_width(lines: list[str]) -> int:
    widths = sorted(len(line) for line in lines if line.strip())
    return widths[len(widths) // 2] if widths else 0


def _groups(lines: list[str]) -> Iterator[Block]:
    gap, group = 0, list[str]()
    blank = 0
    for line in lines:
        stripped = line.rstrip()
        ruled = len(stripped) > 4 and _RULE_LINE.match(stripped) is not None
        if ruled and group:
            yield Block(group, gap)
            group, gap, blank = [], 0, 0
        if ruled:
            yield Block([stripped], blank)
            blank = 0
            continue
        if stripped:
            if not group:
                gap = blank
            group.append(stripped)
            blank = 0
            continue
        if group:
            yield Block(group, gap)
            group = []
        blank += 1
    if group:
        yield Block(group, gap)


def _paragraphs(
    lines: list[str], *, layout: Layout, width: int, is_heading: Callable[[str], bool]
) -> Iterator[list[str]]:
    """Return the blocks of lines without blank lines between them."""
    indented = _is_indented_prose(lines) if layout != "one-line" else False
    paragraph: list[str] = []
    headed = False
    for line in lines:
        if headed and len(line.strip()) < _TITLE_SHARE * width and not _ENDS_SENTENCE.search(line):
            headed = False  # a chapter's title, under its number
            yield [line]
            continue
        if paragraph and _breaks(paragraph, line, layout=layout, width=width, indented=indented):
            yield paragraph
            paragraph = []
        if layout == "no-blank-lines" and is_heading(line):
            if paragraph:
                yield paragraph
            yield [line]
            paragraph, headed = [], True
            continue
        headed = False
        paragraph.append(line)
    if paragraph:
        yield paragraph


def _breaks(paragraph: list[str], line: str, *, layout: Layout, width: int, indented: bool) -> bool:
    """Return whether a new paragraph begins at `line`, directly after `paragraph`."""
    last = paragraph[-1]
    if indented and _indent(last) + _INDENT <= _indent(line) <= _MAX_INDENT:
        return _ENDS_STRONGLY.search(last) is not None
    if layout == "blank-lines":
        return False
    text = line.lstrip()
    starts = _STARTS_PARAGRAPH.match(text) is not None
    if layout == "one-line":
        # A narrow line that ends within a sentence continues in the next one.
        wrapped = len(last) <= _LONG_LINE // 2 and not _ENDS_SENTENCE.search(last)
        return not (wrapped and (_STARTS_LOWER.match(text) or not starts))
    if not starts or not _ENDS_SENTENCE.search(last):
        return False
    return len(last.strip()) + 1 + len(text.split(" ", 1)[0]) < width - _INDENT


def _is_indented_prose(lines: list[str]) -> bool:
    """Return whether paragraphs begin with an indented line: few indents of one line each."""
    indents = [_indent(line) for line in lines]
    steps = sum(after >= before + _INDENT for before, after in itertools.pairwise(indents))
    flush = min(indents)
    deep = sum(indent >= flush + _INDENT for indent in indents)
    return steps > 0 and deep <= max(1, len(lines) // 2) and deep <= steps + 1


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def join_wrapped_lines(text: str) -> list[str]:
    """Return the paragraphs of a text: lines between blank lines, joined if they are hard-wrapped.

    Lines are hard-wrapped if the longest has 30 to 160 characters, if 7 of 10 are full (with the
    next line's first word they would be longer than 0.9 of the longest), and if a third run on (no
    sentence ends and no capital follows) or no line ends a sentence. The last line is not counted.
    Lines that are not hard-wrapped are separate paragraphs.

    >>> join_wrapped_lines("He walked to the river and saw that\\nit was high.\\n\\nOne.\\nTwo.")
    ['He walked to the river and saw that it was high.', 'One.', 'Two.']
    """
    joiner = LineJoiner(text, prefers_hyphens=True)
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return [
        joiner.join(paragraph)
        for has_text, block in itertools.groupby(lines, key=bool)
        if has_text
        for paragraph in _unwrapped(list(block))
    ]


def _unwrapped(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each paragraph."""
    width = max(map(len, lines))
    pairs = list(itertools.pairwise(lines))
    is_full = [
        len(line) + 1 + len(_first_word(after)) > _FULL_WIDTH * width for line, after in pairs
    ]
    is_ended = [line.rstrip(_CLOSING_MARKS)[-1:] in _SENTENCE_MARKS for line, _ in pairs]
    runs_on = sum(
        not ended and not after[0].isupper()
        for (_, after), ended in zip(pairs, is_ended, strict=True)
    )
    is_wrapped = (
        _MIN_WIDTH <= width <= _LONG_LINE
        and sum(is_full) >= _FULL_SHARE * len(pairs)
        and (3 * runs_on >= len(pairs) or not any(is_ended))
    )
    paragraph = lines[:1]
    for (_, after), full, ended in zip(pairs, is_full, is_ended, strict=True):
        if not is_wrapped or (ended and not full and not _STARTS_LOWER.match(after)):
            yield paragraph
            paragraph = []
        paragraph.append(after)
    yield paragraph


def _first_word(line: str) -> str:
    return line[0] if _is_spaceless(line[0]) else line.split(" ", 1)[0]


def _is_spaceless(character: str) -> bool:
    """Return whether a character is of a script without spaces: Chinese, Japanese."""
    return "\u2e80" <= character < "\ua000" or "\uff01" <= character <= "\uffef"


class LineJoiner:
    """Joins the wrapped lines of a block to one line, and words hyphenated at line ends.

    The hyphen is removed if the book elsewhere has the word without it. It is kept if the book
    elsewhere has the word with it, or if both parts are words of the book ("broad-" + "brimmed").
    Otherwise it is removed.

    Args:
        text: Text of the book, whose words are collected on first use.
        prefers_hyphens: Whether a hyphen stays unless the text elsewhere has the word without it.
            For short texts, and lines that a program wrapped.
    """

    def __init__(self, text: str, *, prefers_hyphens: bool = False) -> None:
        self._text = text
        self._prefers_hyphens = prefers_hyphens
        self._words: frozenset[str] | None = None

    def join(self, lines: list[str]) -> str:
        """Return the lines of a block as one line with single spaces."""
        parts = [" ".join(lines[0].split())]
        for line in lines[1:]:
            after = " ".join(line.split())
            before = parts[-1]
            if before.endswith(("-", "—")) or after.startswith(("--", "—")):
                parts[-1], between = self._at_dash(before, after)
                parts.append(between)
            elif not (_is_spaceless(before[-1]) and _is_spaceless(after[0])):
                parts.append(" ")
            parts.append(after)
        return "".join(parts)

    def _at_dash(self, before: str, after: str) -> tuple[str, str]:
        """Return the line without a dash or hyphen at its end, and the text between both lines."""
        if before.endswith(("--", "—")) or after.startswith(("--", "—")):
            spaced = before.endswith((" --", " —")) or after.startswith(("-- ", "— "))
            return before, " " if spaced else ""
        cut, rest = _HYPHENATED.search(before), _FIRST_WORD.match(after)
        if cut is None or rest is None:
            return before, " "
        return (before if self._keeps_hyphen(cut[1], rest[1]) else before[:-1]), ""

    def _keeps_hyphen(self, left: str, right: str) -> bool:
        if self._words is None:
            whole = _CUT_WORD.sub(" ", self._text)  # a cut word's halves are no evidence
            self._words = frozenset(_WORDS.findall(whole.lower()))
        left, right = left.lower(), right.lower()
        if left + right in self._words:
            return False
        if self._prefers_hyphens or f"{left}-{right}" in self._words:
            return True
        return left in self._words and right in self._words
