"""Classification, regression and choice: a label or a number for one text, a pair or continuations.

Paper 4.1 and 4.4. Long texts are truncated.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.tasks.features import (
    Encoding,
    Features,
    Texts,
    check_outputs,
    encode_texts,
    join_texts,
    truncated_lengths,
)
from model.tasks.prediction_files import Prediction
from model.tasks.row_terms import Answers, RowTerms, answer_terms, metric_value
from model.tasks.task import Task
from pipelines.arrays import Bools, Float32s, Int64s
from schemas.errors import PredictionsError, TaskDataError
from schemas.finetune_configs import TaskTypeName

Float64s: TypeAlias = npt.NDArray[np.float64]


def _numbers(answers: Sequence[Any], labels: Iterable[Any]) -> Int64s:
    """Return the numbers of labels."""
    numbers = {label: number for number, label in enumerate(labels)}
    return np.array([numbers[answer] for answer in answers], np.int64)


# Features


def build_features(examples: pa.Table, encoding: Encoding, *, is_training: bool) -> Features:
    """Return `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` for each row; each row is kept."""
    second = examples["text_b"]
    return _join_sequences(
        examples,
        encode_texts(examples["text_a"], encoding.tokenizer),
        encode_texts(pc.fill_null(second, ""), encoding.tokenizer),
        second.is_valid().to_numpy(),
        encoding=encoding,
        is_training=is_training,
    )


def build_choice_features(examples: pa.Table, encoding: Encoding, *, is_training: bool) -> Features:
    """Return `[CLS] context [SEP] continuation [SEP]` for each continuation of each row."""
    choices = encoding.task.choices
    contexts = encode_texts(examples["context"], encoding.tokenizer)
    second = encode_texts(pc.list_flatten(examples["continuations"]), encoding.tokenizer)
    return _join_sequences(
        examples,
        Texts(contexts.ids, *(np.repeat(part, choices) for part in contexts[1:])),
        second,
        np.ones(len(second.lengths), np.bool_),
        encoding=encoding,
        is_training=is_training,
    )


def _join_sequences(
    examples: pa.Table,
    first: Texts,
    second: Texts,
    has_second: Bools,
    *,
    encoding: Encoding,
    is_training: bool,
) -> Features:
    task = encoding.task
    room = encoding.config.max_seq_length - np.where(has_second, 3, 2)
    kept_a, kept_b = truncated_lengths(first.lengths, second.lengths, room=room)
    cut = first.lengths + second.lengths - kept_a - kept_b
    sequences = join_texts(
        first._replace(lengths=kept_a),
        second._replace(lengths=kept_b),
        has_second,
        tokenizer=encoding.tokenizer,
    )
    per_unit = task.choices or 1
    return Features(
        kind=task.type,
        **sequences._asdict(),
        rows=np.arange(len(kept_a) // per_unit, dtype=np.int64),
        per_unit=per_unit,
        labels=_read_labels(examples, encoding, is_training=is_training),
        counters={"texts-truncated": int((cut > 0).sum()), "tokens-cut": int(cut.sum())},
    )


def _read_labels(
    examples: pa.Table, encoding: Encoding, *, is_training: bool
) -> Int64s | Float64s | None:
    """Return the labels of all rows, or None where none has one.

    Raises:
        TaskDataError: Some rows have no label, or none has one and they are to be trained on.
    """
    task = encoding.task
    column = "score" if task.type == "regression" else "label"
    missing = examples[column].null_count
    if not missing and task.type == "regression":
        scores: Float64s = examples[column].to_numpy()
        return scores
    if not missing:
        labels = range(task.choices) if task.type == "choice" else encoding.labels
        return _numbers(examples[column].to_pylist(), labels)
    if missing == len(examples) and not is_training:
        return None
    row = pc.index(examples[column].is_null(), True).as_py()
    expected = "every row of the training data" if is_training else "every row of a split or none"
    raise TaskDataError(
        f"{task.name}: {missing} of {len(examples)} rows have no {column}, the first is row {row} "
        f"(id {examples['id'][row]}): expected a {column} in {expected}"
    )


# Predictions


def decode_labels(
    examples: pa.Table, features: Features, outputs: Float32s, *, encoding: Encoding
) -> list[dict[str, Any]]:
    """Return the `label` of the largest output, the first of equal ones, and probabilities."""
    del features
    names = encoding.labels
    return [
        {"id": row, "label": names[best], "probabilities": dict(zip(names, shares, strict=True))}
        for row, best, shares in _choices(examples, outputs, task=encoding.task)
    ]


def decode_scores(
    examples: pa.Table, features: Features, outputs: Float32s, *, encoding: Encoding
) -> list[dict[str, Any]]:
    """Return the model's output as `score`, also beyond the scale of the labels."""
    del features
    check_outputs(outputs, task=encoding.task)
    pairs = zip(examples["id"].to_pylist(), outputs.astype(np.float64).tolist(), strict=True)
    return [{"id": name, "score": score} for name, score in pairs]


def decode_choices(
    examples: pa.Table, features: Features, outputs: Float32s, *, encoding: Encoding
) -> list[dict[str, Any]]:
    """Return the number of the likeliest continuation as `label`, and a list of probabilities."""
    del features
    return [
        {"id": row, "label": best, "probabilities": shares}
        for row, best, shares in _choices(examples, outputs, task=encoding.task)
    ]


def _choices(
    examples: pa.Table, outputs: Float32s, *, task: Task
) -> Iterator[tuple[str, int, list[float]]]:
    """Yield the id of each example, its largest output, and the probabilities of all outputs."""
    check_outputs(outputs, task=task)
    # In float64, so that they add up to 1 in tables.
    shares = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    best = outputs.argmax(axis=1).tolist()
    yield from zip(examples["id"].to_pylist(), best, shares.tolist(), strict=True)


# Scores


def score(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task, column: str
) -> dict[str, float]:
    """Return the task's metrics (`model.tasks.row_terms`). F1 is of the second label."""
    terms = row_terms(examples, predictions, task=task, column=column)
    return {name: metric_value(own) for name, own in terms.items()}


def row_terms(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task, column: str
) -> dict[str, RowTerms]:
    """Return the terms of the task's metrics."""
    sides = _sides(examples, predictions, task=task, column=column)
    return {name: answer_terms(name, *sides) for name in task.metrics}


def _sides(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task, column: str
) -> tuple[Answers, Answers]:
    """Return right and predicted answers as numbers.

    Raises:
        PredictionsError: A prediction is invalid.
    """
    gold = examples[column].to_pylist()
    predicted: list[Any] = [prediction.get(column) for prediction in predictions]
    for name, value in zip(examples["id"].to_pylist(), predicted, strict=True):
        if not _is_valid(value, task):
            raise PredictionsError(
                f"{task.name}, {name}: expected {_EXPECTED[task.type]} as {column}, got "
                f"{value!r:.60}. Predict with a model of this task"
            )
    if task.type == "regression":
        return np.array(gold, np.float64), np.array(predicted, np.float64)
    labels = task.labels or range(task.choices) or sorted({*gold, *predicted})
    return _numbers(gold, labels), _numbers(predicted, labels)


_EXPECTED: dict[TaskTypeName, str] = {
    "classification": "the name of a label",
    "regression": "a finite number",
    "choice": "the number of a continuation",
}


def _is_valid(value: Any, task: Task) -> bool:
    """Return whether a predicted value is an answer of a task."""
    if task.type == "regression":
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and abs(value) <= sys.float_info.max  # excludes NaN, too
    if task.type == "choice":
        return type(value) is int and value in range(task.choices)
    return isinstance(value, str) and (not task.labels or value in task.labels)


# The majority baseline


def find_majority_label(examples: pa.Table, *, task: Task, labels: Sequence[str]) -> dict[str, Any]:
    """Return the most frequent label, and the shares of the training data as probabilities."""
    del task
    shares = _shares(examples, labels)
    return {"label": max(labels, key=lambda name: shares[name]), "probabilities": shares}


def find_mean_score(examples: pa.Table, *, task: Task, labels: Sequence[str]) -> dict[str, Any]:
    """Return the mean `score`."""
    del task, labels
    return {"score": pc.mean(examples["score"]).as_py()}


def find_majority_choice(
    examples: pa.Table, *, task: Task, labels: Sequence[str]
) -> dict[str, Any]:
    """Return the most frequent number, and the shares of the training data."""
    del labels
    shares = list(_shares(examples, range(task.choices)).values())
    return {"label": shares.index(max(shares)), "probabilities": shares}


def _shares(examples: pa.Table, labels: Sequence[Any]) -> dict[Any, float]:
    """Return the share of each label."""
    counts = Counter(examples["label"].to_pylist())
    return {label: counts[label] / counts.total() for label in labels}
