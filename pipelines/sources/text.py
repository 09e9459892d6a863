"""Your text in .txt, .jsonl and .parquet files.

* .txt: a blank line ends a document (or each line, or the file: `document_delimiter`);
* .jsonl (also .ndjson) and .parquet: a row is a document;
* with `rows_per_document` or `document_start_pattern`, a row (in .txt a line) is a paragraph, and
  a document has several (`pipelines.sources.joined_rows`).

In other documents, a blank line ends a paragraph. A line is a paragraph too, unless the lines are
hard-wrapped (`pipelines.books.layout.join_wrapped_lines`).

A document of more than `max_document_bytes` is split at the end of a line, or of a sentence. Plain
.txt and .jsonl files in UTF-8 are split between documents; one that is compressed (.gz, .bz2, .zst)
or in another encoding is one split. Parquet files are split at the ends of row groups, or at the
next document. .txt and .jsonl files that are smaller than a split are grouped, to limit the number
of shards; each is a separate raw file.

Without an `id_column` the id of a document is the file name and its position: the offset of its
first byte in the decompressed text in UTF-8, or the number of the row in a Parquet file. Ids do not
depend on splits.

Counters: `rows-in`, `rows-kept`, `rows-dropped-` malformed-json, no-text, no-id, undecodable or
lone-surrogate; `files-decoded-as-ENCODING` if it is not UTF-8; `rows-cut` (at the maximum size;
each part is a row), `files-without-blank-line` (long files, if blank lines end documents);
`files-without-text` (of a group); `raw-bytes` (of the text in UTF-8).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipelines.books.layout import join_wrapped_lines
from pipelines.counters import Count
from pipelines.io.encodings import UTF8, decode_utf8, normalise
from pipelines.io.lines import COMPRESSED_SUFFIXES, Line, last_sentence_end, read_lines
from pipelines.io.raw_files import Observer, Observers, expand_paths
from pipelines.io.splits import (
    MIN_SPLIT_BYTES,
    RawText,
    SourceFile,
    Split,
    files_of_group,
    group_by_size,
    split_bytes,
    split_of_group,
)
from pipelines.sources.archives import is_archive
from pipelines.sources.joined_rows import RowStarts, join_rows, lines_as_rows, one_line
from pipelines.sources.text_facts import (
    DocumentStarts,
    Encoding,
    RowKeys,
    SeparatedDocuments,
    describe_texts,
    encoding_fact,
    parse_row,
    plan_ranges,
)
from pipelines.sources.text_rows import TextRow, require_fields
from schemas.corpus_configs import TextSource
from schemas.errors import InputError

_TXT, _JSONL, _PARQUET = (".txt",), (".jsonl", ".ndjson"), (".parquet", ".pq")
_SUFFIXES = (
    *_PARQUET,
    *(name + end for name in (*_TXT, *_JSONL) for end in ("", *COMPRESSED_SUFFIXES)),
)
_SENTENCE_ENDS = tuple(
    (mark + quote).encode() for mark in ".!?…。।" for quote in ("", '"', "'", "”", ")", "」")
)
_LONG_TEXT = 1 << 16
"""Bytes of a file that is too long for one paragraph: about 10,000 words."""


def plan(config: TextSource) -> list[Split]:
    """Return splits of about `target_split_bytes`, and groups of smaller files.

    Raises:
        MissingInputError: A path has no .txt, .jsonl or .parquet file.
        InputError: A file is an archive, has no column `text_column` (or `id_column`,
            `title_column`), or the column has no text.
        CorruptInputError: A Parquet file is truncated or damaged.
    """
    step = config.target_split_bytes or MIN_SPLIT_BYTES
    splits, small = list[Split](), list[SourceFile]()
    files = expand_paths(config.paths, suffixes=_SUFFIXES)
    for uri, name in files:
        if is_archive(name):
            raise InputError(f"{uri}: expected .txt, .jsonl or .parquet, got an archive. Unpack it")
    described = describe_texts(files, lambda name: _observers(name, config, step))
    target = split_bytes(config.target_split_bytes, [file for file, _ in described])
    for file, facts in described:
        if _form(file.name) == "parquet":
            splits.extend(_parquet().plan_parquet(file, config, target_split_bytes=target))
            continue
        if keys := json.loads(facts.get(_KEYS, "[]")):
            require_fields(keys, file, config, what="key")
        if file.size < target:
            small.append(file)
            continue
        starts = json.loads(facts.get(_starts_fact(file.name, config, step), "[]"))
        splits.extend(plan_ranges(config.name, file, starts, step=step, target=target))
    for group in group_by_size(small, target_bytes=target):
        is_one = len(group) == 1
        splits.append(_whole(group[0], config) if is_one else split_of_group(config.name, group))
    return splits


_KEYS = "keys of first rows"


def _observers(name: str, config: TextSource, step: int) -> Observers:
    form = _form(name)
    if form == "parquet":
        return {}
    observers: dict[str, Callable[[], Observer]] = {encoding_fact(): lambda: Encoding(name)}
    if fact := _starts_fact(name, config, step):
        observers[fact] = lambda: _observe_starts(form, config, step)
    if form == "jsonl":
        observers[_KEYS] = lambda: RowKeys(name)
    return observers


def _starts_fact(name: str, config: TextSource, step: int) -> str:
    """Return the name of the fact where documents start; "" if the file is one document."""
    form = _form(name)
    delimiter = config.document_delimiter if form == "txt" else "line"
    if config.joins_rows:
        column = config.text_column if form == "jsonl" else ""
        rows = f"{config.rows_per_document} rows or {config.document_start_pattern!r}"
        return f"documents of {rows} in {column!r} at multiples of {step}"
    return "" if delimiter == "file" else f"documents of {delimiter} at multiples of {step}"


def _observe_starts(form: str, config: TextSource, step: int) -> DocumentStarts:
    if config.joins_rows:
        return RowStarts(step, config, is_json=form == "jsonl")
    is_separated = form == "txt" and config.document_delimiter == "blank-line"
    return SeparatedDocuments(step, needs_blank_line=is_separated)


def read(split: Split, config: TextSource, count: Count) -> Iterator[tuple[str, RawText]]:
    """Yield the texts of one split in order.

    Raises:
        CorruptInputError: A compressed or Parquet file is truncated or damaged.
    """
    grouped = files_of_group(split)
    documents = (
        _documents_of_group(grouped, config, count)
        if grouped
        else ((rows, split.file) for rows in _documents_of(split, config, count))
    )
    for rows, file in documents:
        if (document := _document(rows, file, config, count)) is not None:
            yield document


def _documents_of_group(
    files: Iterable[SourceFile], config: TextSource, count: Count
) -> Iterator[tuple[list[TextRow], SourceFile]]:
    for file in files:
        is_empty = True
        for rows in _documents_of(_whole(file, config), config, count):
            is_empty = False
            yield rows, file
        if is_empty:
            count("files-without-text", where=file.name)


def _documents_of(split: Split, config: TextSource, count: Count) -> Iterator[list[TextRow]]:
    """Yield the rows of each document of a split."""
    rows = _rows_of(split, config, count)
    parts = (part for row in rows for part in _parts(row, config, count))
    if config.joins_rows:
        return join_rows(parts, split.file, config, count)
    return ([part] for part in parts)


def _rows_of(split: Split, config: TextSource, count: Count) -> Iterator[TextRow]:
    file = split.file
    form = _form(file.name)
    if form == "parquet":
        yield from _parquet().parquet_rows(split, config)
        return
    lines = read_lines(
        file,
        start=split.start,
        end=split.end if file.encoding == UTF8 else None,
        longest=config.max_document_bytes if form == "txt" else 0,
        on_encoding=lambda name: count(f"files-decoded-as-{name}", where=file.name),
    )
    if form == "jsonl":
        rows = _json_rows(lines, file, config, count)
    elif config.joins_rows:
        rows = lines_as_rows(lines)
    else:
        rows = _text_rows(lines, split, config, count)
    yield from _as_stored(rows, split)


def _parquet() -> Any:
    from pipelines.sources import parquet_rows  # lazy: loads pyarrow

    return parquet_rows


def _form(name: str) -> str:
    lowered = name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        lowered = lowered.removesuffix(suffix)
    if lowered.endswith(_PARQUET):
        return "parquet"
    return "jsonl" if lowered.endswith(_JSONL) else "txt"


def _parts(row: TextRow, config: TextSource, count: Count) -> Iterator[TextRow]:
    """Yield a row of a table, cut where it is too long. Lines of a file are cut already."""
    text = row.text
    if not isinstance(text, str) or len(text) * 4 <= config.max_document_bytes:
        yield row
        return
    data, at, number = text.encode("utf-8", "surrogatepass"), 0, 1
    while at < len(data):
        left = len(data) - at
        size = left if left <= config.max_document_bytes else config.max_document_bytes
        if size < left:
            window = data[at : at + size]
            line_end = window.rfind(b"\n", size // 2) + 1
            size = line_end or last_sentence_end(window)
            count("rows-cut")
        part = data[at : at + size].decode("utf-8", "surrogatepass")
        yield row._replace(text=part, part=number)
        at, number = at + size, number + 1


def _document(
    rows: list[TextRow], file: SourceFile, config: TextSource, count: Count
) -> tuple[str, RawText] | None:
    """Return the id and the text of the document of some rows, None if all are dropped."""
    documents = [
        document
        for row in rows
        if (document := _document_of_row(row, file, config, count)) is not None
    ]
    if not documents:
        return None
    count("rows-kept", len(documents))
    document_id, first = documents[0]
    if len(documents) == 1:
        return documents[0]
    _, last = documents[-1]
    paragraphs = [paragraph for _, text in documents for paragraph in text.paragraphs]
    return document_id, first._replace(paragraphs=paragraphs, byte_end=last.byte_end)


def _document_of_row(
    row: TextRow, file: SourceFile, config: TextSource, count: Count
) -> tuple[str, RawText] | None:
    count("rows-in")
    where = row.describe_place(file)
    text = row.text
    if isinstance(text, bytes):
        count("raw-bytes", len(text))
        text = decode_utf8(text)
        if text is None:
            count("rows-dropped-undecodable", where=where)
            return None
    paragraphs = _paragraphs(text, config) if isinstance(text, str) else []
    if not paragraphs:
        count("rows-dropped-no-text", where=where)
        return None
    identifier = f"{file.name}:{row.position}" if config.id_column is None else row.identifier
    if identifier is None or identifier == "":
        count("rows-dropped-no-id", where=where)
        return None
    if isinstance(identifier, bytes) or isinstance(row.title, bytes):
        count("rows-dropped-undecodable", where=where)
        return None
    identifier = str(identifier) if row.part == 1 else f"{identifier}#{row.part}"
    title = "" if row.title is None else " ".join(str(row.title).split())
    if any(map(_has_surrogate, (identifier, title, *paragraphs))):
        count("rows-dropped-lone-surrogate", where=where)
        return None
    return f"{config.name}:{identifier}", RawText(
        paragraphs,
        title=title,
        file=file.sha256,
        byte_start=row.byte_start,
        byte_end=row.byte_end,
    )


def _paragraphs(text: str, config: TextSource) -> list[str]:
    if config.joins_rows:
        return [line for line in [one_line(text)] if line]
    return join_wrapped_lines(normalise(text))


def _has_surrogate(text: str) -> bool:
    """Return whether a text has a lone surrogate, which JSON allows and UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _as_stored(rows: Iterator[TextRow], split: Split) -> Iterator[TextRow]:
    for row in rows:
        is_stored = split.file.encoding == UTF8  # otherwise offsets are not those in the file
        yield row if is_stored else row._replace(byte_start=0, byte_end=split.file.size)


def _text_rows(
    lines: Iterable[Line], split: Split, config: TextSource, count: Count
) -> Iterator[TextRow]:
    """Yield the documents of a .txt file, none longer than `max_document_bytes`."""
    document: list[Line] = []
    size, texts, goes_on = 0, 0, False
    for line in lines:
        is_blank = not line.data.strip()
        if config.document_delimiter == "line" or (
            is_blank and config.document_delimiter == "blank-line"
        ):
            if document:
                yield _text_row(document)
            document, size, goes_on = [], 0, False
        if is_blank:
            if document and document[-1].data:  # one blank line separates paragraphs
                document.append(line._replace(data=b""))
                size += 1
            continue
        while document and size + len(line.data) > config.max_document_bytes:
            kept = _whole_sentences(document)
            yield _text_row(document[:kept])
            count("rows-cut", where=_place(split.file, line))
            document, goes_on = document[kept:], True
            if document and not document[0].data:
                del document[0]
            size = sum(len(other.data) + 1 for other in document)
        texts += not document and not goes_on
        document.append(line)
        size += len(line.data) + 1
        if line.is_truncated:
            yield _text_row(document)
            count("rows-cut", where=_place(split.file, line))
            document, size, goes_on = [], 0, True
    if document:
        yield _text_row(document)
    is_all = (split.start, split.end) == (0, split.file.size)
    if config.document_delimiter == "blank-line" and texts == 1 and is_all and size > _LONG_TEXT:
        count("files-without-blank-line", where=split.file.name)


def _place(file: SourceFile, line: Line) -> str:
    return f"{file.name}, byte {line.start:,} of its text"


def _whole_sentences(document: list[Line]) -> int:
    """Return how many lines to take so that the last ends a sentence or paragraph, if one does."""
    for number in range(len(document), len(document) // 2, -1):
        data = document[number - 1].data
        if not data or data.rstrip().endswith(_SENTENCE_ENDS):
            return number
    return len(document)


def _text_row(document: list[Line]) -> TextRow:
    lines = document if document[-1].data else document[:-1]
    start, end = lines[0].start, lines[-1].end
    return TextRow(b"\n".join(line.data for line in lines), None, None, start, start, end)


def _json_rows(
    lines: Iterator[Line], file: SourceFile, config: TextSource, count: Count
) -> Iterator[TextRow]:
    for number, line in enumerate(lines):
        if not line.data.strip():
            continue
        count("raw-bytes", len(line.data))
        row = parse_row(line.data)
        if row is None:
            count("rows-in")
            count("rows-dropped-malformed-json", where=_place(file, line))
            continue
        text = row.get(config.text_column)
        identifier = None if config.id_column is None else row.get(config.id_column)
        title = None if config.title_column is None else row.get(config.title_column)
        start, end = line.start, line.end
        yield TextRow(text, identifier, title, start, start, end, number=number)


def _whole(file: SourceFile, config: TextSource) -> Split:
    """Return a split of a whole file."""
    return Split(config.name, file, 0, file.size)
