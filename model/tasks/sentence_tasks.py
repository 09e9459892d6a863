"""Tasks with a label or a score for one or two texts: their reader, and tasks for custom data.

Custom data needs no code, only files with the columns named below.

    single-sentence       sentence (or text), label
    sentence-pair         sentence1 and sentence2 (or text_a and text_b, ...), label
    sentence-regression   sentence (or text), score
    pair-regression       sentence1 and sentence2, score

Files are tab-separated, comma-separated, JSON or Parquet, with a header. They are named train, dev
and test (`train.tsv`, `dev.csv`, ...), or named in the recipe's `files`. A column `id` is optional.
Labels may be any text; they are those of the training data in sorted order, numbers by value, or
those of the recipe's `labels` in its order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from model.tasks.columns import open_task_table
from model.tasks.files import is_text, shown
from model.tasks.input_tables import Record
from model.tasks.task import Bad, FileLayout, Row, Task, is_answered
from schemas.errors import TaskDataError

UNKNOWN = -1
"""The hub's value of an unpublished label."""

IDS = (("index",), ("idx",), ("id",))
CUSTOM_IDS = (("id",), ("index",), ("idx",))
CUSTOM_SPLITS = {
    "train": ("train",),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
SENTENCE = (("sentence",), ("text",), ("text_a",))
PAIR = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("text_a", "text_b"))
_CUSTOM_PAIR = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)
_NUMBER = re.compile(r"[0-9]{1,9}")


class _BadValueError(Exception):
    """Invalid value of a row: (reason, content)."""


class _Columns(NamedTuple):
    """Columns of a file, and the names of labels that it holds as numbers."""

    texts: tuple[str, ...]
    answer: str | None
    row_id: str | None
    label_names: tuple[str, ...]


def read_text_rows(
    task: Task,
    split: str,
    url: str,
    *,
    also: Sequence[str] = (),
    left_out: Callable[[Record], Bad | None] | None = None,
) -> Iterator[Row | Bad]:
    """Read the rows of a tab- or comma-separated, Parquet or JSON file; a `Reader`.

    An integer label is an index into the recipe's `labels`, the file's names (Parquet) or the
    hub's. The answer is unknown if it is -1 (except in a text table of a task whose labels come
    from the data), an empty field or null. A row with an empty text is bad; in submitted splits it
    is kept with a note.

    Args:
        task: Task of the file.
        split: Split of the file.
        url: Path or URL.
        also: Further columns that `left_out` reads.
        left_out: Function that returns the reason to drop a row.

    Raises:
        TaskDataError: The file is empty, or lacks columns of the task.
        InputError: The file is missing or damaged.
    """
    source = open_task_table(task, split, url)
    missing = [name for name in also if name not in source.table.columns]
    if missing:
        listed = ", ".join(source.table.columns)
        raise TaskDataError(f"{url}: expected the columns {', '.join(also)}, found {listed}")
    answer = source.column("label", "score")
    names = source.label_names(task, answer)
    columns = _Columns(source.columns["text"], answer, source.column("id"), names)
    source = source._replace(columns={**source.columns, "also": tuple(also)})
    for record in source.records():
        if isinstance(record, Bad):
            yield record
        elif left_out is not None and (bad := left_out(record)) is not None:
            yield bad
        else:
            yield _row(record, columns, task=task, split=split)


def _row(record: Record, columns: _Columns, *, task: Task, split: str) -> Row | Bad:
    values = record.values
    # A test server expects an answer to every row, also without text.
    may_be_empty = split in task.submission
    given = None if columns.answer is None else values.get(columns.answer)
    try:
        texts = [_text(values.get(name), name, may_be_empty) for name in columns.texts]
        answer, notes = _answer(given, columns.label_names, task=task)
    except _BadValueError as error:
        reason, found = error.args
        return Bad(record.position, reason, found, is_fault=reason != "left-out-label")
    if answer is None and is_answered(split):
        return Bad(record.position, "no-answer", f"{columns.answer}: {shown(given)}")
    name = row_name(record, columns.row_id)
    if not is_text(name):
        return Bad(record.position, "malformed-id", shown(repr(name)))
    example = {
        "id": name,
        "text_a": texts[0],
        "text_b": texts[1] if len(texts) > 1 else None,
        "label": answer if isinstance(answer, str) else None,
        "score": answer if isinstance(answer, float) else None,
    }
    empty = () if all(text.strip() for text in texts) else ("empty-text",)
    return Row(record.position, example, record.notes + notes + empty)


def row_name(record: Record, column: str | None) -> str:
    """Return the id of a row; without one its number in the file, from 0."""
    name = None if column is None else record.values.get(column)
    return str(record.number if name is None or name == "" else name)


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
    return _label(value, label_names, task=task), notes


def _label(value: Any, label_names: Sequence[str], *, task: Task) -> str | None:
    layout = task.layout
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas converts integers with missing values to floats
    if layout.label_names and isinstance(value, str) and value not in task.labels:
        value = int(value) if _NUMBER.fullmatch(value) else value  # text tables contain only text
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value == UNKNOWN and (label_names or task.labels):
        return None
    if task.labels and value == str(UNKNOWN):
        return None
    names = label_names or tuple(layout.hub_labels)
    if is_integer and names:
        if not 0 <= value < len(names):
            found = f"{value}, expected a number from 0 to {len(names) - 1} ({', '.join(names)})"
            raise _BadValueError("unknown-label", found)
        value = names[value]
    label = str(int(value) if isinstance(value, bool) else value)
    if isinstance(value, (list, dict)) or not is_text(label):
        raise _BadValueError("unknown-label", f"{shown(repr(value))}, expected text or a number")
    if label in layout.dropped_labels:
        raise _BadValueError("left-out-label", label)
    label = layout.hub_labels.get(label, label)
    if task.labels and label not in task.labels:
        expected = ", ".join(task.labels)
        raise _BadValueError("unknown-label", f"{shown(label)}, expected one of {expected}")
    return label


def _score(value: Any, *, task: Task) -> float | None:
    low, high = task.layout.score_range
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise _BadValueError("score-not-a-number", shown(value))
    if not isinstance(value, str) and score == UNKNOWN and low > UNKNOWN:
        return None  # the hub's test splits
    if not low <= score <= high:
        raise _BadValueError("score-out-of-range", f"{score}, expected {low} to {high}")
    return score


# Tasks for custom data


def _task(name: str, title: str, *, is_pair: bool, is_regression: bool) -> Task:
    texts = _CUSTOM_PAIR if is_pair else SENTENCE
    answer = {"score": (("score",), ("label",))} if is_regression else {
        "label": (("label",), ("class",))
    }  # fmt: skip
    return Task(
        name=name,
        title=title,
        type="regression" if is_regression else "classification",
        splits=CUSTOM_SPLITS,
        reader=read_text_rows,
        layout=FileLayout(columns={"text": texts, **answer, "id": CUSTOM_IDS}),
        metrics=("spearman", "pearson") if is_regression else ("accuracy", "matthews"),
        is_pair=is_pair,
    )


SENTENCE_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("single-sentence", "single sentences", is_pair=False, is_regression=False),
        _task("sentence-pair", "sentence pairs", is_pair=True, is_regression=False),
        _task("sentence-regression", "scored sentences", is_pair=False, is_regression=True),
        _task("pair-regression", "scored pairs", is_pair=True, is_regression=True),
    )
}
"""Tasks for custom texts by name."""
