"""Pairs of entries on one task: the difference of their means, with an interval and a test."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Sequence

from pydantic import computed_field

from model.tables.contrasts import Contrast, difference, holm
from model.tables.evaluations import DEV, Evaluation, Record, repeats_others


class EntryComparison(Record):
    """Two entries of a task on dev by its main metric, the better mean first; shares of 1."""

    task: str
    metric: str
    first: str
    second: str
    first_mean: float
    second_mean: float
    first_runs: int
    second_runs: int
    low: float | None
    """The 95 % interval of the difference of means (Welch), None with one run on a side."""

    high: float | None
    p: float | None
    """Two-sided p that the means are equal (Welch's test; a permutation test where the restarts of
    each entry score the same); None with one restart on a side."""

    adjusted: float | None = None
    """p after Holm's correction for all pairs of entries."""

    first_cut: tuple[str, ...] = ()
    """What the first was not given: rows, steps, ends of texts; a few words each."""

    second_cut: tuple[str, ...] = ()
    first_reference: str = ""
    """What `bertloom lineage` and `reproduce` find the first by; `second_reference` likewise."""

    second_reference: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def difference(self) -> float:
        """First mean minus second mean."""
        return self.first_mean - self.second_mean


def compare_entries(
    evaluations: Sequence[Evaluation], *, swept: Collection[str] = ()
) -> list[EntryComparison]:
    """Compare each two entries of a task by the means over their best grid points' restarts.

    The points were chosen on the same dev rows, so every mean leans a little upward, and more so
    after a wide grid; compare entries with like grids. The majority class is not compared here: it
    is a row of each table. Two variants of a sweep are compared in its table
    (`model.tables.sweeps`).
    """
    pairs = [
        sorted(pair, key=_mean, reverse=True)
        for pair in itertools.combinations(comparable_entries(evaluations), 2)
        if is_comparable(*pair) and not {item.entry for item in pair} <= set(swept)
    ]
    contrasts = [difference(*(_runs(item) for item in pair)) for pair in pairs]
    adjusted = holm([contrast.p for contrast in contrasts])
    return [
        _comparison(first, second, contrast, p)
        for (first, second), contrast, p in zip(pairs, contrasts, adjusted, strict=True)
    ]


def comparable_entries(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the entries with a mean on dev, without majority classes and ensembles of others."""
    return [
        item
        for item in evaluations
        if not item.is_majority
        and not repeats_others(item, evaluations)
        and item.scores(DEV, item.metric).mean is not None
    ]


def is_comparable(first: Evaluation, second: Evaluation) -> bool:
    """Return whether two entries have the same task, metric and data."""
    return _scored_on(first) == _scored_on(second)


def _scored_on(item: Evaluation) -> tuple[str, str, str]:
    return item.task, item.metric, str(item.model.get("data") or "")


def _runs(item: Evaluation) -> tuple[float, ...]:
    return item.scores(DEV, item.metric).runs


def _mean(item: Evaluation) -> float:
    return statistics.fmean(_runs(item))


def _comparison(
    first: Evaluation, second: Evaluation, contrast: Contrast, adjusted: float | None
) -> EntryComparison:
    return EntryComparison(
        task=first.task,
        metric=first.metric,
        first=first.entry,
        second=second.entry,
        first_mean=_mean(first),
        second_mean=_mean(second),
        first_runs=len(_runs(first)),
        second_runs=len(_runs(second)),
        low=contrast.low,
        high=contrast.high,
        p=contrast.p,
        adjusted=adjusted,
        first_cut=first.cut_on(DEV),
        second_cut=second.cut_on(DEV),
        first_reference=first.reference(DEV, first.metric),
        second_reference=second.reference(DEV, second.metric),
    )
