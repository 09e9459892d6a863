"""The interface of task types: what is done with examples, a model's outputs, and predictions.

A prediction has `id` and, by type: classification `label` (name) and `probabilities` (by name);
regression `score`; choice `label` (int) and `probabilities`; span `text` ("" for no answer),
`null_odds` (best null score minus best answer's), `n_best` (a list of `text`, `probability`,
`start_logit`, `end_logit`, best first); tagging `tags` (IOB2, one a word of the document).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from model.task_types.features import Features
from model.task_types.prediction_files import check_ids, is_ours, read_lines
from model.tasks.task import Task
from pipelines.arrays import Float32s
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import TaskDataError
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
    """Whether the head reads the pooler's vector of a sequence instead of tokens."""

    is_softmax = False
    """Whether a row of the outputs are logits of a softmax."""

    architecture: str
    """transformers' class of the model."""

    problem = ""
    """`problem_type` in config.json, for classes with several; "" for none."""

    @abstractmethod
    def build_features(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features:
        """The examples as sequences, with labels where all are known.

        Raises:
            TaskDataError: a row cannot be used, or in training has no label.
        """

    @abstractmethod
    def decode(
        self, examples: pa.Table, outputs: Float32s, *, features: Features, encoding: Encoding
    ) -> list[dict[str, Any]]:
        """Return predictions as JSON values, one per example, in order.

        Args:
            examples: those the features were made of.
            outputs: the model's raw ones, end to end in the order of the features: classification
                (U, labels), regression (U,), choice (U, choices), span (T, 2), tagging
                (positions, labels).
            features, encoding: of the examples.

        Raises:
            PredictionsError: they do not fit each other, or an output is not finite.
        """

    @abstractmethod
    def score(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> dict[str, float]:
        """Metrics by name, shares of 1.

        Raises:
            PredictionsError: predictions that are not of these examples or none of this type, or
                examples without answers.
        """

    @abstractmethod
    def majority_answer(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the prediction of the majority baseline, without `id`.

        Args:
            examples: the training data.
            task: whose examples they are.
            labels: classes in order; of equally frequent ones it is the first.

        Raises:
            TaskDataError: no example has an answer.
        """

    @abstractmethod
    def read_official(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
        """Predictions in the form that the task's own scorer reads, in the order of the examples.

        Raises:
            PredictionsError: the file cannot be read, or is not of these examples.
            InputError: it is damaged.
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
        """Files by name as the task's own scorer reads them; none where there is no such form.

        GLUE's submission is written by `model.tables.glue_submission`.
        """
        del examples, predictions, task, split, threshold
        return {}

    def tune_threshold(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> float | None:
        """The best tau on these examples; None where the task or the examples tell none."""
        del examples, predictions, task
        return None

    def apply_threshold(
        self, predictions: Sequence[Prediction], threshold: float
    ) -> list[dict[str, Any]]:
        """The predictions with the answers that this tau gives."""
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
        """Predictions in our own form, told by their first line, or in the official one.

        Raises:
            PredictionsError: the file cannot be read, or is not of these examples.
            InputError: it is damaged.
        """
        if is_ours(url):
            return read_lines(url)
        return self.read_official(url, examples, task=task)

    def score_file(self, url: str, examples: pa.Table, *, task: Task) -> Scored:
        """Read predictions in our own form back and score them.

        Raises:
            PredictionsError: they are not of these examples: another number, or other ids.
        """
        predictions = read_lines(url)
        check_ids(predictions, examples, where=url)
        if not self.is_answered(examples):
            return Scored({}, predictions)
        metrics = self.score(examples, predictions, task=task)
        return Scored({name: float(value) for name, value in metrics.items()}, predictions)


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
