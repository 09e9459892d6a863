"""Description of a task, and the rows that its reader yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.finetune_configs import TaskTypeName


class Row(NamedTuple):
    """Row that becomes an example."""

    position: str
    """Position for messages: `line 17`, `row 3`, `paragraph 4 of Normans`."""

    values: dict[str, Any]
    """Values of the columns in `schemas.arrow.EXAMPLES` for the task's type."""

    notes: tuple[str, ...] = ()
    """Kebab-case names of corrections, each counted (`rows-NOTE`)."""


class Bad(NamedTuple):
    """Row that is dropped."""

    position: str
    reason: str
    """Kebab-case reason, for the counter `rows-dropped-REASON`."""

    found: str
    """Short form of the invalid value, for messages."""

    is_fault: bool = True
    """False for rows that a valid file has and a rule drops (MNLI's gold label `-`): they do not
    count towards `max_invalid_fraction`."""


def is_answered(split: str) -> bool:
    """Return whether each row of the split must have an answer: train and dev."""
    return split.startswith(("train", "dev", "augmentation"))


Reader = Callable[["Task", str, str], Iterator[Row | Bad]]
"""Function from (task, split, URL of a file) to its rows in order.

Raises TaskDataError if the whole file is unusable: it is empty, lacks a column, or has another
format.
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Fine-tuning task."""

    name: str
    """Name in recipes: `mnli`."""

    title: str
    """Name in tables: `MNLI`."""

    type: TaskTypeName
    splits: Mapping[str, tuple[str, ...]]
    """Official file names (globs, first match wins) below a folder, by split. `train` and `dev`
    come first where there are any; further splits are evaluated with the model chosen on `dev`."""

    reader: Reader
    labels: tuple[str, ...] = ()
    """Classes in the order of the checkpoint's outputs; () for regression, choice and span, and if
    they come from the training data (tagging)."""

    label_words: Mapping[str, str] = field(default_factory=dict)
    """Meanings of labels whose official names are numbers (SST-2: `1`, positive). Shown to users
    only; stored and submitted predictions have the official names."""

    metrics: tuple[str, ...]
    """Names in `model.task_types.metrics`; the first chooses the best cell on dev (larger is
    better)."""

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

    submitted_labels: Mapping[str, str] = field(default_factory=dict)
    """Names of labels on the test server, if different."""

    paper: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Table and column of `model.tables.paper_tables` by split and metric (`dev/accuracy`)."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    """Options of the reader."""

    def in_words(self, prediction: Mapping[str, Any]) -> dict[str, Any]:
        """Return a prediction with the meanings of its `label` and `probabilities`."""
        said = dict(prediction)
        if self.label_words:
            said["label"] = self.label_words.get(said["label"], said["label"])
            if shares := said.get("probabilities"):
                said["probabilities"] = {
                    self.label_words.get(name, name): share for name, share in shares.items()
                }
        return said
