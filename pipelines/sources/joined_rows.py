"""Documents of several rows, such as BookCorpus: one sentence per row and no marks between books.

A document starts at each row whose number is a multiple of `rows_per_document`, and at each row
whose text matches `document_start_pattern`. Rows are numbered in their file, rows without text too.
Documents do not depend on splits or workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.counters import Count
from pipelines.io.encodings import decode_utf8, normalise
from pipelines.io.lines import Line
from pipelines.io.splits import SourceFile
from pipelines.sources.text_facts import MAX_LINE, DocumentStarts, parse_row
from pipelines.sources.text_rows import TextRow
from schemas.corpus_configs import TextSource


class RowStarts(DocumentStarts):
    """Starts of documents of several rows at which the file can be split.

    With `rows_per_document` these are its multiples only, from which a reader can count.
    """

    def __init__(self, step: int, config: TextSource, *, is_json: bool) -> None:
        super().__init__(step)
        self._config, self._is_json = config, is_json
        self._number = -1  # of the line

    def begins_document(self, line: bytes) -> bool:
        """Return whether a file can be split before a line."""
        self._number += 1
        if self._config.rows_per_document is not None:
            return self._number % self._config.rows_per_document == 0
        if self._line_start < self.goal() or len(line) >= MAX_LINE:
            return False
        row = parse_row(line) if self._is_json else {self._config.text_column: line}
        return row is not None and _matches(row.get(self._config.text_column), self._config)


def join_rows(
    rows: Iterable[TextRow], file: SourceFile, config: TextSource, count: Count
) -> Iterator[list[TextRow]]:
    """Yield the rows of each document, of at most `max_document_bytes`."""
    document, size, last_number = list[TextRow](), 0, 0
    for row in rows:
        row_size = _size(row.text) + 1
        is_start = _is_start(row, config, last_number=last_number)
        last_number = row.number
        if document and (is_start or size + row_size > config.max_document_bytes):
            if not is_start:
                count("rows-cut", where=row.describe_place(file))
            yield document
            document, size = [], 0
        document.append(row)
        size += row_size
    if document:
        yield document


def lines_as_rows(lines: Iterable[Line]) -> Iterator[TextRow]:
    """Yield each line as a row. The parts of a line that is too long have one row number."""
    number, part = 0, 1
    for line in lines:
        start, end = line.start, line.end
        yield TextRow(line.data, None, None, start, start, end, number=number, part=part)
        number, part = (number, part + 1) if line.is_truncated else (number + 1, 1)


def one_line(text: str) -> str:
    """Return a text as one paragraph."""
    return " ".join(normalise(text).split())


def _is_start(row: TextRow, config: TextSource, *, last_number: int) -> bool:
    if row.part > 1:
        return False
    length = config.rows_per_document
    # The multiple itself can be a row that is no JSON.
    is_past_multiple = length is not None and row.number // length > last_number // length
    return is_past_multiple or _matches(row.text, config)


def _matches(text: Any, config: TextSource) -> bool:
    if config.document_start_pattern is None:
        return False
    if isinstance(text, bytes):
        text = decode_utf8(text)
    return isinstance(text, str) and bool(re.search(config.document_start_pattern, one_line(text)))


def _size(text: Any) -> int:
    """Return the size of a row's text in bytes, 0 if it is no text."""
    if isinstance(text, str):
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) if isinstance(text, bytes) else 0
