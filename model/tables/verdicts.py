"""Verdicts on a recipe's results: one sentence for each comparison, most important first.

A sentence claims a difference only where p is below `LEVEL` after Holm's correction for all
comparisons of its table. Our rows are compared with each other, never with the paper's, whose
predictions are not published.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import computed_field

from model.formatting import format_percent
from model.tables.compare import MEAN, Comparison, Pair, Side, compare, on_means
from model.tables.filled_tables import FilledTable
from model.tables.paper import ABLATIONS
from model.tables.results import (
    MAJORITY_CLASS,
    SCRATCH,
    ResultRow,
    comparable_rows,
    task_label,
    with_bracket,
)
from model.task_results import Result

_EXACT = 1e-9  # two computations of one score differ by less
_MOST_NAMES = 3


class Verdict(Result):
    """A comparison of two sides, or of one and the majority class, and its test; shares of 1."""

    kind: Literal["pretraining", "variants", "entries", "baseline"]
    """Sides of the comparison: `pretraining`, a pretrained model and its twin from scratch;
    `variants` of a sweep; `entries` on one task; `baseline`, an entry and the majority class."""

    task: str = ""
    """Name of the task; "" for variants, and for an average over several tasks."""

    table: str = ""
    """Key of the table with the variants; "" for other kinds."""

    test: Comparison
    """Both sides, and the test of their difference."""

    sentence: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> str:
        """Result for the first side."""
        return "not better than majority" if self.kind == "baseline" else self.test.verdict


# Comparisons of entries


def compare_entries(
    rows: Sequence[ResultRow], *, swept: Collection[str] = ()
) -> tuple[Comparison, ...]:
    """Compare all pairs of entries of a task by the means of their best grid points.

    If several tasks have pretrained twins, the last comparison is the mean over them.

    Grid points were selected on the same dev rows, so means are biased upward, and more for larger
    grids.

    Args:
        rows: Results of all entries.
        swept: Entries of the sweep, whose tables compare them.
    """
    family: list[list[Pair]] = []
    for pair in itertools.combinations(comparable_rows(rows), 2):
        is_one_task = len({(row.task, row.metric, row.data) for row in pair}) == 1
        if is_one_task and not {row.entry for row in pair} <= set(swept):
            first, second = sorted(pair, key=_mean, reverse=True)
            family.append([_pair(first, second.entry, second.side)])
    twins = [
        _pair(first, "from scratch", second.side)._replace(first="pretrained")
        for first, second in pretraining_twins(rows, swept=swept)
    ]
    tested = [pair for pair in twins if pair.is_tested] or twins
    return compare(family + ([tested] if len(tested) > 1 else []))


def compare_with_majority(rows: Sequence[ResultRow]) -> tuple[Comparison, ...]:
    """Compare each entry with the majority class on the same rows."""
    return compare(
        [
            [_pair(row, MAJORITY_CLASS, Side(row.majority, 0, row.majority_sample))]
            for row in comparable_rows(rows)
            if row.majority is not None
        ]
    )


def _pair(row: ResultRow, second: str, other: Side) -> Pair:
    return Pair(row.entry, second, title=row.name, sides=(row.side, other))


def pretraining_twins(
    rows: Sequence[ResultRow], *, swept: Collection[str] = ()
) -> list[tuple[ResultRow, ResultRow]]:
    """Return for each task its best pretrained entry that has a twin from scratch, and the twin.

    Twins have the same shape, method and data.
    """
    ranked = [row for row in comparable_rows(rows) if row.entry not in swept]
    ranked.sort(key=_mean, reverse=True)
    scratch: dict[str, ResultRow] = {}
    for row in (row for row in ranked if row.start == SCRATCH):
        scratch.setdefault(_without_start(row), row)
    twins: dict[str, tuple[ResultRow, ResultRow]] = {}
    for row in (row for row in ranked if row.start != SCRATCH):
        if twin := scratch.get(_without_start(row)):
            twins.setdefault(row.task, (row, twin))
    return [twins[task] for task in dict.fromkeys(row.task for row in rows) if task in twins]


def _without_start(row: ResultRow) -> str:
    return f"{row.task} {row.method} {row.settings.model_copy(update={'start': ''})}"


def _mean(row: ResultRow) -> float:
    return row.mean or 0.0


# Verdicts


def find_verdicts(
    results: Sequence[ResultRow],
    comparisons: Sequence[Comparison],
    baselines: Sequence[Comparison],
    tables: Sequence[FilledTable],
    *,
    swept: Collection[str],
) -> tuple[Verdict, ...]:
    """Return the verdicts of a recipe: models at the level of the majority class first, then
    pretraining, variants and entries; models from scratch and variants at that level come last.

    Args:
        results: Results of all entries.
        comparisons: All pairs of entries, and the mean over pretrained twins.
        baselines: Entries and the majority class.
        tables: Tables of the paper and of a sweep with their comparisons.
        swept: Entries that are variants of a sweep.
    """
    scored = comparable_rows(results)
    pretrained = [row for row in scored if row.entry not in swept and row.start != SCRATCH]
    scratch = [row for row in scored if row.entry not in swept and row.start == SCRATCH]
    variants = [row for row in scored if row.entry in swept]
    low = {item.first: item for item in baselines if not _is_above(item)}
    return (
        *_majority_verdicts(pretrained, low, models="pretrained"),
        *_pretraining_verdicts(pretraining_twins(results, swept=swept), comparisons),
        *(verdict for table in tables for verdict in _variant_verdicts(table)),
        *_entry_verdicts(pretrained, comparisons),
        *_majority_verdicts(scratch, low, models="from scratch"),
        *_majority_verdicts(variants, low, models="variants"),
    )


def _pretraining_verdicts(
    twins: Sequence[tuple[ResultRow, ResultRow]], comparisons: Sequence[Comparison]
) -> Iterator[Verdict]:
    """Yield a verdict on the mean over all tasks with twins, then one for each of them."""
    data = ", ".join(dict.fromkeys(row.data for row, _ in twins if row.data))
    tests = [(item, "") for item in comparisons if item.title == MEAN]
    tests += [(_comparison_of(*pair, comparisons), pair[0].task) for pair in twins]
    for item, task in tests:
        claim = f"Pretraining {'helps' if item.difference > 0 else 'hurts'}"
        where = _where(item, "tasks", data if item.title == MEAN else "")
        sentence = _sentence(item, claim, where, first="pretrained", second="from scratch")
        yield Verdict(kind="pretraining", task=task, test=item, sentence=sentence)


def _comparison_of(
    first: ResultRow, second: ResultRow, comparisons: Sequence[Comparison]
) -> Comparison:
    names = {first.entry, second.entry}
    item = next(item for item in comparisons if {item.first, item.second} == names)
    return item if item.first == first.entry else item.reversed


def _variant_verdicts(table: FilledTable) -> Iterator[Verdict]:
    """Yield a verdict for each pair of variants, on the mean of its columns if it has several."""
    for item in on_means(table.comparisons):
        agreement = _agreement(table, item)
        if not table.is_ordered:  # a variant is named by its change to the first
            item = item.reversed
        context = f" ({item.context})" if item.context else ""
        claim = table.change(item.second, item.first) + context
        where, second = _where(item, "columns", table.data), item.second + context
        sentence = _sentence(item, claim, where, first=item.first, second=second)
        yield Verdict(kind="variants", table=table.key, test=item, sentence=sentence + agreement)


def _agreement(table: FilledTable, item: Comparison) -> str:
    """Return whether a difference has the paper's direction; "" without one of both.

    The first variant of an ablation is the one that should be better, also where the paper has no
    number for a column, as in Figure 5.
    """
    known = {system.key for system in table.systems} or {item.first, item.second}
    is_ablation = table.key in ABLATIONS and {item.first, item.second} <= known
    expected = float(is_ablation) if item.paper is None else item.paper
    if item.verdict not in ("better", "worse") or not expected:
        return ""
    return f", {'as in' if expected * item.difference > 0 else 'unlike'} the paper"


def _entry_verdicts(
    pretrained: Sequence[ResultRow], comparisons: Sequence[Comparison]
) -> Iterator[Verdict]:
    """Yield a verdict for the best fine-tuned entry of each task and each other one."""
    tasks = {row.entry: row.task for row in pretrained if row.method == "fine-tune"}
    pairs = [item for item in comparisons if {item.first, item.second} <= tasks.keys()]
    for item in pairs:
        if item.first not in {pair.second for pair in pairs}:
            claim = f"{item.first} is better than {item.second}"
            where = _where(item, "tasks")
            sentence = _sentence(item, claim, where, first=item.first, second=item.second)
            yield Verdict(kind="entries", task=tasks[item.first], test=item, sentence=sentence)


def _is_above(item: Comparison) -> bool:
    """Return whether an entry is better than the majority class; without a test, by its mean."""
    return item.verdict == "better" if item.adjusted is not None else item.difference > _EXACT


def _majority_verdicts(
    rows: Sequence[ResultRow], low: Mapping[str, Comparison], *, models: str
) -> Iterator[Verdict]:
    """Yield a verdict for each task with entries that are not better than the majority class."""
    for name in dict.fromkeys(row.name for row in rows):
        group = [row for row in rows if row.name == name]
        known = [row for row in group if row.entry in low]
        if not known:
            continue
        item = max((low[row.entry] for row in known), key=lambda item: item.difference)
        entries = ", ".join(row.entry for row in known)
        if len(known) > _MOST_NAMES:
            entries = f"{len(known)} of {len(group)} entries"
        about = f"{name} {models}" + (f" ({entries})" if len(group) > 1 else "")
        clearly = "clearly " if item.difference > _EXACT else ""
        score = format_percent(known[0].majority)
        sentence = f"{about}: not {clearly}better than the majority class ({score})"
        yield Verdict(kind="baseline", task=known[0].task, test=item, sentence=sentence)


# Sentences


def _sentence(item: Comparison, claim: str, where: str, *, first: str, second: str) -> str:
    """Return the sentence: the claim if the test shows a difference, otherwise what is missing."""
    difference = f"{_points(item, item.difference, sign='+')} points"
    low, high = (_points(item, end) for end in (item.low, item.high))
    restarts = " and ".join(map(str, dict.fromkeys(item.restarts)))
    each = " each" if item.title == MEAN else ""
    evidence = f"95 % interval {low} to {high}, {restarts} restarts, {item.rows:,} dev rows{each}"
    if item.verdict in ("better", "worse"):
        return with_bracket(f"{claim}: {difference} {where}", evidence)
    if item.verdict == "within noise":
        between = f"{where} between {first} and {second}"
        p = f"p {item.adjusted:.2g}"
        return f"No difference visible {between}: {difference} ({p}, {evidence})"
    missing = "with one restart; set restarts: 3 or more"
    if min(item.restarts) > 1:
        missing = "without stored scores of dev rows; rebuild the stage evaluate"
    return f"Not tested {where}: {first} minus {second} is {difference} {missing}"


def _points(item: Comparison, share: float | None, *, sign: str = "") -> str:
    """Return a share of a comparison in points, such as `+56` or `-3.2`.

    Without decimals: a large difference that is not known to the tenth.
    """
    width = 1.0 if item.low is None or item.high is None else item.high - item.low
    digits = 1 if 0 < width < 0.02 or abs(item.difference) < 0.1 else 0
    value = round(100 * (share or 0.0), digits) or 0.0  # no -0.0
    return f"{value:{sign if value else ''}.{digits}f}"


def _where(item: Comparison, noun: str, data: str = "") -> str:
    """Return the task, column or mean of a comparison, with the name of other data."""
    if item.title == MEAN:
        return f"on average over {task_label(f'{len(item.columns)} {noun}', data)}"
    return f"on {task_label(item.title, data)}"
