"""Columns of a task's files: the official ones, or those that a recipe names.

A recipe names columns by their names in the header or by their numbers from 0, for example
`columns: {text: review, label: 3}`. Tables of texts have `text` (pairs `text_a` and `text_b`),
`label` or `score`, and `id`; files of tagged words have `words` and `tags`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from model.tasks.entities import OUTSIDE, is_tag
from model.tasks.files import shown
from model.tasks.input_tables import (
    Record,
    Table,
    TextFormat,
    first_line,
    is_json,
    is_parquet,
    open_json,
    open_parquet,
    open_table,
    open_text,
)
from model.tasks.task import Bad, ColumnNames, FileLayout, Task, is_answered
from schemas.errors import ConfigError, TaskDataError
from schemas.finetune_configs import Column, FileFormatConfig

SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";", "spaces": " "}

_ANSWERS = frozenset({"label", "score", "tags", "answers"})
_REQUIRED = frozenset({"text", "text_a", "text_b", "words"})
_TEXTS = ("text", "text_a", "text_b")
_TITLES = frozenset({*_TEXTS, "label", "score", "id", "sentence", "sentence1", "sentence2"})
_MAX_SHOWN, _MAX_SHOWN_FIELD = 12, 24


class TaskTable(NamedTuple):
    """Table of a task's file with the columns of its fields."""

    table: Table
    columns: Mapping[str, tuple[str, ...]]
    """Columns of the file by field, without the fields that it lacks."""

    def column(self, *fields: str) -> str | None:
        """Return the column of the first of the fields that the file has."""
        return next((self.columns[field][0] for field in fields if field in self.columns), None)

    def records(self) -> Iterator[Record | Bad]:
        """Read the rows with the columns of all fields."""
        names = (name for columns in self.columns.values() for name in columns)
        return self.table.records(list(dict.fromkeys(names)))

    def label_names(self, task: Task, column: str | None) -> tuple[str, ...]:
        """Return the names of labels that a column holds as numbers: the recipe's or the file's."""
        if column is None:
            return ()
        return task.layout.label_names or self.table.label_names.get(column, ())


def open_task_table(task: Task, split: str, url: str) -> TaskTable:
    """Open a file with the columns of a task, or those that the recipe names.

    Raises:
        TaskDataError: A required column is missing, or the file has no table.
        CorruptInputError: The file is truncated or damaged.
    """
    layout = task.layout
    if layout.named_columns:
        return _open_named(task, split, url)
    texts = layout.columns.get("text", ())
    table = open_table(
        url,
        is_header=lambda columns: any(set(names).issubset(columns) for names in texts),
        headerless=layout.headerless,
    )
    return find_columns(table, task, split, url)


def find_columns(
    table: Table, task: Task, split: str, url: str, columns: ColumnNames | None = None
) -> TaskTable:
    """Find the columns of a task's fields in a table.

    Raises:
        TaskDataError: A required column is missing.
    """
    columns = columns or task.layout.columns
    present = set(table.columns)
    found = {
        field: names
        for field, choices in columns.items()
        if (names := next((names for names in choices if present.issuperset(names)), ()))
    }
    missing = [field for field in columns if field not in found and _is_required(field, split)]
    if not missing:
        return TaskTable(table, found)
    expected = ", and ".join(
        " or ".join(" and ".join(names) for names in choices)
        for field, choices in columns.items()
        if _is_required(field, split)
    )
    absent = [name for field in missing for name in columns[field][0] if name not in present]
    raise TaskDataError(
        f"{url}: expected the columns of {task.name} {split} ({expected}), found "
        f"{', '.join(map(shown, table.columns)) or 'none'}; missing {', '.join(absent)}. It is the "
        "file of another task or split, or lacks its header. "
        f"{task.layout.hint or 'Name columns with other names or numbers: columns'}"
    )


def _is_required(field: str, split: str) -> bool:
    return field in _REQUIRED or (field in _ANSWERS and is_answered(split))


def _open_named(task: Task, split: str, url: str) -> TaskTable:
    layout = task.layout
    if is_parquet(url) or (layout.file_format.delimiter == "auto" and is_json(url)):
        table = open_parquet(url) if is_parquet(url) else open_json(url)
        fields, header = table.columns, True
    else:
        form = _text_format(url, layout)
        fields, header = form.split(line := first_line_of(url, layout)), form.has_header
        if not fields:
            raise TaskDataError(
                f"{url}: a quotation mark of its first line is not closed: {shown(line)}. Close "
                "it, or set table.quotes: false"
            )
        _check_header(url, fields, layout)
        table = open_text(url, form, [str(number) for number in range(len(fields))])
    found: dict[str, tuple[str, ...]] = {}
    for name, column in layout.named_columns.items():
        at = find_column(column, fields, has_header=header, url=url, name=name, split=split)
        if at is not None:
            field = "text" if name in _TEXTS else name
            found[field] = (*found.get(field, ()), table.columns[at])
    return TaskTable(table, found)


def first_line_of(url: str, layout: FileLayout) -> str:
    """Return the first line of a file that is not a comment."""
    return first_line(url, comment_prefix=layout.file_format.comment_prefix)


def find_column(
    column: Column, fields: Sequence[str], *, has_header: bool, url: str, name: str, split: str
) -> int | None:
    """Return the number of a column, from 0; None if an optional column is missing.

    Args:
        column: Column in the recipe.
        fields: Fields of the first line.
        has_header: Whether these are the names of the columns.
        url: File, for messages.
        name: Field of the column.
        split: Split of the file.

    Raises:
        TaskDataError: A required column is missing, or its name occurs twice.
    """
    if isinstance(column, int):
        if column < len(fields):
            return column
        expected = f"expected a column {column} ({name}), counted from 0"
    else:
        count = list(fields).count(column) if has_header else 0
        if count == 1:
            return list(fields).index(column)
        expected = f"expected a column {column!r} ({name}) in its first line"
        if count > 1:
            raise TaskDataError(
                f"{url}: {expected}, found {count} of them: give the number of one, counted from 0"
            )
    if not _is_required(name, split):
        return None
    raise TaskDataError(
        f"{url}: {expected}, found {describe(fields)}. Correct columns; a file without a header "
        "has numbers only"
    )


def describe(fields: Sequence[str]) -> str:
    """Format the fields of a line with numbers: `3 columns: 0 'Oslo', 1 'NNP', 2 'B-LOC'`."""
    size = _MAX_SHOWN_FIELD
    short = [field if len(field) <= size else f"{field[:size]}..." for field in fields]
    listed = ", ".join(f"{number} {field!r}" for number, field in enumerate(short[:_MAX_SHOWN]))
    more = f" and {len(fields) - _MAX_SHOWN} more" if len(fields) > _MAX_SHOWN else ""
    return f"{len(fields)} column{'s' if len(fields) != 1 else ''}: {listed}{more}"


def has_header(layout: FileLayout) -> bool:
    """Return whether the first line of a text file has the column names."""
    if layout.file_format.header is not None:
        return layout.file_format.header
    return any(isinstance(column, str) for column in layout.named_columns.values())


def _text_format(url: str, layout: FileLayout) -> TextFormat:
    form = layout.file_format
    if form.delimiter == "auto":
        separator = "\t" if "\t" in first_line_of(url, layout) else ","
    else:
        separator = SEPARATORS[form.delimiter]
    is_quoted = separator in ",;" if form.quoted is None else form.quoted
    if is_quoted and separator == " ":
        raise ConfigError("table: quotes require tabs, commas or semicolons, got spaces")
    return TextFormat(separator, has_header(layout), is_quoted, form.comment_prefix)


def _check_header(url: str, fields: Sequence[str], layout: FileLayout) -> None:
    """Refuse a line that looks like a header if the recipe does not say whether it is one."""
    if layout.file_format.header is not None or has_header(layout):
        return
    numbers = [column for column in layout.named_columns.values() if isinstance(column, int)]
    titles = [fields[at] for at in numbers if at < len(fields) and fields[at].lower() in _TITLES]
    if titles:
        raise TaskDataError(
            f"{url}: its first line has {shown(', '.join(titles))}, which look like names of "
            "columns: say whether they are, by table.header: true or false"
        )


# Recipes


def with_columns(task: Task, columns: Mapping[str, Column], file_format: FileFormatConfig) -> Task:
    """Return the task with the columns that a recipe names.

    Raises:
        ConfigError: The task does not have these columns, or requires more.
    """
    if not columns:
        return task
    possible = _nameable_fields(task)
    if not possible:
        raise ConfigError(
            f"columns: the files of {task.name} ({task.type}) have no columns to be named, only "
            "those of tasks that label or score texts, or tag words"
        )
    unknown = sorted(set(columns) - set(possible))
    missing = [name for name in possible if name not in columns and name != "id"]
    if unknown or missing:
        found = f"no {' and no '.join(missing)}" if missing else " and ".join(unknown)
        raise ConfigError(
            f"columns: expected {', '.join(possible)} of {task.name}"
            f"{' (id may be missing)' if 'id' in possible else ''}, found {found}. Give each its "
            "column: a name in the header, or a number counted from 0"
        )
    layout = replace(task.layout, named_columns=dict(columns), file_format=file_format)
    return replace(task, layout=layout)


def _nameable_fields(task: Task) -> tuple[str, ...]:
    if task.type == "tagging":
        return ("words", "tags")
    if task.type not in ("classification", "regression"):
        return ()
    texts = ("text_a", "text_b") if task.is_pair else ("text",)
    return (*texts, "score" if task.type == "regression" else "label", "id")


def with_labels(task: Task, labels: Sequence[str]) -> Task:
    """Return the task with names for the labels or tags that its files hold as numbers.

    Raises:
        ConfigError: The task has fixed labels or no labels, or a name is not a tag.
    """
    if not labels:
        return task
    layout = replace(task.layout, label_names=tuple(labels))
    if task.type == "tagging":
        wrong = [name for name in labels if not is_tag(name)]
        if wrong:
            raise ConfigError(
                f"labels: expected {OUTSIDE} or tags such as B-LOC for {task.name}, got "
                f"{', '.join(wrong)}"
            )
        return replace(task, layout=layout)
    if task.type == "classification" and not task.labels:
        return replace(task, layout=layout, labels=tuple(labels))
    fixed = f" ({', '.join(task.labels)})" if task.labels else ""
    raise ConfigError(
        "labels: expected a task without fixed labels, such as single-sentence or tagging, "
        f"got {task.name} ({task.type}){fixed}. Remove labels"
    )
