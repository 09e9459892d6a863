"""Comparisons of two entries of a task, and of two variants of a model, on dev over restarts."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import computed_field

from model.tables.paper_tables import PAPER_TABLES, paper_cells
from model.tables.results import (
    DEV,
    Evaluation,
    TableModel,
    feature_layers,
    is_redundant_ensemble,
)
from model.tables.significance import TestName, TestResult, holm_adjust, mean_difference
from model.tasks.task import Task

LEVEL = 0.05
MEAN = "mean"
FINE_TUNED = "fine-tuned"

ComparisonVerdict = Literal["better", "worse", "within noise", "not tested"]

TEST_NOTE = (
    f"better, worse: Welch's t test of the restarts' dev scores, two-sided, below {LEVEL:g} after "
    "Holm's correction for the comparisons of this table (for the means over its columns: for "
    "those); within noise: not below. The interval is of 95 % and not corrected."
)
ONCE_NOTE = (
    "Restarts differ in the data order and new weights of fine-tuning. Each variant was pretrained "
    "once: what another seed of pretraining would change is not in the intervals."
)


class _Comparison(TableModel):
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


class EntryComparison(_Comparison):
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


def compare_entries(
    evaluations: Sequence[Evaluation], *, swept: Collection[str] = ()
) -> list[EntryComparison]:
    """Compare all pairs of entries of a task by the means of their best grid points.

    Grid points were selected on the same dev rows, so means are biased upward, and more for larger
    grids. Majority classes are not compared. `model.tables.sweeps` compares variants of a sweep.

    Args:
        evaluations: Evaluations of all entries.
        swept: Entries of the sweep.
    """
    pairs = [
        sorted(pair, key=lambda item: item.dev_mean, reverse=True)
        for pair in itertools.combinations(comparable_entries(evaluations), 2)
        if is_comparable(*pair) and not {item.entry for item in pair} <= set(swept)
    ]
    results = [mean_difference([(first.dev_runs, second.dev_runs)]) for first, second in pairs]
    adjusted = holm_adjust([result.p for result in results])
    return [
        _compare(first, second, result, p)
        for (first, second), result, p in zip(pairs, results, adjusted, strict=True)
    ]


def comparable_entries(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the entries with a mean on dev, without majority classes and redundant ensembles."""
    return [
        item
        for item in evaluations
        if not item.is_majority and not is_redundant_ensemble(item, evaluations) and item.dev_runs
    ]


def is_comparable(first: Evaluation, second: Evaluation) -> bool:
    """Return whether two entries have the same task, metric and data."""
    return _scored_on(first) == _scored_on(second)


def _scored_on(item: Evaluation) -> tuple[str, str, str]:
    return item.task, item.metric, str(item.model.get("data") or "")


def _compare(
    first: Evaluation, second: Evaluation, result: TestResult, adjusted: float | None
) -> EntryComparison:
    return EntryComparison(
        task=first.task,
        metric=first.metric,
        first=first.entry,
        second=second.entry,
        first_mean=first.dev_mean,
        second_mean=second.dev_mean,
        first_runs=len(first.dev_runs),
        second_runs=len(second.dev_runs),
        low=result.low,
        high=result.high,
        p=result.p,
        adjusted=adjusted,
        first_cut=first.cut_on(DEV),
        second_cut=second.cut_on(DEV),
        first_reference=first.reference(DEV, first.metric),
        second_reference=second.reference(DEV, second.metric),
    )


class VariantComparison(_Comparison):
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
    verdict: ComparisonVerdict
    """Verdict on the first variant."""

    paper: float | None = None
    """Difference in the paper, times 100. None: the paper lacks one of the values."""


class VariantPair(NamedTuple):
    """Two variants to compare on one column."""

    column: str
    first: str
    second: str
    context: str
    first_runs: Sequence[float]
    second_runs: Sequence[float]
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


def _compare_groups(groups: Sequence[Sequence[VariantPair]]) -> list[VariantComparison]:
    results = [
        mean_difference([(pair.first_runs, pair.second_runs) for pair in group]) for group in groups
    ]
    adjusted = holm_adjust([result.p for result in results])
    return [
        VariantComparison(
            column=group[0].column if len(group) == 1 else MEAN,
            columns=tuple(pair.column for pair in group),
            first=group[0].first,
            second=group[0].second,
            context=group[0].context,
            first_mean=statistics.fmean(statistics.fmean(pair.first_runs) for pair in group),
            second_mean=statistics.fmean(statistics.fmean(pair.second_runs) for pair in group),
            runs=(
                min(len(pair.first_runs) for pair in group),
                min(len(pair.second_runs) for pair in group),
            ),
            low=result.low,
            high=result.high,
            p=result.p,
            adjusted=p,
            test=result.test,
            verdict=_verdict(result.estimate, p),
            paper=_mean_of_paper(group),
        )
        for group, result, p in zip(groups, results, adjusted, strict=True)
    ]


def _verdict(difference: float, p: float | None) -> ComparisonVerdict:
    if p is None:
        return "not tested"
    if p >= LEVEL:
        return "within noise"
    return "better" if difference > 0 else "worse"


def _mean_of_paper(group: Sequence[VariantPair]) -> float | None:
    known = [pair.paper for pair in group if pair.paper is not None]
    return round(statistics.fmean(known), 2) if len(known) == len(group) else None


def compare_features(
    evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]
) -> tuple[VariantComparison, ...]:
    """Compare fine-tuning with each choice of feature layers of a model (Table 7), on dev."""
    table = PAPER_TABLES["table-7"]
    models: dict[str, list[Evaluation]] = {}
    for item in evaluations:
        task = tasks.get(item.task)
        if task is not None and not item.is_majority and any(paper_cells(task, table)):
            shape = {key: value for key, value in item.model.items() if key not in _METHOD_FIELDS}
            models.setdefault(json.dumps([item.task, shape], sort_keys=True), []).append(item)
    column = table.column("dev", split=DEV)
    pairs = []
    for group in models.values():
        fine_tuned = [item for item in group if item.method == "fine-tune" and item.dev_runs]
        best = max(fine_tuned, key=lambda item: item.dev_mean, default=None)
        for item in group:
            layers = feature_layers(item.model)
            if best is None or item.method != "feature-based" or not layers or not item.dev_runs:
                continue
            paper = [table.value(column, model="BERT_BASE", layers=of) for of in ("", layers)]
            known = [value for value in paper if value is not None]
            pairs.append(
                VariantPair(
                    column=column.key,
                    first=FINE_TUNED,
                    second=layers,
                    context=str(item.model.get("start", "")) if len(models) > 1 else "",
                    first_runs=best.dev_runs,
                    second_runs=item.dev_runs,
                    paper=round(known[0] - known[1], 2) if len(known) == 2 else None,
                )
            )
    return compare_variants(pairs)


_METHOD_FIELDS = frozenset({"method", "feature_layers"})
