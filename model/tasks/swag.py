"""Four-way choice of a continuation: SWAG (paper 4.4, Table 4).

The paper's input is the pair of sentence A and a continuation. A is the context, `sent1`; the
continuation is the begin of the second sentence, `sent2`, and one of the endings, as in NVIDIA's
run_swag.py. Google released no code for SWAG.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from model.tasks.files import is_text, open_data, shown
from model.tasks.sentences import UNKNOWN, row_name
from model.tasks.tables import read_table
from model.tasks.task import (
    BadRow,
    FileLayout,
    InvalidRowError,
    Row,
    Task,
    convert_row,
    is_answered,
)

_CHOICES = 4
_ENDINGS = tuple(f"ending{number}" for number in range(_CHOICES))


def read_choices(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Read the rows of a table; a `Reader`.

    Raises:
        TaskDataError: The file is empty, or a column is missing.
        InputError: The file is missing or damaged.
    """
    convert = partial(_example, needs_label=is_answered(split))
    with open_data(url) as data:
        for row in read_table(data, task, split).rows:
            yield convert_row(row, convert)


def _example(row: Row, *, needs_label: bool) -> Row:
    context, begin, *endings = row.values["text"]
    named = zip(("context", *_ENDINGS), (context, *endings), strict=True)
    empty = [field for field, text in named if not is_text(text) or not text.strip()]
    if empty:
        raise InvalidRowError("empty-text", f"nothing in {', '.join(empty)}")
    value = row.values.get("label")
    label = _label(value)
    if label is None and not (value is None or value == ""):
        detail = f"{shown(value)}, expected a number from 0 to {_CHOICES - 1}"
        raise InvalidRowError("unknown-label", detail)
    label = None if label == UNKNOWN else label
    if label is None and needs_label:
        raise InvalidRowError("no-answer", f"label: {shown(value)}")
    name, begin = row_name(row), "" if begin is None else str(begin).strip()
    if not (is_text(name) and is_text(begin)):
        raise InvalidRowError("malformed", f"id or sent2: {shown(repr((name, begin)))}")
    example = {
        "id": name,
        "context": context.strip(),
        "continuations": [f"{begin} {ending.strip()}".strip() for ending in endings],
        "label": label,
    }
    return row._replace(values=example)


def _label(value: Any) -> int | None:
    """Return the number of the right ending, -1 if it is not published, None for anything else."""
    try:
        number = float(value) if not isinstance(value, bool) else -2.0
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number in range(UNKNOWN, _CHOICES) else None


def _files(*names: str) -> tuple[str, ...]:
    """Return the official names, and those of the hub, of a split's file."""
    forms = ("{}.csv", "{}-*.parquet", "{}.parquet", "regular/{}-*.parquet")
    return tuple(form.format(name) for form in forms for name in names)


_SWAG = Task(
    name="swag",
    title="SWAG",
    type="choice",
    splits={
        "train": _files("train"),
        "dev": _files("val", "dev", "validation"),
        "test": _files("test"),
    },
    reader=read_choices,
    layout=FileLayout(
        columns={
            "text": (("sent1", "sent2", *_ENDINGS),),
            "label": (("label",),),
            "id": (("index",), ("",), ("Unnamed: 0",)),  # the official files do not name it
        },
        hint="Take train.csv, val.csv and test.csv, not those ending in _full.csv",
    ),
    sizes={"train": 73_546, "dev": 20_006, "test": 20_005},
    metrics=("accuracy",),
    is_pair=True,
    choices=_CHOICES,
    paper={"dev/accuracy": ("table-4", "dev")},
)

SWAG_TASKS: dict[str, Task] = {_SWAG.name: _SWAG}
"""Choice tasks by name."""
