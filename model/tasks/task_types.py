"""Task types: functions for features, predictions and scores of the tasks of one type.

Examples are a table of the type's schema (`schemas.arrow.EXAMPLES`). A prediction has `id` and, by
type: classification `label` (name) and `probabilities` (by name); regression `score`; choice
`label` (int) and `probabilities`; span `text` ("" for no answer), `null_odds` (best null score
minus best answer's), `n_best` (a list of `text`, `probability`, `start_logit`, `end_logit`, best
first); tagging `tags` (IOB2, one per word of the document).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from model.tasks import classification, qa, tagging
from model.tasks.features import Features
from model.tasks.prediction_files import read_answers, read_lines
from model.tasks.row_terms import RowTerms
from model.tasks.task import Task
from schemas.finetune_configs import TaskTypeName

Answer = dict[str, Any]
"""Prediction, or answer of the majority baseline without `id`."""


@dataclass(frozen=True, kw_only=True)
class TaskType:
    """Functions of the tasks of one type. Its head is in `model.finetuning.task_model`."""

    answer_column: str
    """Column of the examples that is null where the answer is not known."""

    build_features: Callable[..., Features]
    """(examples, encoding, *, is_training) to sequences, with labels if all are known. Raises
    TaskDataError if a row cannot be used, or has no label in training."""

    decode: Callable[..., list[Answer]]
    """(examples, features, outputs, *, encoding) to predictions, in the order of the examples.
    Raises PredictionsError if an output is not finite."""

    score: Callable[..., dict[str, float]]
    """(examples, predictions, *, task) to metrics from 0 to 1 (correlations from -1) by name.
    Raises PredictionsError if a prediction is invalid."""

    row_terms: Callable[..., dict[str, RowTerms]]
    """(examples, predictions, *, task) to the terms of the task's metrics by name, a row for each
    example. With a weight of 1 for each row they give the metrics of `score`."""

    list_answers: Callable[[Mapping[str, Any]], list[str]]
    """Function that returns the answers in a prediction or in a row of examples."""

    majority_answer: Callable[..., Answer]
    """(training examples, *, task, labels) to the answer of the majority baseline. Of equally
    frequent labels the first is used. Raises TaskDataError if no example has an answer."""

    repeat_answer: Callable[[pa.Table, Answer], list[Answer]] = lambda examples, answer: [
        {"id": name, **answer} for name in examples["id"].to_pylist()
    ]
    """Function that returns one answer as the prediction of each example."""

    read_predictions: Callable[[str], list[Answer]] = read_lines
    """Function that reads a file. Raises PredictionsError if it has another format, and InputError
    if it is missing or damaged."""

    official_files: Callable[..., dict[str, bytes]] = lambda *_args, **_kwargs: {}
    """(examples, predictions, *, task, split, threshold) to files by name in the format of the
    task's own scorer. GLUE's submission is one for all tasks (`model.tables.glue_submission`)."""

    def is_answered(self, examples: pa.Table) -> bool:
        """Return whether the answers to all examples are known."""
        return bool(len(examples)) and examples.column(self.answer_column).null_count == 0

    def score_known(
        self, examples: pa.Table, predictions: list[Answer], *, task: Task
    ) -> dict[str, float]:
        """Return `score`; {} if the answers are not known."""
        return self.score(examples, predictions, task=task) if self.is_answered(examples) else {}


_LABELS = TaskType(
    answer_column="label",
    build_features=classification.build_features,
    decode=classification.decode,
    score=classification.score,
    row_terms=classification.row_terms,
    list_answers=lambda row: [str(row["label"])],
    majority_answer=classification.find_majority,
)

TASK_TYPES: dict[TaskTypeName, TaskType] = {
    "classification": _LABELS,
    "choice": _LABELS,
    "regression": replace(
        _LABELS, answer_column="score", list_answers=lambda row: [f"{row['score']:.2f}"]
    ),
    "span": TaskType(
        answer_column="is_impossible",
        build_features=qa.build_features,
        decode=qa.decode,
        score=qa.score,
        row_terms=qa.row_terms,
        list_answers=qa.list_answers,
        majority_answer=qa.find_majority_text,
        read_predictions=read_answers,
        official_files=qa.official_files,
    ),
    "tagging": TaskType(
        answer_column="tags",
        build_features=tagging.build_features,
        decode=tagging.decode,
        score=tagging.score,
        row_terms=tagging.row_terms,
        list_answers=lambda row: list(row["tags"]),
        majority_answer=tagging.find_majority_tag,
        repeat_answer=tagging.repeat_tag,
        official_files=tagging.official_files,
    ),
}
"""Task types by their names in tasks and model files."""
