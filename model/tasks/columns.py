"""Column files of the CoNLL shared tasks: one word per line, its tag last.

A recipe may name the columns; the file may then have further columns, a header, comments anywhere
and other separators. Lines of CoNLL-U without a word (ranges such as `3-4` and empty nodes such as
`3.1` in the first column) are skipped. WebAnno's TSV (GUM) lists the entities of a word in one
column: `_`, or `TYPE` (this word only) and `TYPE[NUMBER]`, separated by `|`. Of overlapping
entities the longest is kept, and the sentence gets a note.

Sentences end at blank lines, documents at `-DOCSTART-` lines. In a file without such lines every
sentence is a separate document, because neighboring sentences may be unrelated.

An invalid line drops its sentence; the rest of the document is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from model.tasks.entities import OUTSIDE, Entity, iob2, is_tag
from model.tasks.files import file_lines, shown
from model.tasks.named_columns import (
    SEPARATORS,
    TAGS,
    WORDS,
    NamedColumns,
    describe,
    has_header,
    place_of,
)
from model.tasks.raw_tables import TextForm, first_line
from model.tasks.task import Bad
from schemas.errors import TaskDataError

_MARK = "-DOCSTART-"
_BLANK = " \t\r"
_SPACES = re.compile("[ \t]+")  # no other space ends a word: U+00A0 may be one
_COMMENT = "# "
_COMMENTS = "#"
_NO_WORD = re.compile(r"\d+[-.]\d+")
_WEBANNO = b"#FORMAT=WebAnno"
_IN_ENTITY = re.compile(r"(.+?)(?:\[(\d+)\])?")
_NONE = "_"


class Sentence(NamedTuple):
    """Valid sentence. `tags` are as in the file; None in a file without tags."""

    words: list[str]
    tags: list[str] | None
    notes: tuple[str, ...] = ()
    """Notes on dropped entities: `overlapping-entities`."""


class Document(NamedTuple):
    """Sentences between two `-DOCSTART-` lines, or one sentence in a file without them."""

    position: str
    """First line or row of the document, for messages: `line 17`, `row 3`."""

    name: str
    """`document-3` or, without marks, `sentence-3`, counted from 1 in the file."""

    sentences: tuple[Sentence, ...]
    lost: tuple[Bad, ...]
    """Invalid sentences, each with its first invalid line."""


class _Lines(NamedTuple):
    """The lines of a sentence as (number, fields); no fields where a line is not UTF-8."""

    opens_document: bool
    lines: list[tuple[int, list[str] | None]]


class _Form(NamedTuple):
    """Format of a file: separators, comments, columns."""

    cut: Callable[[str], list[str]]
    comments: str = ""
    """Prefix of comments anywhere in the file; "": see `allows_comments`."""

    allows_comments: bool = False
    has_header: bool = False
    has_ranges: bool = False
    """Whether the first column may mark lines without a word (CoNLL-U)."""


class _Places(NamedTuple):
    """Positions of the columns, and the number of columns of a line."""

    words: int
    tags: int | None
    fewest: int
    most: int
    is_webanno: bool = False

    def fit(self, fields: Sequence[str]) -> bool:
        return self.fewest <= len(fields) <= self.most

    @property
    def wanted(self) -> str:
        """Return the expected number of columns, for messages."""
        return f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} or more"


def read_documents(
    url: str,
    *,
    allows_comments: bool = False,
    named: NamedColumns | None = None,
    needs_tags: bool = False,
) -> Iterator[Document]:
    """Yield the documents of a file in order, without empty ones.

    A line with a tab is split at tabs, any other line at spaces. A line must have as many columns
    as most lines of the file, or, with named columns, at least those.

    Args:
        url: Path or URL of a plain or compressed file.
        allows_comments: Skip lines that begin with "# " before the first word of a sentence and do
            not end in a tag.
        named: Columns of words and tags. Default: the first and the last.
        needs_tags: Whether a file without the named column of tags is an error.

    Raises:
        TaskDataError: The file has no words, or lacks a named column.
        InputError: The file is missing or damaged.
    """
    form = _Form(fields_of, allows_comments=allows_comments)
    places: _Places | None = None
    if named is not None:
        form, places = _named_form(url, named, needs_tags=needs_tags)
    sentences = list(_sentences(url, form))
    widths = Counter(
        len(fields) for sentence in sentences for _, fields in sentence.lines if fields is not None
    )
    if not widths:
        raise TaskDataError(
            f"{url}: expected a word and its tag a line, found no such line. Is it empty?"
        )
    if places is None:
        most = max(widths, key=lambda width: (widths[width], width))
        places = _Places(0, most - 1 if most > 1 else None, most, most)
    has_marks = any(sentence.opens_document for sentence in sentences)
    groups = _documents((found for found in sentences if found.lines), has_marks=has_marks)
    checked = [(group, [_checked(found.lines, places) for found in group]) for group in groups]
    if not any(isinstance(item, Sentence) for _, found in checked for item in found):
        first = checked[0][1]
        first[0] = _with_look(first[0], sentences, places=places)
    for number, (group, found) in enumerate(checked, start=1):
        yield Document(
            f"line {group[0].lines[0][0]}",
            f"{'document' if has_marks else 'sentence'}-{number}",
            tuple(sentence for sentence in found if isinstance(sentence, Sentence)),
            tuple(sentence for sentence in found if isinstance(sentence, Bad)),
        )


def _named_form(url: str, named: NamedColumns, *, needs_tags: bool) -> tuple[_Form, _Places]:
    table, given = named.table, named.columns[WORDS]
    cut = fields_of
    if table.delimiter != "auto":
        separator = SEPARATORS[table.delimiter]
        quotes = separator in ",;" if table.quoted is None else table.quoted
        cut = partial(_cut, TextForm(separator, quotes=quotes and separator != " "))
    comments = table.comment_prefix or (_COMMENTS if isinstance(given, int) and given else "")
    fields = cut(first_line(url, comments=comments).strip(_BLANK))
    header = fields if has_header(named) else None
    at = [
        place_of(named.columns[name], fields, header=header, url=url, name=name,
                 is_needed=needs_tags or name == WORDS)
        for name in (WORDS, TAGS)
    ]  # fmt: skip
    words, tags = at[0] or 0, at[1]
    is_webanno = next(file_lines(url)).data.startswith(_WEBANNO)
    form = _Form(
        cut,
        comments=table.comment_prefix or (_COMMENTS if words else ""),
        allows_comments=True,
        has_header=header is not None,
        has_ranges=bool(words) and not is_webanno,
    )
    return form, _Places(words, tags, max(words, tags or 0) + 1, 1 << 30, is_webanno)


def _cut(form: TextForm, text: str) -> list[str]:
    return [field.strip(_BLANK) for field in form.cut(text)]


def _with_look(
    bad: Sentence | Bad, sentences: Sequence[_Lines], *, places: _Places
) -> Sentence | Bad:
    """Raise an error with the expected and the actual columns of a file without valid lines."""
    rows = [fields for sentence in sentences for _, fields in sentence.lines if fields]
    if isinstance(bad, Sentence) or not rows:
        return bad
    wanted = f"words in column {places.words}"
    if places.tags is not None:
        wanted += f" and tags such as {OUTSIDE}, B-LOC in column {places.tags}"
    tagged = [n for n in range(min(map(len, rows))) if all(is_tag(row[n]) for row in rows)]
    hint = f"tags are in column {tagged[-1]}" if tagged else "no column has tags alone"
    look = (
        f"No sentence can be used: expected {wanted}, counted from 0; the first line has "
        f"{describe(rows[0])}; {hint}. Name the columns: columns: {{words: 1, tags: 2}}"
    )
    return bad._replace(found=f"{bad.found}. {look}")


def _documents(sentences: Iterable[_Lines], *, has_marks: bool) -> Iterator[list[_Lines]]:
    group: list[_Lines] = []
    for sentence in sentences:
        if group and (sentence.opens_document or not has_marks):
            yield group
            group = []
        group.append(sentence)
    yield group


def _sentences(url: str, form: _Form) -> Iterator[_Lines]:
    opens, lines = False, list[tuple[int, list[str] | None]]()
    is_before_header = form.has_header
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
        elif form.comments and text.startswith(form.comments):
            continue
        elif is_before_header:
            is_before_header = False
        else:
            # A word may be missing before the tab.
            fields = form.cut(line.data.decode())
            is_comment = form.allows_comments and not lines and text.startswith(_COMMENT)
            is_range = form.has_ranges and fields and _NO_WORD.fullmatch(fields[0])
            if not is_range and (not is_comment or (fields and is_tag(fields[-1]))):
                lines.append((number, fields))
    yield _Lines(opens, lines)


def fields_of(text: str) -> list[str]:
    """Split a line at its tabs if it has any, otherwise at its spaces."""
    if "\t" in text:
        return [field.strip(" \r") for field in text.rstrip(_BLANK).split("\t")]
    return _SPACES.split(text.strip(_BLANK))


def _checked(lines: Sequence[tuple[int, list[str] | None]], places: _Places) -> Sentence | Bad:
    rows: list[list[str]] = []
    for number, fields in lines:
        if (fault := _fault(fields, places)) is not None:
            reason, found = fault
            of_words = f"{len(lines)} word{'s' if len(lines) > 1 else ''}"
            return Bad(f"line {number}", reason, f"{found}, in a sentence of {of_words}")
        rows.append(fields or [])
    words = [fields[places.words] for fields in rows]
    if places.tags is None:
        return Sentence(words, None)
    tags = [fields[places.tags] for fields in rows]
    return _from_webanno(words, tags) if places.is_webanno else Sentence(words, tags)


def _from_webanno(words: list[str], cells: Sequence[str]) -> Sentence:
    """Return the longest of overlapping entities, the first of equal ones."""
    spans: dict[tuple[str, str | int], list[int]] = {}
    for at, cell in enumerate(cells):
        for part in cell.split("|") if cell != _NONE else ():
            found = _IN_ENTITY.fullmatch(part)
            type_, number = (found[1], found[2]) if found else (part, None)
            spans.setdefault((type_, number if number is not None else at), []).append(at)
    entities = [Entity(min(at), max(at) + 1, key[0]) for key, at in spans.items()]
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda entity: (entity.start - entity.end, entity.start)):
        if all(entity.end <= other.start or other.end <= entity.start for other in kept):
            kept.append(entity)
    notes = ("overlapping-entities",) if len(kept) < len(entities) else ()
    return Sentence(words, iob2(sorted(kept), words=len(words)), notes)


def _fault(fields: Sequence[str] | None, places: _Places) -> tuple[str, str] | None:
    """Return the reason and the content of an invalid line."""
    if fields is None:
        return "not-utf-8", "bytes that are no UTF-8"
    if not places.fit(fields):
        few_or_many = "few" if len(fields) < places.fewest else "many"
        found = f"{len(fields)} columns, expected {places.wanted}: {shown(' '.join(fields))}"
        return f"too-{few_or_many}-columns", found
    if not fields[places.words]:
        return "no-word", shown(" ".join(fields))
    tag = fields[places.tags] if places.tags is not None else OUTSIDE
    if not (bool(tag) if places.is_webanno else is_tag(tag)):
        return "unknown-tag", f"{shown(tag)}, expected {OUTSIDE} or such as B-LOC, I-LOC"
    return None
