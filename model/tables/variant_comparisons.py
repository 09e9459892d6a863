"""Variants of a model compared on dev over restarts: better, worse or within noise by a test."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import computed_field

from model.tables.contrasts import TestName, holm, mean_difference
from model.tables.evaluations import DEV, Evaluation, Record, feature_layers
from model.tables.paper_tables import PAPER_TABLES, paper_cells
from model.tasks.task import Task

LEVEL = 0.05
MEAN = "mean"
FINE_TUNED = "fine-tuned"

Verdict = Literal["better", "worse", "within noise", "not tested"]
Runs = Sequence[float]

TEST_NOTE = (
    f"better, worse: Welch's t test of the restarts' dev scores, two-sided, below {LEVEL:g} after "
    "Holm's correction for the comparisons of this table (for the means over its columns: for "
    "those); within noise: not below. The interval is of 95 % and not corrected."
)
ONCE_NOTE = (
    "Restarts differ in the data order and new weights of fine-tuning. Each variant was pretrained "
    "once: what another seed of pretraining would change is not in the intervals."
)


class VariantComparison(Record):
    """Two variants on one column, or on the mean over several; shares of 1."""

    column: str
    """Key of the column, or MEAN."""

    columns: tuple[str, ...]
    """Those that the mean is over; else the one."""

    first: str
    """The variant that the paper expects more of."""

    second: str
    context: str = ""
    """Variants of the sweep's other axes, which both have."""

    first_mean: float
    second_mean: float
    runs: tuple[int, int]
    """Restarts of both; of a mean, the fewest."""

    low: float | None
    """The 95 % interval of the difference of means, None where one has a single run."""

    high: float | None
    p: float | None
    """Two-sided; None where there is nothing to judge by."""

    adjusted: float | None
    """p after Holm's correction."""

    test: TestName
    verdict: Verdict
    """What the first is."""

    paper: float | None = None
    """First minus second in the paper, times 100, where it has both on all these columns."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def difference(self) -> float:
        """First mean minus second mean."""
        return self.first_mean - self.second_mean


class Pair(NamedTuple):
    """What is to be compared on one column."""

    column: str
    first: str
    second: str
    context: str
    a: Runs
    b: Runs
    paper: float | None


def compare_variants(pairs: Sequence[Pair]) -> tuple[VariantComparison, ...]:
    """Each pair on its column; then, where variants share several, on the mean over them.

    The means are over the columns that both variants have, so that they are of the same tasks. They
    are corrected for their own number, the columns for theirs.
    """
    whole: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in pairs:
        whole.setdefault((pair.first, pair.second, pair.context), []).append(pair)
    means = [found for found in whole.values() if len(found) > 1]
    return (*_judged([[pair] for pair in pairs]), *_judged(means))


def _judged(groups: Sequence[Sequence[Pair]]) -> list[VariantComparison]:
    found = [mean_difference([(pair.a, pair.b) for pair in group]) for group in groups]
    adjusted = holm([one.p for one in found])
    return [
        VariantComparison(
            column=group[0].column if len(group) == 1 else MEAN,
            columns=tuple(pair.column for pair in group),
            first=group[0].first,
            second=group[0].second,
            context=group[0].context,
            first_mean=statistics.fmean(statistics.fmean(pair.a) for pair in group),
            second_mean=statistics.fmean(statistics.fmean(pair.b) for pair in group),
            runs=(min(len(pair.a) for pair in group), min(len(pair.b) for pair in group)),
            low=one.low,
            high=one.high,
            p=one.p,
            adjusted=p,
            test=one.test,
            verdict=_verdict(one.estimate, p),
            paper=_mean_of_paper(group),
        )
        for group, one, p in zip(groups, found, adjusted, strict=True)
    ]


def _verdict(difference: float, p: float | None) -> Verdict:
    if p is None:
        return "not tested"
    if p >= LEVEL:
        return "within noise"
    return "better" if difference > 0 else "worse"


def _mean_of_paper(group: Sequence[Pair]) -> float | None:
    known = [pair.paper for pair in group if pair.paper is not None]
    return round(statistics.fmean(known), 2) if len(known) == len(group) else None


def compare_features(
    evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]
) -> tuple[VariantComparison, ...]:
    """Table 7: each choice of layers as features against fine-tuning the same model, on dev."""
    table = PAPER_TABLES["table-7"]
    models: dict[str, list[Evaluation]] = {}
    for item in evaluations:
        task = tasks.get(item.task)
        if task is not None and not item.is_majority and any(paper_cells(task, table)):
            about = {key: item.model[key] for key in item.model if key not in _OF_METHOD}
            models.setdefault(json.dumps([item.task, about], sort_keys=True), []).append(item)
    column = table.column("dev", split=DEV)
    pairs = []
    for group in models.values():
        fine = [item for item in group if item.method == "fine-tune" and _runs(item)]
        best = max(fine, key=lambda item: statistics.fmean(_runs(item)), default=None)
        for item in group:
            layers = feature_layers(item.model)
            if best is None or item.method != "feature-based" or not layers or not _runs(item):
                continue
            paper = [table.value(column, model="BERT_BASE", layers=of) for of in ("", layers)]
            known = [value for value in paper if value is not None]
            pairs.append(
                Pair(
                    column=column.key,
                    first=FINE_TUNED,
                    second=layers,
                    context=str(item.model.get("start", "")) if len(models) > 1 else "",
                    a=_runs(best),
                    b=_runs(item),
                    paper=round(known[0] - known[1], 2) if len(known) == 2 else None,
                )
            )
    return compare_variants(pairs)


_OF_METHOD = frozenset({"method", "feature_layers"})


def _runs(item: Evaluation) -> Runs:
    scores = item.scores(DEV, item.metric)
    return () if scores.mean is None else scores.runs
