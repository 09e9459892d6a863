"""Comparisons of entries and of variants on dev. All comparisons of a table are one family."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import computed_field

from model.tables.paper import FEATURES_TABLE
from model.tables.resampling import Sample, count_draws, draw_means
from model.tables.results import MAJORITY_CLASS, ResultRow, main_rows
from model.task_results import FinetunedModel, Result
from model.tasks.row_terms import Float64s

LEVEL = 0.05
MEAN = "mean"
FINE_TUNED = "fine-tuned"
SCRATCH = "scratch"
_INTERVAL = (0.025, 0.975)


class Side(NamedTuple):
    """Mean score of an entry, or the score of the majority class, in fractions of 1."""

    mean: float
    runs: int
    """Number of restarts; 0 for the majority class."""

    sample: Sample | None

    @classmethod
    def of(cls, row: ResultRow) -> Side:
        """Return the mean of an entry."""
        return cls(mean_of(row), len(row.runs), row.sample)

    @property
    def is_tested(self) -> bool:
        """False with one restart, which does not show the noise, or without scores of rows."""
        return self.sample is not None and self.runs != 1


Pair = tuple[Side, Side]


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


def compare(family: Sequence[tuple[Comparison, Sequence[Pair]]]) -> tuple[Comparison, ...]:
    """Return comparisons with their tests, each on the mean over its pairs.

    They are one family: p-values are adjusted for all of them.
    """
    draws = count_draws(len(family))
    means = _draw_sides([side for _, pairs in family for pair in pairs for side in pair], draws)
    results = [_test(pairs, means, draws=draws) for _, pairs in family]
    adjusted = holm_adjust([result["p"] for result in results])
    return tuple(
        item.model_copy(update={**result, "adjusted": p, **_describe(pairs)})
        for (item, pairs), result, p in zip(family, results, adjusted, strict=True)
    )


def _draw_sides(sides: Sequence[Side], draws: int) -> dict[int, Float64s]:
    """Return the mean scores in each draw by the `id` of the sample; rows are drawn once."""
    groups: dict[str, dict[int, Sample]] = {}
    for side in sides:
        if side.is_tested and side.sample is not None:
            groups.setdefault(side.sample.rows, {})[id(side.sample)] = side.sample
    means: dict[int, Float64s] = {}
    for group in groups.values():
        means |= zip(group, draw_means(list(group.values()), draws=draws), strict=True)
    return means


def _test(pairs: Sequence[Pair], means: dict[int, Float64s], *, draws: int) -> dict[str, Any]:
    """Return the interval and the p-value of the mean difference."""
    if not all(side.is_tested for pair in pairs for side in pair):
        return {"low": None, "high": None, "p": None}
    parts = [means[id(first.sample)] - means[id(second.sample)] for first, second in pairs]
    differences = np.mean(parts, axis=0)
    low, high = np.quantile(differences, _INTERVAL).tolist()
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return {"low": low, "high": high, "p": min(1.0, 2 * (1 + tail) / (1 + draws))}


def _describe(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the means of both sides, and the smallest numbers of restarts and rows."""
    first, second = zip(*pairs, strict=True)
    samples = [side.sample for pair in pairs for side in pair]
    return {
        "first_mean": statistics.fmean(side.mean for side in first),
        "second_mean": statistics.fmean(side.mean for side in second),
        "runs": (min(side.runs for side in first), min(side.runs for side in second)),
        "rows": min(sample.size if sample else 0 for sample in samples),
    }


def holm_adjust(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for multiple tests (Holm 1979). None is not counted."""
    ranked = sorted((p, index) for index, p in enumerate(values) if p is not None)
    scaled = [min(1.0, (len(ranked) - rank) * p) for rank, (p, _) in enumerate(ranked)]
    adjusted: list[float | None] = [None] * len(values)
    for (_, index), p in zip(ranked, itertools.accumulate(scaled, max), strict=True):
        adjusted[index] = p
    return adjusted


# Entries


def compare_entries(
    rows: Sequence[ResultRow], *, swept: Collection[str] = ()
) -> tuple[Comparison, ...]:
    """Compare all pairs of entries of a task by the means of their best grid points.

    If several tasks have pretrained twins, the last comparison is the mean over them.

    Grid points were selected on the same dev rows, so means are biased upward, and more for larger
    grids. `model.tables.sweeps` compares variants of a sweep.

    Args:
        rows: Results of all entries.
        swept: Entries of the sweep.
    """
    family: list[tuple[Comparison, Sequence[Pair]]] = []
    for pair in itertools.combinations(comparable_rows(rows), 2):
        if is_comparable(*pair) and not {row.entry for row in pair} <= set(swept):
            first, second = sorted(pair, key=mean_of, reverse=True)
            sides = (Side.of(first), Side.of(second))
            family.append((_untested(first, second.entry), [sides]))
    twins = list(pretraining_twins(rows, swept=swept).items())
    pairs = {task: (Side.of(first), Side.of(second)) for task, (first, second) in twins}
    tested = {task: pair for task, pair in pairs.items() if all(s.is_tested for s in pair)} or pairs
    if len(tested) > 1:
        item = Comparison(
            first="pretrained", second="from scratch", title=MEAN, columns=tuple(tested)
        )
        family.append((item, list(tested.values())))
    return compare(family)


def _untested(row: ResultRow, second: str) -> Comparison:
    """Return the comparison of an entry with another side, before the test."""
    return Comparison(first=row.entry, second=second, title=row.name, columns=(row.task,))


def compare_with_majority(rows: Sequence[ResultRow]) -> tuple[Comparison, ...]:
    """Compare each entry with the majority class on the same rows; all of them are one family."""
    return compare(
        [
            (
                _untested(row, MAJORITY_CLASS),
                [(Side.of(row), Side(row.majority, 0, row.majority_sample))],
            )
            for row in comparable_rows(rows)
            if row.majority is not None
        ]
    )


def pretraining_twins(
    rows: Sequence[ResultRow], *, swept: Collection[str] = ()
) -> dict[str, tuple[ResultRow, ResultRow]]:
    """Return for each task its best pretrained entry that has a twin from scratch, and the twin.

    Twins have the same shape, method and data.
    """
    ranked = [row for row in comparable_rows(rows) if row.entry not in swept]
    ranked.sort(key=mean_of, reverse=True)
    scratch = [row for row in ranked if row.start == SCRATCH]
    twins: dict[str, tuple[ResultRow, ResultRow]] = {}
    for row in ranked:
        others = (other for other in scratch if _without_start(other) == _without_start(row))
        twin = next(others, None)
        if twin is not None and row.start != SCRATCH:
            twins.setdefault(row.task, (row, twin))
    return {row.task: twins[row.task] for row in rows if row.task in twins}


def _without_start(row: ResultRow) -> tuple[str, str, FinetunedModel]:
    return row.task, row.method, row.settings.model_copy(update={"start": ""})


def comparable_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the main rows with a mean."""
    return [row for row in main_rows(rows) if row.mean is not None]


def is_comparable(first: ResultRow, second: ResultRow) -> bool:
    """Return whether two entries have the same task, metric and data."""
    return (first.task, first.metric, first.data) == (second.task, second.metric, second.data)


def mean_of(row: ResultRow) -> float:
    """Return the mean over restarts, or 0 without restarts."""
    return row.mean or 0.0


# Variants


class VariantPair(NamedTuple):
    """Two variants to compare in one column."""

    column: str
    first: str
    second: str
    context: str
    sides: Pair
    paper: float | None


def compare_variants(pairs: Sequence[VariantPair]) -> tuple[Comparison, ...]:
    """Compare each pair in its column, and on the mean over all columns that both variants have."""
    groups: dict[tuple[str, str, str], list[VariantPair]] = {}
    for pair in pairs:
        groups.setdefault((pair.first, pair.second, pair.context), []).append(pair)
    family = [[pair] for pair in pairs] + [group for group in groups.values() if len(group) > 1]
    return compare(
        [
            (
                Comparison(
                    first=group[0].first,
                    second=group[0].second,
                    title=group[0].column if len(group) == 1 else MEAN,
                    columns=tuple(pair.column for pair in group),
                    context=group[0].context,
                    paper=_mean_of_known([pair.paper for pair in group]),
                ),
                [pair.sides for pair in group],
            )
            for group in family
        ]
    )


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a value is not known."""
    numbers = list(values)
    known = [value for value in numbers if value is not None]
    return round(statistics.fmean(known), 2) if len(known) == len(numbers) else None


def compare_features(rows: Sequence[ResultRow]) -> tuple[Comparison, ...]:
    """Compare fine-tuning with each choice of feature layers of a model (Table 7), on dev."""
    models: dict[str, list[ResultRow]] = {}
    for row in comparable_rows(rows):
        if row.paper_table == FEATURES_TABLE.key:
            shape = row.settings.model_copy(update={"feature_layers": ""})
            models.setdefault(f"{row.task} {shape}", []).append(row)
    pairs = []
    for group in models.values():
        fine_tuned = [row for row in group if row.method == "fine-tune"]
        best = max(fine_tuned, key=mean_of, default=None)
        pairs += [
            VariantPair(
                column=row.paper_column,
                first=FINE_TUNED,
                second=row.settings.feature_layers,
                context=row.start if len(models) > 1 else "",
                sides=(Side.of(best), Side.of(row)),
                paper=FEATURES_TABLE.difference(
                    "BERT_BASE", row.settings.feature_layers, row.paper_column
                ),
            )
            for row in group
            if best and row.settings.feature_layers
        ]
    return compare_variants(pairs)


def on_means(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return one comparison for each pair of variants: on the mean of its columns, if several."""
    pairs: dict[tuple[str, str, str], Comparison] = {}
    for item in comparisons:
        key = (item.first, item.second, item.context)
        if key not in pairs or item.title == MEAN:
            pairs[key] = item
    return list(pairs.values())
