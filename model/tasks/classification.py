"""Classification, regression and choice: a label or a number for one text, a pair or continuations.

Paper 4.1 and 4.4. Long texts are truncated.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.tasks.features import (
    Encoding,
    Features,
    Texts,
    check_answered,
    check_outputs,
    encode_texts,
    join_texts,
    truncated_lengths,
)
from model.tasks.prediction_files import Prediction
from model.tasks.row_terms import Answers, Float64s, RowTerms, answer_terms, metric_value
from model.tasks.task import Task, answer_field
from pipelines.arrays import Float32s, Int64s
from schemas.errors import PredictionsError
from schemas.finetune_configs import TaskTypeName


def _numbers(answers: Sequence[Any], labels: Iterable[Any]) -> Int64s:
    """Return the numbers of labels."""
    numbers = {label: number for number, label in enumerate(labels)}
    return np.array([numbers[answer] for answer in answers], np.int64)


# Features


def build_features(examples: pa.Table, encoding: Encoding, *, is_training: bool) -> Features:
    """Return `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` for each row; each row is kept.

    A choice has a sequence for each of its continuations: A is the context, B the continuation.
    """
    task, tokenizer = encoding.task, encoding.tokenizer
    if task.type == "choice":
        contexts = encode_texts(examples["context"], tokenizer)
        first = Texts(contexts.ids, *(np.repeat(part, task.choices) for part in contexts[1:]))
        second = encode_texts(pc.list_flatten(examples["continuations"]), tokenizer)
        has_second = np.ones(len(second.lengths), np.bool_)
    else:
        first = encode_texts(examples["text_a"], tokenizer)
        second = encode_texts(pc.fill_null(examples["text_b"], ""), tokenizer)
        has_second = examples["text_b"].is_valid().to_numpy()
    room = encoding.config.max_seq_length - np.where(has_second, 3, 2)
    kept_a, kept_b = truncated_lengths(first.lengths, second.lengths, room=room)
    cut = first.lengths + second.lengths - kept_a - kept_b
    sequences = join_texts(
        first._replace(lengths=kept_a),
        second._replace(lengths=kept_b),
        has_second,
        tokenizer=tokenizer,
    )
    return Features(
        kind=task.type,
        **sequences._asdict(),
        rows=np.arange(len(examples), dtype=np.int64),
        per_unit=task.choices or 1,
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
    answers = examples[answer_field(task)]
    if answers.null_count == len(examples) and not is_training:
        return None
    expected = "every row of the training data" if is_training else "every row of a split or none"
    check_answered(examples, answer_field(task), expected=expected)
    if task.type == "regression":
        scores: Float64s = answers.to_numpy()
        return scores
    return _numbers(answers.to_pylist(), encoding.labels or range(task.choices))


# Predictions


def decode(
    examples: pa.Table, features: Features, outputs: Float32s, *, encoding: Encoding
) -> list[dict[str, Any]]:
    """Return the answers of a model.

    A regression's `score` is the output, also beyond the scale of the labels. Other types have the
    `label` of the largest output, the first of equal ones, and `probabilities`: by name, or for
    choices, whose labels are numbers, as a list.
    """
    del features
    task = encoding.task
    check_outputs(outputs, task=task)
    # In float64, so that probabilities add up to 1 in tables.
    ids, values = examples["id"].to_pylist(), outputs.astype(np.float64)
    if task.type == "regression":
        pairs = zip(ids, values.tolist(), strict=True)
        return [{"id": name, "score": score} for name, score in pairs]
    shares = np.exp(values - values.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = zip(ids, values.argmax(axis=1).tolist(), shares.tolist(), strict=True)
    if task.type == "choice":
        return [{"id": name, "label": best, "probabilities": own} for name, best, own in rows]
    names = encoding.labels
    return [
        {"id": name, "label": names[best], "probabilities": dict(zip(names, own, strict=True))}
        for name, best, own in rows
    ]


# Scores


def score(examples: pa.Table, predictions: Sequence[Prediction], *, task: Task) -> dict[str, float]:
    """Return the task's metrics (`model.tasks.row_terms`). F1 is of the second label."""
    terms = row_terms(examples, predictions, task=task)
    return {name: metric_value(own) for name, own in terms.items()}


def row_terms(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
) -> dict[str, RowTerms]:
    """Return the terms of the task's metrics.

    Raises:
        PredictionsError: A prediction is invalid.
    """
    column = answer_field(task)
    gold = examples[column].to_pylist()
    predicted: list[Any] = [prediction.get(column) for prediction in predictions]
    for name, value in zip(examples["id"].to_pylist(), predicted, strict=True):
        if not _is_valid(value, task):
            expected = ", ".join(task.labels) or _EXPECTED[task.type]
            raise PredictionsError(
                f"{task.name}, {name}: {column}: expected {expected}, got {value!r:.60}. Predict "
                "with a model of this task"
            )
    sides: list[Answers]
    if task.type == "regression":
        sides = [np.array(side, np.float64) for side in (gold, predicted)]
    else:
        labels = task.labels or range(task.choices) or sorted({*gold, *predicted})
        sides = [_numbers(side, labels) for side in (gold, predicted)]
    return {name: answer_terms(name, *sides) for name in task.metrics}


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


def find_majority(examples: pa.Table, *, task: Task, labels: Sequence[str]) -> dict[str, Any]:
    """Return the most frequent `label` of the training data, or the mean `score`."""
    if task.type == "regression":
        return {"score": pc.mean(examples["score"]).as_py()}
    counts = Counter(examples["label"].to_pylist())
    return {"label": max(labels or range(task.choices), key=counts.__getitem__)}
