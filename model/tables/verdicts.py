"""Verdicts on a recipe's results: one sentence for each comparison, most important first.

A sentence claims a difference only where a two-sided test is below `LEVEL` after Holm's correction:
over all pairs of entries, over the columns or the means of a table for the variants of a sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

from model.monitoring.formatting import format_percent
from model.tables.filled_tables import FilledTable
from model.tables.paper_results import ABLATIONS, CUSTOM
from model.tables.results import ResultRow, TableModel, main_rows
from model.tables.significance import (
    FINE_TUNED,
    LEVEL,
    MEAN,
    EntryComparison,
    TestResult,
    VariantComparison,
    comparable_rows,
    is_comparable,
    mean_difference,
    mean_of,
    welch_test,
)

Outcome = Literal["better", "worse", "no difference", "not better than majority", "untested"]

_SCRATCH = "scratch"
_EXACT = 1e-9  # two computations of one score differ by less


class Verdict(TableModel):
    """A comparison of two sides, or of one and the majority class, and its test; shares of 1."""

    kind: Literal["pretraining", "variants", "entries", "baseline"]
    """Sides of the comparison: `pretraining`, a pretrained model and its twin from scratch;
    `variants` of a sweep; `entries` on one task; `baseline`, an entry and the majority class."""

    outcome: Outcome
    """Result for the first side."""

    task: str = ""
    """Name of the task; "" for an average over several."""

    title: str
    """Name of the task or column in tables; `4 tasks` for an average over several."""

    metric: str = ""
    """Main metric of the task; "" for an average over several."""

    first: str = ""
    """Name of the entry or variant; "" for an average over entries of several tasks."""

    second: str = ""
    """Name of what it is compared with; "" for the majority class."""

    difference: float
    """Mean of the first minus mean of the second, or minus the majority class."""

    low: float | None
    """Lower end of the 95 % interval of the difference; None with one restart."""

    high: float | None
    p: float | None
    """p after Holm's correction, two-sided; uncorrected and one-sided for the majority class; None
    where nothing was tested."""

    restarts: int
    """Number of restarts; the smaller one of the two sides."""

    majority: float | None = None
    """Score of the majority class, where the first is compared with it."""

    sentence: str


def find_verdicts(
    results: Sequence[ResultRow],
    comparisons: Sequence[EntryComparison],
    tables: Sequence[FilledTable],
    *,
    swept: Collection[str],
) -> tuple[Verdict, ...]:
    """Return the verdicts of a recipe: models at the level of the majority class first, then
    pretraining, variants and entries; models from scratch and variants at that level come last.

    Args:
        results: Results of all entries.
        comparisons: All pairs of entries.
        tables: Tables of the paper and of a sweep with their comparisons.
        swept: Entries that are variants of a sweep.
    """
    scored = comparable_rows(results)
    pretrained = [row for row in scored if row.entry not in swept and row.start != _SCRATCH]
    scratch = [row for row in scored if row.entry not in swept and row.start == _SCRATCH]
    variants = [row for row in scored if row.entry in swept]
    return (
        *_at_majority(pretrained, kind="pretrained"),
        *_pretraining_verdicts(pretrained, scratch, comparisons),
        *_variant_verdicts(tables, results),
        *_entry_verdicts(pretrained, comparisons),
        *_at_majority(scratch, kind="from scratch"),
        *_variants_at_majority(variants),
    )


def _verdict(kind: str, result: TestResult, sentence: str, **fields: Any) -> Verdict:
    """Return the verdict on a result; its outcome is that of the result by default."""
    return Verdict(
        **{
            "kind": kind,
            "outcome": _outcome(result),
            "sentence": sentence,
            "difference": result.estimate,
            "low": result.low,
            "high": result.high,
            "p": result.p,
            "restarts": min(result.runs),
            **fields,
        }
    )


def _by_task(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    groups: dict[str, list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(row.task, []).append(row)
    return groups


# Sentences


def _is_constant(result: TestResult) -> bool:
    """Return whether the restarts of each side score the same."""
    return result.low is not None and result.low == result.high


def _outcome(result: TestResult) -> Outcome:
    if result.p is None or (result.p >= LEVEL and _is_constant(result) and result.estimate):
        return "untested"
    if result.p >= LEVEL:
        return "no difference"
    return "better" if result.estimate > 0 else "worse"


def _points(result: TestResult, share: float | None, *, sign: str = "") -> str:
    """Return a share of a result in points, such as `+56` or `-3.2`.

    Without decimals: a large difference that is not known to the tenth.
    """
    width = 1.0 if result.low is None or result.high is None else result.high - result.low
    digits = 1 if 0 < width < 0.02 or abs(result.estimate) < 0.1 else 0
    value = round(100 * (share or 0.0), digits) or 0.0  # no -0.0
    return f"{value:{sign if value else ''}.{digits}f}"


def _difference(result: TestResult) -> str:
    """Return the difference, such as `+56 points`."""
    return f"{_points(result, result.estimate, sign='+')} points"


def _restarts(result: TestResult) -> str:
    """Return the number of restarts: `3 restarts`, or `3 and 5 restarts`."""
    return f"{' and '.join(map(str, dict.fromkeys(result.runs)))} restarts"


def _evidence(result: TestResult) -> str:
    """Return interval and restarts, such as `95 % interval 52 to 60, 3 restarts`."""
    if result.low is None or _is_constant(result):
        p = "" if result.p is None else f"p {result.p:.2g}, "
        return f"{p}{_restarts(result)} without spread"
    low, high = (_points(result, end) for end in (result.low, result.high))
    return f"95 % interval {low} to {high}, {_restarts(result)}"


def _sentence(result: TestResult, claim: str, *, place: str, first: str, second: str) -> str:
    """Return the sentence: the claim if the test shows a difference, otherwise what is missing."""
    outcome, difference = _outcome(result), _difference(result)
    if outcome in ("better", "worse"):
        return f"{claim}: {difference} {place} ({_evidence(result)})"
    if outcome == "no difference":
        between = f"{place} between {first} and {second}"
        if _is_constant(result):
            return f"No difference {between}: all restarts score the same"
        p = f"p {result.p:.2g}"
        return f"No difference visible {between}: {difference} ({p}); more restarts are needed"
    known = f"Not tested {place}: {first} minus {second} is {difference}"
    if result.low is None:
        return f"{known} with one restart; set restarts: 3 or more"
    return f"{known} in every restart ({_restarts(result)}); more restarts are needed"


# Pretraining


def _pretraining_verdicts(
    pretrained: Sequence[ResultRow],
    scratch: Sequence[ResultRow],
    comparisons: Sequence[EntryComparison],
) -> list[Verdict]:
    """Return a verdict for each task with such twins, after one for all of them."""
    pairs: dict[str, tuple[ResultRow, ResultRow]] = {}
    for row in sorted(pretrained, key=mean_of, reverse=True):
        twins = [other for other in scratch if _without_start(other) == _without_start(row)]
        if twins and row.task not in pairs:
            pairs[row.task] = (row, max(twins, key=mean_of))
    verdicts = []
    for first, second in (pairs[task] for task in _by_task(pretrained) if task in pairs):
        result = _compare(first, second, comparisons)
        sentence = _pretraining_sentence(result, f"on {first.name}")
        verdicts.append(
            _verdict("pretraining", result, sentence, **_about(first), second=second.entry)
        )
    tested = [verdict for verdict in verdicts if verdict.low is not None] or verdicts
    if len(tested) < 2:
        return verdicts
    runs = [(pairs[one.task][0].runs, pairs[one.task][1].runs) for one in tested]
    return [_summarize(tested, mean_difference(runs)), *verdicts]


def _about(row: ResultRow) -> dict[str, str]:
    return {"task": row.task, "title": row.name, "metric": row.metric, "first": row.entry}


def _compare(
    first: ResultRow, second: ResultRow, comparisons: Sequence[EntryComparison]
) -> TestResult:
    for item in comparisons:
        if {item.first, item.second} == {first.entry, second.entry}:
            return item.result if item.first == first.entry else item.result.reversed
    raise KeyError(f"no comparison of {first.entry} and {second.entry}")


def _pretraining_sentence(result: TestResult, place: str) -> str:
    claim = f"Pretraining {'helps' if result.estimate > 0 else 'hurts'}"
    return _sentence(result, claim, place=place, first="pretrained", second="from scratch")


def _without_start(row: ResultRow) -> tuple[str, str, dict[str, object]]:
    settings = {key: value for key, value in row.settings.items() if key != "start"}
    return row.task, row.method, settings


def _summarize(verdicts: Sequence[Verdict], result: TestResult) -> Verdict:
    """Return the verdict on pretraining over several tasks."""
    result = result._replace(runs=(min(result.runs), min(result.runs)))
    count = len(verdicts)
    helped, hurt = (sum(one.outcome == name for one in verdicts) for name in ("better", "worse"))
    outcome = _outcome(result)
    if helped or hurt:
        counts = (("helps", helped), ("hurts", hurt))
        said = " and ".join(f"{verb} on {n}" for verb, n in counts if n)
        over = f"on average over all {count}"
        if count in (helped, hurt):
            said, over = said.replace("on ", "on all "), "on average"
        else:
            said += f" of {count}"
        difference, evidence = _difference(result), _evidence(result)
        sentence = f"Pretraining {said} tasks: {difference} {over} ({evidence} each)"
        if not (helped and hurt):
            outcome = "better" if helped else "worse"
    else:
        sentence = _pretraining_sentence(result, f"on average over {count} tasks")
    return _verdict("pretraining", result, sentence, outcome=outcome, title=f"{count} tasks")


# Variants of a sweep


def _variant_verdicts(
    tables: Sequence[FilledTable], results: Sequence[ResultRow]
) -> Iterator[Verdict]:
    """Yield a verdict for each pair of variants, on the mean of its columns if it has several."""
    main = {row.entry: row for row in main_rows(results)}
    for table in tables:
        pairs: dict[tuple[str, str, str], VariantComparison] = {}
        for item in table.comparisons:
            key = (item.first, item.second, item.context)
            if key not in pairs or item.column == MEAN:
                pairs[key] = item
        entries = {key: cell.entry for row in table.rows for key, cell in row.cells.items()}
        for item in pairs.values():
            yield _variant_verdict(table, item, [main[entries[key]] for key in item.columns])


def _variant_verdict(
    table: FilledTable, item: VariantComparison, scored: Sequence[ResultRow]
) -> Verdict:
    """Return the verdict on a pair, given a row of results for each of its columns."""
    ablation = ABLATIONS.get(table.key, CUSTOM)
    result, first, second = item.result, item.first, item.second
    if not ablation.is_ordered:  # a variant is named by its change to the first
        result, first, second = result.reversed, second, first
    claim = ablation.pairs.get((second, first)) or f"{ablation.noun} {first} instead of {second}"
    tasks = list(dict.fromkeys(row.task for row in scored))
    title, metric, place = item.column, scored[0].metric, "on"
    if item.column == MEAN:
        noun = "tasks" if len(tasks) == len(scored) else "columns"
        title, metric, place = f"{len(scored)} {noun}", "", "on average over"
    if second == FINE_TUNED:
        claim, title = f"Features ({first}) instead of fine-tuning", scored[0].name
    context = f" ({item.context})" if item.context else ""
    sentence = _sentence(
        result,
        claim.strip() + context,
        place=f"{place} {title}",
        first=first,
        second=second + context,
    )
    task = tasks[0] if len(tasks) == 1 else ""
    about = {"task": task, "title": title, "metric": metric, "first": first, "second": second}
    return _verdict("variants", result, sentence, **about)


# Entries


def _entry_verdicts(
    pretrained: Sequence[ResultRow], comparisons: Sequence[EntryComparison]
) -> Iterator[Verdict]:
    """Yield a verdict for the best fine-tuned entry of each task and each other one."""
    for rows in _by_task([row for row in pretrained if row.method == "fine-tune"]).values():
        best, *others = sorted(rows, key=mean_of, reverse=True)
        for other in others:
            if is_comparable(best, other):
                result = _compare(best, other, comparisons)
                claim = f"{best.entry} is better than {other.entry}"
                sides = {"first": best.entry, "second": other.entry}
                sentence = _sentence(result, claim, place=f"on {best.name}", **sides)
                yield _verdict("entries", result, sentence, **_about(best) | sides)


# The majority class


def _at_majority(rows: Sequence[ResultRow], *, kind: str) -> Iterator[Verdict]:
    """Yield a verdict for each entry that is not better than the majority class."""
    for row in rows:
        if (result := _over_majority(row)) is not None:
            is_only = sum(other.task == row.task for other in rows) == 1
            entry = "" if is_only else f" ({row.entry})"
            yield _majority_verdict([row], result, about=f"{row.name} {kind}{entry}")


def _variants_at_majority(variants: Sequence[ResultRow]) -> Iterator[Verdict]:
    """Yield a verdict for each task with variants that are not better than the majority class."""
    for rows in _by_task(variants).values():
        known = [(row, result) for row in rows if (result := _over_majority(row)) is not None]
        if known:
            best = max((result for _, result in known), key=lambda result: result.estimate)
            about = f"{rows[0].name}, {len(known)} of {len(rows)} variants"
            yield _majority_verdict([row for row, _ in known], best, about=about)


def _over_majority(row: ResultRow) -> TestResult | None:
    """Return the mean minus the majority class; None where it is above 0, or not known."""
    if row.majority is None:
        return None
    result = welch_test([row.runs], [1.0], null_value=row.majority)
    p = result.p_greater
    is_above = result.estimate > _EXACT if p is None else p < LEVEL
    return None if is_above else result._replace(p=p, runs=(len(row.runs), len(row.runs)))


def _majority_verdict(rows: Sequence[ResultRow], result: TestResult, *, about: str) -> Verdict:
    majority = rows[0].majority
    clearly = "clearly " if result.estimate > _EXACT else ""
    return _verdict(
        "baseline",
        result,
        f"{about}: not {clearly}better than the majority class ({format_percent(majority)})",
        outcome="not better than majority",
        **_about(rows[0]) | {"first": ", ".join(row.entry for row in rows)},
        majority=majority,
    )
