"""Files in columns, as the shared tasks of CoNLL have them: a word a line, its tag last.

Sentences end at blank lines, documents at `-DOCSTART-` lines. In a file without such lines every
sentence is a document of its own, for nothing says that its neighbours belong to it.

A line that cannot be used makes its sentence useless; the rest of the document is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from model.tasks.entities import OUTSIDE, is_tag
from model.tasks.files import file_lines, shown
from model.tasks.task import Bad
from schemas.errors import ExamplesError

_MARK = "-DOCSTART-"
_BLANK = " \t\r"
_SPACES = re.compile("[ \t]+")  # no other space ends a word: U+00A0 may be one
_COMMENT = "# "


class Sentence(NamedTuple):
    """A sentence that can be used. `tags` are as in the file; None in a file of words alone."""

    words: list[str]
    tags: list[str] | None


class Document(NamedTuple):
    """Sentences between two marks; or one, in a file without marks."""

    line: int
    """Its first."""

    name: str
    """`document-3` or, without marks, `sentence-3`, counted from 1 in the file."""

    sentences: tuple[Sentence, ...]
    lost: tuple[Bad, ...]
    """Sentences that cannot be used, each at the line that is to blame."""


class _Lines(NamedTuple):
    """The lines of a sentence as (number, fields); no fields where a line is not UTF-8."""

    opens_document: bool
    lines: list[tuple[int, list[str] | None]]


def read_documents(url: str, *, allows_comments: bool = False) -> Iterator[Document]:
    """The documents of a file, in order; those without any sentence are none.

    A line with a tab is cut at its tabs, any other at its spaces. There must be as many columns as
    most lines of the file have.

    Args:
        url: plain or compressed.
        allows_comments: lines that begin with "# " before a sentence's first word, and do not end
            in a tag, are left out.

    Raises:
        ExamplesError: there is no word in the file.
        InputError: it is missing or damaged.
    """
    sentences = list(_sentences(url, allows_comments=allows_comments))
    widths = Counter(
        len(fields) for sentence in sentences for _, fields in sentence.lines if fields is not None
    )
    if not widths:
        raise ExamplesError(
            f"{url}: expected a word and its tag a line, found no such line. Is it empty?"
        )
    columns = max(widths, key=lambda width: (widths[width], width))
    has_marks = any(sentence.opens_document for sentence in sentences)
    groups = _documents((found for found in sentences if found.lines), has_marks=has_marks)
    for number, group in enumerate(groups, start=1):
        found = [_checked(sentence.lines, columns=columns) for sentence in group]
        yield Document(
            group[0].lines[0][0],
            f"{'document' if has_marks else 'sentence'}-{number}",
            tuple(sentence for sentence in found if isinstance(sentence, Sentence)),
            tuple(sentence for sentence in found if isinstance(sentence, Bad)),
        )


def _documents(sentences: Iterable[_Lines], *, has_marks: bool) -> Iterator[list[_Lines]]:
    group: list[_Lines] = []
    for sentence in sentences:
        if group and (sentence.opens_document or not has_marks):
            yield group
            group = []
        group.append(sentence)
    yield group


def _sentences(url: str, *, allows_comments: bool) -> Iterator[_Lines]:
    opens, lines = False, list[tuple[int, list[str] | None]]()
    for number, line in enumerate(file_lines(url), start=1):
        try:
            text = line.data.decode().strip(_BLANK)
        except UnicodeDecodeError:
            lines.append((number, None))
            continue
        if text.startswith(_MARK) and text[len(_MARK) :][:1] in ("", " ", "\t"):
            yield _Lines(opens, lines)
            opens, lines = True, []
        elif not text:
            if lines:
                yield _Lines(opens, lines)
                opens, lines = False, []
        else:
            # A word may be missing before the tab.
            fields = fields_of(line.data.decode())
            is_comment = allows_comments and not lines and text.startswith(_COMMENT)
            if not is_comment or is_tag(fields[-1]):
                lines.append((number, fields))
    yield _Lines(opens, lines)


def fields_of(text: str) -> list[str]:
    """The columns of a line: cut at its tabs if it has any, else at its spaces."""
    if "\t" in text:
        return [field.strip(" \r") for field in text.rstrip(_BLANK).split("\t")]
    return _SPACES.split(text.strip(_BLANK))


def _checked(lines: Sequence[tuple[int, list[str] | None]], *, columns: int) -> Sentence | Bad:
    rows: list[list[str]] = []
    for number, fields in lines:
        if (fault := _fault(fields, columns=columns)) is not None:
            reason, found = fault
            of_words = f"{len(lines)} word{'s' if len(lines) > 1 else ''}"
            return Bad(f"line {number}", reason, f"{found}, in a sentence of {of_words}")
        rows.append(fields or [])
    tags = [fields[-1] for fields in rows] if columns > 1 else None
    return Sentence([fields[0] for fields in rows], tags)


def _fault(fields: Sequence[str] | None, *, columns: int) -> tuple[str, str] | None:
    """Reason and what was found, of a line that cannot be used."""
    if fields is None:
        return "not-utf-8", "bytes that are no UTF-8"
    if len(fields) != columns:
        few_or_many = "few" if len(fields) < columns else "many"
        found = f"{len(fields)} columns, expected {columns}: {shown(' '.join(fields))}"
        return f"too-{few_or_many}-columns", found
    if not fields[0]:
        return "no-word", shown(" ".join(fields))
    if columns > 1 and not is_tag(fields[-1]):
        found = f"{shown(fields[-1])}, expected {OUTSIDE} or such as B-LOC, I-LOC"
        return "unknown-tag", found
    return None
