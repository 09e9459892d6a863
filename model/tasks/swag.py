"""Four-way choice of a continuation: SWAG (paper 4.4, Table 4) and CODAH, which has the same form.

The paper's input is the pair of sentence A and a continuation. A is the context, `sent1`; the
continuation is the begin of the second sentence, `sent2`, and one of the endings, as in NVIDIA's
run_swag.py. Google released no code for SWAG.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from model.tasks.files import is_text, shown
from model.tasks.input_tables import open_table
from model.tasks.sentence_tasks import UNKNOWN, row_name
from model.tasks.task import (
    BadRow,
    FileLayout,
    InvalidRowError,
    Row,
    Task,
    convert_row,
    is_answered,
    other_split,
    split_of,
)

_CHOICES = 4
_ENDINGS = tuple(f"ending{number}" for number in range(_CHOICES))


def read_choices(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Read the rows of a table; a `Reader`.

    The columns of `text` are the context, the begin of the continuations if there is one, and the
    four endings. In a data set that is one file, rows with the same context are in the same split.

    Raises:
        TaskDataError: The file is empty, or a column is missing.
        InputError: The file is missing or damaged.
    """
    one_file = bool(task.layout.shares)
    for row in open_table(task, split, url).rows():
        if isinstance(row, BadRow):
            # Each split of one file reads all rows: the invalid ones count in train.
            is_here = not one_file or split == "train" or not row.is_fault
            yield row if is_here else other_split(row.position, "train")
        elif one_file and (belongs := split_of(row.values["text"][0].strip(), task)) != split:
            yield other_split(row.position, belongs)
        else:
            needs_label = one_file or is_answered(split)
            yield convert_row(row, partial(_example, needs_label=needs_label))


def _example(row: Row, *, needs_label: bool) -> Row:
    context, *begins, _, _, _, _ = texts = row.values["text"]
    endings = texts[-_CHOICES:]
    named = zip(("context", *_ENDINGS), (context, *endings), strict=True)
    empty = [field for field, text in named if not is_text(text) or not text.strip()]
    if empty:
        raise InvalidRowError("empty-text", f"nothing in {', '.join(empty)}")
    given = row.values.get("label")
    label = _label(given)
    if label is None and not (given is None or given == ""):
        found = f"{shown(given)}, expected a number from 0 to {_CHOICES - 1}"
        raise InvalidRowError("unknown-label", found)
    label = None if label == UNKNOWN else label
    if label is None and needs_label:
        raise InvalidRowError("no-answer", f"label: {shown(given)}")
    name, begin = row_name(row), " ".join(str(text).strip() for text in begins if text is not None)
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

_CODAH_SHARES = {"train": 0.6, "dev": 0.2, "test": 0.2}

_CODAH = Task(
    name="codah",
    title="CODAH",
    type="choice",
    splits=dict.fromkeys(
        _CODAH_SHARES, ("full_data.tsv", "codah-full_data.tsv", "data/full_data.tsv")
    ),
    reader=read_choices,
    layout=FileLayout(
        columns={"text": (("prompt", *_ENDINGS),), "label": (("label",),)},
        headerless=("category", "prompt", *_ENDINGS, "label"),
        shares=_CODAH_SHARES,
        hint="CODAH has seven tab-separated columns without header",
    ),
    metrics=("accuracy",),
    is_pair=True,
    choices=_CHOICES,
)
"""Each split is given the one file: a prompt is in train, dev or test with the probabilities of the
authors' five folds. The published file's 2,776 rows become 1,642, 573 and 561."""

SWAG_TASKS: dict[str, Task] = {task.name: task for task in (_SWAG, _CODAH)}
"""Choice tasks by name."""
