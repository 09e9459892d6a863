"""Metrics of whole splits: accuracy, F1, Matthews', Pearson's and Spearman's correlation.

scikit-learn and SciPy compute them, and are loaded when the first is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import PredictionsError

Answers = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Metric = Callable[[Answers, Answers], float]
"""(what is right, what was predicted), both (rows,), to a number. Classes are int64."""

POSITIVE = 1
"""The class that F1 is of: the second label of a task (MRPC `1`, QQP `1`)."""


def accuracy(gold: Answers, predicted: Answers) -> float:
    """Share of rows that are right, 0 to 1."""
    _check(gold, predicted)
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(gold, predicted))


def f1(gold: Answers, predicted: Answers) -> float:
    """F1 of class 1 against all others, 0 to 1; 0 where it is neither there nor predicted."""
    _check(gold, predicted)
    from sklearn.metrics import f1_score

    is_gold, is_predicted = gold == POSITIVE, predicted == POSITIVE
    return float(f1_score(is_gold, is_predicted, zero_division=0.0))


def matthews(gold: Answers, predicted: Answers) -> float:
    """Matthews' correlation of classes, -1 to 1; 0 where either side has one class alone."""
    _check(gold, predicted)
    if _is_constant(gold) or _is_constant(predicted):
        return 0.0
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(gold, predicted))


def pearson(gold: Answers, predicted: Answers) -> float:
    """Pearson's correlation, -1 to 1.

    It is not defined where either side is constant. Here it is 0 then: a model that says the same
    of every row knows nothing of them, and a grid has to be able to compare it with others.
    """
    _check(gold, predicted)
    if _is_constant(gold) or _is_constant(predicted):
        return 0.0
    from scipy.stats import pearsonr

    return float(pearsonr(gold, predicted).statistic)


def spearman(gold: Answers, predicted: Answers) -> float:
    """Spearman's correlation of ranks, -1 to 1; ties have their mean rank. 0 where either side is
    constant, as for `pearson`."""
    _check(gold, predicted)
    if _is_constant(gold) or _is_constant(predicted):
        return 0.0
    from scipy.stats import spearmanr

    return float(spearmanr(gold, predicted).statistic)


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
"""By the names that `Task.metrics` says. Spans and entities have theirs with their kinds."""


def check_answered(
    examples: pa.Table, predictions: Sequence[Mapping[str, Any]], *, column: str
) -> None:
    """Refuse predictions that are not one a row of the examples, in order, with labels.

    Args:
        examples: with the columns `id` and `column`.
        predictions: each with `id` and `column`.
        column: of what is compared.

    Raises:
        PredictionsError: other rows, another order, or rows without labels.
    """
    if len(predictions) != len(examples):
        raise PredictionsError(
            f"{len(predictions)} predictions for {len(examples)} examples: expected one each"
        )
    for row, (name, prediction) in enumerate(
        zip(examples["id"].to_pylist(), predictions, strict=True)
    ):
        if prediction.get("id") != name:
            raise PredictionsError(
                f"prediction {row} is of id {prediction.get('id')!r}, expected {name!r}: "
                "predictions have the order of the examples"
            )
        if prediction.get(column) is None:
            raise PredictionsError(
                f"prediction {row} (id {name}) has no {column}, found {sorted(prediction)}"
            )
    if examples[column].null_count:
        row = pc.index(examples[column].is_null(), True).as_py()
        raise PredictionsError(
            f"row {row} (id {examples['id'][row]}) has no {column}: only a labelled split can be "
            "scored"
        )


def _check(gold: Answers, predicted: Answers) -> None:
    if gold.shape != predicted.shape or gold.ndim != 1 or not len(gold):
        raise PredictionsError(
            f"answers of shape {predicted.shape} for {gold.shape}: expected one for each row, and "
            "at least one row"
        )


def _is_constant(values: Answers) -> bool:
    return bool((values == values[0]).all())
