"""Join the lines of a page without markup to paragraphs; drop lists, tables and headings."""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import itertools
import re

from pipelines.mediawiki.cleaning import DISPLAY, DROPPED, FORMULA, without_names
from pipelines.mediawiki.dropped_text import DroppedText
from pipelines.mediawiki.languages import WikiSettings

_NO_TEXT = "*#:;|!= "  # a line that begins so is a list, table, heading or preformatted line
LINE_REASONS = {"=": "heading", "|": "table", "!": "table"}
"""Why a line with such a first character is dropped. Others are lists."""

_SENTENCE_MARKS = frozenset(".!?:;。！？：…\"”’'）)」")
_NUMBER = re.compile(r"\(?([0-9]{1,3})(?:[.)]|\.\))(?=[ \t]|$)")  # before an item of a list
_MAX_REJOINED = 20_000  # characters; a longer paragraph is not joined again
_MAX_TITLE_WORDS = 4
_MAX_TITLE_WIDTH = 12  # characters, where there are no spaces between words


def join_paragraphs(scanned: list[str], markup: WikiSettings, dropped: DroppedText) -> list[str]:
    """Join lines of text to paragraphs, which other lines separate.

    A formula on a separate indented line belongs to the sentence that it interrupts: a mark joins
    the text before and after it, and the sentence is dropped.
    """
    raws: list[str] = []
    lines: list[str] = []
    numbered = _numbered_lines(scanned, markup)

    def flush() -> None:
        if lines:
            raws.append(_join_lines(lines, spaceless=markup.spaceless))
            lines.clear()

    for index, line in enumerate(scanned):
        if not line or line.startswith("----"):
            flush()
        elif line[0] not in _NO_TEXT and index not in numbered:
            if not lines and line[0].islower() and _ends_in_formula(raws):
                lines.append(raws.pop())
            lines.append(line)
        else:
            if line[0] == ":" and FORMULA in line:
                if not lines and _ends_open(raws):
                    lines.append(raws.pop())
                if lines:
                    lines.append(DISPLAY)
            elif len(lines) == 1 and line[0] in "*#" and _is_title(lines[0], markup):
                dropped.characters["heading"] += len(lines.pop())
            flush()
            if len(line) > 1:  # a lone mark stands for lines that the scanner counted
                reason = "formula" if FORMULA in line else LINE_REASONS.get(line[0], "list")
                dropped.characters[reason] += len(line)
    flush()
    return raws


def _numbered_lines(scanned: list[str], markup: WikiSettings) -> set[int]:
    """Return the indexes of lines of a list numbered by hand ("1. ...", "2. ..."), also with blank
    lines between them.

    Most items of a list are no sentences. Paragraphs of prose may begin with a date or an ordinal.
    """
    listed: set[int] = set()
    run: list[int] = []
    last = 0

    def end_run() -> None:
        sentences = sum(_is_sentence(scanned[index], markup) for index in run)
        if len(run) > 1 and 2 * sentences < len(run):
            listed.update(run)
        run.clear()

    for index, line in enumerate(scanned):
        if not line.strip():
            continue
        match = _NUMBER.match(line) if line[0] in "0123456789(" else None
        number = int(match[1]) if match else 0
        if run and number != last + 1:
            end_run()
        if number:
            run.append(index)
        last = number
    end_run()
    return listed


def _ends_in_formula(raws: list[str]) -> bool:
    """Return whether the last paragraph ends with a formula and may continue."""
    return bool(raws) and raws[-1][-1] == DISPLAY and len(raws[-1]) < _MAX_REJOINED


def _ends_open(raws: list[str]) -> bool:
    """Return whether the last paragraph ends within a sentence."""
    if not raws or len(raws[-1]) > _MAX_REJOINED:
        return False
    return raws[-1][-8:].rstrip()[-1:] not in _SENTENCE_MARKS | {DISPLAY}


def _is_title(line: str, markup: WikiSettings) -> bool:
    """Return whether a line directly above a list is its title rather than a sentence."""
    line = without_names(line).rstrip()
    return line[-1:] not in _SENTENCE_MARKS and _is_short(line, markup)


def _is_sentence(line: str, markup: WikiSettings) -> bool:
    """Return whether a line ends as a sentence and is longer than a title."""
    line = without_names(line).rstrip(f" \t{DROPPED}")
    return line[-1:] in _SENTENCE_MARKS and not _is_short(line, markup)


def _is_short(line: str, markup: WikiSettings) -> bool:
    if markup.spaceless:
        return len(line) <= _MAX_TITLE_WIDTH
    return line.count(" ") < _MAX_TITLE_WORDS


def _join_lines(lines: list[str], *, spaceless: bool) -> str:
    if not spaceless or len(lines) == 1:
        return "\n".join(lines)
    parts = [lines[0]]
    for before, line in itertools.pairwise(lines):
        wide = before[-1] >= "\u2e80" and line[0] >= "\u2e80"
        parts.append(line if wide else f"\n{line}")
    return "".join(parts)
