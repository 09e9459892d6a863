"""Task types: features of examples, decoding of a model's outputs, scores and files of predictions.

A prediction has `id` and, by type: classification `label` (name) and `probabilities` (by name);
regression `score`; choice `label` (int) and `probabilities`; span `text` ("" for no answer),
`null_odds` (best null score minus best answer's), `n_best` (a list of `text`, `probability`,
`start_logit`, `end_logit`, best first); tagging `tags` (IOB2, one per word of the document).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from model.task_types.features import Features
from model.task_types.prediction_files import check_ids, read_lines
from model.task_types.row_terms import RowTerms
from model.tasks.task import Task
from pipelines.arrays import Float32s
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import PredictionsError, TaskDataError
from schemas.finetune_configs import FeaturesConfig

Prediction = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Setup of a model: how it reads examples, and the names of its outputs."""

    task: Task
    labels: tuple[str, ...]
    """Names of the outputs, in order; () for types whose outputs have none."""

    tokenizer: WordPieceTokenizer
    config: FeaturesConfig


class Scored(NamedTuple):
    """Predictions with their scores."""

    metrics: dict[str, float]
    """Scores by name; empty if the examples have no answers."""

    predictions: list[dict[str, Any]]


class TaskType(ABC):
    """Features, head, decoding, metrics and files of the tasks of one type."""

    answer_column: str
    """Column of the examples that is null where the answer is not known."""

    outputs: int | None = None
    """Outputs of the head; None for one per label."""

    is_pooled = False
    """True if the head reads the pooler's vector of a sequence instead of tokens."""

    is_softmax = False
    """True if the outputs are logits of a softmax."""

    architecture: str
    """transformers' class of the model."""

    problem = ""
    """`problem_type` in config.json, for classes with several; "" for none."""

    @abstractmethod
    def build_features(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features:
        """Return the examples as sequences, with labels if all are known.

        Raises:
            TaskDataError: A row cannot be used, or has no label in training.
        """

    @abstractmethod
    def decode(
        self, examples: pa.Table, outputs: Float32s, *, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """Return predictions as JSON values, one per example, in order.

        Args:
            examples: Examples of the features.
            outputs: Raw outputs of a model in the order of the features: classification
                (U, labels), regression (U,), choice (U, choices), span (T, 2), tagging
                (positions, labels).
            encoding: Encoding of the features.

        Raises:
            PredictionsError: An output is not finite.
        """

    @abstractmethod
    def score(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, float]:
        """Return metrics from 0 to 1 (correlations from -1) by name.

        Args:
            examples: Examples with known answers.
            predictions: One prediction per example, in order.
            task: Task of the examples.

        Raises:
            PredictionsError: A prediction is invalid.
        """

    @abstractmethod
    def row_terms(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, RowTerms]:
        """Return the terms of the task's metrics by name, a row for each example.

        With a weight of 1 for each row they give the metrics of `score`.

        Raises:
            PredictionsError: A prediction is invalid.
        """

    @abstractmethod
    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the prediction of the majority baseline for training data, without `id`.

        Of equally frequent labels the first in the order of `labels` is used.

        Raises:
            TaskDataError: No example has an answer.
        """

    def official_files(
        self,
        examples: pa.Table,
        predictions: Sequence[Prediction],
        *,
        task: Task,
        split: str,
        threshold: float,
    ) -> dict[str, bytes]:
        """Return files by name in the format of the task's own scorer.

        {} for GLUE, whose submission is one file for all tasks (`model.tables.glue_submission`).
        """
        del examples, predictions, task, split, threshold
        return {}

    def tune_threshold(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> float | None:
        """Return the best threshold of `null_odds` on these examples; None: the task has none."""
        del examples, predictions, task
        return None

    def apply_threshold(
        self, predictions: Sequence[Prediction], threshold: float
    ) -> list[dict[str, Any]]:
        """Return the predictions with the answers that a threshold gives."""
        del threshold
        return [dict(item) for item in predictions]

    def majority_predictions(
        self, examples: pa.Table, answer: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the majority's predictions, one per example, in order."""
        return [{"id": name, **answer} for name in examples["id"].to_pylist()]

    def list_answers(self, row: Mapping[str, Any]) -> list[str]:
        """Return the answers in a prediction or in a row of examples."""
        return [str(row[self.answer_column])]

    def is_answered(self, examples: pa.Table) -> bool:
        """Return whether the answers to all examples are known."""
        return bool(len(examples)) and examples.column(self.answer_column).null_count == 0

    def read_predictions(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
        """Read predictions in bertloom's format.

        Raises:
            PredictionsError: The file cannot be read, or has predictions of other examples.
            InputError: The file is damaged.
        """
        del examples, task
        return read_lines(url)

    def score_file(self, url: str, examples: pa.Table, *, task: Task) -> Scored:
        """Read predictions in bertloom's format and score them.

        Raises:
            PredictionsError: The predictions are of other examples.
        """
        predictions = read_lines(url)
        check_ids(predictions, examples, where=url)
        if not self.is_answered(examples):
            return Scored({}, predictions)
        metrics = self.score(examples, predictions, task=task)
        return Scored({name: float(value) for name, value in metrics.items()}, predictions)


def check_outputs(outputs: Float32s, *, task: Task) -> None:
    """Check the values of a model's outputs.

    Raises:
        PredictionsError: A number is not finite.
    """
    finite = np.isfinite(outputs).all(axis=tuple(range(1, outputs.ndim)))
    if not finite.all():
        raise PredictionsError(
            f"{task.name}: {int((~finite).sum())} of {len(outputs)} outputs are not finite, the "
            f"first is {int(np.flatnonzero(~finite)[0])}: the model has diverged; train it with a "
            "smaller learning rate"
        )


def most_frequent(values: Iterable[str], *, task: Task) -> str:
    """Return the most frequent value, the first in order of equal ones.

    Raises:
        TaskDataError: There are no values.
    """
    counts = Counter(values)
    if not counts:
        raise no_answers(task)
    return min(counts, key=lambda value: (-counts[value], value))


def no_answers(task: Task) -> TaskDataError:
    """Return the error for training data without answers."""
    return TaskDataError(
        f"{task.name}: no example of the training data has an answer: expected labeled examples "
        "for the majority baseline"
    )
