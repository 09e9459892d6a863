"""Tasks with a label or a score for texts: their reader, tasks for custom data, and SWAG.

Custom data needs no code, only files with the columns of `SENTENCE_TASKS` (docs/how-to/models.md).
Labels may be any text; they are those of the training data in sorted order, numbers by value, or
those of the recipe's `labels` in its order.

SWAG is the choice of one of four continuations (paper 4.4, Table 4). The paper's input is the pair
of sentence A and a continuation. A is the context, `sent1`; the continuation is the begin of the
second sentence, `sent2`, and one of the endings, as in NVIDIA's run_swag.py. Google released no
code for SWAG.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from model.tasks.files import is_text, open_data, shown
from model.tasks.tables import read_table
from model.tasks.task import (
    BadRow,
    FileLayout,
    InvalidRowError,
    Row,
    Task,
    answer_field,
    convert_row,
    is_answered,
)

Example = dict[str, Any]
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
_WHOLE_NUMBER = re.compile(r"(-?[0-9]{1,9})\.0+")
_MISSING = re.compile(r"(?i:[-+]?nan|null)|None|NA|N/A|n/a|#N/A|<NA>|\\N")
"""Text that pandas, R, Excel and databases write for a missing value."""


Answer = str | float | None


def build_text_row(values: Mapping[str, Any], texts: Sequence[str], answer: Answer) -> Example:
    """Return the columns of an example of one or two texts, without its id."""
    del values
    return {
        "text_a": texts[0],
        "text_b": texts[1] if len(texts) > 1 else None,
        "label": answer if isinstance(answer, str) else None,
        "score": answer if isinstance(answer, float) else None,
    }


def read_text_rows(
    task: Task,
    split: str,
    url: str,
    *,
    build: Callable[[Mapping[str, Any], Sequence[str], Answer], Example] = build_text_row,
) -> Iterator[Row | BadRow]:
    """Read the rows of a table; a `Reader`.

    An integer label is an index into the recipe's `labels`, the file's names (Parquet) or the
    hub's. The answer is unknown if it is -1 (except in a text table of a task whose labels come
    from the data), an empty field, null, or a label's text for a missing value (`NaN`, `None`, ...)
    that `labels` does not name. `1.0` is the label `1` in every format. A row with an empty text is
    bad; in submitted splits it is kept with a note.

    Args:
        task: Task of the file.
        split: Split of the file.
        url: Path or URL.
        build: Function from the fields of a row, its texts and its answer to the other columns of
            the example. Raises InvalidRowError for a row to drop.

    Raises:
        TaskDataError: The file is empty, or lacks columns of the task.
        InputError: The file is missing or damaged.
    """
    field, needs_answer = answer_field(task), is_answered(split)
    may_be_empty = split in task.submission  # a test server expects an answer to every row
    with open_data(url) as data:
        table = read_table(data, task, split)
        names = table.names_of(field, task.layout)

        def convert(row: Row) -> Row:
            columns = zip(row.values["text"], table.fields["text"], strict=True)
            texts = [_text(text, column, may_be_empty) for text, column in columns]
            value = row.values.get(field)
            answer, notes = _answer(value, names, task=task)
            if answer is None and needs_answer:
                detail = f"{table.column(field)}: {_describe_missing(value)}"
                raise InvalidRowError("no-answer", detail)
            example = {"id": _row_name(row), **build(row.values, texts, answer)}
            is_empty = may_be_empty and not all(text.strip() for text in texts)
            notes = row.notes + notes + (("empty-text",) if is_empty else ())
            return Row(row.position, example, notes)

        for row in table.rows:
            yield convert_row(row, convert)


def _describe_missing(value: Any) -> str:
    is_mark = isinstance(value, str) and _MISSING.fullmatch(value.strip())
    hint = " (a missing value; if it is a label, name all labels: labels)" if is_mark else ""
    return f"{shown(repr(value))}{hint}"


def _row_name(row: Row) -> str:
    """Return the id of a row; without one its number in the file, from 0."""
    name = row.values.get("id")
    name = str(row.number if name is None or name == "" else name)
    if not is_text(name):
        raise InvalidRowError("malformed-id", shown(repr(name)))
    return name


def _text(value: Any, column: str, may_be_empty: bool) -> str:
    if not is_text(value):
        raise InvalidRowError("no-text", f"{column}: {shown(value)}")
    if not value.strip() and not may_be_empty:
        raise InvalidRowError("empty-text", f"{column}: {shown(repr(value))}")
    return str(value)


def _answer(
    value: Any, label_names: Sequence[str], *, task: Task
) -> tuple[Answer, tuple[str, ...]]:
    """Return the label or score, None if unknown, and notes."""
    notes: tuple[str, ...] = ()
    if isinstance(value, str) and value != value.strip():
        value, notes = value.strip(), ("spaces-around-label",)
    if value is None or value == "":
        return None, ()
    if task.type == "regression":
        return _score(value, task.layout.score_range), notes
    if isinstance(value, float) and math.isnan(value):
        return None, ()  # pandas' form of a missing answer
    if isinstance(value, str) and value not in task.labels:
        if _MISSING.fullmatch(value):
            return None, ()
        if whole := _WHOLE_NUMBER.fullmatch(value):
            value, notes = whole[1], (*notes, "whole-number-label")
    return _label(value, label_names, task=task), notes


def _label(value: Any, label_names: Sequence[str], *, task: Task) -> str | None:
    layout = task.layout
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas converts integers with missing values to floats
    if layout.label_names and isinstance(value, str) and value not in task.labels:
        value = int(value) if _NUMBER.fullmatch(value) else value  # text tables contain only text
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    is_named = bool(label_names or task.labels)
    if is_named and ((value == str(UNKNOWN) and task.labels) or (is_integer and value == UNKNOWN)):
        return None
    names = label_names or tuple(layout.hub_labels)
    if is_integer and names:
        if not 0 <= value < len(names):
            detail = f"{value}, expected a number from 0 to {len(names) - 1} ({', '.join(names)})"
            raise InvalidRowError("unknown-label", detail)
        value = names[value]
    if isinstance(value, bool) and task.type != "choice":  # true is not one of four
        value = str(int(value))
    label = str(value)
    if isinstance(value, (bool, list, dict)) or not is_text(label):
        raise InvalidRowError("unknown-label", f"{shown(repr(value))}, expected text or a number")
    if label in layout.dropped_labels:
        raise InvalidRowError("left-out-label", label, is_fault=False)
    label = layout.hub_labels.get(label, label)
    if task.labels and label not in task.labels:
        expected = ", ".join(task.labels)
        raise InvalidRowError("unknown-label", f"{shown(label)}, expected one of {expected}")
    return label


def _score(value: Any, score_range: tuple[float, float]) -> float | None:
    low, high = score_range
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise InvalidRowError("score-not-a-number", shown(value))
    if not isinstance(value, str) and score == UNKNOWN and low > UNKNOWN:
        return None  # the hub's test splits
    if not low <= score <= high:
        raise InvalidRowError("score-out-of-range", f"{score}, expected {low} to {high}")
    return score


# Tasks for custom data


def _task(name: str, title: str, texts: tuple[tuple[str, ...], ...], *answers: str) -> Task:
    is_regression = "score" in answers
    field = "score" if is_regression else "label"
    columns = {"text": texts, field: tuple((name,) for name in answers), "id": CUSTOM_IDS}
    return Task(
        name=name,
        title=title,
        type="regression" if is_regression else "classification",
        splits=CUSTOM_SPLITS,
        reader=read_text_rows,
        layout=FileLayout(columns=columns),
        metrics=("spearman", "pearson") if is_regression else ("accuracy", "matthews"),
        is_pair=texts is _CUSTOM_PAIR,
        can_split_train=True,
    )


SENTENCE_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("single-sentence", "single sentences", SENTENCE, "label", "class"),
        _task("sentence-pair", "sentence pairs", _CUSTOM_PAIR, "label", "class"),
        _task("sentence-regression", "scored sentences", SENTENCE, "score", "label"),
        _task("pair-regression", "scored pairs", _CUSTOM_PAIR, "score", "label"),
    )
}
"""Tasks for custom texts by name."""


# SWAG

_NUMBERS = ("0", "1", "2", "3")
_ENDINGS = tuple(f"ending{number}" for number in _NUMBERS)


def read_choices(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Read the rows of a table as those of texts with the labels 0 to 3; a `Reader`."""
    labeled = replace(task, labels=_NUMBERS)
    yield from read_text_rows(labeled, split, url, build=_build_choice)


def _build_choice(values: Mapping[str, Any], texts: Sequence[str], answer: Answer) -> Example:
    begin = values["begin"] or ""
    if not is_text(begin):
        raise InvalidRowError("no-text", f"sent2: {shown(repr(begin))}")
    context, *endings = (text.strip() for text in texts)
    return {
        "context": context,
        "continuations": [f"{begin.strip()} {ending}".strip() for ending in endings],
        "label": None if answer is None else int(answer),
    }


_SWAG = Task(
    name="swag",
    title="SWAG",
    type="choice",
    splits={"train": ("train",), "dev": ("val", "dev", "validation"), "test": ("test",)},
    folders=("regular",),  # on the hub
    reader=read_choices,
    layout=FileLayout(
        columns={
            "text": (("sent1", *_ENDINGS),),
            "begin": (("sent2",),),
            "label": (("label",),),
            "id": (("index",), ("",), ("Unnamed: 0",)),  # the official files do not name it
        },
        hint="Take train.csv, val.csv and test.csv, not those ending in _full.csv",
    ),
    sizes={"train": 73_546, "dev": 20_006, "test": 20_005},
    metrics=("accuracy",),
    is_pair=True,
    choices=len(_NUMBERS),
    paper={"dev/accuracy": ("table-4", "dev")},
)

SWAG_TASKS: dict[str, Task] = {_SWAG.name: _SWAG}
"""Choice tasks by name."""
