"""Significance tests of differences between means over restarts, used by all tables and claims."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

_CONFIDENCE = 0.95

TestName = Literal["Welch", "permutation", ""]


class TestResult(NamedTuple):
    """Estimate of a weighted sum of means, such as one mean minus another, in fractions of 1."""

    estimate: float
    low: float | None
    """Lower end of the 95 % interval. None: a sample has one run."""

    high: float | None
    """Upper end of the 95 % interval."""

    p: float | None
    """Two-sided p-value of a sum of 0. None: not tested."""

    p_greater: float | None
    """One-sided p-value of a sum of 0 or less."""

    test: TestName
    """`Welch`, or `permutation` for samples without variance."""


def welch_test(
    samples: Sequence[Sequence[float]], weights: Sequence[float], *, null_value: float = 0.0
) -> TestResult:
    """Test a weighted sum of means minus a constant with Welch's t-test (unequal variances).

    Degrees of freedom are those of Satterthwaite. The test is unpaired although restarts share data
    order and new weights: a paired test has half the degrees of freedom, and gains only if such
    restarts score alike. If they do, this test is conservative. Samples without variance are tested
    with a permutation test.

    Raises:
        ValueError: The numbers of samples and weights differ, or a sample is empty.
    """
    estimate = sum(
        weight * statistics.fmean(sample) for sample, weight in zip(samples, weights, strict=True)
    )
    estimate -= null_value
    if min(len(sample) for sample in samples) < 2:
        return TestResult(estimate, None, None, None, None, "")
    variances = [
        weight**2 * statistics.variance(sample) / len(sample)
        for sample, weight in zip(samples, weights, strict=True)
    ]
    error = math.sqrt(sum(variances))
    if error == 0.0:
        return _permutation_test(samples, weights, estimate=estimate)
    # lazy: loads scipy
    from scipy.stats import t

    parts = [
        variance**2 / (len(sample) - 1) for variance, sample in zip(variances, samples, strict=True)
    ]
    degrees = sum(variances) ** 2 / sum(parts)
    margin = error * float(t.ppf((1 + _CONFIDENCE) / 2, degrees))
    return TestResult(
        estimate,
        estimate - margin,
        estimate + margin,
        p=2 * float(t.sf(abs(estimate) / error, degrees)),
        p_greater=float(t.sf(estimate / error, degrees)),
        test="Welch",
    )


def _permutation_test(
    samples: Sequence[Sequence[float]], weights: Sequence[float], *, estimate: float
) -> TestResult:
    """Test constant samples: count the permutations of runs with a difference as large.

    Runs are permuted within pairs of samples with weights w and -w. Pairs whose differences have
    opposite signs are not tested.
    """
    if estimate == 0.0:
        return TestResult(estimate, estimate, estimate, 1.0, 1.0, "permutation")
    pairs = list(zip(samples[::2], samples[1::2], strict=False))
    is_paired = len(samples) % 2 == 0 and list(weights) == [weights[0], -weights[0]] * len(pairs)
    gaps = [a[0] - b[0] for a, b in pairs]
    if not is_paired or min(gaps) * max(gaps) < 0:
        return TestResult(estimate, estimate, estimate, None, None, "")
    different = [pair for pair, gap in zip(pairs, gaps, strict=True) if gap]
    permutations = math.prod(math.comb(len(a) + len(b), len(a)) for a, b in different)
    mirrored = 1 if all(len(a) == len(b) for a, b in different) else 0
    return TestResult(
        estimate,
        estimate,
        estimate,
        p=(1 + mirrored) / permutations,
        p_greater=1 / permutations if estimate > 0 else 1.0,
        test="permutation",
    )


def mean_difference(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> TestResult:
    """Test the mean over independent tasks of the difference a - b of the means of each pair."""
    weight = 1 / len(pairs)
    samples = [sample for pair in pairs for sample in pair]
    return welch_test(samples, [weight, -weight] * len(pairs))


def prediction_p_value(value: float, sample: Sequence[float]) -> float | None:
    """Return the one-sided p-value that another run of a sample scores at least a value.

    This is a t prediction interval. None: the sample has one run or no variance.
    """
    if len(sample) < 2 or (sd := statistics.stdev(sample)) == 0.0:
        return None
    # lazy: loads scipy
    from scipy.stats import t

    distance = (value - statistics.fmean(sample)) / (sd * math.sqrt(1 + 1 / len(sample)))
    return float(t.sf(distance, len(sample) - 1))


def holm_adjust(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for multiple tests (Holm 1979). None is not counted."""
    ranked = sorted((p, index) for index, p in enumerate(values) if p is not None)
    scaled = [min(1.0, (len(ranked) - rank) * p) for rank, (p, _) in enumerate(ranked)]
    adjusted: list[float | None] = [None] * len(values)
    for (_, index), p in zip(ranked, itertools.accumulate(scaled, max), strict=True):
        adjusted[index] = p
    return adjusted
