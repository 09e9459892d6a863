"""Four-way choice of a continuation: SWAG (paper 4.4, Table 4) and CODAH, of the same form.

The paper's input is the pair of sentence A and a continuation. A is the context, `sent1`; the
continuation is the begin of the second sentence, `sent2`, and one of the endings, as in NVIDIA's
run_swag.py. Google released no code for SWAG.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from model.tasks.files import is_text, shown
from model.tasks.one_file import elsewhere, split_of
from model.tasks.raw_tables import Record, open_table, open_text_table
from model.tasks.task import Bad, Row, Task, is_answered
from schemas.errors import TaskDataError

_CHOICES = 4
_SWAG_ENDINGS = tuple(f"ending{number}" for number in range(_CHOICES))
_SWAG_NEEDED = ("sent1", "sent2", *_SWAG_ENDINGS)
_SWAG_IDS = ("index", "", "Unnamed: 0")
"""Columns of a row's own number; the official files have no name for it."""

_CODAH_COLUMNS = ("category", "prompt", *(f"ending{number}" for number in range(_CHOICES)), "label")
_CODAH_SHARES = {"train": 0.6, "dev": 0.2, "test": 0.2}
_UNKNOWN = -1  # the hub's label of unpublished answers


def read_swag(task: Task, split: str, url: str) -> Iterator[Row | Bad]:
    """The rows of a file of SWAG: its csv, or the hub's Parquet or JSON; a `Reader`.

    Raises:
        TaskDataError: it is empty, or a column is missing.
        InputError: it is missing or damaged.
    """
    table = open_table(url, is_header=set(_SWAG_NEEDED).issubset)
    needs_label = is_answered(split)
    missing = [name for name in _SWAG_NEEDED if name not in table.columns]
    if needs_label and "label" not in table.columns:
        missing.append("label")
    if missing:
        listed = ", ".join(shown(name) for name in table.columns) or "none"
        raise TaskDataError(
            f"{url}: expected the columns of {task.name} {split}, found {listed}; missing "
            f"{', '.join(missing)}. Take train.csv, val.csv and test.csv, not those ending in "
            "_full.csv"
        )
    ids = [name for name in _SWAG_IDS if name in table.columns][:1]
    labels = [name for name in ("label",) if name in table.columns]
    for record in table.records([*_SWAG_NEEDED, *labels, *ids]):
        if isinstance(record, Bad):
            yield record
            continue
        values = record.values
        begin = values.get("sent2")
        yield _row(
            record,
            texts=[values.get("sent1"), *(values.get(name) for name in _SWAG_ENDINGS)],
            begin="" if begin is None else str(begin).strip(),
            row_id=values.get(ids[0]) if ids else None,
            needs_label=needs_label,
        )


def read_codah(task: Task, split: str, url: str) -> Iterator[Row | Bad]:
    """The rows of CODAH's one file that are in the split; a `Reader`.

    Rows with the same prompt are in the same split.

    Raises:
        TaskDataError: it is empty, or has not seven columns.
        InputError: it is missing or damaged.
    """
    table = open_text_table(url, is_header=_is_codah_header, headerless=_CODAH_COLUMNS)
    if not _is_codah_header(table.columns):
        listed = ", ".join(shown(name) for name in table.columns)
        raise TaskDataError(
            f"{url}: expected the seven tab-separated columns {', '.join(_CODAH_COLUMNS)}, found "
            f"{len(table.columns)} in the first line: {listed}"
        )
    for record in table.records(_CODAH_COLUMNS[1:]):
        if isinstance(record, Bad):
            if split == "train" or not record.is_fault:
                yield record
            else:
                yield elsewhere(record.position, "train, where it is counted as bad")
            continue
        prompt, *endings = (record.values[name] for name in _CODAH_COLUMNS[1:-1])
        belongs = split_of(prompt.strip(), task=task.name, shares=task.columns["shares"])
        if belongs != split:
            yield elsewhere(record.position, belongs)
        else:
            yield _row(record, texts=[prompt, *endings], begin="", row_id=None, needs_label=True)


def _is_codah_header(columns: Sequence[str]) -> bool:
    return tuple(columns) == _CODAH_COLUMNS


def _row(
    record: Record, *, texts: Sequence[Any], begin: str, row_id: Any, needs_label: bool
) -> Row | Bad:
    """An example of `texts`, the context and the endings."""
    named = zip(("context", *_SWAG_ENDINGS), texts, strict=True)
    lacking = [name for name, text in named if not is_text(text) or not text.strip()]
    if lacking:
        return Bad(record.position, "empty-text", f"nothing in {', '.join(lacking)}")
    context, *endings = (text.strip() for text in texts)
    given = record.values.get("label")
    label = _label(given)
    if label is None and not (given is None or given == ""):
        found = f"{shown(given)}, expected a number from 0 to {_CHOICES - 1}"
        return Bad(record.position, "unknown-label", found)
    label = None if label == _UNKNOWN else label
    if label is None and needs_label:
        return Bad(record.position, "no-answer", f"label: {shown(given)}")
    name = str(record.number if row_id is None or row_id == "" else row_id)
    if not (is_text(name) and is_text(begin)):
        return Bad(record.position, "malformed", f"id or sent2: {shown(repr((name, begin)))}")
    values = {
        "id": name,
        "context": context,
        "continuations": [f"{begin} {ending}".strip() for ending in endings],
        "label": label,
    }
    return Row(record.position, values, record.notes)


def _label(value: Any) -> int | None:
    """The number of the right ending, -1 where it is not published, None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number in range(_UNKNOWN, _CHOICES) else None


_SWAG = Task(
    name="swag",
    title="SWAG",
    type="choice",
    splits={
        "train": ("train.csv", "train-*.parquet", "train.parquet", "regular/train-*.parquet"),
        "dev": (
            *("val.csv", "dev.csv", "validation.csv"),
            *("validation-*.parquet", "val-*.parquet", "validation.parquet"),
            "regular/validation-*.parquet",
        ),
        "test": ("test.csv", "test-*.parquet", "test.parquet", "regular/test-*.parquet"),
    },
    sizes={"train": 73_546, "dev": 20_006, "test": 20_005},
    reader=read_swag,
    metrics=("accuracy",),
    is_pair=True,
    choices=_CHOICES,
    paper={"dev/accuracy": ("table-4", "dev")},
)

_CODAH = Task(
    name="codah",
    title="CODAH",
    type="choice",
    splits=dict.fromkeys(
        _CODAH_SHARES, ("full_data.tsv", "codah-full_data.tsv", "data/full_data.tsv")
    ),
    reader=read_codah,
    metrics=("accuracy",),
    is_pair=True,
    choices=_CHOICES,
    columns={"shares": _CODAH_SHARES},
)
"""One file, which every split is given whole: a prompt goes to train, dev or test with chances of
60, 20 and 20 of a hundred, the shares of the authors' five folds, by a fixed rule. Of the published
file's 2,776 rows that makes 1,642, 573 and 561."""

SWAG_TASKS: dict[str, Task] = {task.name: task for task in (_SWAG, _CODAH)}
"""Choice tasks by name."""
