"""Task types: functions for features, predictions and scores of the tasks of one type.

A prediction has `id` and, by type: classification `label` (name) and `probabilities` (by name);
regression `score`; choice `label` (int) and `probabilities`; span `text` ("" for no answer),
`null_odds` (best null score minus best answer's), `n_best` (a list of `text`, `probability`,
`start_logit`, `end_logit`, best first); tagging `tags` (IOB2, one per word of the document).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from model.tasks.features import Features
from model.tasks.prediction_files import check_ids, read_lines
from model.tasks.row_terms import RowTerms
from model.tasks.task import Task
from pipelines.arrays import Float32s
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import PredictionsError, TaskDataError
from schemas.finetune_configs import FeaturesConfig

Prediction = Mapping[str, Any]
Result = TypeVar("Result", covariant=True)


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


class BuildFeatures(Protocol):
    """Function that returns examples as sequences, with labels if all are known.

    Raises TaskDataError if a row cannot be used, or has no label in training.
    """

    def __call__(
        self, examples: pa.Table, encoding: Encoding, *, is_training: bool
    ) -> Features: ...


class Decode(Protocol):
    """Function that returns predictions as JSON values, one per example, in order.

    `features` are those of the examples, `outputs` the raw outputs of a model in their order:
    classification (U, labels), regression (U,), choice (U, choices), span (T, 2), tagging
    (positions, labels). Raises PredictionsError if an output is not finite.
    """

    def __call__(
        self, examples: pa.Table, features: Features, outputs: Float32s, *, encoding: Encoding
    ) -> list[dict[str, Any]]: ...


class OfPredictions(Protocol[Result]):
    """Function of examples with known answers and one prediction per example, in order.

    Raises PredictionsError if a prediction is invalid.
    """

    def __call__(
        self, examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
    ) -> Result: ...


class MajorityAnswer(Protocol):
    """Function that returns the majority baseline's prediction for training data, without `id`.

    Of equally frequent labels the first in the order of `labels` is used. Raises TaskDataError if
    no example has an answer.
    """

    def __call__(
        self, examples: pa.Table, *, task: Task, labels: Sequence[str]
    ) -> dict[str, Any]: ...


class RepeatAnswer(Protocol):
    """Function that returns one answer as the prediction of each example, in order."""

    def __call__(self, examples: pa.Table, answer: Mapping[str, Any]) -> list[dict[str, Any]]: ...


class ReadPredictions(Protocol):
    """Function that reads a file of predictions.

    Raises PredictionsError if it cannot be read, or has predictions of other examples, and
    InputError if it is damaged.
    """

    def __call__(self, url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]: ...


class OfficialFiles(Protocol):
    """Function that returns files by name in the format of the task's own scorer."""

    def __call__(
        self,
        examples: pa.Table,
        predictions: Sequence[Prediction],
        *,
        task: Task,
        split: str,
        threshold: float,
    ) -> dict[str, bytes]: ...


def repeat_answer(examples: pa.Table, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one answer as the prediction of each example, in order."""
    return [{"id": name, **answer} for name in examples["id"].to_pylist()]


def read_own_predictions(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """Read predictions in bertloom's format."""
    del examples, task
    return read_lines(url)


def no_official_files(
    examples: pa.Table,
    predictions: Sequence[Prediction],
    *,
    task: Task,
    split: str,
    threshold: float,
) -> dict[str, bytes]:
    """Return no file: GLUE's submission is one for all tasks (`model.tables.glue_submission`)."""
    del examples, predictions, task, split, threshold
    return {}


@dataclass(frozen=True, kw_only=True)
class TaskType:
    """Functions of the tasks of one type. Its head is in `model.finetuning.heads`."""

    answer_column: str
    """Column of the examples that is null where the answer is not known."""

    build_features: BuildFeatures
    decode: Decode
    score: OfPredictions[dict[str, float]]
    """Function that returns metrics from 0 to 1 (correlations from -1) by name."""

    row_terms: OfPredictions[dict[str, RowTerms]]
    """Function that returns the terms of the task's metrics by name, a row for each example. With a
    weight of 1 for each row they give the metrics of `score`."""

    list_answers: Callable[[Mapping[str, Any]], list[str]]
    """Function that returns the answers in a prediction or in a row of examples."""

    majority_answer: MajorityAnswer
    majority_predictions: RepeatAnswer = repeat_answer
    read_predictions: ReadPredictions = read_own_predictions
    official_files: OfficialFiles = no_official_files

    def is_answered(self, examples: pa.Table) -> bool:
        """Return whether the answers to all examples are known."""
        return bool(len(examples)) and examples.column(self.answer_column).null_count == 0

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
