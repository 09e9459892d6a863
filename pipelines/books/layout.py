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

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator
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
_TITLE_SHARE = 0.7  # of the usual width: titles are shorter, lines of text are longer
_MAX_TITLE_LINES = 3
_TITLE_WRAPPING = " _*="
_RULE_MARKS = frozenset("_*=~#-")
_RULE_LINE = re.compile(r"[ \t]*+(?:[_*=~#-][ \t]*+){10,}+$|[ \t]*+(?:\*[ \t]*+){3,}+$")
_ENDS_STRONGLY = re.compile(r"[.!?][\"'”’»)\]_*]*\s*$")
_ENDS_SENTENCE = re.compile(r"[.!?:;][\"'”’»)\]_*]*\s*$|(?:--|[-—–])[\"'”’»]?\s*$")
_STARTS_PARAGRAPH = re.compile(r"[\"'“‘«(\[_]*[^\W\d_a-zß-öø-ÿ]|[\"'“‘«(\[_]*\d")
_STARTS_LOWER = re.compile(r"[\"'“‘«(\[_]*[a-zß-öø-ÿ]")
_WORD = r"[^\W\d_]++(?:-[^\W\d_]++)*+"
_WORDS = re.compile(_WORD)
_LAST_WORD = re.compile(rf"[\W_]*+({_WORD})-\Z")
_DASH = re.compile("--|—")
_SPACELESS_END = re.compile("[\u2e80-\u9fff\uff01-\uffef] ")
_CUT_WORD = re.compile(r"(?<!\S)(?P<before>\S++(?<=\S-))[ \t]*+\n\s*+(?P<after>\S++)")
_MIN_COMPOUND_PART = 4  # letters; shorter ones are often syllables


class Block(NamedTuple):
    """Lines that belong together: a paragraph, a stanza, a heading, a title page's group."""

    lines: list[str]
    """Without trailing white space and never empty; leading spaces are kept."""

    gap: int
    """Blank lines before it."""


def find_layout(lines: list[str]) -> Layout:
    """Return the layout of most of a text."""
    written = [line for line in lines if line.strip()]
    lengths = list(map(len, written))
    characters = sum(lengths)
    long = sum(length for length in lengths if length > _LONG_LINE)
    if long > _LONG_SHARE * characters:
        return "one-line"
    blank = len(lines) - len(written)
    return "no-blank-lines" if blank < _BLANK_SHARE * len(written) else "blank-lines"


def split_blocks(lines: list[str]) -> list[Block]:
    """Split the lines of a text, without line ends, into blocks."""
    layout = find_layout(lines)
    width = _median_width(lines)
    blocks: list[Block] = []
    for group in _groups(lines):
        paragraphs = _paragraphs(group.lines, layout=layout, width=width)
        for number, paragraph in enumerate(paragraphs):
            blocks.append(Block(paragraph, group.gap if number == 0 else 0))
    return blocks


def _median_width(lines: list[str]) -> int:
    widths = sorted(map(len, filter(None, lines)))
    return widths[len(widths) // 2] if widths else 0


def _groups(lines: list[str]) -> Iterator[Block]:
    """Yield the lines between blank lines, and each rule of stars or dashes."""
    gap, group = 0, list[str]()
    blank = 0
    for line in lines:
        stripped = line.rstrip()
        if not stripped:
            if group:
                yield Block(group, gap)
                group = []
            blank += 1
        elif stripped[-1] in _RULE_MARKS and _RULE_LINE.match(stripped):
            if group:
                yield Block(group, gap)
                group, blank = [], 0
            yield Block([stripped], blank)
            blank = 0
        else:
            if not group:
                gap, blank = blank, 0
            group.append(stripped)
    if group:
        yield Block(group, gap)


def _paragraphs(lines: list[str], *, layout: Layout, width: int) -> Iterator[list[str]]:
    """Yield the blocks of lines without blank lines between them."""
    is_indented = layout != "one-line" and _is_indented_prose(lines)
    bounds = _find_headings(lines, layout=layout, width=width)
    if layout == "blank-lines" and not is_indented and not bounds:
        yield lines
        return
    paragraph = lines[:1]
    for number, line in enumerate(lines[1:], start=1):
        if number in bounds or _breaks(
            paragraph, line, layout=layout, width=width, indented=is_indented
        ):
            yield paragraph
            paragraph = []
        paragraph.append(line)
    yield paragraph


def _find_headings(lines: list[str], *, layout: Layout, width: int) -> set[int]:
    """Return where headings above full lines of text begin and end.

    A heading has a few short lines without a mark at their ends. It is at the start of a block or,
    without blank lines, below a sentence.
    """
    bounds = set[int]()
    if layout == "one-line" or (layout == "blank-lines" and not _is_title(lines[0], width)):
        return bounds
    last = 1 if layout == "blank-lines" else len(lines)
    for start in range(last):
        if start and not _ENDS_SENTENCE.search(lines[start - 1]):
            continue
        end = start
        while end < len(lines) - 1 and end < start + _MAX_TITLE_LINES:
            if not _is_title(lines[end], width):
                break
            end += 1
        if end > start and len(lines[end].strip()) >= _TITLE_SHARE * width:
            bounds.update((start, end))
    return bounds


def _is_title(line: str, width: int) -> bool:
    """Return whether a line can be a heading: short, and with a letter or number at its end."""
    text = line.strip(_TITLE_WRAPPING)
    return text[-1:].isalnum() and not text[0].islower() and len(text) < _TITLE_SHARE * width


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
    if not any(line[0] == " " for line in lines):
        return False
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

    The book's own words decide whether a hyphen stays. The form that is more frequent elsewhere in
    the book wins: `mother-in-law` or `motherinlaw`. For other words, the printer's habit decides:
    most books only break a line at a hyphen that is part of the word. In a book that breaks words,
    a hyphen stays between two long words of the book ("broad-" + "brimmed").

    Args:
        text: Text of the book, whose words are collected on first use.
        prefers_hyphens: Whether a hyphen stays unless the text elsewhere has the word without it.
            For short texts, and lines that a program wrapped.
    """

    def __init__(self, text: str, *, prefers_hyphens: bool = False) -> None:
        self._text = text
        self._prefers_hyphens = prefers_hyphens

    def join(self, lines: list[str], *, joined: str = "") -> str:
        """Return the lines of a block as one line with single spaces.

        Args:
            lines: The lines, not empty.
            joined: The lines joined with single spaces, if known.
        """
        joined = joined or " ".join(" ".join(lines).split())
        if not _needs_care(joined):
            return joined
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
        left, right = _last_word(before), _WORDS.match(after)
        if not left or right is None:
            return before, " "
        return (before if self._keeps_hyphen(left, right[0]) else before[:-1]), ""

    def _keeps_hyphen(self, left: str, right: str) -> bool:
        if right[0].isupper():
            return True  # "Anglo-" + "Saxon"
        left, right = left.lower(), right.lower()
        joined, hyphenated = self._count_forms(left, right)
        if joined != hyphenated:
            return hyphenated > joined
        if self._prefers_hyphens or "-" in right:
            return True
        if self._breaks_words is None:
            return left in self._parts and right in self._parts
        if not self._breaks_words:
            return True
        is_long = min(len(left), len(right)) >= _MIN_COMPOUND_PART
        return is_long and left in self._parts and right in self._parts

    def _count_forms(self, left: str, right: str) -> tuple[int, int]:
        """Return how often the text elsewhere has a word without and with a hyphen."""
        joined, hyphenated = self._words[left + right], self._words[f"{left}-{right}"]
        if joined == hyphenated == 0 and "-" in left + right:
            left, right = left.rpartition("-")[2], right.partition("-")[0]
            return self._words[left + right], self._words[f"{left}-{right}"]
        return joined, hyphenated

    @functools.cached_property
    def _words(self) -> Counter[str]:
        """Number of each word. A cut word's halves are no evidence."""
        return Counter(_WORDS.findall(_CUT_WORD.sub(" ", self._text).lower()))

    @functools.cached_property
    def _parts(self) -> frozenset[str]:
        """Words, and words between hyphens."""
        return frozenset(part for word in self._words for part in word.split("-"))

    @functools.cached_property
    def _breaks_words(self) -> bool | None:
        """Return whether lines of the text end within words; None if no word shows it."""
        votes = 0
        for match in _CUT_WORD.finditer(self._text):
            left, right = _last_word(match["before"]), _WORDS.match(match["after"])
            if left and right is not None:
                joined, hyphenated = self._count_forms(left.lower(), right[0].lower())
                votes += (joined > hyphenated) - (joined < hyphenated)
        return votes > 0 if votes else None


def _needs_care(joined: str) -> bool:
    """Return whether some of the spaces between joined lines may be wrong."""
    if "- " in joined or "--" in joined:
        return True
    if joined.isascii():
        return False
    return "— " in joined or " —" in joined or _SPACELESS_END.search(joined) is not None


def _last_word(line: str) -> str:
    """Return the word before the hyphen at the end of a line, or ""."""
    match = _LAST_WORD.match(_DASH.split(line.rpartition(" ")[2])[-1])
    return match[1] if match else ""
