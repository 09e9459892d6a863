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

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from model.tasks.entities import OUTSIDE, Entity, iob2, is_bare, is_tag
from model.tasks.files import file_lines, shown
from model.tasks.input_tables import TextFormat, describe_cells, first_line, named_columns
from model.tasks.task import BadRow, FileLayout
from schemas.errors import TaskDataError
from schemas.field_names import field_name

_MARK = re.compile(r"-DOCSTART-([ \t]|$)")
_BLANK = " \t\r"
_SPACES = re.compile("[ \t]+")  # no other space ends a word: U+00A0 may be one
_NO_WORD = re.compile(r"\d+[-.]\d+")
_IN_ENTITY = re.compile(r"(.+?)(?:\[(\d+)\])?")


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

    sentences: tuple[Sentence | BadRow, ...]
    """Sentences; an invalid one has its first invalid line."""


class _Lines(NamedTuple):
    """Lines of a sentence as (number, cells); the cells are None if a line is not UTF-8."""

    document: int
    """Number of marks before it."""

    lines: list[tuple[int, list[str] | None]]


class _Format(NamedTuple):
    """Format of a file: its columns, separators and comments."""

    split: Callable[[str], list[str]]
    words: int = 0
    tags: int | None = None
    min_columns: int = 0
    max_columns: int = 1 << 30
    comment_prefix: str = ""
    """Prefix of comments anywhere in the file."""

    allows_comments: bool = False
    """True if a sentence can begin with comment lines (`# `) that do not end in a tag."""

    has_header: bool = False
    has_ranges: bool = False
    """True if the first column may mark lines without a word (CoNLL-U)."""

    is_webanno: bool = False


def read_documents(url: str, layout: FileLayout, *, split: str) -> Iterator[Document]:
    """Yield the documents of a file in order, without empty ones.

    A line with a tab is split at tabs, any other line at spaces. A line must have as many columns
    as most lines of the file, or, with named columns, at least those.

    Args:
        url: Path or URL of a plain or compressed file.
        layout: Columns of words and tags (default: the first and the last), and comments.
        split: Split of the file; a test split may lack tags.

    Raises:
        TaskDataError: The file has no words, or lacks a named column.
        InputError: The file is missing or damaged.
    """
    form = _Format(split_line, allows_comments=layout.allows_comments)
    if layout.named_columns:
        form = _named_format(url, layout, split)
    sentences, marks = _read_sentences(url, form)
    rows = [cells for sentence in sentences for _, cells in sentence.lines if cells is not None]
    if not rows:
        raise TaskDataError(
            f"{url}: expected a word and its tag per line, found no such line. Is it empty?"
        )
    if not layout.named_columns:
        widths = Counter(map(len, rows))
        size = max(widths, key=lambda width: (widths[width], width))
        tags = size - 1 if size > 1 else None
        form = form._replace(tags=tags, min_columns=size, max_columns=size)
    checked = [_check(sentence.lines, form) for sentence in sentences]
    if isinstance(checked[0], BadRow) and not any(isinstance(item, Sentence) for item in checked):
        found = f"{checked[0].found}. {_describe_columns(rows, form)}"
        checked[0] = checked[0]._replace(found=found)
    keys = (sentence.document if marks else at for at, sentence in enumerate(sentences))
    groups = itertools.groupby(zip(keys, sentences, checked, strict=True), lambda item: item[0])
    for number, (_, group) in enumerate(groups, start=1):
        members = list(group)
        name = f"{'document' if marks else 'sentence'}-{number}"
        first_line_number = members[0][1].lines[0][0]
        yield Document(f"line {first_line_number}", name, tuple(item for *_, item in members))


def split_line(text: str) -> list[str]:
    """Split a line at its tabs if it has any, otherwise at its spaces."""
    if "\t" in text:
        return [cell.strip(" \r") for cell in text.rstrip(_BLANK).split("\t")]
    return _SPACES.split(text.strip(_BLANK))


def _named_format(url: str, layout: FileLayout, split: str) -> _Format:
    table, column = layout.file_format, layout.named_columns["words"]
    # In CoNLL-U and WebAnno the words are not the first column, and "#" begins a comment.
    comments = table.comment_prefix or ("#" if isinstance(column, int) and column else "")
    line = first_line(url, comments).strip(_BLANK)
    split_cells = split_line
    if table.delimiter != "auto":
        text_format = TextFormat.of(layout, line)

        def split_cells(text: str) -> list[str]:
            return [cell.strip(_BLANK) for cell in text_format.split(text)]

    has_header = layout.has_header
    cells = split_cells(line)
    numbers = named_columns(layout, cells, has_header=has_header, url=url, split=split)
    words, tags = numbers["words"], numbers.get("tags")
    is_webanno = next(file_lines(url)).data.startswith(b"#FORMAT=WebAnno")
    return _Format(
        split_cells,
        words,
        tags,
        min_columns=max(words, tags or 0) + 1,
        comment_prefix=table.comment_prefix or ("#" if words else ""),
        allows_comments=True,
        has_header=has_header,
        has_ranges=bool(words) and not is_webanno,
        is_webanno=is_webanno,
    )


def _describe_columns(rows: Sequence[Sequence[str]], form: _Format) -> str:
    """Describe the expected and the actual columns of a file without valid lines."""
    expected = f"words in column {form.words}"
    if form.tags is not None:
        expected += f" and tags such as {OUTSIDE}, B-LOC in column {form.tags}"
    tagged = [n for n in range(min(map(len, rows))) if all(is_tag(row[n]) for row in rows)]
    hint = f"tags are in column {tagged[-1]}" if tagged else "no column has tags alone"
    return (
        f"No sentence can be used: expected {expected}, counted from 0; the first line has "
        f"{describe_cells(rows[0])}; {hint}. Correct "
        f"{field_name('columns.words')} and {field_name('columns.tags')}"
    )


def _read_sentences(url: str, form: _Format) -> tuple[list[_Lines], int]:
    """Return the sentences that have lines, and the number of document marks."""
    marks, sentences = 0, [_Lines(0, [])]
    is_before_header = form.has_header
    for number, line in enumerate(file_lines(url), start=1):
        lines = sentences[-1].lines
        try:
            raw = line.data.decode()
        except UnicodeDecodeError:
            lines.append((number, None))
            continue
        text = raw.strip(_BLANK)
        if _MARK.match(text):
            marks += 1
            sentences.append(_Lines(marks, []))
        elif not text:
            sentences.append(_Lines(marks, []))
        elif form.comment_prefix and text.startswith(form.comment_prefix):
            continue
        elif is_before_header:
            is_before_header = False
        else:
            cells = form.split(raw)  # not stripped: a word may be missing before the tab
            can_be_comment = form.allows_comments and not lines and text.startswith("# ")
            is_comment = can_be_comment and not is_tagged_word(cells)
            is_range = form.has_ranges and cells and _NO_WORD.fullmatch(cells[0])
            if not is_range and not is_comment:
                lines.append((number, cells))
    return [sentence for sentence in sentences if sentence.lines], marks


def is_tagged_word(cells: Sequence[str]) -> bool:
    """Return whether a line that can be a comment is a word and its tag.

    Comments may end in a single letter, so a tag without a type must be the second of two cells.
    """
    return bool(cells) and is_tag(cells[-1]) and (not is_bare(cells[-1]) or len(cells) == 2)


def _check(lines: Sequence[tuple[int, list[str] | None]], form: _Format) -> Sentence | BadRow:
    words, tags = list[str](), list[str]()
    for number, cells in lines:
        if (fault := _fault(cells, form)) is not None:
            reason, found = fault
            size = f"{len(lines)} word{'s' if len(lines) > 1 else ''}"
            return BadRow(f"line {number}", reason, f"{found}, in a sentence of {size}")
        if cells is not None:
            words.append(cells[form.words])
            tags.append(OUTSIDE if form.tags is None else cells[form.tags])
    if form.tags is None:
        return Sentence(words, None)
    return _from_webanno(words, tags) if form.is_webanno else Sentence(words, tags)


def _from_webanno(words: list[str], cells: Sequence[str]) -> Sentence:
    """Return the longest of overlapping entities, the first of equal ones."""
    spans: dict[tuple[str, str | int], list[int]] = {}
    for at, cell in enumerate(cells):
        for part in cell.split("|") if cell != "_" else ():
            match = _IN_ENTITY.fullmatch(part)
            type_, number = (match[1], match[2]) if match else (part, None)
            spans.setdefault((type_, number if number is not None else at), []).append(at)
    entities = [Entity(min(at), max(at) + 1, key[0]) for key, at in spans.items()]
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda entity: (entity.start - entity.end, entity.start)):
        if all(entity.end <= other.start or other.end <= entity.start for other in kept):
            kept.append(entity)
    notes = ("overlapping-entities",) if len(kept) < len(entities) else ()
    return Sentence(words, iob2(sorted(kept), words=len(words)), notes)


def _fault(cells: Sequence[str] | None, form: _Format) -> tuple[str, str] | None:
    """Return the reason and the content of an invalid line."""
    if cells is None:
        return "not-utf-8", "bytes that are not UTF-8"
    least, most = form.min_columns, form.max_columns
    if not least <= len(cells) <= most:
        few_or_many = "few" if len(cells) < least else "many"
        expected = f"{least}" if least == most else f"{least} or more"
        found = f"{len(cells)} columns, expected {expected}: {shown(' '.join(cells))}"
        return f"too-{few_or_many}-columns", found
    if not cells[form.words]:
        return "no-word", shown(" ".join(cells))
    tag = cells[form.tags] if form.tags is not None else OUTSIDE
    if not (tag if form.is_webanno else is_tag(tag)):
        return "unknown-tag", f"{shown(tag)}, expected {OUTSIDE} or such as B-LOC, I-LOC"
    return None
