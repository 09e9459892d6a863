"""Classification and regression: a label or a number for a text or a pair of texts (paper 4.1)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.task_types.features import Features
from model.task_types.metrics import METRICS, check_answered
from model.task_types.text_pairs import EncodedTexts, join_texts
from model.tasks.task import Task
from pipelines.arrays import Int64s
from pipelines.wordpiece.ids import WordPieceTokenizer
from schemas.errors import ExamplesError, PredictionsError
from schemas.task_configs import FeaturesConfig

_MOST_SCORE = sys.float_info.max


def build_features(
    examples: pa.Table,
    tokenizer: WordPieceTokenizer,
    *,
    task: Task,
    labels: Sequence[str],
    config: FeaturesConfig,
    is_training: bool,
) -> Features:
    """`[CLS] A [SEP]`, and `[CLS] A [SEP] B [SEP]` where a row has a text B.

    All rows are kept. Where both texts are too long together, the longer is cut from its end, token
    by token (`model.task_types.text_pairs`).

    Args:
        examples: `schemas.arrow.TEXT_EXAMPLES`.
        tokenizer: of the model's vocabulary.
        task: whose rows they are.
        labels: classes in the order of the model's outputs; () for regression.
        config: max_seq_length alone is read.
        is_training: whether every row has to have a label or score.

    Raises:
        ExamplesError: a label is missing in training, or in some rows alone, or is unknown.
    """
    second = examples["text_b"]
    has_second = second.is_valid().to_numpy()
    joined = join_texts(
        EncodedTexts.of(examples["text_a"], tokenizer),
        EncodedTexts.of(pc.fill_null(second, ""), tokenizer),
        has_second=has_second,
        max_seq_length=config.max_seq_length,
        tokenizer=tokenizer,
    )
    column = "score" if task.kind == "regression" else "label"
    known = is_labelled(examples, column, task=task, is_training=is_training)
    return Features(
        kind=task.kind,
        offsets=joined.offsets,
        input_ids=joined.input_ids,
        b_starts=joined.b_starts,
        rows=np.arange(len(examples), dtype=np.int64),
        labels=_labels(examples, task=task, labels=labels) if known else None,
        counters=joined.counters,
    )


def is_labelled(examples: pa.Table, column: str, *, task: Task, is_training: bool) -> bool:
    """Whether rows have labels: all or none.

    Raises:
        ExamplesError: some have none, or none has one and they are to be trained on.
    """
    missing = examples[column].null_count
    if not missing:
        return True
    row = pc.index(examples[column].is_null(), True).as_py()
    name = examples["id"][row].as_py()
    if is_training:
        raise ExamplesError(
            f"{task.name}: {missing} of {len(examples)} rows have no {column}, the first is row "
            f"{row} (id {name}): expected one in every row of the training data; take another split"
        )
    if missing < len(examples):
        raise ExamplesError(
            f"{task.name}: {missing} of {len(examples)} rows have no {column}, the first is row "
            f"{row} (id {name}): expected one in every row of a split or in none; leave rows "
            "without one out, or put them into a split of their own"
        )
    return False


def _labels(
    examples: pa.Table, *, task: Task, labels: Sequence[str]
) -> Int64s | npt.NDArray[np.float64]:
    if task.kind == "regression":
        scores: npt.NDArray[np.float64] = examples["score"].to_numpy()
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            raise ExamplesError(
                f"{task.name}: row {bad[0]} (id {examples['id'][int(bad[0])]}) has the score "
                f"{scores[bad[0]]}: expected a finite number; correct the file"
            )
        return scores
    numbers = pc.index_in(examples["label"], value_set=pa.array(labels, pa.string()))
    if numbers.null_count:
        row = pc.index(numbers.is_null(), True).as_py()
        raise ExamplesError(
            f"{task.name}: row {row} (id {examples['id'][row]}) has the label "
            f"{examples['label'][row].as_py()!r}: expected one of {', '.join(labels)}"
        )
    known: Int64s = numbers.to_numpy().astype(np.int64)
    return known


def decode(
    examples: pa.Table,
    features: Features,
    outputs: npt.NDArray[np.float32],
    *,
    tokenizer: WordPieceTokenizer,  # noqa: ARG001  # the same of every kind
    task: Task,
    labels: Sequence[str],
    config: FeaturesConfig,  # noqa: ARG001
    threshold: float,  # noqa: ARG001
) -> list[dict[str, Any]]:
    """Predictions of all rows, in order: `id` and `label` with `probabilities`, or `score`.

    The label is that of the largest output, the first of them if several. A score is what the
    model says, also beyond the scale of the labels.

    Raises:
        PredictionsError: outputs of another shape than the features need, or not finite.
    """
    is_regression = task.kind == "regression"
    expected = (features.units,) if is_regression else (features.units, len(labels))
    check_outputs(outputs, expected, task=task)
    names = examples["id"].to_pylist()
    if is_regression:
        pairs = zip(names, outputs.astype(np.float64).tolist(), strict=True)
        return [{"id": name, "score": score} for name, score in pairs]
    chosen = outputs.argmax(axis=1).tolist()
    rows = zip(names, chosen, softmax(outputs).tolist(), strict=True)
    return [
        {
            "id": name,
            "label": labels[best],
            "probabilities": dict(zip(labels, shares, strict=True)),
        }
        for name, best, shares in rows
    ]


def check_outputs(
    outputs: npt.NDArray[np.float32], expected: tuple[int, ...], *, task: Task
) -> None:
    """Refuse a model's outputs that are not what the features ask for.

    Raises:
        PredictionsError: another shape, or a number that is not finite.
    """
    if outputs.shape != expected:
        raise PredictionsError(
            f"{task.name}: outputs of shape {outputs.shape}, expected {expected}: they are not of "
            "these features, or the model has other labels"
        )
    finite = np.isfinite(outputs).all(axis=tuple(range(1, outputs.ndim)))
    if not finite.all():
        raise PredictionsError(
            f"{task.name}: {int((~finite).sum())} of {len(outputs)} outputs are not finite, the "
            f"first is {int(np.flatnonzero(~finite)[0])}: the model has diverged; train it with a "
            "smaller learning rate"
        )


def softmax(outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Probabilities of each row, in float64, so that they add up to 1 in tables."""
    exact = outputs.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    np.exp(exact, out=exact)
    exact /= exact.sum(axis=1, keepdims=True)
    return exact


def score(
    examples: pa.Table, predictions: Sequence[Mapping[str, Any]], *, task: Task
) -> dict[str, float]:
    """The task's metrics (`model.task_types.metrics`) by name. F1 is of the second label of the
    task.

    Raises:
        PredictionsError: predictions of other rows, a label that is none of the task's where it
            says them itself, a score that is no finite number, or rows without labels.
    """
    column = "score" if task.kind == "regression" else "label"
    check_answered(examples, predictions, column=column)
    gold = examples[column].to_pylist()
    said = [prediction[column] for prediction in predictions]
    _check_said(said, task=task)
    if task.kind != "regression":
        # A task whose labels are those of its data has none of its own to check against.
        labels = task.labels or tuple(sorted({*gold, *said}))
        numbers = {name: number for number, name in enumerate(labels)}
        unknown = [label for label in (*gold, *said) if label not in numbers]
        if unknown:
            raise PredictionsError(
                f"{task.name}: the label {unknown[0]!r}: expected one of {', '.join(task.labels)}"
            )
        gold, said = ([numbers[label] for label in side] for side in (gold, said))
    return {name: METRICS[name](np.array(gold), np.array(said)) for name in task.metrics}


def _check_said(said: Sequence[Any], *, task: Task) -> None:
    """Refuse labels that are no text, and scores that are no finite numbers."""
    for row, value in enumerate(said):
        if task.kind == "regression":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            is_good = is_number and abs(value) <= _MOST_SCORE  # false of NaN
            wanted = "a finite number"
        else:
            is_good, wanted = isinstance(value, str), "the name of a label"
        if not is_good:
            raise PredictionsError(
                f"{task.name}: prediction {row} is {value!r:.60}: expected {wanted}"
            )
