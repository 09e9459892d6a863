"""Metrics of whole splits: accuracy, F1, Matthews', Pearson's and Spearman's correlation.

scikit-learn and SciPy compute them, and are loaded when the first is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Answers = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Metric = Callable[[Answers, Answers], float]
"""(what is right, what was predicted), both (rows,), to a number. Classes are int64."""

POSITIVE = 1
"""The class that F1 is of: the second label of a task (MRPC `1`, QQP `1`)."""


def _correlation(compute: Metric) -> Metric:
    """Correlation that is 0 where it is undefined, because either side is constant.

    So a grid can compare a model with constant predictions with others.
    """

    def defined(gold: Answers, predicted: Answers) -> float:
        if any((side == side[0]).all() for side in (gold, predicted)):
            return 0.0
        return float(compute(gold, predicted))

    return defined


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
    "accuracy": lambda *sides: float(_scikit().accuracy_score(*sides)),
    "f1": _f1,
    "matthews": _correlation(lambda *sides: _scikit().matthews_corrcoef(*sides)),
    "pearson": _correlation(lambda *sides: _scipy().pearsonr(*sides)[0]),
    "spearman": _correlation(lambda *sides: _scipy().spearmanr(*sides)[0]),
}
"""Metrics by their names in `Task.metrics`: from 0 to 1, correlations from -1 to 1 with mean ranks
for ties. Metrics of spans and entities are in their task types."""
