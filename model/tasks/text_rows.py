"""Rows of tasks with a label or score per text or text pair, from any format."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from model.tasks.files import is_text, shown
from model.tasks.named_columns import (
    ANSWERS,
    LABELS,
    PAIR_TEXTS,
    TEXTS,
    NamedColumns,
    label_names,
    needed_columns,
    open_named_table,
)
from model.tasks.raw_tables import RawTable, Record, open_table
from model.tasks.task import Bad, Row, Task, is_answered
from schemas.errors import TaskDataError

_NUMBER = re.compile(r"[0-9]{1,9}")
UNKNOWN = -1
"""The hub's value of an unpublished label."""


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """Columns of such a task's files. Entry `text` of `Task.columns`."""

    texts: tuple[tuple[str, ...], ...]
    """Alternative names of the text columns; the first that exists is used."""

    answers: tuple[str, ...] = ("label",)
    """Alternative names of the label or score column; the first that exists is used."""

    ids: tuple[str, ...] = ("index", "idx", "id")
    """Alternative names of the id column; without one the id is the row's number, from 0."""

    headerless: tuple[str, ...] = ()
    """Columns of official files that have no header."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The hub's names of the labels in the order of the hub's integers, each with our name."""

    left_out: frozenset[str] = frozenset()
    """Labels of rows that are dropped by rule."""

    score_range: tuple[float, float] = (-math.inf, math.inf)
    """Lowest and highest score."""

    def texts_in(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the text columns of the file; () if none exists."""
        there = set(columns)
        return next((names for names in self.texts if there.issuperset(names)), ())


class _Chosen(NamedTuple):
    texts: tuple[str, ...]
    answer: str | None
    row_id: str | None
    label_names: tuple[str, ...]
    """Names of labels that the file holds as numbers; () if they have no names."""


class _BadValueError(Exception):
    """Invalid value of a row: (reason, content)."""


def read_text_rows(
    task: Task,
    split: str,
    url: str,
    *,
    also: Sequence[str] = (),
    left_out: Callable[[Record], Bad | None] | None = None,
) -> Iterator[Row | Bad]:
    """Read the rows of a tab- or comma-separated, Parquet or JSON file; a `Reader`.

    The bytes of the file determine its format. An integer label is an index into the recipe's
    `labels`, the file's names (Parquet) or the hub's. The answer is unknown if it is -1 (except in
    a text table of a task whose labels come from the data), an empty field or null.

    A row with an empty text is bad; in submitted splits it is kept with a note.

    Raises:
        TaskDataError: The file is empty, or lacks columns of the task.
        InputError: The file is missing or damaged.
    """
    layout: TextColumns = task.columns["text"]
    named: NamedColumns | None = task.columns.get("named")
    if named is not None:
        table, at = open_named_table(url, named, needed=needed_columns(task, split))
        chosen = _chosen_by(at, table, task=task)
    else:
        table = open_table(
            url,
            is_header=lambda columns: bool(layout.texts_in(columns)),
            headerless=layout.headerless,
        )
        chosen = _choose(table, task=task, split=split, url=url)
    _require(also, table, url=url)
    wanted = [*chosen.texts, *(name for name in (chosen.answer, chosen.row_id) if name), *also]
    for record in table.records(wanted):
        if isinstance(record, Bad):
            yield record
        elif left_out is not None and (other := left_out(record)) is not None:
            yield other
        else:
            yield _row(record, chosen, task=task, split=split)


def _require(columns: Sequence[str], table: RawTable, *, url: str) -> None:
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise TaskDataError(
            f"{url}: expected the columns {', '.join(columns)}, found {', '.join(table.columns)}"
        )


def _choose(table: RawTable, *, task: Task, split: str, url: str) -> _Chosen:
    layout: TextColumns = task.columns["text"]
    there = set(table.columns)
    texts = layout.texts_in(table.columns)
    answer = next((name for name in layout.answers if name in there), None)
    row_id = next((name for name in layout.ids if name in there), None)
    if not texts or (answer is None and is_answered(split)):
        listed = ", ".join(shown(name) for name in table.columns) or "none"
        wanted = " or ".join(" and ".join(names) for names in layout.texts)
        if is_answered(split):
            wanted += f", and {' or '.join(layout.answers)}"
        raise TaskDataError(
            f"{url}: expected the columns of {task.name} {split} ({wanted}), found {listed}. It "
            "is another task's or split's file, or lacks its header; where its columns have other "
            "names or no header, name the columns: columns"
        )
    return _Chosen(texts, answer, row_id, label_names(task, table, answer))


def _chosen_by(at: Mapping[str, str], table: RawTable, *, task: Task) -> _Chosen:
    texts = tuple(at[name] for name in (*TEXTS, *PAIR_TEXTS) if name in at)
    answer = next((at[name] for name in ANSWERS if name in at), None)
    return _Chosen(texts, answer, at.get("id"), label_names(task, table, answer))


def _row(record: Record, chosen: _Chosen, *, task: Task, split: str) -> Row | Bad:
    values = record.values
    # A test server expects an answer to every row, also without text.
    may_be_empty = split in task.submission
    try:
        texts = [_text(values.get(name), name, may_be_empty) for name in chosen.texts]
        given = values.get(chosen.answer) if chosen.answer else None
        answer, notes = _answer(given, chosen.label_names, task=task)
    except _BadValueError as error:
        reason, found = error.args
        is_fault = reason != "left-out-label"
        return Bad(record.position, reason, found, is_fault=is_fault)
    if answer is None and is_answered(split):
        return Bad(record.position, "no-answer", f"{chosen.answer}: {shown(given)}")
    row_id = values.get(chosen.row_id) if chosen.row_id else None
    name = str(record.number if row_id is None or row_id == "" else row_id)
    if not is_text(name):
        return Bad(record.position, "malformed-id", shown(repr(name)))
    return Row(
        record.position,
        {
            "id": name,
            "text_a": texts[0],
            "text_b": texts[1] if len(texts) > 1 else None,
            "label": answer if isinstance(answer, str) else None,
            "score": answer if isinstance(answer, float) else None,
        },
        record.notes + notes + (() if all(text.strip() for text in texts) else ("empty-text",)),
    )


def _text(value: Any, column: str, may_be_empty: bool) -> str:
    if not is_text(value):
        raise _BadValueError("no-text", f"{column}: {shown(value)}")
    if not value.strip() and not may_be_empty:
        raise _BadValueError("empty-text", f"{column}: {shown(repr(value))}")
    return str(value)


def _answer(
    value: Any, label_names: Sequence[str], *, task: Task
) -> tuple[str | float | None, tuple[str, ...]]:
    """Return the label or score, None if unknown, and notes."""
    notes: tuple[str, ...] = ()
    if isinstance(value, str) and value != value.strip():
        value, notes = value.strip(), ("spaces-around-label",)
    if value is None or value == "":
        return None, ()
    if task.type == "regression":
        return _score(value, task=task), notes
    if isinstance(value, float) and math.isnan(value):
        return None, ()  # pandas' form of a missing answer
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas converts integers with missing values to floats
    layout: TextColumns = task.columns["text"]
    if LABELS in task.columns and isinstance(value, str) and value not in task.labels:
        value = int(value) if _NUMBER.fullmatch(value) else value  # text tables contain only text
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value == UNKNOWN and (label_names or task.labels):
        return None, notes
    if task.labels and value == str(UNKNOWN):
        return None, notes
    names = label_names or tuple(layout.names)
    if is_integer and names:
        if not 0 <= value < len(names):
            found = f"{value}, expected a number from 0 to {len(names) - 1} ({', '.join(names)})"
            raise _BadValueError("unknown-label", found)
        value = names[value]
    label = str(int(value) if isinstance(value, bool) else value)
    if isinstance(value, (list, dict)) or not is_text(label):
        raise _BadValueError("unknown-label", f"{shown(repr(value))}, expected text or a number")
    if label in layout.left_out:
        raise _BadValueError("left-out-label", label)
    label = layout.names.get(label, label)
    if task.labels and label not in task.labels:
        wanted = ", ".join(task.labels)
        raise _BadValueError("unknown-label", f"{shown(label)}, expected one of {wanted}")
    return label, notes


def _score(value: Any, *, task: Task) -> float | None:
    layout: TextColumns = task.columns["text"]
    low, high = layout.score_range
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _BadValueError("score-not-a-number", shown(value)) from None
    if not math.isfinite(score):
        raise _BadValueError("score-not-a-number", shown(value))
    if not isinstance(value, str) and score == UNKNOWN and low > UNKNOWN:
        return None  # the hub's test splits
    if not low <= score <= high:
        raise _BadValueError("score-out-of-range", f"{score}, expected {low} to {high}")
    return score
