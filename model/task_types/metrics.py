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


def _metric(compute: Metric, *, is_correlation: bool = False) -> Metric:
    """A metric that refuses answers that do not fit.

    A correlation is not defined where either side is constant. Here it is 0 then: a model that says
    the same of every row knows nothing of them, and a grid has to be able to compare it with
    others.
    """

    def checked(gold: Answers, predicted: Answers) -> float:
        if gold.shape != predicted.shape or gold.ndim != 1 or not len(gold):
            raise PredictionsError(
                f"answers of shape {predicted.shape} for {gold.shape}: expected one for each row, "
                "and at least one row"
            )
        if is_correlation and any((side == side[0]).all() for side in (gold, predicted)):
            return 0.0
        return float(compute(gold, predicted))

    return checked


def _scikit() -> Any:
    from sklearn import metrics  # start-up: 1,700 ms

    return metrics


def _scipy() -> Any:
    from scipy import stats  # start-up: 1,400 ms

    return stats


def _f1(gold: Answers, predicted: Answers) -> float:
    is_gold, is_predicted = gold == POSITIVE, predicted == POSITIVE
    return float(_scikit().f1_score(is_gold, is_predicted, zero_division=0.0))


METRICS: dict[str, Metric] = {
    "accuracy": _metric(lambda *sides: _scikit().accuracy_score(*sides)),
    "f1": _metric(_f1),
    "matthews": _metric(lambda *sides: _scikit().matthews_corrcoef(*sides), is_correlation=True),
    "pearson": _metric(lambda *sides: _scipy().pearsonr(*sides)[0], is_correlation=True),
    "spearman": _metric(lambda *sides: _scipy().spearmanr(*sides)[0], is_correlation=True),
}
"""By the names that `Task.metrics` says; shares of 1, correlations -1 to 1, ties with their mean
rank. Spans and entities have theirs with their task types."""


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
