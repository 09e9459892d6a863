"""Metrics, computed from terms of single rows on a whole split or on any sample of its rows.

A metric of a split is not always a mean over rows: F1 is a quotient of sums, Spearman's correlation
needs ranks. Here each row has a few numbers, and a function of those numbers and of a weight of
each row gives the metric. All samples of the rows are computed in one call. Loading scikit-learn
and SciPy instead takes as long as a short trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Bools
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import ROW_TERMS
from schemas.manifest import FileEntry, StageInput

Float64s: TypeAlias = npt.NDArray[np.float64]
Answers = npt.NDArray[np.int64] | npt.NDArray[np.float64]
"""Numbers of classes, int64, or scores, float64, (rows,)."""

Statistic = Literal["mean", "f1", "matthews", "pearson", "spearman"]
METRICS = ("accuracy", "f1", "matthews", "pearson", "spearman")
"""Metrics of labels and scores by their names in `Task.metrics`: from 0 to 1, correlations from -1
to 1 with mean ranks for ties, and 0 where a side is constant. Metrics of spans and entities are in
their task types."""

POSITIVE = 1
"""The class that F1 is of: the second label of a task (MRPC `1`, QQP `1`)."""


class RowTerms(NamedTuple):
    """Terms of a metric on all rows of a split."""

    statistic: Statistic
    """Function of the weights and the terms."""

    terms: Float64s
    """Terms by row, shape (rows, terms): one value for `mean`; right, predicted and gold items for
    `f1`; gold and predicted classes or values for the correlations."""


def mean_terms(values: Sequence[float] | Bools) -> RowTerms:
    """Return the terms of a mean over rows."""
    return RowTerms("mean", np.asarray(values, np.float64)[:, None])


def f1_terms(right: Sequence[int], predicted: Sequence[int], gold: Sequence[int]) -> RowTerms:
    """Return the terms of a micro-averaged F1, given the number of items in each row."""
    return RowTerms("f1", np.array([right, predicted, gold], np.float64).T)


def answer_terms(metric: str, gold: Answers, predicted: Answers) -> RowTerms:
    """Return the terms of one of METRICS, given right and predicted answers."""
    if metric == "accuracy":
        return mean_terms(gold == predicted)
    if metric == "f1":
        is_predicted, is_gold = predicted == POSITIVE, gold == POSITIVE
        sides = (is_predicted & is_gold, is_predicted, is_gold)
        return f1_terms(*(side.astype(np.int64).tolist() for side in sides))
    statistic = next(name for name in _CORRELATIONS if name == metric)
    return RowTerms(statistic, np.stack([gold, predicted], axis=1).astype(np.float64))


def lowest_value(statistic: Statistic) -> float:
    """Return the lower end of a metric's range; the upper end is 1."""
    return -1.0 if statistic in _CORRELATIONS else 0.0


def weighted_values(row_terms: RowTerms, weights: Float64s) -> Float64s:
    """Return the metric for each sample of the rows, shape (samples,); 0 where it is undefined.

    Args:
        row_terms: Terms of all rows.
        weights: Number of times that a sample has a row, shape (samples, rows).
    """
    return _VALUES[row_terms.statistic](weights, row_terms.terms)


def metric_value(row_terms: RowTerms) -> float:
    """Return the metric of all rows."""
    return float(weighted_values(row_terms, np.ones((1, len(row_terms.terms))))[0])


def _mean(weights: Float64s, terms: Float64s) -> Float64s:
    values: Float64s = weights @ terms[:, 0]
    return _divide(values, weights.sum(axis=1))


def _f1(weights: Float64s, terms: Float64s) -> Float64s:
    right, predicted, gold = (weights @ terms).T
    return _divide(2 * right, predicted + gold)


def _matthews(weights: Float64s, terms: Float64s) -> Float64s:
    """Return Matthews' correlation of any number of classes (Gorodkin 2004)."""
    _, classes = np.unique(terms, return_inverse=True)
    gold, predicted = np.eye(int(classes.max()) + 1)[classes.reshape(terms.shape)].swapaxes(0, 1)
    total = weights.sum(axis=1)
    right = weights @ (gold * predicted).sum(axis=1)
    of_gold, of_predicted = weights @ gold, weights @ predicted
    covariance = right * total - (of_gold * of_predicted).sum(axis=1)
    variances = [total**2 - (counts**2).sum(axis=1) for counts in (of_gold, of_predicted)]
    return _correlate(covariance, *variances)


def _pearson(weights: Float64s, terms: Float64s) -> Float64s:
    x, y = (terms - terms.mean(axis=0)).T
    return _weighted_correlation(weights, x, y)


def _spearman(weights: Float64s, terms: Float64s) -> Float64s:
    x, y = (_weighted_ranks(weights, values) for values in terms.T)
    return _weighted_correlation(weights, x, y)


def _weighted_ranks(weights: Float64s, values: Float64s) -> Float64s:
    """Return the mean rank of each row in each sample, from the middle; shape of the weights."""
    order = np.argsort(values, kind="stable")
    _, starts, groups = np.unique(values, return_index=True, return_inverse=True)
    starts = np.searchsorted(values[order], values[starts])
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    middles = np.cumsum(counts, axis=1) - counts / 2
    ranks: Float64s = (middles - weights.sum(axis=1, keepdims=True) / 2)[:, groups]
    return ranks


def _weighted_correlation(weights: Float64s, x: Float64s, y: Float64s) -> Float64s:
    """Return the correlation of each sample; x and y have shape (rows,) or (samples, rows)."""
    total = weights.sum(axis=1)
    sum_x, sum_y = ((weights * values).sum(axis=1) for values in (x, y))
    products = [(weights * a * b).sum(axis=1) for a, b in ((x, y), (x, x), (y, y))]
    covariance = total * products[0] - sum_x * sum_y
    return _correlate(covariance, total * products[1] - sum_x**2, total * products[2] - sum_y**2)


def _correlate(covariance: Float64s, *variances: Float64s) -> Float64s:
    # A constant side has a variance of rounding errors.
    is_constant = np.minimum(*variances) <= 1e-12 * np.maximum(*variances)
    scale = np.sqrt(np.maximum(variances[0], 0.0)) * np.sqrt(np.maximum(variances[1], 0.0))
    return np.clip(_divide(np.where(is_constant, 0.0, covariance), scale), -1.0, 1.0)


def _divide(part: Float64s, whole: Float64s) -> Float64s:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole != 0)


_CORRELATIONS: tuple[Statistic, ...] = ("matthews", "pearson", "spearman")
_VALUES: dict[Statistic, Callable[[Float64s, Float64s], Float64s]] = {
    "mean": _mean,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
}


ROW_TERMS_FILE = "row-terms-dev.arrow"


class StoredTerms(NamedTuple):
    """Terms of one metric, of one restart or of the majority class."""

    metric: str
    trial: str
    """Name of the restart; "" for the majority class."""

    rows: str
    """Digest of the dev rows."""

    row_terms: RowTerms


def write_row_terms(
    row_terms: Iterable[tuple[str, Mapping[str, RowTerms]]], *, rows: str, output: str
) -> FileEntry:
    """Write the terms of all metrics of each trial.

    Args:
        row_terms: Names of trials, each with its terms by metric.
        rows: Digest of the dev rows.
        output: URL of the folder to write to.
    """
    records = [
        {
            "metric": metric,
            "statistic": item.statistic,
            "trial": trial,
            "rows": rows,
            "columns": item.terms.shape[1],
            "terms": item.terms.ravel(),
        }
        for trial, metrics in row_terms
        for metric, item in metrics.items()
    ]
    with ShardWriter(ROW_TERMS_FILE, schema=ROW_TERMS, output=output, compression="zstd") as shard:
        for record in records:
            shard.write(pa.RecordBatch.from_pylist([record], schema=ROW_TERMS))
    return shard.entry()


def read_row_terms(evaluation: StageInput) -> Iterator[StoredTerms]:
    """Yield the records of an evaluation; none without the file.

    Raises:
        ArtifactCorruptError: The file is damaged, or has another schema.
    """
    for entry in evaluation.files:
        if entry.path == ROW_TERMS_FILE:
            with open_shard(InputFile.of(evaluation, entry), expected=ROW_TERMS) as shard:
                for record in shard.read_all().to_pylist():
                    columns, terms = record.pop("columns"), np.array(record.pop("terms"))
                    own = RowTerms(record.pop("statistic"), terms.reshape(-1, columns))
                    yield StoredTerms(**record, row_terms=own)
