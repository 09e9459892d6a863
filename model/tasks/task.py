"""What a task says of itself, and what its reader gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.finetune_configs import TaskTypeName


class Row(NamedTuple):
    """A row that became an example."""

    position: str
    """Where it was, for messages: `line 17`, `row 3`, `paragraph 4 of Normans`."""

    values: dict[str, Any]
    """Its columns, those of `schemas.arrow.EXAMPLES` for the task's type."""

    notes: tuple[str, ...] = ()
    """Kebab-case names of what was odd about it and mended, each counted (`rows-NOTE`)."""


class Bad(NamedTuple):
    """A row that did not."""

    position: str
    reason: str
    """Kebab-case, for the counter `rows-dropped-REASON`."""

    found: str
    """What stood there, short, for people."""

    is_fault: bool = True
    """False for what a good file holds and is left out by rule (MNLI's gold label `-`): such rows
    are counted, and not held against the file (`max_invalid_fraction`)."""


def is_answered(split: str) -> bool:
    """Whether each row of the split must have its answer: it is trained on or chosen by."""
    return split.startswith(("train", "dev", "augmentation"))


Reader = Callable[["Task", str, str], Iterator[Row | Bad]]
"""(task, split, URL of a file) to its rows in order.

Raises TaskDataError where the file as a whole cannot be used: empty, a column missing, another
format. The message names file, what was found, what was expected, and what to do.
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A fine-tuning task."""

    name: str
    """As recipes say it: `mnli`."""

    title: str
    """As tables say it: `MNLI`."""

    type: TaskTypeName
    splits: Mapping[str, tuple[str, ...]]
    """Official file names (globs, first match wins) below a folder, by split. `train` and `dev`
    come first where there are any; further splits are evaluated with the model chosen on `dev`."""

    reader: Reader
    labels: tuple[str, ...] = ()
    """Classes in the order of the checkpoint's outputs; () where the training data tells them
    (tagging), and for regression, choice and span."""

    label_words: Mapping[str, str] = field(default_factory=dict)
    """What a label means, where its name in the official files is a number (SST-2: `1`, positive).
    For people: predictions that are kept, scored or handed in have the names of the files."""

    metrics: tuple[str, ...]
    """Names in `model.task_types.metrics`; the first chooses the best cell on dev (larger is
    better)."""

    is_pair: bool = False
    choices: int = 0
    """`choice`: continuations of each example."""

    has_unanswerable: bool = False
    """`span`: whether questions may have no answer (SQuAD 2.0)."""

    is_cased: bool | None = None
    """What vocabulary the paper used, where it says; a note is given if another one is used."""

    max_seq_length: int = 128
    """Length in the paper's code, for recipes that the command line makes."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """Rows of the official splits (of tagging, sentences), where they are published: scores of
    fewer are marked."""

    submission: Mapping[str, str] = field(default_factory=dict)
    """Name of the test server's file by split (GLUE: `{"test": "CoLA.tsv"}`)."""

    submitted_labels: Mapping[str, str] = field(default_factory=dict)
    """What the server calls a label, where it is not its name."""

    paper: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By split and metric (`dev/accuracy`): table and column of `model.tables.paper_tables`."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    """What the reader needs to know, in the reader's own terms."""

    def in_words(self, prediction: Mapping[str, Any]) -> dict[str, Any]:
        """A prediction with its `label` and `probabilities` by what the labels mean."""
        said = dict(prediction)
        if self.label_words:
            said["label"] = self.label_words.get(said["label"], said["label"])
            if shares := said.get("probabilities"):
                said["probabilities"] = {
                    self.label_words.get(name, name): share for name, share in shares.items()
                }
        return said
