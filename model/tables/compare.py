"""One comparison for all verdicts: the difference of two mean scores, tested by resampling.

A difference must hold for other rows and for other restarts. Each draw

* draws as many dev rows as there are, with replacement, and computes the metric of each restart.
  All entries that predicted the same rows get the same draws, so their differences are paired;
* moves the mean of each entry by Student's t (restarts - 1) times the standard error of a mean over
  restarts. The t distribution makes up for a variance that is known from a few restarts only. Part
  of the variance between restarts is that of the rows, which is drawn already and subtracted;
* moves the mean by about one row. Without it, tests are too sure where only a few rows differ.

Means stay within the range of the metric. All comparisons of a table are one family, for which
p-values are adjusted. `benchmarks/bench_verdicts.py` has the error rates.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import computed_field

from model.task_results import Result
from model.tasks.row_terms import Float64s, RowTerms, StoredTerms, lowest_value, weighted_values
from pipelines.seeds import rng_for

LEVEL = 0.05
MEAN = "mean"
DRAWS = 2000
_DRAWS_PER_COMPARISON = 80
"""Draws for each comparison of a family: the smallest possible p, 2 / (draws + 1), must be below
0.05 after Holm's correction."""

_INTERVAL = (0.025, 0.975)
_MAX_BLOCK = 4_000_000
"""Weights to draw at once, draws times rows."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Terms of one metric for the dev rows and restarts of an entry, or for the majority class."""

    entry: str
    """Name that seeds the draws of restarts; "" for a score without restarts."""

    rows: str
    """Digest of the rows, which seeds the draws of rows."""

    restarts: tuple[RowTerms, ...]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.restarts[0].terms)


def read_samples(entry: str, records: Iterable[StoredTerms]) -> dict[tuple[str, str], Sample]:
    """Return the samples of an evaluation by metric and entry, "" for the majority class."""
    groups: dict[tuple[str, str], list[StoredTerms]] = {}
    for record in records:
        groups.setdefault((record.metric, entry if record.trial else ""), []).append(record)
    return {
        key: Sample(
            entry=key[1],
            rows=group[0].rows,
            restarts=tuple(item.row_terms for item in group),
        )
        for key, group in groups.items()
    }


class Side(NamedTuple):
    """Mean score of an entry, or the score of the majority class, in fractions of 1."""

    mean: float
    runs: int
    """Number of restarts; 0 for the majority class."""

    sample: Sample | None

    @property
    def is_tested(self) -> bool:
        """False with one restart, which does not show the noise, or without scores of rows."""
        return self.sample is not None and self.runs != 1


class Pair(NamedTuple):
    """Two sides to compare in one task or column."""

    first: str
    second: str
    title: str
    """Task with the name of its data, or column of the table."""

    sides: tuple[Side, Side]
    context: str = ""
    paper: float | None = None

    @property
    def is_tested(self) -> bool:
        """True if the spread of the scores of both sides is known."""
        return all(side.is_tested for side in self.sides)


class Comparison(Result):
    """Mean scores of two sides on dev, in fractions of 1, and the test of their difference.

    The sides are entries of a task, the better mean first; an entry and the majority class; the
    pretrained entries of several tasks and their twins from scratch; or two variants in a column of
    a table, first the one that the paper expects to be better.
    """

    first: str
    second: str
    title: str
    """Task with the name of its data, or column of the table; MEAN for a mean over several."""

    columns: tuple[str, ...]
    """Tasks or columns of the mean, or the one."""

    context: str = ""
    """Variants of the other axes of a sweep, equal for both."""

    paper: float | None = None
    """Difference in the paper, times 100. None: the paper lacks one of the values."""

    first_mean: float = 0.0
    second_mean: float = 0.0
    low: float | None = None
    """Lower end of the 95 % interval of the difference. None: not tested."""

    high: float | None = None
    """Upper end of the interval."""

    p: float | None = None
    """Two-sided p-value of equal means. None: not tested."""

    adjusted: float | None = None
    """`p` after Holm's adjustment for all comparisons of the table."""

    runs: tuple[int, int] = (0, 0)
    """Number of restarts of both; the minimum over the tasks of a mean."""

    rows: int = 0
    """Number of dev rows; the minimum over the tasks of a mean. 0: not known."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def difference(self) -> float:
        """First mean minus second mean."""
        return self.first_mean - self.second_mean

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Literal["better", "worse", "within noise", "not tested"]:
        """Verdict on the first side."""
        if self.adjusted is None:
            return "not tested"
        if self.adjusted >= LEVEL:
            return "within noise"
        return "better" if self.difference > 0 else "worse"

    @property
    def restarts(self) -> tuple[int, ...]:
        """Number of restarts of both sides, without the majority class."""
        return tuple(count for count in self.runs if count)

    @property
    def reversed(self) -> Self:
        """Comparison of the second side with the first."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        swapped = {"first": self.second, "second": self.first, "runs": self.runs[::-1]}
        means = {"first_mean": self.second_mean, "second_mean": self.first_mean}
        return self.model_copy(update={**swapped, **means, "low": low, "high": high})


def compare(family: Sequence[Sequence[Pair]]) -> tuple[Comparison, ...]:
    """Return a comparison for each group of pairs: on the mean over its pairs, if several."""
    draws = max(DRAWS, _DRAWS_PER_COMPARISON * len(family))
    means = _draw_sides([side for group in family for pair in group for side in pair.sides], draws)
    items = [_test(group, means, draws=draws) for group in family]
    adjusted = holm_adjust([item.p for item in items])
    return tuple(
        item.model_copy(update={"adjusted": p}) for item, p in zip(items, adjusted, strict=True)
    )


def _draw_sides(sides: Iterable[Side], draws: int) -> dict[int, Float64s]:
    """Return the mean scores in each draw by the `id` of the sample; rows are drawn once."""
    groups: dict[str, dict[int, Sample]] = {}
    for side in sides:
        if side.is_tested and side.sample is not None:
            groups.setdefault(side.sample.rows, {})[id(side.sample)] = side.sample
    means: dict[int, Float64s] = {}
    for group in groups.values():
        means |= zip(group, draw_means(list(group.values()), draws=draws), strict=True)
    return means


def _test(group: Sequence[Pair], means: dict[int, Float64s], *, draws: int) -> Comparison:
    """Return the comparison on the mean over pairs, with its interval and p-value."""
    pair = group[0]
    first, second = zip(*(pair.sides for pair in group), strict=True)
    samples = [side.sample for side in (*first, *second)]
    paper = [pair.paper for pair in group if pair.paper is not None]
    low = high = p = None
    if all(pair.is_tested for pair in group):
        parts = [
            means[id(a.sample)] - means[id(b.sample)] for a, b in zip(first, second, strict=True)
        ]
        differences = np.mean(parts, axis=0)
        low, high = np.quantile(differences, _INTERVAL).tolist()
        tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        p = min(1.0, 2 * (1 + tail) / (1 + draws))
    return Comparison(
        first=pair.first,
        second=pair.second,
        title=pair.title if len(group) == 1 else MEAN,
        columns=tuple(pair.title for pair in group),
        context=pair.context,
        paper=round(statistics.fmean(paper), 2) if len(paper) == len(group) else None,
        first_mean=statistics.fmean(side.mean for side in first),
        second_mean=statistics.fmean(side.mean for side in second),
        low=low,
        high=high,
        p=p,
        runs=(min(side.runs for side in first), min(side.runs for side in second)),
        rows=min(sample.size if sample else 0 for sample in samples),
    )


def holm_adjust(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for multiple tests (Holm 1979). None is not counted."""
    ranked = sorted((p, index) for index, p in enumerate(values) if p is not None)
    scaled = [min(1.0, (len(ranked) - rank) * p) for rank, (p, _) in enumerate(ranked)]
    adjusted: list[float | None] = [None] * len(values)
    for (_, index), p in zip(ranked, itertools.accumulate(scaled, max), strict=True):
        adjusted[index] = p
    return adjusted


def compare_in_columns(pairs: Sequence[Pair]) -> tuple[Comparison, ...]:
    """Compare each pair in its column, and on the mean over all columns that both sides have."""
    groups: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.first, pair.second, pair.context), []).append(pair)
    means = [group for group in groups.values() if len(group) > 1]
    return compare([*([pair] for pair in pairs), *means])


def on_means(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return one comparison for each two sides: on the mean of their columns, if several."""
    pairs: dict[tuple[str, str, str], Comparison] = {}
    for item in comparisons:
        key = (item.first, item.second, item.context)
        if key not in pairs or item.title == MEAN:
            pairs[key] = item
    return list(pairs.values())


# Draws


def draw_means(samples: Sequence[Sample], *, draws: int) -> list[Float64s]:
    """Return the mean scores of entries on the same rows in each draw, each of shape (draws,)."""
    scores: list[list[Float64s]] = [[] for _ in samples]
    for weights in _row_weights(samples[0], draws=draws):
        for sample, blocks in zip(samples, scores, strict=True):
            values = [weighted_values(terms, weights) for terms in sample.restarts]
            blocks.append(np.stack(values, axis=1))
    return [
        _add_restarts(sample, np.concatenate(blocks))
        for sample, blocks in zip(samples, scores, strict=True)
    ]


def _row_weights(sample: Sample, *, draws: int) -> Iterator[Float64s]:
    """Yield blocks of draws: the number of times that each row is drawn, shape (draws, rows)."""
    rng, size = rng_for(0, "dev-rows", sample.rows), sample.size
    block = max(1, _MAX_BLOCK // size)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        rows = rng.integers(0, size, (count, size)) + size * np.arange(count)[:, None]
        counts = np.bincount(rows.ravel(), minlength=count * size)
        yield counts.reshape(count, size).astype(np.float64)


def _add_restarts(sample: Sample, scores: Float64s) -> Float64s:
    """Return the means of the restarts' scores on drawn rows, as if restarts were drawn, too."""
    means: Float64s = scores.mean(axis=1)
    if sample.entry:
        draws, restarts = scores.shape
        rng = rng_for(0, "restarts", sample.entry)
        error = math.sqrt(_restart_variance(sample, scores) / restarts)
        means += error * rng.standard_t(restarts - 1, draws)
        means += rng.standard_normal(draws) / (math.sqrt(2) * sample.size)
    return np.clip(means, lowest_value(sample.restarts[0].statistic), 1.0)


def _restart_variance(sample: Sample, scores: Float64s) -> float:
    """Return the variance of restarts on all possible rows.

    The variance on the dev rows exceeds it by as much as the variance on drawn rows exceeds the one
    on the dev rows.
    """
    ones = np.ones((1, sample.size))
    own = np.concatenate([weighted_values(terms, ones) for terms in sample.restarts])
    return max(0.0, 2 * float(own.var(ddof=1)) - float(scores.var(axis=1, ddof=1).mean()))
