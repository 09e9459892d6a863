"""Comparisons of entries and of variants on dev. All comparisons of a table are one family."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import computed_field

from model.tables.paper_results import PAPER_TABLES
from model.tables.resampling import Sample, count_draws, draw_means
from model.tables.results import MAJORITY_CLASS, ResultRow, main_rows
from model.task_results import FinetunedModel, Result
from model.task_types.row_terms import Float64s

LEVEL = 0.05
MEAN = "mean"
FINE_TUNED = "fine-tuned"
SCRATCH = "scratch"
_INTERVAL = (0.025, 0.975)

ComparisonVerdict = Literal["better", "worse", "within noise", "not tested"]


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
    """Mean scores of two sides, in fractions of 1, and the test of their difference."""

    first: str
    second: str
    first_mean: float
    second_mean: float
    low: float | None
    """Lower end of the 95 % interval of the difference. None: not tested."""

    high: float | None
    """Upper end of the interval."""

    p: float | None
    """Two-sided p-value of equal means. None: not tested."""

    adjusted: float | None = None
    """`p` after Holm's adjustment for all comparisons of the table."""

    runs: tuple[int, int]
    """Number of restarts of both; the minimum over the tasks of a mean."""

    rows: int
    """Number of dev rows; the minimum over the tasks of a mean. 0: not known."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def difference(self) -> float:
        """First mean minus second mean."""
        return self.first_mean - self.second_mean

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> ComparisonVerdict:
        """Verdict on the first side."""
        if self.adjusted is None:
            return "not tested"
        if self.adjusted >= LEVEL:
            return "within noise"
        return "better" if self.difference > 0 else "worse"


class EntryComparison(Comparison):
    """Two entries of a task on dev by its main metric, the better mean first; an entry and the
    majority class; or the pretrained entries of several tasks and their twins from scratch."""

    task: str
    """Name of the task; "" for a mean over several."""

    title: str
    """Name of the task in tables, with that of its data."""

    metric: str
    columns: int = 1
    """Number of tasks of the mean."""

    first_cut: tuple[str, ...] = ()
    """Reductions of the data or the training of the first entry."""

    second_cut: tuple[str, ...] = ()
    first_reference: str = ""
    """Reference of the first score for `bertloom lineage` and `reproduce`."""

    second_reference: str = ""


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

    paper: float | None = None
    """Difference in the paper, times 100. None: the paper lacks one of the values."""


def compare(groups: Sequence[Sequence[Pair]]) -> list[dict[str, Any]]:
    """Return the fields of a comparison for each group of pairs, on the mean over its pairs.

    The groups are one family: p-values are adjusted for all of them.
    """
    draws = count_draws(len(groups))
    means = _draw_sides([side for pairs in groups for pair in pairs for side in pair], draws=draws)

    def test(pairs: Sequence[Pair]) -> dict[str, Any]:
        if not all(side.is_tested for pair in pairs for side in pair):
            return {"low": None, "high": None, "p": None}
        parts = [means[id(first.sample)] - means[id(second.sample)] for first, second in pairs]
        differences = np.mean(parts, axis=0)
        low, high = np.quantile(differences, _INTERVAL).tolist()
        tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        return {"low": low, "high": high, "p": min(1.0, 2 * (1 + tail) / (1 + draws))}

    results = [test(pairs) for pairs in groups]
    adjusted = holm_adjust([result["p"] for result in results])
    return [
        {**result, "adjusted": p, **_describe(pairs)}
        for pairs, result, p in zip(groups, results, adjusted, strict=True)
    ]


def _draw_sides(sides: Sequence[Side], *, draws: int) -> dict[int, Float64s]:
    """Return the mean scores in each draw by the `id` of the sample; rows are drawn once."""
    groups: dict[str, dict[int, Sample]] = {}
    for side in sides:
        if side.is_tested and side.sample is not None:
            groups.setdefault(side.sample.rows, {})[id(side.sample)] = side.sample
    means: dict[int, Float64s] = {}
    for group in groups.values():
        means |= zip(group, draw_means(list(group.values()), draws=draws), strict=True)
    return means


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


def compare_entries(
    rows: Sequence[ResultRow], *, swept: Collection[str] = ()
) -> list[EntryComparison]:
    """Compare all pairs of entries of a task by the means of their best grid points.

    If several tasks have pretrained twins, the last comparison is the mean over them.

    Grid points were selected on the same dev rows, so means are biased upward, and more for larger
    grids. `model.tables.sweeps` compares variants of a sweep.

    Args:
        rows: Results of all entries.
        swept: Entries of the sweep.
    """
    pairs = [
        sorted(pair, key=mean_of, reverse=True)
        for pair in itertools.combinations(comparable_rows(rows), 2)
        if is_comparable(*pair) and not {row.entry for row in pair} <= set(swept)
    ]
    twins = list(pretraining_twins(rows, swept=swept).values())
    groups = [[(Side.of(first), Side.of(second))] for first, second in pairs]
    sides = [(Side.of(first), Side.of(second)) for first, second in twins]
    tested = [pair for pair in sides if all(side.is_tested for side in pair)] or sides
    means = [tested] if len(tested) > 1 else []
    fields = compare([*groups, *means])
    found = [
        _entry_comparison(first, second, item)
        for (first, second), item in zip(pairs, fields, strict=False)
    ]
    return found + [
        EntryComparison(
            task="",
            title=f"mean of {len(group)} tasks",
            metric="",
            columns=len(group),
            first="pretrained",
            second="from scratch",
            **item,
        )
        for group, item in zip(means, fields[len(pairs) :], strict=True)
    ]


def _entry_comparison(
    first: ResultRow, second: ResultRow, fields: dict[str, Any]
) -> EntryComparison:
    return EntryComparison(
        task=first.task,
        title=first.name,
        metric=first.metric,
        first=first.entry,
        second=second.entry,
        first_cut=first.cut,
        second_cut=second.cut,
        first_reference=first.reference,
        second_reference=second.reference,
        **fields,
    )


def compare_with_majority(rows: Sequence[ResultRow]) -> list[EntryComparison]:
    """Compare each entry with the majority class on the same rows; all of them are one family."""
    known = [row for row in comparable_rows(rows) if row.majority is not None]
    groups = [[(Side.of(row), Side(row.majority or 0.0, 0, row.majority_sample))] for row in known]
    return [
        EntryComparison(
            task=row.task,
            title=row.name,
            metric=row.metric,
            first=row.entry,
            second=MAJORITY_CLASS,
            first_cut=row.cut,
            first_reference=row.reference,
            **fields,
        )
        for row, fields in zip(known, compare(groups), strict=True)
    ]


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


class VariantPair(NamedTuple):
    """Two variants to compare on one column."""

    column: str
    first: str
    second: str
    context: str
    sides: Pair
    paper: float | None


def compare_variants(pairs: Sequence[VariantPair]) -> tuple[VariantComparison, ...]:
    """Compare each pair on its column, and on the mean over all columns that both variants have."""
    groups: dict[tuple[str, str, str], list[VariantPair]] = {}
    for pair in pairs:
        groups.setdefault((pair.first, pair.second, pair.context), []).append(pair)
    family = [[pair] for pair in pairs] + [group for group in groups.values() if len(group) > 1]
    found = compare([[pair.sides for pair in group] for group in family])
    return tuple(
        VariantComparison(
            column=group[0].column if len(group) == 1 else MEAN,
            columns=tuple(pair.column for pair in group),
            first=group[0].first,
            second=group[0].second,
            context=group[0].context,
            paper=_mean_of_known([pair.paper for pair in group]),
            **fields,
        )
        for group, fields in zip(family, found, strict=True)
    )


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a value is not known."""
    numbers = list(values)
    known = [value for value in numbers if value is not None]
    return round(statistics.fmean(known), 2) if len(known) == len(numbers) else None


def compare_features(rows: Sequence[ResultRow]) -> tuple[VariantComparison, ...]:
    """Compare fine-tuning with each choice of feature layers of a model (Table 7), on dev."""
    table = PAPER_TABLES["table-7"]
    models: dict[str, list[ResultRow]] = {}
    for row in comparable_rows(rows):
        if row.paper_table == table.key:
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
                second=row.features,
                context=row.start if len(models) > 1 else "",
                sides=(Side.of(best), Side.of(row)),
                paper=table.difference("BERT_BASE", row.features, row.paper_column),
            )
            for row in group
            if best and row.features
        ]
    return compare_variants(pairs)
