"""Input tables: TSV, CSV, JSON and Parquet files as records with their positions.

The content of a file determines its format, its name does not. pyarrow reads Parquet. Text needs an
own reader, because errors name lines and GLUE's lines end at LF only: pyarrow's CSV reader does not
count blank lines, ends a line at a lone CR and fails on the whole file for one byte that is not
UTF-8; its JSON reader fails on the whole file for one malformed line.
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

from model.tasks.files import file_lines, is_text, read_json, shown
from model.tasks.task import Bad
from pipelines.io.raw_files import open_file
from schemas.errors import CorruptInputError, TaskDataError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_PARQUET_MARK = b"PAR1"
_BATCH_ROWS = 4096
_PROBED_RECORDS = 1000
_JSON_START = re.compile(rb'\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_JSON_LAYOUTS = "an object per line, an array of objects, or an object of objects"
_SPACES = re.compile("[ \t]+")
csv.field_size_limit(1 << 24)


class Record(NamedTuple):
    """Row of a file, not yet an example."""

    position: str
    """Position for messages: `line 17`, `row 3`."""

    number: int
    """Number of rows before it, without blank lines and the header."""

    values: Mapping[str, Any]
    """Values by column, without the columns that the row lacks (JSON)."""

    notes: tuple[str, ...] = ()


class Table(NamedTuple):
    """File with known columns."""

    columns: tuple[str, ...]
    records: Callable[[Sequence[str]], Iterator[Record | Bad]]
    """Function from the required columns to the rows in order."""

    label_names: Mapping[str, tuple[str, ...]] = {}
    """Names of the integers in a column, by column, if the file has them."""


class TextFormat(NamedTuple):
    """Format of a text file."""

    separator: str
    """One character, or " " for any number of spaces and tabs."""

    has_header: bool = True
    is_quoted: bool = False
    """True if fields can be quoted as in RFC 4180. Otherwise a quotation mark is text (GLUE)."""

    comment_prefix: str = ""

    def split(self, line: str) -> tuple[str, ...]:
        """Return the fields of a line; () if its quotation marks do not match."""
        if self.is_quoted:
            try:
                return tuple(next(csv.reader([line], delimiter=self.separator, strict=True), []))
            except csv.Error:
                return ()
        if self.separator == " ":
            return tuple(_SPACES.split(line.strip(" \t")))
        return tuple(line.split(self.separator))


def open_table(
    url: str, *, is_header: Callable[[Sequence[str]], bool], headerless: Sequence[str] = ()
) -> Table:
    """Open a Parquet, JSON, tab-separated or comma-separated file.

    Args:
        url: Path or URL. Text can be compressed.
        is_header: Whether the first line of a text file has the column names. If it has not, and
            `headerless` does not fit, its fields become the columns, and the caller refuses them.
        headerless: Columns of a tab-separated file without header.

    Raises:
        TaskDataError: The file has no table.
        CorruptInputError: The file is truncated or damaged.
    """
    if is_parquet(url):
        return open_parquet(url)
    if is_json(url):
        return open_json(url)
    line = first_line(url)
    tabs, commas = TextFormat("\t"), TextFormat(",", is_quoted=True)
    columns = tabs.split(line)
    if is_header(columns):
        return open_text(url, tabs, columns)
    if "\t" not in line and is_header(commas.split(line)):
        return open_text(url, commas, commas.split(line))
    if headerless and len(columns) == len(headerless):
        return open_text(url, tabs._replace(has_header=False), headerless)
    return open_text(url, tabs, columns)


# Text


def open_text(url: str, form: TextFormat, columns: Sequence[str]) -> Table:
    """Open a text file of a known format."""
    return Table(tuple(columns), partial(_text_records, url, form, tuple(columns)))


def first_line(url: str, *, comment_prefix: str = "") -> str:
    """Return the first line that is not blank and not a comment.

    Raises:
        TaskDataError: No such line exists, or it is not UTF-8.
    """
    comment = comment_prefix.encode()
    for number, line in enumerate(file_lines(url), start=1):
        if line.data.strip() and not (comment and line.data.startswith(comment)):
            try:
                return line.data.decode()
            except UnicodeDecodeError:
                raise TaskDataError(
                    f"{url}: line {number}: expected UTF-8, found {shown(line.data)}. Convert the "
                    "file, e.g. with iconv"
                ) from None
    raise TaskDataError(f"{url}: expected a table, found no line with text. Is the file empty?")


def _text_records(
    url: str, form: TextFormat, columns: tuple[str, ...], wanted: Sequence[str]
) -> Iterator[Record | Bad]:
    indexes = {name: columns.index(name) for name in wanted}  # the first of equal names
    numbers, is_before_header = itertools.count(), form.has_header
    for line, fields in _csv_rows(url, form) if form.is_quoted else _plain_rows(url, form):
        position = f"line {line}"
        notes: tuple[str, ...] = ()
        if isinstance(fields, str):
            next(numbers)
            yield Bad(position, "malformed-csv", fields)
        elif form.comment_prefix and fields and fields[0].startswith(form.comment_prefix):
            yield Bad(position, "comment", shown(fields[0]), is_fault=False)
        elif _is_blank(fields, form):
            yield Bad(position, "blank-line", "a blank line", is_fault=False)
        elif is_before_header:
            is_before_header = False
        else:
            extra = fields[len(columns) :]
            if extra and not form.is_quoted and not any(extra):
                fields, notes = fields[: len(columns)], ("trailing-tabs",)
            yield _text_record(position, next(numbers), fields, indexes, len(columns), notes)


def _text_record(
    position: str,
    number: int,
    fields: Sequence[str],
    indexes: Mapping[str, int],
    size: int,
    notes: tuple[str, ...],
) -> Record | Bad:
    if len(fields) != size:
        few_or_many = "few" if len(fields) < size else "many"
        found = f"{len(fields)} columns, expected {size}: {shown(chr(9).join(fields))}"
        return Bad(position, f"too-{few_or_many}-columns", found)
    values = {name: fields[index] for name, index in indexes.items()}
    if not all(map(is_text, values.values())):
        return Bad(position, "not-utf-8", shown(repr(fields)))
    return Record(position, number, values, notes)


def _is_blank(fields: Sequence[str], form: TextFormat) -> bool:
    # A line of tabs is a row of empty fields.
    return not any(map(str.strip, fields)) and (form.is_quoted or len(fields) == 1)


def _decoded_lines(url: str) -> Iterator[str]:
    """Yield the lines of a file; bytes that are not UTF-8 become surrogates."""
    return (line.data.decode(errors="surrogateescape") for line in file_lines(url))


def _plain_rows(url: str, form: TextFormat) -> Iterator[tuple[int, Sequence[str]]]:
    return enumerate(map(form.split, _decoded_lines(url)), start=1)


def _csv_rows(url: str, form: TextFormat) -> Iterator[tuple[int, Sequence[str] | str]]:
    """Yield the first line and the fields of each row, or the message of a CSV error."""
    lines = (f"{line}\n" for line in _decoded_lines(url))
    reader = csv.reader(lines, delimiter=form.separator, strict=True)
    start = 1
    while True:
        try:
            fields: list[str] | str | None = next(reader, None)
        except csv.Error as error:
            if inspect.getgeneratorstate(lines) == inspect.GEN_CLOSED:
                raise TaskDataError(
                    f"{url}: line {start}: a quotation mark is never closed ({error}), so all "
                    "lines after it would be one field. Close it, or write it twice"
                ) from error
            fields = f"lines {start} to {reader.line_num}: {error}"
        if fields is None:
            return
        yield start, fields
        start = reader.line_num + 1


# Parquet


def is_parquet(url: str) -> bool:
    """Return whether a file is Parquet, by its first bytes."""
    with open_file(url) as stream:
        return stream.read(len(_PARQUET_MARK)) == _PARQUET_MARK


def open_parquet(url: str) -> Table:
    """Open a Parquet file. `datasets` stores the names of labels in its schema.

    Raises:
        CorruptInputError: The file is truncated or damaged.
    """
    with open_file(url) as stream:
        schema = _parquet_file(stream, url).schema_arrow
    return Table(tuple(schema.names), partial(_parquet_records, url), _hub_label_names(schema))


def _parquet_file(stream: Any, url: str) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(url, error) from error


def _damaged(url: str, error: Exception) -> CorruptInputError:
    message = (
        f"{url}: Parquet file cannot be read: {error}. Expected a whole file: download it again"
    )
    return CorruptInputError(message, file=url, offset=0)


def _parquet_records(url: str, wanted: Sequence[str]) -> Iterator[Record]:
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
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        labels = {column: _class_label(feature) for column, feature in features.items()}
        return {
            column: tuple(str(name) for name in label["names"])
            for column, label in labels.items()
            if label is not None
        }
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return {}  # metadata of another program, or none


def _class_label(feature: Any) -> dict[str, Any] | None:
    """Return the ClassLabel of a column or of its lists."""
    if not isinstance(feature, dict):
        return None
    return feature if feature.get("_type") == "ClassLabel" else _class_label(feature.get("feature"))


# JSON


def is_json(url: str) -> bool:
    """Return whether the first line starts like a JSON object or array and has no tab."""
    first = _first_data(url)
    return b"\t" not in first.strip() and _JSON_START.match(first) is not None


def is_json_lines(url: str) -> bool:
    """Return whether the first line is a JSON object that does not hold the rows itself."""
    first = _parsed(_first_data(url))
    if not isinstance(first, dict) or isinstance(first.get("data"), list):
        return False
    return not all(isinstance(item, dict) for item in first.values())


def open_json(url: str) -> Table:
    """Open a JSON file. Its columns are the keys of its first 1,000 objects.

    Raises:
        TaskDataError: The file is not JSON, or has another layout.
    """
    if is_json_lines(url):
        items: Iterator[Record | Bad] = _json_lines(url)
        read = partial(_json_lines, url)
    else:
        rows = _json_rows(url)
        items, read = _listed(rows), partial(_listed, rows)
    probed = itertools.islice(items, _PROBED_RECORDS)
    keys = dict.fromkeys(key for item in probed if isinstance(item, Record) for key in item.values)
    return Table(tuple(keys), lambda _wanted: read())


def _first_data(url: str) -> bytes:
    return next((line.data for line in file_lines(url) if line.data.strip()), b"")


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
        f"{url}: expected {_JSON_LAYOUTS}, found {shown(value)}. Is it empty, or the file of "
        "another data set?"
    )


def _listed(rows: Sequence[Any]) -> Iterator[Record | Bad]:
    for number, row in enumerate(rows):
        if isinstance(row, dict):
            yield Record(f"row {number}", number, row)
        else:
            yield Bad(f"row {number}", "not-an-object", shown(row))
