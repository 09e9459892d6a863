"""Metrics of whole splits: accuracy, F1, Matthews', Pearson's and Spearman's correlation.

They are computed here, because loading scikit-learn and SciPy takes as long as a short trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
        return compute(gold, predicted)

    return defined


def _accuracy(gold: Answers, predicted: Answers) -> float:
    return float((gold == predicted).mean())


def _f1(gold: Answers, predicted: Answers) -> float:
    is_gold, is_predicted = gold == POSITIVE, predicted == POSITIVE
    marked = int(is_gold.sum() + is_predicted.sum())
    return 2 * int((is_gold & is_predicted).sum()) / marked if marked else 0.0


def _matthews(gold: Answers, predicted: Answers) -> float:
    """Return the correlation of two sequences of any number of classes (Gorodkin 2004)."""
    classes = np.union1d(gold, predicted)
    golds, predictions = (
        [int(count) for count in (side[:, None] == classes).sum(axis=0)]
        for side in (gold, predicted)
    )
    rows, right = len(gold), int((gold == predicted).sum())
    covariance = right * rows - sum(a * b for a, b in zip(golds, predictions, strict=True))
    variances = (rows**2 - sum(count**2 for count in side) for side in (golds, predictions))
    return covariance / math.sqrt(math.prod(variances))


def _pearson(gold: Answers, predicted: Answers) -> float:
    first, second = (side - side.mean() for side in (gold, predicted))
    first, second = (side / np.linalg.norm(side) for side in (first, second))
    return float(np.clip(first @ second, -1.0, 1.0))


def _ranks(values: Answers) -> npt.NDArray[np.float64]:
    """Return the rank of each value from 1; equal values have the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: npt.NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return means[places]


METRICS: dict[str, Metric] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _correlation(_matthews),
    "pearson": _correlation(_pearson),
    "spearman": _correlation(lambda *sides: _pearson(*map(_ranks, sides))),
}
"""Metrics by their names in `Task.metrics`: from 0 to 1, correlations from -1 to 1 with mean ranks
for ties. Metrics of spans and entities are in their task types."""
