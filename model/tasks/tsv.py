"""Tables as text: tab-separated as GLUE has them, and comma-separated.

In a tab-separated file a quotation mark is a character like any other, and only LF ends a line;
readers that think otherwise join rows of GLUE's files. A comma-separated file is quoted as RFC 4180
says, so that a field may hold commas and line breaks.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from model.tasks.raw_tables import RawTable, Record, file_lines, shown
from model.tasks.task import Bad
from schemas.errors import ExamplesError

IsHeader = Callable[[Sequence[str]], bool]

_MOST_FIELD = 1 << 24


def open_text_table(url: str, *, is_header: IsHeader, headerless: Sequence[str] = ()) -> RawTable:
    """The table in a text file, with its columns.

    The first line is the header if `is_header` says so; else it is a row if there is a `headerless`
    layout with as many columns. Otherwise its fields are given as the columns, for the caller to
    refuse. It is comma-separated if there is no tab in its first line and it is a header when cut
    at its commas.

    Args:
        url: plain or compressed.
        is_header: whether these are names of columns.
        headerless: columns of files without a header.

    Raises:
        ExamplesError: there is no line in it, or its first line is not UTF-8.
    """
    first = _first_line(url)
    fields = tuple(first.split("\t"))
    if is_header(fields):
        return RawTable(fields, partial(_tsv_records, url, fields, True))
    if "\t" not in first:
        cells = _cells_of(first)
        if is_header(cells):
            return RawTable(cells, partial(_csv_records, url, cells))
    if headerless and len(fields) == len(headerless):
        columns = tuple(headerless)
        return RawTable(columns, partial(_tsv_records, url, columns, False))
    return RawTable(fields, partial(_tsv_records, url, fields, True))


def _cells_of(line: str) -> tuple[str, ...]:
    csv.field_size_limit(_MOST_FIELD)
    try:
        return tuple(next(csv.reader([line]), []))
    except csv.Error:
        return ()  # no header of such a file


def _first_line(url: str) -> str:
    for number, line in enumerate(file_lines(url), start=1):
        if line.data.strip():
            text = _decoded(line.data)
            if text is None:
                raise ExamplesError(
                    f"{url}: expected UTF-8, found {shown(line.data)} on line {number}. Convert "
                    "the file, e.g. with iconv"
                )
            return text
    raise ExamplesError(f"{url}: expected a table, found no line with text in it. Is it empty?")


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _tsv_records(
    url: str, columns: tuple[str, ...], has_header: bool, wanted: Sequence[str]
) -> Iterator[Record | Bad]:
    taken = [(name, columns.index(name)) for name in wanted]
    number, is_before_header = 0, has_header
    for line_number, line in enumerate(file_lines(url), start=1):
        place = f"line {line_number}"
        if not line.data.strip(b" \r"):
            yield Bad(place, "blank-line", "a blank line", is_fault=False)
            continue
        if is_before_header:
            is_before_header = False
            continue
        text = _decoded(line.data)
        if text is None:
            yield Bad(place, "not-utf-8", shown(line.data))
        else:
            fields = text.split("\t")
            notes: tuple[str, ...] = ()
            if len(fields) > len(columns) and not any(fields[len(columns) :]):
                notes = ("trailing-tabs",)
            elif len(fields) != len(columns):
                yield _miscounted(place, fields, columns)
                number += 1
                continue
            yield Record(place, number, {name: fields[at] for name, at in taken}, notes)
        number += 1


def _miscounted(place: str, fields: Sequence[str], columns: Sequence[str]) -> Bad:
    few_or_many = "few" if len(fields) < len(columns) else "many"
    found = f"{len(fields)} columns, expected {len(columns)}: {shown(chr(9).join(fields))}"
    return Bad(place, f"too-{few_or_many}-columns", found)


def _csv_records(
    url: str, columns: tuple[str, ...], wanted: Sequence[str]
) -> Iterator[Record | Bad]:
    taken = [(name, columns.index(name)) for name in wanted]
    csv.field_size_limit(_MOST_FIELD)
    lines = _CsvLines(url)
    reader = csv.reader(lines, strict=True)
    number, start, is_before_header = 0, 1, True
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if lines.is_at_end:
                raise ExamplesError(
                    f"{url}: line {start}: a quotation mark that is never closed ({error}); all "
                    "lines after it would be one field. Close it, or write it twice"
                ) from error
            found = f"lines {start} to {reader.line_num}: {error}"
            yield Bad(f"line {start}", "malformed-csv", found)
            number, start = number + 1, reader.line_num + 1
            continue
        if fields is None:
            return
        place, start = f"line {start}", reader.line_num + 1
        if not any(cell.strip() for cell in fields):
            yield Bad(place, "blank-line", "a blank line", is_fault=False)
        elif is_before_header:
            is_before_header = False
        else:
            yield _csv_record(place, number, fields, columns, taken)
            number += 1


class _CsvLines:
    """The lines of a file for csv.reader; what is not UTF-8 becomes surrogates, for its row."""

    def __init__(self, url: str) -> None:
        self._lines = file_lines(url)
        self.is_at_end = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.is_at_end = True
            raise StopIteration
        return line.data.decode(errors="surrogateescape") + "\n"


def _csv_record(
    place: str,
    number: int,
    fields: Sequence[str],
    columns: Sequence[str],
    taken: Sequence[tuple[str, int]],
) -> Record | Bad:
    if len(fields) != len(columns):
        return _miscounted(place, fields, columns)
    values = {name: fields[at] for name, at in taken}
    if any("\udc80" <= sign <= "\udcff" for text in values.values() for sign in text):
        return Bad(place, "not-utf-8", shown(repr(fields)))
    return Record(place, number, values)
