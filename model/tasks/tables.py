"""Tables of a task: TSV, CSV, JSON and Parquet files, read by the fields of the task.

Columns have the names of `FileLayout.columns`, or those that a recipe gives them instead:
`columns: {sentence: review, label: stars}`.

pyarrow reads Parquet. Text needs an own reader, because errors name lines and GLUE's lines end at
LF only: pyarrow's CSV reader does not count blank lines, ends a line at a lone CR and fails on the
whole file for one byte that is not UTF-8; its JSON reader fails on the whole file for one malformed
line.
"""

from __future__ import annotations

import contextlib
import csv
import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from model.tasks.files import DataFile, is_text, shown
from model.tasks.task import (
    BadRow,
    FileLayout,
    InvalidRowError,
    Row,
    Task,
    is_answered,
)
from schemas.errors import CorruptInputError, TaskDataError
from schemas.field_names import field_name

if TYPE_CHECKING:
    import pyarrow as pa

_ANSWERS = frozenset({"label", "score", "tags", "answers"})
_REQUIRED = frozenset({"text", "begin", "words", "pair"})
_LISTS = frozenset({"text", "pair"})
_SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";"}
_BATCH_ROWS = 4096
_PROBED_ROWS = 1000
_JSON_LAYOUTS = "an object per line, an array of objects, or an object of objects by id"
csv.field_size_limit(1 << 24)


class _Columns(NamedTuple):
    """Columns of a file, and a function that reads some of them."""

    names: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[Row | BadRow]]
    """Function from the required columns to the rows in order, with values by column."""

    label_names: Mapping[str, tuple[str, ...]] = {}
    """Names of the integers in a column, by column, if the file has them."""


class Table(NamedTuple):
    """Rows of a file by the fields of a task."""

    rows: Iterator[Row | BadRow]
    """Rows in order. Their values are by field: a list for `text` and `pair`, one value for any
    other field, None where a row lacks it (JSON)."""

    fields: Mapping[str, tuple[str, ...]]
    """Columns of the fields, without the fields that the file lacks."""

    label_names: Mapping[str, tuple[str, ...]]
    """Names that the file has for integers, by column."""

    def column(self, field: str) -> str:
        """Return the first column of a field; "" if the file has none."""
        return next(iter(self.fields.get(field, ())), "")

    def names_of(self, field: str, layout: FileLayout) -> tuple[str, ...]:
        """Return the names of the labels that a field holds as numbers: the recipe's or the
        file's."""
        return layout.label_names or self.label_names.get(self.column(field), ())


def read_table(data: DataFile, task: Task, split: str) -> Table:
    """Find the columns of a task in a file, and return its rows.

    Raises:
        TaskDataError: A required column is missing, or the file has no table.
        CorruptInputError: The file is truncated or damaged.
    """
    if data.format == "parquet":
        columns = _parquet_columns(data)
    elif data.format == "text":
        columns = _text_columns(data, task.layout)
    else:
        columns = _json_columns(data)
    fields = find_fields(columns.names, task, split, data.url)
    return Table(_rows_by_field(columns, fields), fields, columns.label_names)


def _rows_by_field(
    columns: _Columns, fields: Mapping[str, tuple[str, ...]]
) -> Iterator[Row | BadRow]:
    required = dict.fromkeys(name for names in fields.values() for name in names)
    for row in columns.read(list(required)):
        if isinstance(row, Row):
            values = {
                field: list(map(row.values.get, names))
                if field in _LISTS
                else row.values.get(names[0])
                for field, names in fields.items()
            }
            row = Row(row.position, values, row.notes, row.number)
        yield row


# Columns


def find_fields(
    columns: Sequence[str], task: Task, split: str, url: str
) -> dict[str, tuple[str, ...]]:
    """Return the columns of each field of a task, without those of fields that a file lacks.

    A field has the columns that the recipe names, or the first alternative of the layout that the
    file has.

    Raises:
        TaskDataError: A required column is missing, or two have its name.
    """
    named = task.layout.named_columns

    def locate(name: str) -> str:
        column = named.get(name, name)
        if isinstance(column, str):
            return column
        return columns[column] if column < len(columns) else f"column {column}"

    fields, missing = dict[str, tuple[str, ...]](), list[list[tuple[str, ...]]]()
    for field, choices in task.layout.columns.items():
        by_recipe = [names for names in choices if any(name in named for name in names)]
        located = [tuple(map(locate, names)) for names in by_recipe or choices]
        present = [names for names in located if set(names) <= set(columns)]
        if present:
            fields[field] = present[0]
        elif field in _REQUIRED or (field in _ANSWERS and is_answered(split)):
            missing.append(located)
    if missing:
        absent = [name for choices in missing for name in choices[0] if name not in columns]
        either = (" or ".join(" and ".join(names) for names in choices) for choices in missing)
        wrong = [name for name in named if locate(name) not in columns]
        advice = f"Name columns with other names by {field_name('columns')}"
        if wrong:
            advice = f"Correct {field_name(f'columns.{wrong[0]}')}"
        raise TaskDataError(
            f"{url}: expected the columns of {task.name} {split}: {', and '.join(either)}; got "
            f"{', '.join(map(shown, columns)) or 'none'}; missing {', '.join(absent)}. It is the "
            f"file of another task or split, or lacks its header. {task.layout.hint or advice}"
        )
    if repeated := [n for names in fields.values() for n in names if columns.count(n) > 1]:
        raise TaskDataError(
            f"{url}: expected one column {repeated[0]!r}, got {columns.count(repeated[0])}. Rename "
            "the others"
        )
    return fields


def number_columns(cells: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns of a file without a header: their numbers from 0."""
    return tuple(map(str, range(len(cells))))


# Text


def _text_columns(data: DataFile, layout: FileLayout) -> _Columns:
    """Return the columns of a file with a header, or of one that has none."""
    line = data.first_line
    detected = "comma" if b"," in line and b"\t" not in line else "tab"
    form = layout.file_format
    separator = _SEPARATORS[detected if form.delimiter == "auto" else form.delimiter]
    is_quoted = separator != "\t" if form.quoted is None else form.quoted
    # Bytes that are not UTF-8 become surrogates.
    lines = (line.decode(errors="surrogateescape") for line in data.lines())
    rows: Iterator[tuple[int, list[str] | str]]
    if is_quoted:
        rows = _read_quoted(lines, separator, data.url)
    else:
        rows = ((at, line.split(separator)) for at, line in enumerate(lines, start=1))
    head = list[tuple[int, list[str] | str]]()
    for row in rows:
        head.append(row)
        if not _is_blank(row[1], is_quoted):
            break
    else:
        raise TaskDataError(f"{data.url}: expected a table, got no line with text. Is it empty?")
    first = head[-1][1]
    if isinstance(first, str):
        raise TaskDataError(
            f"{data.url}: expected the first line of a table, got {shown(first)}. Close its "
            f"quotation mark, or set {field_name('file_format.quoted')} to false"
        )
    if layout.has_header(first):
        head.pop()
        names = tuple(first)
    else:
        is_official = bool(layout.headerless) and not layout.named_columns
        names = layout.headerless if is_official else number_columns(first)
    return _Columns(names, partial(_text_rows, itertools.chain(head, rows), names, is_quoted))


def _is_blank(cells: list[str] | str, is_quoted: bool) -> bool:
    """Return whether a row is a blank line; a line of tabs is a row of empty fields."""
    return not any(map(str.strip, cells)) and (is_quoted or len(cells) == 1)


def _read_quoted(
    decoded: Iterable[str], separator: str, url: str
) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the first line and the cells of each row, or the message of a CSV error."""
    lines = (f"{line}\n" for line in decoded)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    start = 1
    while True:
        try:
            cells: list[str] | str | None = next(reader, None)
        except csv.Error as error:
            if inspect.getgeneratorstate(lines) == inspect.GEN_CLOSED:
                raise TaskDataError(
                    f"{url}: line {start}: a quotation mark is never closed ({error}), so all "
                    "lines after it would be one field. Close it, write it twice, or set "
                    f"{field_name('file_format.quoted')} to false"
                ) from error
            cells = f"lines {start} to {reader.line_num}: {error}"
        if cells is None:
            return
        yield start, cells
        start = reader.line_num + 1


def _text_rows(
    rows: Iterator[tuple[int, list[str] | str]],
    names: Sequence[str],
    is_quoted: bool,
    required: Sequence[str],
) -> Iterator[Row | BadRow]:
    indexes = {name: names.index(name) for name in required}
    number = 0
    for line, cells in rows:
        position = f"line {line}"
        if _is_blank(cells, is_quoted):
            yield BadRow(position, "blank-line", "a blank line", is_fault=False)
            continue
        try:
            values, notes = _pick_cells(cells, indexes, size=len(names), drops_tabs=not is_quoted)
            yield Row(position, values, notes, number)
        except InvalidRowError as error:
            yield BadRow(position, error.reason, error.detail)
        number += 1


def _pick_cells(
    cells: list[str] | str, indexes: Mapping[str, int], *, size: int, drops_tabs: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return cells by column, and notes. Cells that are a string are a CSV error."""
    if isinstance(cells, str):
        raise InvalidRowError("malformed-csv", cells)
    notes: tuple[str, ...] = ()
    if len(cells) > size and drops_tabs and not any(cells[size:]):
        cells, notes = cells[:size], ("trailing-tabs",)
    if len(cells) != size:
        detail = f"{len(cells)} columns, expected {size}: {shown(chr(9).join(cells))}"
        raise InvalidRowError(f"too-{'few' if len(cells) < size else 'many'}-columns", detail)
    values = {name: cells[index] for name, index in indexes.items()}
    if not all(map(is_text, values.values())):
        raise InvalidRowError("not-utf-8", shown(repr(cells)))
    return values, notes


# Parquet


def _parquet_columns(data: DataFile) -> _Columns:
    """Return the columns of a Parquet file. `datasets` stores names of labels in its schema."""
    import pyarrow.parquet as pq

    with _parquet_errors(data.url):
        file = pq.ParquetFile(data.stream)

    def read(required: Sequence[str]) -> Iterator[Row]:
        with _parquet_errors(data.url):
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=list(required))
            rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
            for number, cells in enumerate(rows):
                yield Row(f"row {number}", cells, number=number)

    schema = file.schema_arrow
    return _Columns(tuple(schema.names), read, _hub_label_names(schema))


@contextlib.contextmanager
def _parquet_errors(url: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise CorruptInputError(
            f"{url}: Parquet file cannot be read: {error}. Expected a whole file: download it "
            "again",
            file=url,
            offset=0,
        ) from error


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


def _json_columns(data: DataFile) -> _Columns:
    """Return the columns of a JSON file: the keys of its first 1,000 objects."""
    rows = _json_lines(data) if data.format == "json-lines" else _json_items(data)
    probed = list(itertools.islice(rows, _PROBED_ROWS))
    keys = dict.fromkeys(key for row in probed if isinstance(row, Row) for key in row.values)
    return _Columns(tuple(keys), lambda _required: itertools.chain(probed, rows))


def _json_lines(data: DataFile) -> Iterator[Row | BadRow]:
    number = 0
    for line_number, line in enumerate(data.lines(), start=1):
        position, values = f"line {line_number}", None
        if not line.strip():
            yield BadRow(position, "blank-line", "a blank line", is_fault=False)
            continue
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line)
        if isinstance(values, dict):
            yield Row(position, values, number=number)
        else:
            yield BadRow(position, "malformed-json", shown(line.decode(errors="replace")))
        number += 1


def _json_items(data: DataFile) -> Iterator[Row | BadRow]:
    value = data.read_json(TaskDataError, expected=_JSON_LAYOUTS)
    if isinstance(value, dict) and all(isinstance(row, dict) for row in value.values()):
        value = [{"id": key, **row} for key, row in value.items()]
    if not isinstance(value, list) or not value:
        raise TaskDataError(
            f"{data.url}: expected {_JSON_LAYOUTS}, got {shown(value)}. Is it empty, or the file "
            "of another data set?"
        )
    for number, values in enumerate(value):
        position = f"row {number}"
        if isinstance(values, dict):
            yield Row(position, values, number=number)
        else:
            yield BadRow(position, "not-an-object", shown(values))
