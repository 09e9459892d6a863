"""Your own text: .txt, .jsonl and .parquet files.

* .txt: a blank line ends a document, each line within is a paragraph;
* .jsonl (also .ndjson) and .parquet: a row is a document, each line of its text a paragraph.

Around .txt and .jsonl there may be .gz, .bz2 or .zst; such a file is one split. Plain files are cut
between documents, Parquet between row groups. Without an `id_column` a document's id is the file's
name and its place: the offset of its first byte in the (decompressed) text, or the row's number in
a Parquet file. So ids do not depend on how the input is cut.

Counters: `rows-in`, `rows-kept`, `rows-dropped-` malformed-json, no-text, no-id or undecodable;
`rows-decoded-as-ENCODING` where it is not UTF-8; `raw-bytes`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from pipelines.books_cleaning import normalise
from pipelines.counters import Count
from pipelines.encodings import decode_text
from pipelines.inputs import describe_file, expand_paths
from pipelines.lines import COMPRESSED_SUFFIXES, Line, is_compressed, read_lines
from pipelines.sources.text_rows import TextRow, require_fields
from pipelines.splits import RawDocument, SourceFile, Split
from schemas.configs import TextSource

_TXT, _JSONL, _PARQUET = (".txt",), (".jsonl", ".ndjson"), (".parquet", ".pq")
_SUFFIXES = (
    *_PARQUET,
    *(name + end for name in (*_TXT, *_JSONL) for end in ("", *COMPRESSED_SUFFIXES)),
)
_PROBED_ROWS = 100


def plan(config: TextSource) -> list[Split]:
    """Pieces of about `split_bytes`, cut between documents.

    Raises:
        MissingInputError: there is no .txt, .jsonl or .parquet file at a path.
        InputError: a file has no column `text_column` (or `id_column`, `title_column`), or it
            holds no text.
        CorruptInputError: a Parquet file is cut off or damaged.
    """
    splits: list[Split] = []
    for uri, name in expand_paths(config.paths, suffixes=_SUFFIXES):
        file = describe_file(uri, name=name)
        if _form(file.name) == "parquet":
            splits.extend(_parquet().plan_parquet(file, config))
            continue
        if _form(file.name) == "jsonl":
            _check_keys(file, config)
        splits.extend(_plan_lines(file, config))
    return splits


def read(split: Split, config: TextSource, count: Count) -> Iterator[RawDocument]:
    """The documents of one split, in order.

    Raises:
        CorruptInputError: a compressed or Parquet file is cut off or damaged.
    """
    form = _form(split.file.name)
    if form == "parquet":
        rows = _parquet().parquet_rows(split, config)
    else:
        end = None if split.detail else split.end
        lines = read_lines(split.file, start=split.start, end=end)
        found = _json_rows(lines, config, count) if form == "jsonl" else _text_rows(lines)
        rows = _stored_places(found, split)
    for row in rows:
        document = _document(row, split.file, config, count)
        if document is not None:
            count("rows-kept")
            yield document


def _parquet() -> Any:
    # Only where there is such a file: reading Parquet takes a tenth of a second to import.
    from pipelines.sources import parquet_rows

    return parquet_rows


def _form(name: str) -> str:
    lowered = name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        lowered = lowered.removesuffix(suffix)
    if lowered.endswith(_PARQUET):
        return "parquet"
    return "jsonl" if lowered.endswith(_JSONL) else "txt"


def _document(
    row: TextRow, file: SourceFile, config: TextSource, count: Count
) -> RawDocument | None:
    count("rows-in")
    text = row.text
    if isinstance(text, bytes):
        count("raw-bytes", len(text))
        decoded = decode_text(text)
        if decoded is None:
            count("rows-dropped-undecodable")
            return None
        if decoded.encoding != "utf-8":
            count(f"rows-decoded-as-{decoded.encoding}")
        text = decoded.text
    lines = normalise(text).split("\n") if isinstance(text, str) else []
    paragraphs = [" ".join(line.split()) for line in lines if line.strip()]
    if not paragraphs:
        count("rows-dropped-no-text")
        return None
    identifier = f"{file.name}:{row.place}" if config.id_column is None else row.identifier
    if identifier is None or identifier == "":
        count("rows-dropped-no-id")
        return None
    title = "" if row.title is None else " ".join(str(row.title).split())
    return RawDocument(
        f"{config.name}:{identifier}", title, paragraphs, row.byte_start, row.byte_end
    )


def _stored_places(rows: Iterator[TextRow], split: Split) -> Iterator[TextRow]:
    for row in rows:
        # In a compressed file nothing smaller than the file itself has a place as stored.
        yield row._replace(byte_start=0, byte_end=split.file.size) if split.detail else row


def _text_rows(lines: Iterator[Line]) -> Iterator[TextRow]:
    document: list[bytes] = []
    start = end = 0
    for line in lines:
        if line.data.strip():
            if not document:
                start = line.start
            document.append(line.data)
            end = line.end
        elif document:
            yield TextRow(b"\n".join(document), None, None, start, start, end)
            document = []
    if document:
        yield TextRow(b"\n".join(document), None, None, start, start, end)


def _json_rows(lines: Iterator[Line], config: TextSource, count: Count) -> Iterator[TextRow]:
    for line in lines:
        if not line.data.strip():
            continue
        count("raw-bytes", len(line.data))
        row = _parsed(line.data)
        if row is None:
            count("rows-in")
            count("rows-dropped-malformed-json")
            continue
        text = row.get(config.text_column)
        identifier = None if config.id_column is None else row.get(config.id_column)
        title = None if config.title_column is None else row.get(config.title_column)
        yield TextRow(text, identifier, title, line.start, line.start, line.end)


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _check_keys(file: SourceFile, config: TextSource) -> None:
    """Refuse a file none of whose first rows has the keys."""
    keys: dict[str, None] = {}
    rows = 0
    with contextlib.closing(read_lines(file)) as lines:
        for line in lines:
            row = _parsed(line.data) if line.data.strip() else None
            if row is not None:
                keys.update(dict.fromkeys(row))
                rows += 1
            if rows == _PROBED_ROWS:
                break
    if rows:
        require_fields(list(keys), file, config, what="key")


def _plan_lines(file: SourceFile, config: TextSource) -> Iterator[Split]:
    if file.size == 0:
        return
    if is_compressed(file):
        yield Split(config.name, file, 0, file.size, json.dumps({"compressed": True}))
        return
    start = 0
    while start < file.size:
        end = _next_document(file, start + config.split_bytes)
        yield Split(config.name, file, start, end)
        start = end


def _next_document(file: SourceFile, offset: int) -> int:
    """Where the first document begins whose beginning lies at or behind `offset`."""
    if offset >= file.size:
        return file.size
    needs_blank = _form(file.name) == "txt"
    ended = not needs_blank
    with contextlib.closing(read_lines(file, start=offset)) as lines:
        # What stands from `offset` to the next line end may be the rest of a line.
        first = next(lines, None)
        for line in lines if first is not None else ():
            if not line.data.strip():
                ended = True
            elif ended:
                return line.start
    return file.size
