"""Extract the text passages of a page of wikitext (paper 3.1: "extract only the text passages and
ignore lists, tables, and headers").

`pipelines.mediawiki.scanner` removes the markup, this module joins lines to paragraphs, and
`pipelines.mediawiki.cleaning` cleans each.
"""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import itertools
import re

from pipelines.mediawiki.cleaning import DISPLAY, FORMULA, HOLE, clean_paragraph
from pipelines.mediawiki.holes import UnknownTemplates, without_names
from pipelines.mediawiki.scanner import Scanner
from pipelines.mediawiki.words import REDIRECT_WORDS, WikiSettings, wiki_settings

__all__ = ["UnknownTemplates", "WikiSettings", "clean_wikitext", "is_redirect", "wiki_settings"]

_REDIRECT = re.compile(
    rf"\s*[#＃]\s*(?:{'|'.join(map(re.escape, REDIRECT_WORDS))})\s*[:：]?\s*\[\[", re.IGNORECASE
)
_NO_TEXT = "*#:;|!= "  # a line that begins so is a list, table, heading or preformatted line
_SENTENCE_MARKS = frozenset(".!?:;。！？：…\"”’'）)」")
_BOLD_LINE = re.compile(r"'''[^'\n]+'''[ \t]*")
_NUMBER = re.compile(r"\(?([0-9]{1,3})(?:[.)]|\.\))(?=[ \t]|$)")  # before an item of a list
_MAX_REJOINED = 20_000  # characters; a longer paragraph is not joined again
_MAX_TITLE_WORDS = 4
_MAX_TITLE_WIDTH = 12  # characters, where there are no spaces between words


def is_redirect(text: str) -> bool:
    """Return whether a page is a redirect (`#REDIRECT [[...]]`, in any language)."""
    return _REDIRECT.match(text) is not None


def clean_wikitext(
    text: str, markup: WikiSettings, holes: UnknownTemplates | None = None, *, title: str = ""
) -> list[str]:
    """Return the text passages of one page in order.

    Never raises. Broken markup affects at most its paragraph.

    Args:
        text: Wikitext of a dump's `<text>`, with XML decoded.
        markup: Settings of the wiki (`wiki_settings`).
        holes: Counts of templates within sentences that write nothing.
        title: Title of the page, for templates that write it.

    Returns:
        Non-empty paragraphs without line breaks. They exclude headings, lists, indented lines,
        tables, references, pictures, formulas and closing sections.
    """
    raws = _raw_paragraphs(Scanner(text, markup, title).run().split("\n"), markup)
    if len(raws) > 1:  # a line in bold is a heading
        raws = [raw for raw in raws if raw[:3] != "'''" or not _BOLD_LINE.fullmatch(raw)]
    counted = UnknownTemplates() if holes is None else holes
    raws = [counted.remove_markers(raw) if HOLE in raw else raw for raw in raws]
    cleaned = (clean_paragraph(raw, language=markup.language) for raw in raws)
    return [paragraph for paragraph in cleaned if paragraph]


def _raw_paragraphs(scanned: list[str], markup: WikiSettings) -> list[str]:
    """Join lines of text to paragraphs, which other lines separate.

    A formula on a separate indented line belongs to the sentence that it interrupts: a mark joins
    the text before and after it, and the sentence is dropped.
    """
    raws: list[str] = []
    lines: list[str] = []
    numbered = _numbered_lines(scanned)

    def flush() -> None:
        if lines:
            raws.append(_join_lines(lines, spaceless=markup.spaceless))
            lines.clear()

    for index, line in enumerate(scanned):
        if index in numbered:
            flush()
        elif line and line[0] not in _NO_TEXT and not line.startswith("----"):
            if not lines and line[0].islower() and _ends_in_formula(raws):
                lines.append(raws.pop())
            lines.append(line)
        elif line and line[0] == ":" and FORMULA in line:
            if not lines and _ends_open(raws):
                lines.append(raws.pop())
            if lines:
                lines.append(DISPLAY)
            flush()
        elif len(lines) == 1 and line[:1] in {"*", "#"} and _is_title(lines[0], markup):
            lines.clear()
        else:
            flush()
    flush()
    return raws


def _numbered_lines(scanned: list[str]) -> set[int]:
    """Return the indexes of lines of a list numbered by hand ("1. ...", "2. ..."), also with blank
    lines between them."""
    found: set[int] = set()
    before, place = -1, -1
    for index, line in enumerate(scanned):
        if not line.strip():
            continue
        match = _NUMBER.match(line) if line[0] in "0123456789(" else None
        number = int(match[1]) if match else -1
        if match and number == before + 1 and before > 0:
            found |= {place, index}
        before, place = number, index
    return found


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
    if line[-1:] in _SENTENCE_MARKS:
        return False
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
