"""Verdicts on a recipe's results: one sentence for each comparison, most important first.

A sentence claims a difference only where p is below `LEVEL` after Holm's correction for all
comparisons of its table. `table_verdict` repeats below a table those on its rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from model.formatting import format_percent
from model.tables.compare import MEAN, Comparison, Pair, Side, compare, on_means
from model.tables.filled_tables import FINE_TUNED, FilledTable, other_splits
from model.tables.paper import ABLATIONS, PaperTable
from model.tables.results import (
    MAJORITY_CLASS,
    SCRATCH,
    ResultRow,
    comparable_rows,
    main_rows,
    side_of,
    task_label,
    with_bracket,
)
from model.task_results import FinetunedModel, Result

_EXACT = 1e-9  # two computations of one score differ by less


class Verdict(Result):
    """A comparison of two sides, or of one and the majority class, and its test; shares of 1."""

    kind: Literal["pretraining", "variants", "entries", "baseline"]
    """Sides of the comparison: `pretraining`, a pretrained model and its twin from scratch;
    `variants` of a sweep; `entries` on one task; `baseline`, an entry and the majority class."""

    outcome: str
    """Result for the first side: `Comparison.verdict`, or `not better than majority`."""

    task: str = ""
    """Name of the task; "" for an average over several."""

    test: Comparison
    """Both sides, and the test of their difference."""

    sentence: str


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
        if _is_comparable(*pair) and not {row.entry for row in pair} <= set(swept):
            first, second = sorted(pair, key=_mean, reverse=True)
            family.append([_pair(first, second.entry, side_of(second))])
    twins = [
        _pair(first, "from scratch", side_of(second))._replace(first="pretrained")
        for first, second in pretraining_twins(rows, swept=swept).values()
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
    return Pair(row.entry, second, title=row.name, column=row.task, sides=(side_of(row), other))


def pretraining_twins(
    rows: Sequence[ResultRow], *, swept: Collection[str] = ()
) -> dict[str, tuple[ResultRow, ResultRow]]:
    """Return for each task its best pretrained entry that has a twin from scratch, and the twin.

    Twins have the same shape, method and data.
    """
    ranked = [row for row in comparable_rows(rows) if row.entry not in swept]
    ranked.sort(key=_mean, reverse=True)
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


def _is_comparable(first: ResultRow, second: ResultRow) -> bool:
    return (first.task, first.metric, first.data) == (second.task, second.metric, second.data)


def _mean(row: ResultRow) -> float:
    return row.mean or 0.0


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
        *_at_majority(pretrained, low, kind="pretrained"),
        *_pretraining_verdicts(results, comparisons, swept=swept),
        *(verdict for table in tables for verdict in variant_verdicts(table, results)),
        *_entry_verdicts(pretrained, comparisons),
        *_at_majority(scratch, low, kind="from scratch"),
        *_variants_at_majority(variants, low),
    )


# Sentences


def _points(item: Comparison, share: float | None, *, sign: str = "") -> str:
    """Return a share of a comparison in points, such as `+56` or `-3.2`.

    Without decimals: a large difference that is not known to the tenth.
    """
    width = 1.0 if item.low is None or item.high is None else item.high - item.low
    digits = 1 if 0 < width < 0.02 or abs(item.difference) < 0.1 else 0
    value = round(100 * (share or 0.0), digits) or 0.0  # no -0.0
    return f"{value:{sign if value else ''}.{digits}f}"


def _difference(item: Comparison) -> str:
    """Return the difference, such as `+56 points`."""
    return f"{_points(item, item.difference, sign='+')} points"


def _evidence(item: Comparison) -> str:
    """Return the interval and its data: `95 % interval 52 to 60, 3 restarts, 872 dev rows`."""
    low, high = (_points(item, end) for end in (item.low, item.high))
    restarts = " and ".join(map(str, dict.fromkeys(item.restarts)))
    return f"95 % interval {low} to {high}, {restarts} restarts, {item.rows:,} dev rows"


def _sentence(item: Comparison, claim: str, *, where: str, first: str, second: str) -> str:
    """Return the sentence: the claim if the test shows a difference, otherwise what is missing."""
    difference = _difference(item)
    if item.verdict in ("better", "worse"):
        return with_bracket(f"{claim}: {difference} {where}", _evidence(item))
    if item.verdict == "within noise":
        between = f"{where} between {first} and {second}"
        return (
            f"No difference visible {between}: {difference} (p {item.adjusted:.2g}, "
            f"{_evidence(item)})"
        )
    missing = "with one restart; set restarts: 3 or more"
    if min(item.restarts) > 1:
        missing = "without stored scores of dev rows; rebuild the stage evaluate"
    return f"Not tested {where}: {first} minus {second} is {difference} {missing}"


def _data_of(rows: Iterable[ResultRow]) -> str:
    """Return the names of data that is not the tasks' own."""
    return ", ".join(dict.fromkeys(row.data for row in rows if row.data))


def _by_task(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    groups: dict[str, list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(row.task, []).append(row)
    return groups


# Pretraining


def _pretraining_verdicts(
    results: Sequence[ResultRow], comparisons: Sequence[Comparison], *, swept: Collection[str]
) -> list[Verdict]:
    """Return a verdict for each task with pretrained twins, after one for all of them."""
    verdicts = []
    twins = pretraining_twins(results, swept=swept).values()
    for first, second in twins:
        item = _comparison_of(first, second, comparisons)
        sentence = _pretraining_sentence(item, f"on {first.name}")
        verdicts.append(_verdict("pretraining", item, sentence, task=first.task))
    mean = next((item for item in comparisons if item.title == MEAN), None)
    data = _data_of(row for row, _ in twins)
    return [*([_summarize(verdicts, mean, data)] if mean else []), *verdicts]


def _verdict(
    kind: Literal["pretraining", "variants", "entries", "baseline"],
    item: Comparison,
    sentence: str,
    *,
    task: str,
    outcome: str = "",
) -> Verdict:
    """Return the verdict on a comparison; its outcome is that of the comparison by default."""
    return Verdict(
        kind=kind, outcome=outcome or item.verdict, task=task, test=item, sentence=sentence
    )


def _comparison_of(
    first: ResultRow, second: ResultRow, comparisons: Sequence[Comparison]
) -> Comparison:
    names = {first.entry, second.entry}
    item = next(item for item in comparisons if {item.first, item.second} == names)
    return item if item.first == first.entry else item.reversed


def _pretraining_sentence(item: Comparison, where: str) -> str:
    claim = f"Pretraining {'helps' if item.difference > 0 else 'hurts'}"
    return _sentence(item, claim, where=where, first="pretrained", second="from scratch")


def _summarize(verdicts: Sequence[Verdict], mean: Comparison, data: str) -> Verdict:
    """Return the verdict on pretraining over several tasks."""
    count, outcome = len(mean.columns), str(mean.verdict)
    helped, hurt = (sum(one.outcome == name for one in verdicts) for name in ("better", "worse"))
    tasks = task_label(f"{count} tasks", data)
    sentence = _pretraining_sentence(mean, f"on average over {tasks}")
    if (helped or hurt) and mean.low is not None:
        counts = (("helps", helped), ("hurts", hurt))
        verbs = " and ".join(f"{verb} on {number}" for verb, number in counts if number)
        claim, where = f"{verbs} of {tasks}", f"on average over all {count}"
        if count in (helped, hurt):
            claim, where = f"{'helps' if helped else 'hurts'} on all {tasks}", "on average"
        sentence = with_bracket(
            f"Pretraining {claim}: {_difference(mean)} {where}", f"{_evidence(mean)} each"
        )
        if not (helped and hurt):
            outcome = "better" if helped else "worse"
    return _verdict("pretraining", mean, sentence, task="", outcome=outcome)


# Variants of a sweep


def variant_verdicts(table: FilledTable, results: Sequence[ResultRow]) -> Iterator[Verdict]:
    """Yield a verdict for each pair of variants, on the mean of its columns if it has several."""
    main = {row.entry: row for row in main_rows(results)}
    entries = {key: cell.entry for row in table.rows for key, cell in row.cells.items()}
    for item in on_means(table.comparisons):
        yield _variant_verdict(table, item, [main[entries[key]] for key in item.columns])


def _variant_verdict(table: FilledTable, item: Comparison, scored: Sequence[ResultRow]) -> Verdict:
    """Return the verdict on a pair, given a row of results for each of its columns."""
    agreement = _agreement(table, item)
    ablation = ABLATIONS.get(table.key, PaperTable(key=table.key))
    if not ablation.is_ordered:  # a variant is named by its change to the first
        item = item.reversed
    first, second, context = item.first, item.second, f" ({item.context})" if item.context else ""
    claim, data = ablation.change(second, first), _data_of(scored)
    tasks = list(dict.fromkeys(row.task for row in scored))
    title, where = task_label(item.title, data), "on"
    if item.title == MEAN:
        noun = "tasks" if len(tasks) == len(scored) else "columns"
        title, where = task_label(f"{len(scored)} {noun}", data), "on average over"
    if second == FINE_TUNED:
        claim, title = f"Features ({first}) instead of fine-tuning", scored[0].name
    sentence = _sentence(
        item,
        claim + context,
        where=f"{where} {title}",
        first=first,
        second=second + context,
    )
    return _verdict(
        "variants", item, sentence + agreement, task=tasks[0] if len(tasks) == 1 else ""
    )


def _agreement(table: FilledTable, item: Comparison) -> str:
    """Return whether a difference has the paper's direction; "" without one of both.

    The first variant of an ablation is the one that should be better, also where the paper has no
    number for a column, as in Figure 5.
    """
    known = {row.variant for row in table.paper} or {item.first, item.second}
    is_ablation = table.key in ABLATIONS and {item.first, item.second} <= known
    expected = float(is_ablation) if item.paper is None else item.paper
    if item.verdict not in ("better", "worse") or not expected:
        return ""
    return f", {'as in' if expected * item.difference > 0 else 'unlike'} the paper"


# Entries


def _entry_verdicts(
    pretrained: Sequence[ResultRow], comparisons: Sequence[Comparison]
) -> Iterator[Verdict]:
    """Yield a verdict for the best fine-tuned entry of each task and each other one."""
    for rows in _by_task([row for row in pretrained if row.method == "fine-tune"]).values():
        best, *others = sorted(rows, key=_mean, reverse=True)
        for other in others:
            if _is_comparable(best, other):
                item = _comparison_of(best, other, comparisons)
                claim = f"{item.first} is better than {item.second}"
                where = f"on {best.name}"
                sentence = _sentence(item, claim, where=where, first=item.first, second=item.second)
                yield _verdict("entries", item, sentence, task=best.task)


# The majority class


def _is_above(item: Comparison) -> bool:
    """Return whether an entry is better than the majority class; without a test, by its mean."""
    return item.verdict == "better" if item.adjusted is not None else item.difference > _EXACT


def _at_majority(
    rows: Sequence[ResultRow], low: Mapping[str, Comparison], *, kind: str
) -> Iterator[Verdict]:
    """Yield a verdict for each entry that is not better than the majority class."""
    for row in rows:
        if row.entry in low:
            is_only = sum(other.task == row.task for other in rows) == 1
            entry = "" if is_only else f" ({row.entry})"
            yield _majority_verdict(row, low[row.entry], about=f"{row.name} {kind}{entry}")


def _variants_at_majority(
    variants: Sequence[ResultRow], low: Mapping[str, Comparison]
) -> Iterator[Verdict]:
    """Yield a verdict for each task with variants that are not better than the majority class."""
    for rows in _by_task(variants).values():
        if known := [row for row in rows if row.entry in low]:
            best = max((low[row.entry] for row in known), key=lambda item: item.difference)
            about = f"{rows[0].name}, {len(known)} of {len(rows)} variants"
            yield _majority_verdict(known[0], best, about=about)


def _majority_verdict(row: ResultRow, item: Comparison, *, about: str) -> Verdict:
    clearly = "clearly " if item.difference > _EXACT else ""
    score = format_percent(row.majority)
    sentence = f"{about}: not {clearly}better than the majority class ({score})"
    return _verdict("baseline", item, sentence, task=row.task, outcome="not better than majority")


# Below a table


def table_verdict(
    table: FilledTable, results: Sequence[ResultRow], verdicts: Sequence[Verdict]
) -> str:
    """Return the verdict on a table; "" if the table has no row of the recipe.

    Our rows are compared with each other. They are never tested against the paper's rows, whose
    predictions are not published.

    Args:
        table: Table with our rows and their comparisons.
        results: Results of all entries.
        verdicts: Verdicts on all results.
    """
    if not table.rows:
        return ""
    entries = {entry for row in table.rows for entry in row.entries}
    shown = [item for item in verdicts if item.kind == "pretraining" and item.test.first in entries]
    sentences = [item.sentence for item in (*shown, *variant_verdicts(table, results))]
    return ". ".join([*(sentences or ["No two of our rows were compared"]), _about_paper(table)])


def _about_paper(table: FilledTable) -> str:
    """Return why our rows are not tested against the paper's."""
    if not table.paper:
        return "The paper has no such table."
    if table.data:
        return f"Not compared with the paper's rows: ours are scores on other data ({table.data})."
    others = any(other_splits(table.columns, row.cells) for row in table.rows)
    reason = "ours are on dev, the paper's on test" if others else "its predictions are not public"
    return f"Not tested against the paper's rows: {reason}."
