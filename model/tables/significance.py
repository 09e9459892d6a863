"""Significance tests between means over restarts; comparisons of entries and of variants on dev."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import computed_field

from model.tables.paper_results import PAPER_TABLES
from model.tables.results import MAJORITY, ResultRow, TableModel, main_rows

LEVEL = 0.05
MEAN = "mean"
FINE_TUNED = "fine-tuned"
_CONFIDENCE = 0.95

TestName = Literal["Welch", "permutation", ""]
ComparisonVerdict = Literal["better", "worse", "within noise", "not tested"]
Runs = Sequence[float]
"""Scores of the restarts of one side, in fractions of 1."""


class TestResult(NamedTuple):
    """Estimate of a weighted sum of means, such as one mean minus another, in fractions of 1."""

    estimate: float
    low: float | None = None
    """Lower end of the 95 % interval. None: a sample has one run."""

    high: float | None = None
    """Upper end of the 95 % interval."""

    p: float | None = None
    """Two-sided p-value of a sum of 0. None: not tested."""

    p_greater: float | None = None
    """One-sided p-value of a sum of 0 or less."""

    test: TestName = ""
    """`Welch`, or `permutation` for samples without variance."""

    runs: tuple[int, int] = (0, 0)
    """Smallest number of runs of both sides."""

    @property
    def reversed(self) -> TestResult:
        """Difference of the second side and the first, two-sided."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return TestResult(-self.estimate, low, high, self.p, runs=self.runs[::-1])


def welch_test(
    samples: Sequence[Runs], weights: Sequence[float], *, null_value: float = 0.0
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
        return TestResult(estimate)
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
    samples: Sequence[Runs], weights: Sequence[float], *, estimate: float
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
        return TestResult(estimate, estimate, estimate)
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


def mean_difference(pairs: Sequence[tuple[Runs, Runs]]) -> TestResult:
    """Test the mean over independent tasks of the difference a - b of the means of each pair."""
    weight = 1 / len(pairs)
    samples = [sample for pair in pairs for sample in pair]
    result = welch_test(samples, [weight, -weight] * len(pairs))
    first, second = (min(len(pair[side]) for pair in pairs) for side in (0, 1))
    return result._replace(runs=(first, second))


def prediction_p_value(value: float, sample: Runs) -> float | None:
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


class Comparison(TableModel):
    """Means over restarts of two sides, in fractions of 1, and the test of their difference."""

    first: str
    second: str
    first_mean: float
    second_mean: float
    low: float | None
    """Lower end of the 95 % interval of the difference. None: a side has one run."""

    high: float | None
    """Upper end of the interval."""

    p: float | None
    """Two-sided p-value of equal means. None: not tested."""

    adjusted: float | None = None
    """`p` after Holm's adjustment."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def difference(self) -> float:
        """First mean minus second mean."""
        return self.first_mean - self.second_mean

    def _result(self, runs: tuple[int, int]) -> TestResult:
        """Return the test with the adjusted p-value."""
        return TestResult(self.difference, self.low, self.high, self.adjusted, runs=runs)


class EntryComparison(Comparison):
    """Two entries of a task on dev by its main metric, the better mean first."""

    task: str
    metric: str
    first_runs: int
    second_runs: int
    first_cut: tuple[str, ...] = ()
    """Reductions of the data or the training of the first entry."""

    second_cut: tuple[str, ...] = ()
    first_reference: str = ""
    """Reference of the first score for `bertloom lineage` and `reproduce`."""

    second_reference: str = ""

    @property
    def result(self) -> TestResult:
        """Test with the adjusted p-value."""
        return self._result((self.first_runs, self.second_runs))


class VariantComparison(Comparison):
    """Two variants on one column, or on the mean over several columns.

    `first` is the variant that the paper expects to be better.
    """

    column: str
    """Key of the column, or MEAN."""

    columns: tuple[str, ...]
    """Columns of the mean, or the one column."""

    context: str = ""
    """Variants of the other axes of the sweep, equal for both."""

    runs: tuple[int, int]
    """Number of restarts of both; the minimum over the columns of a mean."""

    test: TestName
    paper: float | None = None
    """Difference in the paper, times 100. None: the paper lacks one of the values."""

    @property
    def result(self) -> TestResult:
        """Test with the adjusted p-value."""
        return self._result(self.runs)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> ComparisonVerdict:
        """Verdict on the first variant."""
        if self.adjusted is None:
            return "not tested"
        if self.adjusted >= LEVEL:
            return "within noise"
        return "better" if self.difference > 0 else "worse"


def _compare(groups: Sequence[Sequence[tuple[Runs, Runs]]]) -> list[dict[str, Any]]:
    """Return the fields of a comparison for each group of pairs of restarts, tested on its mean."""
    results = [mean_difference(pairs) for pairs in groups]
    adjusted = holm_adjust([result.p for result in results])
    return [
        {
            **result._asdict(),
            "first_mean": statistics.fmean(statistics.fmean(first) for first, _ in pairs),
            "second_mean": statistics.fmean(statistics.fmean(second) for _, second in pairs),
            "adjusted": p,
        }
        for pairs, result, p in zip(groups, results, adjusted, strict=True)
    ]


def compare_entries(
    rows: Sequence[ResultRow], *, swept: Collection[str] = ()
) -> list[EntryComparison]:
    """Compare all pairs of entries of a task by the means of their best grid points.

    Grid points were selected on the same dev rows, so means are biased upward, and more for larger
    grids. Majority classes are not compared. `model.tables.sweeps` compares variants of a sweep.

    Args:
        rows: Results of all entries.
        swept: Entries of the sweep.
    """
    pairs = [
        sorted(pair, key=mean_of, reverse=True)
        for pair in itertools.combinations(comparable_rows(rows), 2)
        if is_comparable(*pair) and not {row.entry for row in pair} <= set(swept)
    ]
    found = _compare([[(first.runs, second.runs)] for first, second in pairs])
    return [
        EntryComparison(
            task=first.task,
            metric=first.metric,
            first=first.entry,
            second=second.entry,
            first_runs=len(first.runs),
            second_runs=len(second.runs),
            first_cut=first.cut,
            second_cut=second.cut,
            first_reference=first.reference,
            second_reference=second.reference,
            **fields,
        )
        for (first, second), fields in zip(pairs, found, strict=True)
    ]


def comparable_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the main rows with a mean, without those of majority classes."""
    return [row for row in main_rows(rows) if row.mean is not None and row.method != MAJORITY]


def is_comparable(first: ResultRow, second: ResultRow) -> bool:
    """Return whether two entries have the same task, metric and data."""
    return (first.task, first.metric, first.data) == (second.task, second.metric, second.data)


def mean_of(row: ResultRow) -> float:
    """Return the mean over restarts, or 0 without restarts."""
    return row.mean or 0.0


class VariantPair(NamedTuple):
    """Two variants to compare on one column."""

    column: str
    first: str
    second: str
    context: str
    first_runs: Runs
    second_runs: Runs
    paper: float | None


def compare_variants(pairs: Sequence[VariantPair]) -> tuple[VariantComparison, ...]:
    """Compare each pair on its column, and on the mean over all columns that both variants have.

    P-values of columns and of means are adjusted separately.
    """
    groups: dict[tuple[str, str, str], list[VariantPair]] = {}
    for pair in pairs:
        groups.setdefault((pair.first, pair.second, pair.context), []).append(pair)
    means = [group for group in groups.values() if len(group) > 1]
    return (*_compare_groups([[pair] for pair in pairs]), *_compare_groups(means))


def _compare_groups(groups: Sequence[Sequence[VariantPair]]) -> Iterator[VariantComparison]:
    found = _compare([[(pair.first_runs, pair.second_runs) for pair in group] for group in groups])
    for group, fields in zip(groups, found, strict=True):
        paper = [pair.paper for pair in group if pair.paper is not None]
        yield VariantComparison(
            column=group[0].column if len(group) == 1 else MEAN,
            columns=tuple(pair.column for pair in group),
            first=group[0].first,
            second=group[0].second,
            context=group[0].context,
            paper=round(statistics.fmean(paper), 2) if len(paper) == len(group) else None,
            **fields,
        )


def compare_features(rows: Sequence[ResultRow]) -> tuple[VariantComparison, ...]:
    """Compare fine-tuning with each choice of feature layers of a model (Table 7), on dev."""
    table = PAPER_TABLES["table-7"]
    models: dict[str, list[ResultRow]] = {}
    for row in main_rows(rows):
        if row.paper_table == table.key:
            shape = {key: row.settings[key] for key in row.settings.keys() - _METHOD_FIELDS}
            models.setdefault(json.dumps([row.task, shape], sort_keys=True), []).append(row)
    pairs = []
    for group in models.values():
        group = [row for row in group if row.mean is not None]
        fine_tuned = [row for row in group if row.method == "fine-tune"]
        best = max(fine_tuned, key=mean_of, default=None)
        pairs += [
            VariantPair(
                column=row.paper_column,
                first=FINE_TUNED,
                second=row.features,
                context=row.start if len(models) > 1 else "",
                first_runs=best.runs,
                second_runs=row.runs,
                paper=table.difference("BERT_BASE", row.features, row.paper_column),
            )
            for row in group
            if best and row.features
        ]
    return compare_variants(pairs)


_METHOD_FIELDS = frozenset({"method", "feature_layers"})
