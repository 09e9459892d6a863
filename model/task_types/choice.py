"""Choice: which of several continuations follows a context (paper 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.task_types.features import Features
from model.task_types.metrics import METRICS, check_answered
from model.task_types.text import check_outputs, is_labelled, softmax
from model.task_types.text_pairs import EncodedTexts, join_texts
from model.tasks.task import Task
from pipelines.arrays import Int64s
from pipelines.wordpiece.ids import WordPieceTokenizer
from schemas.errors import ExamplesError, PredictionsError
from schemas.task_configs import FeaturesConfig


def build_features(
    examples: pa.Table,
    tokenizer: WordPieceTokenizer,
    *,
    task: Task,
    labels: Sequence[str],  # noqa: ARG001  # the same of every kind
    config: FeaturesConfig,
    is_training: bool,
) -> Features:
    """A unit a row: `[CLS] context [SEP] continuation [SEP]` for each of its continuations.

    All rows are kept; too long pairs are cut as those of `model.task_types.text`.

    Args:
        examples: `schemas.arrow.CHOICE_EXAMPLES`, each row with `task.choices` continuations.
        tokenizer: of the model's vocabulary.
        task: whose rows they are.
        labels: none, choices are numbers.
        config: max_seq_length alone is read.
        is_training: whether every row has to have a label.

    Raises:
        ExamplesError: a row with more or fewer continuations, a label that is none of them, or
            one missing in training, or in some rows alone.
    """
    _check_choices(examples, task=task)
    known = is_labelled(examples, "label", task=task, is_training=is_training)
    contexts = EncodedTexts.of(examples["context"], tokenizer).repeat(task.choices)
    continuations = EncodedTexts.of(pc.list_flatten(examples["continuations"]), tokenizer)
    joined = join_texts(
        contexts,
        continuations,
        has_second=np.ones(len(contexts.lengths), dtype=np.bool_),
        max_seq_length=config.max_seq_length,
        tokenizer=tokenizer,
    )
    return Features(
        kind=task.kind,
        offsets=joined.offsets,
        input_ids=joined.input_ids,
        b_starts=joined.b_starts,
        rows=np.arange(len(examples), dtype=np.int64),
        per_unit=task.choices,
        labels=_labels(examples, task=task) if known else None,
        counters=joined.counters,
    )


def _check_choices(examples: pa.Table, *, task: Task) -> None:
    counts = pc.list_value_length(examples["continuations"]).to_numpy()
    other = np.flatnonzero(counts != task.choices)
    if len(other):
        row = int(other[0])
        raise ExamplesError(
            f"{task.name}: row {row} (id {examples['id'][row]}) has {counts[row]} continuations: "
            f"expected {task.choices} in every row"
        )


def _labels(examples: pa.Table, *, task: Task) -> Int64s:
    labels: Int64s = examples["label"].to_numpy()
    outside = np.flatnonzero((labels < 0) | (labels >= task.choices))
    if len(outside):
        row = int(outside[0])
        raise ExamplesError(
            f"{task.name}: row {row} (id {examples['id'][row]}) has the label {labels[row]}: "
            f"expected 0 to {task.choices - 1}"
        )
    return labels


def decode(
    examples: pa.Table,
    features: Features,
    outputs: npt.NDArray[np.float32],
    *,
    tokenizer: WordPieceTokenizer,  # noqa: ARG001  # the same of every kind
    task: Task,
    labels: Sequence[str],  # noqa: ARG001
    config: FeaturesConfig,  # noqa: ARG001
    threshold: float,  # noqa: ARG001
) -> list[dict[str, Any]]:
    """Predictions of all rows, in order: `id`, `label` (a number) and `probabilities` (a list).

    Raises:
        PredictionsError: outputs of another shape than the features need, or not finite.
    """
    check_outputs(outputs, (features.units, task.choices), task=task)
    chosen = outputs.argmax(axis=1).tolist()
    rows = zip(examples["id"].to_pylist(), chosen, softmax(outputs).tolist(), strict=True)
    return [{"id": name, "label": best, "probabilities": shares} for name, best, shares in rows]


def score(
    examples: pa.Table, predictions: Sequence[Mapping[str, Any]], *, task: Task
) -> dict[str, float]:
    """The task's metrics (`model.task_types.metrics`) by name.

    Raises:
        PredictionsError: predictions of other rows, a label that is no choice, or rows without
            labels.
    """
    check_answered(examples, predictions, column="label")
    gold = examples["label"].to_numpy()
    labels = [prediction["label"] for prediction in predictions]
    for name, label in zip(examples["id"].to_pylist(), labels, strict=True):
        if type(label) is not int or not 0 <= label < task.choices:
            raise PredictionsError(
                f"{task.name}: the prediction of id {name} has the label {label!r:.60}: expected a "
                f"number from 0 to {task.choices - 1}"
            )
    said = np.array(labels, dtype=np.int64)
    return {name: METRICS[name](gold, said) for name in task.metrics}
