"""Verdicts on a recipe's results: one sentence for each comparison, most important first.

A sentence claims a difference only where p is below `LEVEL` after Holm's correction for all
comparisons of its table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from model.monitoring.formatting import format_percent
from model.tables.filled_tables import FilledTable
from model.tables.paper_results import ABLATIONS, CUSTOM
from model.tables.results import ResultRow, main_rows, task_label, with_bracket
from model.tables.significance import (
    FINE_TUNED,
    LEVEL,
    MEAN,
    SCRATCH,
    Comparison,
    EntryComparison,
    VariantComparison,
    comparable_rows,
    is_comparable,
    mean_of,
    pretraining_twins,
)
from model.task_results import Result

Outcome = Literal["better", "worse", "no difference", "not better than majority", "untested"]

_EXACT = 1e-9  # two computations of one score differ by less


class Verdict(Result):
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

    data: str = ""
    """Name of the data if it is not the task's own."""

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
    """Two-sided p after Holm's correction; None where nothing was tested."""

    restarts: int
    """Number of restarts; the smaller one of the two sides."""

    rows: int = 0
    """Number of dev rows; the smallest over the tasks of an average."""

    majority: float | None = None
    """Score of the majority class, where the first is compared with it."""

    sentence: str


class _Result(NamedTuple):
    """Test of a first side minus a second one."""

    estimate: float
    low: float | None
    high: float | None
    p: float | None
    """p after Holm's correction."""

    runs: tuple[int, ...]
    """Number of restarts of both sides, without the majority class."""

    rows: int

    @classmethod
    def of(cls, item: Comparison) -> _Result:
        runs = tuple(count for count in item.runs if count)
        return cls(item.difference, item.low, item.high, item.adjusted, runs, item.rows)

    @property
    def reversed(self) -> _Result:
        """Test of the second side minus the first."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return _Result(-self.estimate, low, high, self.p, self.runs[::-1], self.rows)

    @property
    def outcome(self) -> Outcome:
        if self.p is None:
            return "untested"
        if self.p >= LEVEL:
            return "no difference"
        return "better" if self.estimate > 0 else "worse"


def find_verdicts(
    results: Sequence[ResultRow],
    comparisons: Sequence[EntryComparison],
    baselines: Sequence[EntryComparison],
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
    low = {item.first: result for item in baselines if (result := _not_above(item)) is not None}
    return (
        *_at_majority(pretrained, low, kind="pretrained"),
        *_pretraining_verdicts(results, comparisons, swept=swept),
        *_variant_verdicts(tables, results),
        *_entry_verdicts(pretrained, comparisons),
        *_at_majority(scratch, low, kind="from scratch"),
        *_variants_at_majority(variants, low),
    )


def _verdict(kind: str, result: _Result, sentence: str, **fields: Any) -> Verdict:
    """Return the verdict on a result; its outcome is that of the result by default."""
    return Verdict(
        **{
            "kind": kind,
            "outcome": result.outcome,
            "sentence": sentence,
            "difference": result.estimate,
            "low": result.low,
            "high": result.high,
            "p": result.p,
            "restarts": min(result.runs),
            "rows": result.rows,
            **fields,
        }
    )


def _by_task(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    groups: dict[str, list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(row.task, []).append(row)
    return groups


# Sentences


def _points(result: _Result, share: float | None, *, sign: str = "") -> str:
    """Return a share of a result in points, such as `+56` or `-3.2`.

    Without decimals: a large difference that is not known to the tenth.
    """
    width = 1.0 if result.low is None or result.high is None else result.high - result.low
    digits = 1 if 0 < width < 0.02 or abs(result.estimate) < 0.1 else 0
    value = round(100 * (share or 0.0), digits) or 0.0  # no -0.0
    return f"{value:{sign if value else ''}.{digits}f}"


def _difference(result: _Result) -> str:
    """Return the difference, such as `+56 points`."""
    return f"{_points(result, result.estimate, sign='+')} points"


def _evidence(result: _Result) -> str:
    """Return the interval and its data: `95 % interval 52 to 60, 3 restarts, 872 dev rows`."""
    low, high = (_points(result, end) for end in (result.low, result.high))
    restarts = " and ".join(map(str, dict.fromkeys(result.runs)))
    return f"95 % interval {low} to {high}, {restarts} restarts, {result.rows:,} dev rows"


def _sentence(result: _Result, claim: str, *, place: str, first: str, second: str) -> str:
    """Return the sentence: the claim if the test shows a difference, otherwise what is missing."""
    difference = _difference(result)
    if result.outcome in ("better", "worse"):
        return with_bracket(f"{claim}: {difference} {place}", _evidence(result))
    if result.outcome == "no difference":
        between = f"{place} between {first} and {second}"
        return (
            f"No difference visible {between}: {difference} (p {result.p:.2g}, {_evidence(result)})"
        )
    missing = "with one restart; set restarts: 3 or more"
    if min(result.runs) > 1:
        missing = "without stored scores of dev rows; rebuild the stage evaluate"
    return f"Not tested {place}: {first} minus {second} is {difference} {missing}"


# Pretraining


def _pretraining_verdicts(
    results: Sequence[ResultRow],
    comparisons: Sequence[EntryComparison],
    *,
    swept: Collection[str],
) -> list[Verdict]:
    """Return a verdict for each task with pretrained twins, after one for all of them."""
    verdicts = []
    for first, second in pretraining_twins(results, swept=swept).values():
        result = _find_result(first, second, comparisons)
        sentence = _pretraining_sentence(result, f"on {first.name}")
        verdicts.append(
            _verdict("pretraining", result, sentence, **_about(first), second=second.entry)
        )
    mean = next((item for item in comparisons if item.columns > 1), None)
    return [*([_summarize(verdicts, mean)] if mean else []), *verdicts]


def _about(row: ResultRow) -> dict[str, str]:
    fields = {"task": row.task, "title": row.name, "metric": row.metric, "data": row.data}
    return {**fields, "first": row.entry}


def _find_result(
    first: ResultRow, second: ResultRow, comparisons: Sequence[EntryComparison]
) -> _Result:
    for item in comparisons:
        if {item.first, item.second} == {first.entry, second.entry}:
            result = _Result.of(item)
            return result if item.first == first.entry else result.reversed
    raise KeyError(f"no comparison of {first.entry} and {second.entry}")


def _pretraining_sentence(result: _Result, place: str) -> str:
    claim = f"Pretraining {'helps' if result.estimate > 0 else 'hurts'}"
    return _sentence(result, claim, place=place, first="pretrained", second="from scratch")


def _summarize(verdicts: Sequence[Verdict], mean: EntryComparison) -> Verdict:
    """Return the verdict on pretraining over several tasks."""
    result, count = _Result.of(mean), mean.columns
    helped, hurt = (sum(one.outcome == name for one in verdicts) for name in ("better", "worse"))
    outcome, data = result.outcome, _data_of(verdicts)
    tasks = task_label(f"{count} tasks", data)
    sentence = _pretraining_sentence(result, f"on average over {tasks}")
    if (helped or hurt) and result.low is not None:
        counts = (("helps", helped), ("hurts", hurt))
        verbs = " and ".join(f"{verb} on {number}" for verb, number in counts if number)
        claim, place = f"{verbs} of {tasks}", f"on average over all {count}"
        if count in (helped, hurt):
            claim, place = f"{'helps' if helped else 'hurts'} on all {tasks}", "on average"
        sentence = with_bracket(
            f"Pretraining {claim}: {_difference(result)} {place}", f"{_evidence(result)} each"
        )
        if not (helped and hurt):
            outcome = "better" if helped else "worse"
    return _verdict("pretraining", result, sentence, outcome=outcome, title=tasks, data=data)


def _data_of(items: Iterable[Verdict | ResultRow]) -> str:
    """Return the names of data that is not the tasks' own."""
    return ", ".join(dict.fromkeys(item.data for item in items if item.data))


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
    result, first, second = _Result.of(item), item.first, item.second
    if not ablation.is_ordered:  # a variant is named by its change to the first
        result, first, second = result.reversed, second, first
    claim = ablation.pairs.get((second, first)) or f"{ablation.noun} {first} instead of {second}"
    tasks = list(dict.fromkeys(row.task for row in scored))
    data = _data_of(scored)
    title, metric, place = task_label(item.column, data), scored[0].metric, "on"
    if item.column == MEAN:
        noun = "tasks" if len(tasks) == len(scored) else "columns"
        title = task_label(f"{len(scored)} {noun}", data)
        metric, place = "", "on average over"
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
    return _verdict("variants", result, sentence, **about, data=data)


# Entries


def _entry_verdicts(
    pretrained: Sequence[ResultRow], comparisons: Sequence[EntryComparison]
) -> Iterator[Verdict]:
    """Yield a verdict for the best fine-tuned entry of each task and each other one."""
    for rows in _by_task([row for row in pretrained if row.method == "fine-tune"]).values():
        best, *others = sorted(rows, key=mean_of, reverse=True)
        for other in others:
            if is_comparable(best, other):
                result = _find_result(best, other, comparisons)
                claim = f"{best.entry} is better than {other.entry}"
                sides = {"first": best.entry, "second": other.entry}
                sentence = _sentence(result, claim, place=f"on {best.name}", **sides)
                yield _verdict("entries", result, sentence, **_about(best) | sides)


# The majority class


def _not_above(item: EntryComparison) -> _Result | None:
    """Return the test against the majority class, or None where the entry is above it."""
    result = _Result.of(item)
    is_above = result.outcome == "better" if result.p is not None else result.estimate > _EXACT
    return None if is_above else result


def _at_majority(
    rows: Sequence[ResultRow], low: Mapping[str, _Result], *, kind: str
) -> Iterator[Verdict]:
    """Yield a verdict for each entry that is not better than the majority class."""
    for row in rows:
        if row.entry in low:
            is_only = sum(other.task == row.task for other in rows) == 1
            entry = "" if is_only else f" ({row.entry})"
            yield _majority_verdict([row], low[row.entry], about=f"{row.name} {kind}{entry}")


def _variants_at_majority(
    variants: Sequence[ResultRow], low: Mapping[str, _Result]
) -> Iterator[Verdict]:
    """Yield a verdict for each task with variants that are not better than the majority class."""
    for rows in _by_task(variants).values():
        if known := [row for row in rows if row.entry in low]:
            best = max((low[row.entry] for row in known), key=lambda result: result.estimate)
            about = f"{rows[0].name}, {len(known)} of {len(rows)} variants"
            yield _majority_verdict(known, best, about=about)


def _majority_verdict(rows: Sequence[ResultRow], result: _Result, *, about: str) -> Verdict:
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
