"""Differences of means over restarts, and how sure they are: the one test of tables and claims."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

_CONFIDENCE = 0.95

TestName = Literal["Welch", "permutation", ""]


class Contrast(NamedTuple):
    """A weighted sum of means over restarts, such as one mean minus another; shares of 1."""

    estimate: float
    low: float | None
    """The 95 % interval, None where a sample has one run."""

    high: float | None
    p: float | None
    """Two-sided, that the sum is 0; None where there is nothing to judge by."""

    p_greater: float | None
    """One-sided: that it is not above 0."""

    test: TestName
    """`Welch`, or `permutation` where no run differs from another of its sample."""


def contrast(
    samples: Sequence[Sequence[float]], weights: Sequence[float], *, less: float = 0.0
) -> Contrast:
    """The sum of weight times mean, less a constant, by Welch's t: unequal variances (Welch 1947,
    Satterthwaite).

    Restarts of two variants have the same data order and the same new weights where the shapes are
    equal, restart by restart. That is not made use of: a paired test would gain from it only where
    such restarts score alike, and has half the degrees of freedom. If they do score alike, this
    test is on the careful side.

    Samples in which no run differs from another have no variance to judge by; then it is the
    permutation test of the runs.

    Raises:
        ValueError: samples and weights are not as many, or a sample is empty.
    """
    estimate = sum(
        weight * statistics.fmean(sample) for sample, weight in zip(samples, weights, strict=True)
    )
    estimate -= less
    if min(len(sample) for sample in samples) < 2:
        return Contrast(estimate, None, None, None, None, "")
    shares = [
        weight**2 * statistics.variance(sample) / len(sample)
        for sample, weight in zip(samples, weights, strict=True)
    ]
    error = math.sqrt(sum(shares))
    if error == 0.0:
        return _without_variance(samples, weights, estimate=estimate)
    from scipy.stats import t  # start-up: 1,400 ms

    parts = [share**2 / (len(sample) - 1) for share, sample in zip(shares, samples, strict=True)]
    freedom = sum(shares) ** 2 / sum(parts)
    reach = error * float(t.ppf((1 + _CONFIDENCE) / 2, freedom))
    return Contrast(
        estimate,
        estimate - reach,
        estimate + reach,
        p=2 * float(t.sf(abs(estimate) / error, freedom)),
        p_greater=float(t.sf(estimate / error, freedom)),
        test="Welch",
    )


def _without_variance(
    samples: Sequence[Sequence[float]], weights: Sequence[float], *, estimate: float
) -> Contrast:
    """Test constant samples: how many ways to deal out the runs give as great a difference.

    Samples with weights w and -w are a pair, whose runs are dealt out between its two sides. Pairs
    whose differences have opposite signs are not tested.
    """
    if estimate == 0.0:
        return Contrast(estimate, estimate, estimate, 1.0, 1.0, "permutation")
    pairs = list(zip(samples[::2], samples[1::2], strict=False))
    is_paired = len(samples) % 2 == 0 and list(weights) == [weights[0], -weights[0]] * len(pairs)
    gaps = [a[0] - b[0] for a, b in pairs]
    if not is_paired or min(gaps) * max(gaps) < 0:
        return Contrast(estimate, estimate, estimate, None, None, "")
    dealt = [pair for pair, gap in zip(pairs, gaps, strict=True) if gap]
    ways = math.prod(math.comb(len(a) + len(b), len(a)) for a, b in dealt)
    mirrored = 1 if all(len(a) == len(b) for a, b in dealt) else 0
    return Contrast(
        estimate,
        estimate,
        estimate,
        p=(1 + mirrored) / ways,
        p_greater=1 / ways if estimate > 0 else 1.0,
        test="permutation",
    )


def difference(a: Sequence[float], b: Sequence[float]) -> Contrast:
    """The mean of a minus that of b."""
    return contrast([a, b], [1.0, -1.0])


def mean_difference(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Contrast:
    """The mean over several tasks of a's mean minus b's; the trainings of tasks are independent."""
    if len(pairs) == 1:
        return difference(*pairs[0])
    weight = 1 / len(pairs)
    return contrast([sample for pair in pairs for sample in pair], [weight, -weight] * len(pairs))


def chance_of(value: float, sample: Sequence[float]) -> float | None:
    """One-sided p that one more run of a sample is at least so good (a t prediction interval).

    None where the sample has one run, or its runs do not differ.
    """
    if len(sample) < 2 or (sd := statistics.stdev(sample)) == 0.0:
        return None
    from scipy.stats import t  # start-up: 1,400 ms

    distance = (value - statistics.fmean(sample)) / (sd * math.sqrt(1 + 1 / len(sample)))
    return float(t.sf(distance, len(sample) - 1))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Each p corrected for how many there are (Holm 1979): below .05 in any, with all null true, in
    at most one table of twenty. None stays None and counts for none."""
    known = sorted((p, place) for place, p in enumerate(values) if p is not None)
    raised = [min(1.0, (len(known) - rank) * p) for rank, (p, _) in enumerate(known)]
    found: list[float | None] = [None] * len(values)
    for (_, place), p in zip(known, itertools.accumulate(raised, max), strict=True):
        found[place] = p
    return found
