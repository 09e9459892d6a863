"""A task's file as a table of records, whatever its format, which its bytes tell, not its name.

Text: tab-separated as GLUE has it, where a quotation mark is a character like any other and only LF
ends a line (readers that think otherwise join rows of GLUE's files); or comma-separated and quoted
as RFC 4180 says, so that a field may hold commas and line breaks.

Parquet: as the Hugging Face hub lays it out. JSON: one object a line, an array of objects, an
object of objects by id, or an object whose `data` is an array of objects.
"""

from __future__ import annotations

import csv
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from model.tasks.files import file_lines, read_json, shown
from model.tasks.task import Bad
from pipelines.io.raw_files import open_file
from schemas.errors import CorruptInputError, TaskDataError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_PARQUET_MARK = b"PAR1"
_HUB_KEY = b"huggingface"
_BATCH_ROWS = 4096
_PROBED_RECORDS = 1000
_JSON_START = re.compile(rb'\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_JSON_LAYOUTS = "an object a line, an array of objects, or an object of objects"
_SPACES = re.compile("[ \t]+")
_MOST_FIELD = 1 << 24


class Record(NamedTuple):
    """A row of a file, not yet an example."""

    position: str
    """Position for messages: `line 17`, `row 3`."""

    number: int
    """Rows of the file before it, blank lines and the header not counted."""

    values: Mapping[str, Any]
    """Values by column, without columns that the row lacks (JSON)."""

    notes: tuple[str, ...] = ()


class RawTable(NamedTuple):
    """A file whose columns are known and whose records can be read."""

    columns: tuple[str, ...]
    records: Callable[[Sequence[str]], Iterator[Record | Bad]]
    """Given the columns that are wanted, the rows in order, with at least those."""

    label_names: Mapping[str, tuple[str, ...]] = {}
    """Names of what columns hold as integers, by column, where the file has them."""


class TextForm(NamedTuple):
    """Format of a text file's lines."""

    separator: str
    """One character, or " " for any number of spaces and tabs."""

    has_header: bool = True
    quotes: bool = False
    comments: str = ""
    """Prefix of comment lines; "" for none."""

    def cut(self, line: str) -> tuple[str, ...]:
        """The fields of a line; () where its quotation marks do not match."""
        if self.quotes:
            return _csv_cells(line, self.separator, strict=True)
        if self.separator == " ":
            return tuple(_SPACES.split(line.strip(" \t")))
        return tuple(line.split(self.separator))


IsHeader = Callable[[Sequence[str]], bool]
"""Return whether the fields are column names."""


def open_table(url: str, *, is_header: IsHeader, headerless: Sequence[str] = ()) -> RawTable:
    """The table in a file: Parquet, JSON or text, told by how it begins.

    Args:
        url: plain or, but for Parquet, compressed.
        is_header: whether a text file's first line is its header.
        headerless: columns of text files without a header.

    Raises:
        TaskDataError: there is no table in it.
        CorruptInputError: it is cut off or damaged.
    """
    if is_parquet(url):
        return open_parquet(url)
    if is_json(url):
        return open_json(url)
    return open_text_table(url, is_header=is_header, headerless=headerless)


# Text


def open_text_table(url: str, *, is_header: IsHeader, headerless: Sequence[str] = ()) -> RawTable:
    """The table in a text file, with its columns.

    The first line is the header if `is_header` says so; else it is a row if there is a `headerless`
    layout with as many columns. Otherwise its fields are given as the columns, for the caller to
    refuse. It is comma-separated if there is no tab in its first line and it is a header when cut
    at its commas.

    Raises:
        TaskDataError: there is no line in it, or its first line is not UTF-8.
    """
    first = first_line(url)
    fields = tuple(first.split("\t"))
    has_header, columns = True, fields
    if not is_header(fields):
        if "\t" not in first and is_header(cells := _csv_cells(first)):
            return RawTable(cells, partial(_csv_records, url, cells, TextForm(",", quotes=True)))
        if headerless and len(fields) == len(headerless):
            has_header, columns = False, tuple(headerless)
    form = TextForm("\t", has_header=has_header)
    return RawTable(columns, partial(_tsv_records, url, columns, form))


def open_formed_table(url: str, form: TextForm) -> tuple[RawTable, tuple[str, ...]]:
    """The table in a text file of a form that is known, and the fields of its first line.

    Its columns are called by their numbers.

    Raises:
        TaskDataError: there is no line in it, or its first line is not UTF-8 or not of the form.
    """
    line = first_line(url, comments=form.comments)
    fields = form.cut(line)
    if not fields:
        raise TaskDataError(
            f"{url}: a quotation mark of its first line is not closed: {shown(line)}. Close it, or "
            "say table.quotes: false"
        )
    columns = tuple(str(number) for number in range(len(fields)))
    records = _csv_records if form.quotes else _tsv_records
    return RawTable(columns, partial(records, url, columns, form)), fields


def _csv_cells(line: str, separator: str = ",", *, strict: bool = False) -> tuple[str, ...]:
    csv.field_size_limit(_MOST_FIELD)
    try:
        return tuple(next(csv.reader([line], delimiter=separator, strict=strict), []))
    except csv.Error:
        return ()  # no header of such a file


def first_line(url: str, *, comments: str = "") -> str:
    """Return the first line that is neither blank nor a comment.

    Raises:
        TaskDataError: No such line exists, or it is not UTF-8.
    """
    for number, line in enumerate(file_lines(url), start=1):
        if line.data.strip() and not _is_comment(line.data, comments):
            try:
                return line.data.decode()
            except UnicodeDecodeError:
                raise TaskDataError(
                    f"{url}: expected UTF-8, found {shown(line.data)} on line {number}. Convert "
                    "the file, e.g. with iconv"
                ) from None
    raise TaskDataError(f"{url}: expected a table, found no line with text in it. Is it empty?")


def _is_comment(data: bytes, comments: str) -> bool:
    return bool(comments) and data.startswith(comments.encode())


def _tsv_records(
    url: str, columns: tuple[str, ...], form: TextForm, wanted: Sequence[str]
) -> Iterator[Record | Bad]:
    numbers, is_before_header = itertools.count(), form.has_header
    for line_number, line in enumerate(file_lines(url), start=1):
        position = f"line {line_number}"
        if _is_comment(line.data, form.comments):
            yield Bad(position, "comment", shown(line.data), is_fault=False)
        elif not line.data.strip(b" \r"):
            yield Bad(position, "blank-line", "a blank line", is_fault=False)
        elif is_before_header:
            is_before_header = False
        else:
            number = next(numbers)
            try:
                fields = list(form.cut(line.data.decode()))
            except UnicodeDecodeError:
                yield Bad(position, "not-utf-8", shown(line.data))
                continue
            notes: tuple[str, ...] = ()
            if len(fields) > len(columns) and not any(fields[len(columns) :]):
                fields, notes = fields[: len(columns)], ("trailing-tabs",)
            yield _text_record(position, number, fields, columns, wanted, notes=notes)


def _text_record(
    position: str,
    number: int,
    fields: Sequence[str],
    columns: Sequence[str],
    wanted: Sequence[str],
    *,
    notes: tuple[str, ...] = (),
) -> Record | Bad:
    if len(fields) != len(columns):
        few_or_many = "few" if len(fields) < len(columns) else "many"
        found = f"{len(fields)} columns, expected {len(columns)}: {shown(chr(9).join(fields))}"
        return Bad(position, f"too-{few_or_many}-columns", found)
    # A repeated name means its first column.
    values = {name: fields[columns.index(name)] for name in wanted}
    return Record(position, number, values, notes)


def _csv_records(
    url: str, columns: tuple[str, ...], form: TextForm, wanted: Sequence[str]
) -> Iterator[Record | Bad]:
    csv.field_size_limit(_MOST_FIELD)
    # What is not UTF-8 becomes surrogates, for its row to be refused.
    lines = (line.data.decode(errors="surrogateescape") + "\n" for line in file_lines(url))
    reader = csv.reader(lines, delimiter=form.separator, strict=True)
    numbers, start, is_before_header = itertools.count(), 1, form.has_header
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if inspect.getgeneratorstate(lines) == inspect.GEN_CLOSED:
                raise TaskDataError(
                    f"{url}: line {start}: a quotation mark that is never closed ({error}); all "
                    "lines after it would be one field. Close it, or write it twice"
                ) from error
            found = f"lines {start} to {reader.line_num}: {error}"
            yield Bad(f"line {start}", "malformed-csv", found)
            next(numbers)
            start = reader.line_num + 1
            continue
        if fields is None:
            return
        position, start = f"line {start}", reader.line_num + 1
        if form.comments and fields and fields[0].startswith(form.comments):
            yield Bad(position, "comment", shown(fields[0]), is_fault=False)
        elif not any(cell.strip() for cell in fields):
            yield Bad(position, "blank-line", "a blank line", is_fault=False)
        elif is_before_header:
            is_before_header = False
        else:
            record = _text_record(position, next(numbers), fields, columns, wanted)
            if isinstance(record, Record) and any(map(_has_bad_bytes, record.values.values())):
                record = Bad(position, "not-utf-8", shown(repr(fields)))
            yield record


def _has_bad_bytes(text: str) -> bool:
    return any("\udc80" <= sign <= "\udcff" for sign in text)


# Parquet


def is_parquet(url: str) -> bool:
    """Return whether a file is Parquet, by its first bytes."""
    with open_file(url) as stream:
        return stream.read(len(_PARQUET_MARK)) == _PARQUET_MARK


def open_parquet(url: str) -> RawTable:
    """The table in a Parquet file; the names of its labels where the hub wrote them into it.

    Raises:
        CorruptInputError: it is cut off or damaged.
    """
    with open_file(url) as stream:
        schema = _parquet_file(stream, url).schema_arrow
    return RawTable(tuple(schema.names), partial(_parquet_records, url), _hub_label_names(schema))


def _parquet_file(stream: Any, url: str) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(url, error) from error


def _damaged(url: str, error: Exception) -> CorruptInputError:
    return CorruptInputError(
        f"{url}: begins as a Parquet file, but cannot be read: {error}. Expected a whole file: "
        "download it again",
        file=url,
        offset=0,
    )


def _parquet_records(url: str, wanted: Sequence[str]) -> Iterator[Record | Bad]:
    import pyarrow as pa

    with open_file(url) as stream:
        file = _parquet_file(stream, url)
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=list(wanted))
        numbers = itertools.count()
        while True:
            try:
                batch = next(batches, None)
                rows = [] if batch is None else batch.to_pylist()
            except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
                raise _damaged(url, error) from error
            if batch is None:
                return
            for values, number in zip(rows, numbers, strict=False):
                yield Record(f"row {number}", number, values)


def _hub_label_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    # `datasets` writes the features of its tables into the schema's metadata as JSON.
    try:
        features = json.loads((schema.metadata or {})[_HUB_KEY])["info"]["features"]
        labels = {column: _class_label(feature) for column, feature in features.items()}
        return {
            column: tuple(str(name) for name in label["names"])
            for column, label in labels.items()
            if label is not None
        }
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return {}  # another program's metadata, or none: the task's own order of labels counts


def _class_label(feature: Any) -> dict[str, Any] | None:
    """Return the ClassLabel that a column holds, or that its lists hold."""
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel":
        return feature
    return _class_label(feature.get("feature"))


# JSON


def is_json(url: str) -> bool:
    """Return whether the first line starts like a JSON object and has no tab."""
    first = next((line.data for line in file_lines(url) if line.data.strip()), b"")
    return b"\t" not in first.strip() and _JSON_START.match(first) is not None


def is_json_lines(url: str) -> bool:
    """Return whether the first line is a JSON object, and not one that holds the rows."""
    first = _parsed(next((line.data for line in file_lines(url) if line.data.strip()), b""))
    return isinstance(first, dict) and not _holds_records(first)


def open_json(url: str) -> RawTable:
    """The table in a JSON file. Its columns are the keys of its first thousand objects.

    Raises:
        TaskDataError: it is not JSON, or not in one of the layouts.
    """
    if is_json_lines(url):
        probed = itertools.islice(_json_lines(url), _PROBED_RECORDS)
        keys = [item.values for item in probed if isinstance(item, Record)]
        return RawTable(_keys(keys), lambda _wanted: _json_lines(url))
    rows = _json_rows(url)
    keys = [row for row in rows[:_PROBED_RECORDS] if isinstance(row, dict)]
    return RawTable(_keys(keys), lambda _wanted: _listed(rows))


def _keys(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for row in rows for key in row))


def _holds_records(value: dict[str, Any]) -> bool:
    is_list = isinstance(value.get("data"), list)
    return is_list or all(isinstance(item, dict) for item in value.values())


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _json_lines(url: str) -> Iterator[Record | Bad]:
    numbers = itertools.count()
    for line_number, line in enumerate(file_lines(url), start=1):
        position = f"line {line_number}"
        if not line.data.strip():
            yield Bad(position, "blank-line", "a blank line", is_fault=False)
            continue
        number, row = next(numbers), _parsed(line.data)
        if isinstance(row, dict):
            yield Record(position, number, row)
        else:
            yield Bad(position, "malformed-json", shown(line.data.decode(errors="replace")))


def _json_rows(url: str) -> list[Any]:
    value = read_json(url, error=TaskDataError, expected=_JSON_LAYOUTS)
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    if isinstance(value, dict) and value and all(isinstance(row, dict) for row in value.values()):
        return [{"id": key, **row} for key, row in value.items()]
    if isinstance(value, list) and value:
        return value
    raise TaskDataError(
        f"{url}: expected {_JSON_LAYOUTS}, found {shown(value)}. Is it empty, or another data "
        "set's?"
    )


def _listed(rows: Sequence[Any]) -> Iterator[Record | Bad]:
    for number, row in enumerate(rows):
        if isinstance(row, dict):
            yield Record(f"row {number}", number, row)
        else:
            yield Bad(f"row {number}", "not-an-object", shown(row))
