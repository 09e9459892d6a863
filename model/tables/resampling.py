"""Tests of differences between mean scores, by resampling the dev rows and the restarts.

A difference must hold for other rows and for other restarts. Each draw

* draws as many dev rows as there are, with replacement, and computes the metric of each restart.
  All entries that predicted the same rows get the same draws, so their differences are paired;
* moves the mean of each entry by Student's t (restarts - 1) times the standard error of a mean over
  restarts. The t distribution makes up for a variance that is known from a few restarts only. Part
  of the variance between restarts is that of the rows, which is drawn already and subtracted;
* moves the mean by about one row. Without it, tests are too sure where only a few rows differ.

Means stay within the range of the metric. `benchmarks/bench_verdicts.py` has the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from model.tasks.row_terms import Float64s, RowTerms, StoredTerms, lowest_value, weighted_values
from pipelines.seeds import rng_for

DRAWS = 2000
_DRAWS_PER_COMPARISON = 80
"""Draws for each comparison of a family: the smallest possible p, 2 / (draws + 1), must be below
0.05 after Holm's correction."""

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
            restarts=tuple(RowTerms(item.statistic, item.terms) for item in group),
        )
        for key, group in groups.items()
    }


def count_draws(comparisons: int) -> int:
    """Return the number of draws for a family of comparisons."""
    return max(DRAWS, _DRAWS_PER_COMPARISON * comparisons)


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
