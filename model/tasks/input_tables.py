"""Tables of a task: TSV, CSV, JSON and Parquet files, read by the fields of the task.

The content of a file determines its format, its name does not. A recipe names columns by their
names in the header or by their numbers from 0, for example `columns: {text: review, label: 3}`;
otherwise the columns are those of `FileLayout`.

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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from model.tasks.files import file_lines, is_text, read_json, shown
from model.tasks.task import BadRow, FileLayout, Row, Task, is_answered
from pipelines.io.raw_files import open_file
from schemas.errors import ConfigError, CorruptInputError, TaskDataError
from schemas.field_names import field_name

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Fields = Mapping[str, tuple[str, ...]]
"""Columns of a file by field. `text` (the texts of an example) and `pair` have several."""

_ANSWERS = frozenset({"label", "score", "tags", "answers"})
_REQUIRED = frozenset({"text", "text_a", "text_b", "words", "pair"})
_TEXTS = ("text", "text_a", "text_b")
_TITLES = frozenset({*_TEXTS, "label", "score", "id", "sentence", "sentence1", "sentence2"})
_SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";", "spaces": " "}
_SPACES = re.compile("[ \t]+")

_PARQUET_MARK = b"PAR1"
_BATCH_ROWS = 4096
_PROBED_ROWS = 1000
_JSON_START = re.compile(rb'\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_JSON_LAYOUTS = "an object per line, an array of objects, or an object of objects"
_MAX_SHOWN, _MAX_SHOWN_FIELD = 12, 24
csv.field_size_limit(1 << 24)


class Table(NamedTuple):
    """File with the columns of a task's fields."""

    columns: tuple[str, ...]
    """Names of the columns; numbers from 0 in a text file whose columns a recipe names."""

    read: Callable[[Sequence[str]], Iterator[Row | BadRow]]
    """Function from the required columns to the rows in order, with values by column."""

    label_names: Mapping[str, tuple[str, ...]] = {}
    """Names of the integers in a column, by column, if the file has them."""

    fields: Mapping[str, tuple[str, ...]] = {}
    """Columns of the task's fields, without the fields that the file lacks."""

    def column(self, field: str) -> str:
        """Return the first column of a field; "" if the file has none."""
        return next(iter(self.fields.get(field, ())), "")

    def names_of(self, field: str, layout: FileLayout) -> tuple[str, ...]:
        """Return the names of the labels that a field holds as numbers: the recipe's or the
        file's."""
        return layout.label_names or self.label_names.get(self.column(field), ())

    def rows(self) -> Iterator[Row | BadRow]:
        """Read the rows in order. Their values are by field: a list for `text` and `pair`, one
        value for any other field, None where a row lacks it (JSON)."""
        columns = dict.fromkeys(name for names in self.fields.values() for name in names)
        for row in self.read(list(columns)):
            if isinstance(row, Row):
                values = {
                    field: list(map(row.values.get, names))
                    if field in ("text", "pair")
                    else row.values.get(names[0])
                    for field, names in self.fields.items()
                }
                row = row._replace(values=values)
            yield row


def open_table(task: Task, split: str, url: str) -> Table:
    """Open a Parquet, JSON, tab-separated or comma-separated file of a task.

    Args:
        task: Task of the file.
        split: Split of the file.
        url: Path or URL. Text can be compressed.

    Raises:
        TaskDataError: A required column is missing, or the file has no table.
        CorruptInputError: The file is truncated or damaged.
    """
    layout = task.layout
    is_auto = not layout.named_columns or layout.file_format.delimiter == "auto"
    if is_parquet(url) or (is_auto and is_json(url)):
        return open_rows(task, split, url)
    if not layout.named_columns:
        return _find_fields(_open_official_text(url, layout), task, split, url)
    line = first_line(url, layout.file_format.comment_prefix)
    text_format = TextFormat.of(layout, line)
    cells = text_format.split(line)
    if not cells:
        raise TaskDataError(
            f"{url}: a quotation mark of its first line is not closed: {shown(line)}. Close "
            f"it, or set {field_name('file_format.quoted')} to false"
        )
    _check_header(url, cells, layout)
    table = _open_text(url, text_format, [str(number) for number in range(len(cells))])
    numbers = named_columns(layout, cells, has_header=layout.has_header, url=url, split=split)
    return table._replace(fields=_by_field(numbers, table.columns))


def open_rows(task: Task, split: str, url: str) -> Table:
    """Open a Parquet or JSON file of a task.

    Raises:
        TaskDataError: A required column is missing, or the file has no table.
        CorruptInputError: The file is truncated or damaged.
    """
    table = _open_parquet(url) if is_parquet(url) else _open_json(url)
    if not task.layout.named_columns:
        return _find_fields(table, task, split, url)
    numbers = named_columns(task.layout, table.columns, has_header=True, url=url, split=split)
    return table._replace(fields=_by_field(numbers, table.columns))


# Columns


def _find_fields(table: Table, task: Task, split: str, url: str) -> Table:
    """Find the columns of a task's layout: for each field the first alternative that exists."""
    columns, present = task.layout.columns, set(table.columns)
    fields = {
        field: next(filter(present.issuperset, choices), ()) for field, choices in columns.items()
    }
    required = [field for field in columns if _is_required(field, split)]
    missing = [field for field in required if not fields[field]]
    if not missing:
        return table._replace(fields={field: names for field, names in fields.items() if names})
    expected = ", and ".join(
        " or ".join(" and ".join(names) for names in columns[field]) for field in required
    )
    absent = [name for field in missing for name in columns[field][0] if name not in present]
    raise TaskDataError(
        f"{url}: expected the columns of {task.name} {split} ({expected}), found "
        f"{', '.join(map(shown, table.columns)) or 'none'}; missing {', '.join(absent)}. It is the "
        "file of another task or split, or lacks its header. "
        f"{task.layout.hint or _column_advice()}"
    )


def _column_advice() -> str:
    return f"Name columns with other names by {field_name('columns')}"


def _is_required(field: str, split: str) -> bool:
    return field in _REQUIRED or (field in _ANSWERS and is_answered(split))


def named_columns(
    layout: FileLayout, cells: Sequence[str], *, has_header: bool, url: str, split: str
) -> dict[str, int]:
    """Return the numbers of the columns that a recipe names, without missing optional ones.

    Args:
        layout: Layout with the recipe's columns.
        cells: Cells of the first line.
        has_header: Whether these are the names of the columns.
        url: File, for messages.
        split: Split of the file.

    Raises:
        TaskDataError: A required column is missing, or its name occurs twice.
    """
    numbers = {}
    for field, column in layout.named_columns.items():
        if isinstance(column, int):
            found = [column] if column < len(cells) else []
            expected = f"{url}: expected a column {column} ({field}), counted from 0"
        else:
            found = [at for at, cell in enumerate(cells) if has_header and cell == column]
            expected = f"{url}: expected a column {column!r} ({field}) in its first line"
        if len(found) > 1:
            raise TaskDataError(
                f"{expected}, found {len(found)} of them: give the number of one, counted from 0"
            )
        if found:
            numbers[field] = found[0]
        elif _is_required(field, split):
            raise TaskDataError(
                f"{expected}, found {describe_cells(cells)}. Correct "
                f"{field_name(f'columns.{field}')}; a file without a header has numbers only"
            )
    return numbers


def _by_field(numbers: Mapping[str, int], columns: Sequence[str]) -> Fields:
    fields: dict[str, tuple[str, ...]] = {}
    for name, number in numbers.items():
        field = "text" if name in _TEXTS else name
        fields[field] = (*fields.get(field, ()), columns[number])
    return fields


def describe_cells(cells: Sequence[str]) -> str:
    """Format the cells of a line with numbers: `3 columns: 0 'Oslo', 1 'NNP', 2 'B-LOC'`."""
    size = _MAX_SHOWN_FIELD
    short = [cell if len(cell) <= size else f"{cell[:size]}..." for cell in cells]
    listed = ", ".join(f"{number} {cell!r}" for number, cell in enumerate(short[:_MAX_SHOWN]))
    more = f" and {len(cells) - _MAX_SHOWN} more" if len(cells) > _MAX_SHOWN else ""
    return f"{len(cells)} column{'s' if len(cells) != 1 else ''}: {listed}{more}"


def _check_header(url: str, cells: Sequence[str], layout: FileLayout) -> None:
    """Refuse a line that looks like a header if the recipe does not say whether it is one."""
    if layout.file_format.header is not None or layout.has_names:
        return
    titles = [
        cells[number]
        for number in layout.named_columns.values()
        if isinstance(number, int) and number < len(cells) and cells[number].lower() in _TITLES
    ]
    if titles:
        raise TaskDataError(
            f"{url}: its first line has {shown(', '.join(titles))}, which look like names of "
            f"columns: set {field_name('file_format.header')} to true if they are, or to false"
        )


# Text


class TextFormat(NamedTuple):
    """Format of a text file."""

    separator: str
    """One character, or " " for any number of spaces and tabs."""

    has_header: bool = True
    is_quoted: bool = False
    """True if fields can be quoted as in RFC 4180. Otherwise a quotation mark is text (GLUE)."""

    comment_prefix: str = ""

    @classmethod
    def of(cls, layout: FileLayout, line: str) -> TextFormat:
        """Return the format that a recipe sets, completed from the first line of a file.

        Raises:
            ConfigError: Quotation marks are set for a file with spaces.
        """
        form = layout.file_format
        found = "\t" if "\t" in line else ","
        separator = _SEPARATORS.get(form.delimiter, found)
        is_quoted = separator in ",;" if form.quoted is None else form.quoted
        if is_quoted and separator == " ":
            raise ConfigError(
                f"{field_name('file_format.quoted')}: expected false for columns that spaces "
                "separate, got true. Remove it"
            )
        return cls(separator, layout.has_header, is_quoted, form.comment_prefix)

    def split(self, line: str) -> list[str]:
        """Return the cells of a line; [] if its quotation marks do not match."""
        if self.is_quoted:
            try:
                return next(csv.reader([line], delimiter=self.separator, strict=True), [])
            except csv.Error:
                return []
        if self.separator == " ":
            return _SPACES.split(line.strip(" \t"))
        return line.split(self.separator)


def first_line(url: str, comment_prefix: str = "") -> str:
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


def _open_official_text(url: str, layout: FileLayout) -> Table:
    """Open a file with a header, or with the columns of official files that have none.

    If neither fits, the cells of the first line become the columns, and the caller refuses them.
    """

    def is_header(cells: Sequence[str]) -> bool:
        return any(set(names).issubset(cells) for names in layout.columns.get("text", ()))

    line = first_line(url)
    tabs, commas = TextFormat("\t"), TextFormat(",", is_quoted=True)
    cells = tabs.split(line)
    if "\t" not in line and not is_header(cells) and is_header(commas.split(line)):
        return _open_text(url, commas, commas.split(line))
    if len(cells) == len(layout.headerless) and not is_header(cells):
        return _open_text(url, tabs._replace(has_header=False), layout.headerless)
    return _open_text(url, tabs, cells)


def _open_text(url: str, text_format: TextFormat, columns: Sequence[str]) -> Table:
    return Table(tuple(columns), partial(_text_rows, url, text_format, columns))


def _text_rows(
    url: str, text_format: TextFormat, columns: Sequence[str], wanted: Sequence[str]
) -> Iterator[Row | BadRow]:
    indexes = {name: columns.index(name) for name in wanted}  # the first of equal names
    comment, is_quoted = text_format.comment_prefix, text_format.is_quoted
    number, is_before_header = 0, text_format.has_header
    # Bytes that are not UTF-8 become surrogates.
    lines = (line.data.decode(errors="surrogateescape") for line in file_lines(url))
    rows = _csv_rows(url, text_format, lines) if is_quoted else (
        (at, text_format.split(line)) for at, line in enumerate(lines, start=1)
    )  # fmt: skip
    for line_number, cells in rows:
        position = f"line {line_number}"
        if isinstance(cells, list):
            if comment and cells and cells[0].startswith(comment):
                yield BadRow(position, "comment", shown(cells[0]), is_fault=False)
                continue
            # A line of tabs is a row of empty fields.
            if not any(map(str.strip, cells)) and (is_quoted or len(cells) == 1):
                yield BadRow(position, "blank-line", "a blank line", is_fault=False)
                continue
            if is_before_header:
                is_before_header = False
                continue
        yield _text_row(
            position, number, cells, indexes=indexes, size=len(columns), drops_tabs=not is_quoted
        )
        number += 1


def _text_row(
    position: str,
    number: int,
    cells: list[str] | str,
    *,
    indexes: Mapping[str, int],
    size: int,
    drops_tabs: bool,
) -> Row | BadRow:
    """Return a row with its values by column. Cells that are a string are a CSV error."""
    if isinstance(cells, str):
        return BadRow(position, "malformed-csv", cells)
    notes: tuple[str, ...] = ()
    if len(cells) > size and drops_tabs and not any(cells[size:]):
        cells, notes = cells[:size], ("trailing-tabs",)
    if len(cells) != size:
        found = f"{len(cells)} columns, expected {size}: {shown(chr(9).join(cells))}"
        return BadRow(position, f"too-{'few' if len(cells) < size else 'many'}-columns", found)
    values = {name: cells[index] for name, index in indexes.items()}
    if not all(map(is_text, values.values())):
        return BadRow(position, "not-utf-8", shown(repr(cells)))
    return Row(position, values, notes, number)


def _csv_rows(
    url: str, text_format: TextFormat, decoded: Iterable[str]
) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the first line and the cells of each row, or the message of a CSV error."""
    lines = (f"{line}\n" for line in decoded)
    reader = csv.reader(lines, delimiter=text_format.separator, strict=True)
    start = 1
    while True:
        try:
            cells: list[str] | str | None = next(reader, None)
        except csv.Error as error:
            if inspect.getgeneratorstate(lines) == inspect.GEN_CLOSED:
                raise TaskDataError(
                    f"{url}: line {start}: a quotation mark is never closed ({error}), so all "
                    "lines after it would be one field. Close it, or write it twice"
                ) from error
            cells = f"lines {start} to {reader.line_num}: {error}"
        if cells is None:
            return
        yield start, cells
        start = reader.line_num + 1


# Parquet


def is_parquet(url: str) -> bool:
    """Return whether a file is Parquet, by its first bytes."""
    with open_file(url) as stream:
        return stream.read(len(_PARQUET_MARK)) == _PARQUET_MARK


def _open_parquet(url: str) -> Table:
    """Open a Parquet file. `datasets` stores the names of labels in its schema."""
    with _parquet_file(url) as file:
        schema = file.schema_arrow
    return Table(tuple(schema.names), partial(_parquet_rows, url), _hub_label_names(schema))


@contextlib.contextmanager
def _parquet_file(url: str) -> Iterator[pq.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_file(url) as stream:
        try:
            yield pq.ParquetFile(stream)
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
            message = f"{url}: Parquet file cannot be read: {error}. Expected a whole file: "
            raise CorruptInputError(message + "download it again", file=url, offset=0) from error


def _parquet_rows(url: str, wanted: Sequence[str]) -> Iterator[Row]:
    number = 0
    with _parquet_file(url) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(wanted)):
            for cells in batch.to_pylist():
                yield Row(f"row {number}", cells, number=number)
                number += 1


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


def _open_json(url: str) -> Table:
    """Open a JSON file. Its columns are the keys of its first 1,000 objects."""
    read: Callable[[], Iterator[Row | BadRow]]
    read = partial(_json_lines, url) if is_json_lines(url) else partial(_listed, _json_items(url))
    probed = itertools.islice(read(), _PROBED_ROWS)
    keys = dict.fromkeys(key for row in probed if isinstance(row, Row) for key in row.values)
    return Table(tuple(keys), lambda _wanted: read())


def _first_data(url: str) -> bytes:
    return next((line.data for line in file_lines(url) if line.data.strip()), b"")


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _json_lines(url: str) -> Iterator[Row | BadRow]:
    number = 0
    for line_number, line in enumerate(file_lines(url), start=1):
        position, values = f"line {line_number}", _parsed(line.data)
        if not line.data.strip():
            yield BadRow(position, "blank-line", "a blank line", is_fault=False)
            continue
        if isinstance(values, dict):
            yield Row(position, values, number=number)
        else:
            yield BadRow(position, "malformed-json", shown(line.data.decode(errors="replace")))
        number += 1


def _json_items(url: str) -> list[Any]:
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


def _listed(items: Sequence[Any]) -> Iterator[Row | BadRow]:
    for number, values in enumerate(items):
        position = f"row {number}"
        if isinstance(values, dict):
            yield Row(position, values, number=number)
        else:
            yield BadRow(position, "not-an-object", shown(values))
