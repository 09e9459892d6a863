"""Entries on the same task compared: the difference of their means, and how sure it is."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Sequence

from pydantic import computed_field

from model.tables.contrasts import difference
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
    """Two-sided, of Welch's test that the means are equal; None without an interval, or where no
    run differs from another of its entry, so that there is nothing to judge by."""

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
    """Each two entries of the same task, by the means over their best grid points' restarts.

    The points were chosen on the same dev rows, so every mean leans a little upward, and more so
    after a wide grid; compare entries with like grids. Majority entries are left out: they are
    exact, and stand beside each result as a baseline. Two entries that a sweep made are compared in
    its table (`model.tables.sweeps`), if at all.
    """
    scored = [
        (mean, item)
        for item in evaluations
        if not item.is_majority
        and not repeats_others(item, evaluations)
        and (mean := item.scores(DEV, item.metric).mean) is not None
    ]
    return [
        _comparison(*(item for _, item in sorted(pair, key=lambda scored: -scored[0])))
        for pair in itertools.combinations(scored, 2)
        if (pair[0][1].task, pair[0][1].metric) == (pair[1][1].task, pair[1][1].metric)
        and not {pair[0][1].entry, pair[1][1].entry} <= set(swept)
    ]


def _comparison(first: Evaluation, second: Evaluation) -> EntryComparison:
    a, b = (item.scores(DEV, item.metric).runs for item in (first, second))
    found = difference(a, b)
    return EntryComparison(
        task=first.task,
        metric=first.metric,
        first=first.entry,
        second=second.entry,
        first_mean=statistics.fmean(a),
        second_mean=statistics.fmean(b),
        first_runs=len(a),
        second_runs=len(b),
        low=found.low,
        high=found.high,
        p=found.p if found.test == "Welch" else None,
        first_cut=first.cut_on(DEV),
        second_cut=second.cut_on(DEV),
        first_reference=first.reference(DEV, first.metric),
        second_reference=second.reference(DEV, second.metric),
    )
