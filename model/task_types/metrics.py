"""Metrics of whole splits: accuracy, F1, Matthews', Pearson's and Spearman's correlation.

scikit-learn and SciPy compute them, and are loaded when the first is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import PredictionsError

Answers = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Metric = Callable[[Answers, Answers], float]
"""(what is right, what was predicted), both (rows,), to a number. Classes are int64."""

POSITIVE = 1
"""The class that F1 is of: the second label of a task (MRPC `1`, QQP `1`)."""


def _metric(compute: Metric, *, is_correlation: bool = False) -> Metric:
    """Metric with validated inputs.

    A correlation is undefined if either side is constant. It is 0 here, so that a grid can compare
    a model with constant predictions with others.
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
    from sklearn import metrics

    return metrics


def _scipy() -> Any:
    from scipy import stats

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
"""Metrics by their names in `Task.metrics`: from 0 to 1, correlations from -1 to 1 with mean ranks
for ties. Metrics of spans and entities are in their task types."""
