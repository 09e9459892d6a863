"""Columns of a file that a recipe names: `columns: {text: review, label: 3}`.

Columns are given by their names in the header or by their numbers, counted from 0. Tables of texts
have `text` (pairs `text_a` and `text_b`), `label` or `score`, and `id`; files of tagged words have
`words` and `tags` (`model.tasks.columns`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from model.tasks.entities import OUTSIDE, is_tag
from model.tasks.files import shown
from model.tasks.raw_tables import (
    RawTable,
    TextForm,
    first_line,
    is_json,
    is_parquet,
    open_formed_table,
    open_json,
    open_parquet,
)
from model.tasks.task import Task, is_answered
from schemas.errors import ConfigError, TaskDataError
from schemas.finetune_configs import Column, FileFormatConfig

TEXTS = ("text",)
PAIR_TEXTS = ("text_a", "text_b")
ANSWERS = ("label", "score")
WORDS, TAGS = "words", "tags"
LABELS = "labels"
"""Entry of `Task.columns` with the recipe's names of labels or tags."""

SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";", "spaces": " "}

_TITLES = frozenset({*TEXTS, *PAIR_TEXTS, *ANSWERS, "id", "sentence", "sentence1", "sentence2"})
_MOST_SHOWN, _SHOWN_FIELD = 12, 24


@dataclass(frozen=True)
class NamedColumns:
    """Columns that a recipe names. Entry `named` of `Task.columns`."""

    columns: Mapping[str, Column]
    table: FileFormatConfig

    @property
    def has_names(self) -> bool:
        """Whether a column is given by name, which requires a header."""
        return any(isinstance(column, str) for column in self.columns.values())


def with_columns(task: Task, columns: Mapping[str, Column], table: FileFormatConfig) -> Task:
    """Return the task with a reader of these columns.

    Raises:
        ConfigError: The task does not have these columns, or requires more.
    """
    if not columns:
        return task
    possible = _possible(task)
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
    return replace(task, columns={**task.columns, "named": NamedColumns(dict(columns), table)})


def with_labels(task: Task, labels: Sequence[str]) -> Task:
    """Return the task with names for the labels or tags that its files hold as numbers.

    Raises:
        ConfigError: The task has fixed labels or no labels, or a name is not a tag.
    """
    if not labels:
        return task
    columns = {**task.columns, LABELS: tuple(labels)}
    if task.type == "tagging":
        wrong = [name for name in labels if not is_tag(name)]
        if wrong:
            raise ConfigError(
                f"labels: expected {OUTSIDE} or tags such as B-LOC for {task.name}, got "
                f"{', '.join(wrong)}"
            )
        return replace(task, columns=columns)
    if task.type == "classification" and not task.labels:
        return replace(task, columns=columns, labels=tuple(labels))
    fixed = f" ({', '.join(task.labels)})" if task.labels else ""
    raise ConfigError(
        "labels: expected a task without fixed labels, such as single-sentence or tagging, "
        f"got {task.name} ({task.type}){fixed}. Remove labels"
    )


def label_names(task: Task, table: RawTable, column: str | None) -> tuple[str, ...]:
    """Return the names of labels that a column holds as numbers: the recipe's or the file's."""
    if column is None:
        return ()
    return task.columns.get(LABELS) or table.label_names.get(column, ())


def needed_columns(task: Task, split: str) -> tuple[str, ...]:
    """Return the columns that a file of the split must have."""
    possible = [name for name in _possible(task) if name != "id"]
    answers = (*ANSWERS, TAGS)
    return tuple(name for name in possible if is_answered(split) or name not in answers)


def open_named_table(
    url: str, named: NamedColumns, *, needed: Sequence[str]
) -> tuple[RawTable, dict[str, str]]:
    """Read the table in a text, Parquet or JSON file.

    Args:
        needed: Required columns of `named.columns`; others, such as labels of a test set, may be
            missing.

    Returns:
        Columns of the table by role.

    Raises:
        TaskDataError: A required column is missing, or a name occurs twice.
        CorruptInputError: The file is truncated or damaged.
    """
    if is_parquet(url) or (named.table.delimiter == "auto" and is_json(url)):
        table = open_parquet(url) if is_parquet(url) else open_json(url)
        header: Sequence[str] | None = table.columns
        fields = table.columns
    else:
        table, fields = open_formed_table(url, _form(url, named))
        _check_header(url, fields, named)
        header = fields if has_header(named) else None
    found = {}
    for name, column in named.columns.items():
        at = place_of(column, fields, header=header, url=url, name=name, is_needed=name in needed)
        if at is not None:
            found[name] = table.columns[at]
    return table, found


def place_of(
    column: Column,
    fields: Sequence[str],
    *,
    header: Sequence[str] | None,
    url: str,
    name: str,
    is_needed: bool,
) -> int | None:
    """Return the number of a column, from 0; None if an optional column is missing.

    Args:
        column: Column in the recipe.
        fields: Fields of the first line.
        header: Names of the columns; None without header.
        name: Role of the column, for messages.

    Raises:
        TaskDataError: A required column is missing, or its name occurs twice.
    """
    if isinstance(column, int):
        if column < len(fields):
            return column
        fault = f"expected a column {column} ({name}), counted from 0"
    else:
        times = list(header or ()).count(column)
        if times == 1:
            return list(header or ()).index(column)
        fault = f"expected a column {column!r} ({name}) in its first line"
        if times > 1:
            raise TaskDataError(
                f"{url}: {fault}, found {times} of them: give the number of one, counted from 0"
            )
    if not is_needed:
        return None
    raise TaskDataError(
        f"{url}: {fault}, found {describe(fields)}. Correct columns; a file without a header has "
        "numbers alone"
    )


def describe(fields: Sequence[str]) -> str:
    """A line's fields with their numbers: `3 columns: 0 'Oslo', 1 'NNP', 2 'B-LOC'`."""
    listed = [f"{number} {_short(field)!r}" for number, field in enumerate(fields[:_MOST_SHOWN])]
    more = f" and {len(fields) - _MOST_SHOWN} more" if len(fields) > _MOST_SHOWN else ""
    return f"{len(fields)} column{'s' if len(fields) != 1 else ''}: {', '.join(listed)}{more}"


def _short(field: str) -> str:
    return field if len(field) <= _SHOWN_FIELD else f"{field[:_SHOWN_FIELD]}..."


def _possible(task: Task) -> tuple[str, ...]:
    if task.type == "tagging":
        return (WORDS, TAGS)
    if "text" not in task.columns:
        return ()
    answer = "score" if task.type == "regression" else "label"
    return (*(PAIR_TEXTS if task.is_pair else TEXTS), answer, "id")


def _form(url: str, named: NamedColumns) -> TextForm:
    table = named.table
    if table.delimiter == "auto":
        separator = "\t" if "\t" in first_line(url, comments=table.comment_prefix) else ","
    else:
        separator = SEPARATORS[table.delimiter]
    quotes = separator in ",;" if table.quoted is None else table.quoted
    if quotes and separator == " ":
        raise ConfigError("table: quotes go with tabs, commas or semicolons, not with spaces")
    return TextForm(separator, has_header(named), quotes, table.comment_prefix)


def has_header(named: NamedColumns) -> bool:
    """Return whether the first line of a text file is a header."""
    return named.has_names if named.table.header is None else named.table.header


def _check_header(url: str, fields: Sequence[str], named: NamedColumns) -> None:
    """Refuse a line that looks like a header, where numbers alone leave open whether it is one."""
    if named.table.header is not None or named.has_names:
        return
    numbers = [column for column in named.columns.values() if isinstance(column, int)]
    titles = [fields[at] for at in numbers if at < len(fields) and fields[at].lower() in _TITLES]
    if titles:
        raise TaskDataError(
            f"{url}: its first line has {shown(', '.join(titles))}, which look like names of "
            "columns: say whether they are, by table.header: true or false"
        )
