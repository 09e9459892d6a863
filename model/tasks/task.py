"""Description of a task: what its files hold, what a model learns, how it is scored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from schemas.errors import TaskDataError
from schemas.finetune_configs import Column, FileFormatConfig, TaskTypeName

_T = TypeVar("_T")
ColumnNames = Mapping[str, tuple[tuple[str, ...], ...]]
"""Names of the columns of each field: alternatives, of which the first that a file has is read."""


class Row(NamedTuple):
    """Valid row of a file: its fields (`model.tasks.tables`), then an example."""

    position: str
    """Position for messages: `line 17`, `row 3`, `paragraph 4 of Normans`."""

    values: dict[str, Any]
    """Values by field of the file; of an example, by column of `schemas.arrow.EXAMPLES`."""

    notes: tuple[str, ...] = ()
    """Kebab-case names of corrections, each counted (`rows-NOTE`)."""

    number: int = 0
    """Number of rows before it in its file, without blank lines and the header."""


class BadRow(NamedTuple):
    """Row that is dropped."""

    position: str
    reason: str
    """Kebab-case reason, for the counter `rows-dropped-REASON`."""

    detail: str
    """Short form of the invalid value, for messages."""

    is_fault: bool = True
    """False for rows that a valid file has and a rule drops (MNLI's gold label `-`): they do not
    count towards `max_invalid_fraction`."""


SHOWN_BAD = 5
"""Number of bad rows that messages list."""


def describe_bad(rows: Sequence[BadRow]) -> str:
    """Format the first bad rows, for messages."""
    return "; ".join(f"{row.position}: {row.reason}: {row.detail}" for row in rows[:SHOWN_BAD])


def check_repeated_ids(ids: Counter[str], *, are_matched: bool, where: str) -> str:
    """Return a note on ids that several rows have; "" for none.

    Args:
        ids: Number of rows by id.
        are_matched: Whether predictions are matched by id: answers to questions, and those for a
            test server.
        where: Start of the error.

    Raises:
        TaskDataError: Predictions are matched by id.
    """
    repeated = [name for name, rows in ids.items() if rows > 1]
    if not repeated:
        return ""
    problem = (
        f"{ids.total() - len(ids):,} rows have an id that an earlier row has, such as "
        f"{', '.join(repeated[:SHOWN_BAD])}"
    )
    if are_matched:
        raise TaskDataError(
            f"{where}: {problem}. Its predictions are matched by id. Is a file given twice?"
        )
    return problem


class InvalidRowError(Exception):
    """Fault of a row that is being converted."""

    def __init__(self, reason: str, detail: str, *, is_fault: bool = True) -> None:
        """Set the fields of the `BadRow`."""
        super().__init__(reason, detail)
        self.reason, self.detail, self.is_fault = reason, detail, is_fault


def convert_row(row: Row | BadRow, convert: Callable[[Row], _T]) -> _T | BadRow:
    """Return the conversion of a valid row. `convert` raises InvalidRowError for a bad one."""
    if isinstance(row, BadRow):
        return row
    try:
        return convert(row)
    except InvalidRowError as error:
        return BadRow(row.position, error.reason, error.detail, error.is_fault)


def is_answered(split: str) -> bool:
    """Return whether each row of the split must have an answer: train and dev."""
    return split.startswith(("train", "dev", "augmentation"))


def answer_field(task: Task) -> str:
    """Return the field, and column of examples, with the answers of texts and choices."""
    return "score" if task.type == "regression" else "label"


Reader = Callable[["Task", str, str], Iterator[Row | BadRow]]
"""Function from (task, split, URL of a file) to its rows in order.

Raises TaskDataError if the whole file is unusable: it is empty, lacks a column, or has another
format.
"""


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """Layout of a task's files."""

    columns: ColumnNames = field(default_factory=dict)
    """Columns of tables by field: `text` (all texts of an example, in order), `label` or `score`,
    `id`; `begin` of all continuations; for tagged words `words` and `tags`. Keys of a recipe's
    `columns`."""

    headerless: tuple[str, ...] = ()
    """Columns of official files that have no header."""

    hub_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the Hugging Face hub in the order of its integers, each with the task's label."""

    dropped_labels: frozenset[str] = frozenset()
    """Labels of rows that are dropped by rule."""

    score_range: tuple[float, float] = (-math.inf, math.inf)
    """Lowest and highest score."""

    companions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the file that is read together with a file, by the name of the latter; the first
    that exists is used."""

    hint: str = ""
    """Advice for a file with other columns."""

    named_columns: Mapping[str, Column] = field(default_factory=dict)
    """Columns of the files that a recipe names, by the name in `columns`."""

    file_format: FileFormatConfig = field(default_factory=FileFormatConfig)
    """Format of text tables that a recipe sets."""

    label_names: tuple[str, ...] = ()
    """Names that a recipe gives the labels or tags that files hold as numbers."""

    def has_header(self, cells: Sequence[str]) -> bool:
        """Return whether the first line of a text file, with these cells, has the column names.

        Lines of tagged words have none, unless a recipe names columns by it.
        """
        if self.file_format.header is not None:
            return self.file_format.header
        if self.named_columns:
            return any(isinstance(column, str) for column in self.named_columns.values())
        texts = self.columns.get("text", ())
        has_texts = any(set(names) <= set(cells) for names in texts)
        return bool(texts) and (has_texts or len(cells) != len(self.headerless))


@dataclass(frozen=True, kw_only=True)
class Task:
    """Fine-tuning task."""

    name: str
    """Name in recipes: `mnli`."""

    title: str
    """Name in tables: `MNLI`."""

    type: TaskTypeName
    splits: Mapping[str, tuple[str, ...]]
    """Official file names by split, as globs or without ending (`model.tasks.official_files`); the
    first match is read. `train` and `dev` come first where there are any; further splits are
    evaluated with the model chosen on `dev`."""

    reader: Reader
    layout: FileLayout = FileLayout()
    folders: tuple[str, ...] = ()
    """Names of its folder in an unpacked benchmark."""

    labels: tuple[str, ...] = ()
    """Classes in the order of the checkpoint's outputs; () for regression, choice and span, and if
    they come from the training data (tagging)."""

    label_words: Mapping[str, str] = field(default_factory=dict)
    """Meanings of labels whose official names are numbers (SST-2: `1`, positive). Shown to users
    only; stored and submitted predictions have the official names."""

    metrics: tuple[str, ...]
    """Names in `model.tasks.row_terms`; the first chooses the best cell on dev (larger is
    better)."""

    can_split_train: bool = False
    """True if `dev_fraction` can make a dev split of training rows: tasks for custom data."""

    is_pair: bool = False
    choices: int = 0
    """For `choice`, continuations per example."""

    has_unanswerable: bool = False
    """For `span`, whether questions may have no answer (SQuAD 2.0)."""

    is_cased: bool | None = None
    """Vocabulary of the paper, if known; another one gives a note."""

    max_seq_length: int = 128
    """Sequence length of the paper's code, for recipes that the command line writes."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """Rows (for tagging, sentences) of the official splits, if published; scores of fewer are
    marked."""

    submission: Mapping[str, str] = field(default_factory=dict)
    """Name of the test server's file by split (GLUE: `{"test": "CoLA.tsv"}`)."""

    paper: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Table and column of `model.tables.paper` by split and metric (`dev/accuracy`)."""

    def case_note(self, *, lowercase: bool) -> str:
        """Return a note on a vocabulary that is not the paper's in case; "" for none."""
        if self.is_cased is None or self.is_cased != lowercase:
            return ""
        own, used = ("cased", "uncased") if self.is_cased else ("uncased", "cased")
        return f"the paper's model for {self.title} is {own}, this one {used}"

    def in_words(self, prediction: Mapping[str, Any]) -> dict[str, Any]:
        """Return a prediction with the meanings of its `label` and `probabilities`."""
        named = dict(prediction)
        if self.label_words:
            named["label"] = self.label_words.get(named["label"], named["label"])
            if shares := named.get("probabilities"):
                named["probabilities"] = {
                    self.label_words.get(name, name): share for name, share in shares.items()
                }
        return named
