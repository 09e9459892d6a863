"""Verdicts of a recipe's evaluations: one sentence for each comparison, most important first.

A sentence claims a difference only where a two-sided test is below `LEVEL` after Holm's correction:
over all pairs of entries, over the columns or the means of a table for the variants of a sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from model.monitoring.formatting import format_percent
from model.tables.comparisons import (
    FINE_TUNED,
    LEVEL,
    MEAN,
    EntryComparison,
    VariantComparison,
    comparable_entries,
    is_comparable,
)
from model.tables.filled_tables import FilledTable
from model.tables.paper_ablations import ABLATIONS, UNNAMED
from model.tables.results import DEV, Evaluation, TableModel
from model.tables.significance import mean_difference, welch_test
from model.tasks.task import Task

Kind = Literal["pretraining", "variants", "entries", "baseline"]
Outcome = Literal["better", "worse", "no difference", "not better than majority", "untested"]

_SCRATCH = "scratch"
_EXACT = 1e-9  # two computations of one score differ by less


class Verdict(TableModel):
    """A comparison of two sides, or of one and the majority class, and its test; shares of 1."""

    kind: Kind
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


class _Result(NamedTuple):
    """A difference of two sides and its test; shares of 1."""

    difference: float
    low: float | None
    high: float | None
    p: float | None
    restarts: tuple[int, int]

    @property
    def reversed(self) -> _Result:
        """The second side minus the first."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return _Result(-self.difference, low, high, self.p, self.restarts[::-1])

    @property
    def is_constant(self) -> bool:
        """True if the restarts of each side score the same."""
        return self.low is not None and self.low == self.high

    @property
    def outcome(self) -> Outcome:
        if self.p is None or (self.p >= LEVEL and self.is_constant and self.difference):
            return "untested"
        if self.p >= LEVEL:
            return "no difference"
        return "better" if self.difference > 0 else "worse"

    @property
    def points(self) -> str:
        """The difference, such as `+56 points` or `-3.2 points`."""
        return f"{_number(self.difference, self._digits, sign='+')} points"

    @property
    def evidence(self) -> str:
        """Interval and restarts, such as `(95 % interval 52 to 60, 3 restarts)`."""
        if self.low is None or self.high is None or self.is_constant:
            p = "" if self.p is None else f"p {self.p:.2g}, "
            return f"({p}{self.restarts_text} without spread)"
        low, high = (_number(end, self._digits) for end in (self.low, self.high))
        return f"(95 % interval {low} to {high}, {self.restarts_text})"

    @property
    def _digits(self) -> int:
        """Number of decimals: none for a large difference that is not known to the tenth."""
        width = 1.0 if self.low is None or self.high is None else self.high - self.low
        is_exact = 0 < width < 0.02
        return 1 if is_exact or abs(self.difference) < 0.1 else 0

    @property
    def restarts_text(self) -> str:
        """Number of restarts: `3 restarts`, or `3 and 5 restarts`."""
        first, second = self.restarts
        return f"{first} restarts" if first == second else f"{first} and {second} restarts"


def _number(share: float, digits: int, *, sign: str = "") -> str:
    value = round(100 * share, digits) or 0.0  # no -0.0
    return f"{value:{sign if value else ''}.{digits}f}"


def _verdict(kind: Kind, result: _Result, sentence: str, **fields: Any) -> Verdict:
    """Return the verdict on a result; its outcome is that of the result by default."""
    return Verdict(
        kind=kind,
        sentence=sentence,
        difference=result.difference,
        low=result.low,
        high=result.high,
        p=result.p,
        restarts=min(result.restarts),
        **{
            "outcome": result.outcome,
            "task": "",
            "metric": "",
            "first": "",
            "second": "",
            **fields,
        },
    )


def _sentence(result: _Result, claim: str, *, place: str, first: str, second: str) -> str:
    """Return the sentence: the claim if the test shows a difference, otherwise what is missing."""
    if result.outcome in ("better", "worse"):
        return f"{claim}: {result.points} {place} {result.evidence}"
    if result.outcome == "no difference":
        between = f"{place} between {first} and {second}"
        if result.is_constant:
            return f"No difference {between}: all restarts score the same"
        p = f"p {result.p:.2g}"
        return f"No difference visible {between}: {result.points} ({p}); more restarts are needed"
    known = f"Not tested {place}: {first} minus {second} is {result.points}"
    if result.low is None:
        return f"{known} with one restart; set restarts: 3 or more"
    return f"{known} in every restart ({result.restarts_text}); more restarts are needed"


def find_verdicts(
    evaluations: Sequence[Evaluation],
    comparisons: Sequence[EntryComparison],
    tables: Sequence[FilledTable],
    *,
    swept: Collection[str],
    tasks: Mapping[str, Task],
) -> tuple[Verdict, ...]:
    """Return the verdicts of a recipe: models at the level of the majority class first, then
    pretraining, variants and entries; models from scratch and variants at that level come last.

    Args:
        evaluations: In the order of the tables.
        comparisons: All pairs of entries.
        tables: Tables of the paper and of a sweep with their comparisons.
        swept: Entries that are variants of a sweep.
        tasks: Tasks by name, for their titles.
    """
    scored = comparable_entries(evaluations)
    titles = {
        item.task: tasks[item.task].title if item.task in tasks else item.task
        for item in evaluations
    }
    whole = [item for item in scored if item.entry not in swept]
    pretrained = [item for item in whole if not _is_from_scratch(item)]
    scratch = [item for item in whole if _is_from_scratch(item)]
    return (
        *_at_majority(pretrained, titles, kind="pretrained"),
        *_pretraining_verdicts(pretrained, scratch, comparisons, titles),
        *_variant_verdicts(tables, evaluations, titles),
        *_entry_verdicts(pretrained, comparisons, titles),
        *_at_majority(scratch, titles, kind="from scratch"),
        *_variants_at_majority([item for item in scored if item.entry in swept], titles),
    )


def _is_from_scratch(item: Evaluation) -> bool:
    return item.model.get("start") == _SCRATCH


def _mean(item: Evaluation) -> float:
    return item.dev_mean


def _compare(
    first: Evaluation, second: Evaluation, comparisons: Sequence[EntryComparison]
) -> _Result:
    for item in comparisons:
        if {item.first, item.second} == {first.entry, second.entry}:
            runs = (item.first_runs, item.second_runs)
            result = _Result(item.difference, item.low, item.high, item.adjusted, runs)
            return result if item.first == first.entry else result.reversed
    raise KeyError(f"no comparison of {first.entry} and {second.entry}")


# Pretraining


def _pretraining_verdicts(
    pretrained: Sequence[Evaluation],
    scratch: Sequence[Evaluation],
    comparisons: Sequence[EntryComparison],
    titles: Mapping[str, str],
) -> list[Verdict]:
    """Return a verdict for each task with such twins, after one for all of them."""
    pairs: dict[str, tuple[Evaluation, Evaluation]] = {}
    for item in sorted(pretrained, key=_mean, reverse=True):
        twins = [other for other in scratch if _without_start(other) == _without_start(item)]
        if twins and item.task not in pairs:
            pairs[item.task] = (item, max(twins, key=_mean))
    verdicts = []
    for task in (task for task in titles if task in pairs):
        first, second = pairs[task]
        result = _compare(first, second, comparisons)
        sentence = _pretraining_sentence(result, f"on {titles[task]}")
        sides = {"first": first.entry, "second": second.entry, "metric": first.metric}
        verdicts.append(
            _verdict("pretraining", result, sentence, task=task, title=titles[task], **sides)
        )
    tested = [verdict for verdict in verdicts if verdict.low is not None] or verdicts
    if len(tested) < 2:
        return verdicts
    runs = [(pairs[one.task][0].dev_runs, pairs[one.task][1].dev_runs) for one in tested]
    return [_summarize(tested, runs), *verdicts]


def _pretraining_sentence(result: _Result, place: str) -> str:
    claim = f"Pretraining {'helps' if result.difference > 0 else 'hurts'}"
    return _sentence(result, claim, place=place, first="pretrained", second="from scratch")


def _without_start(item: Evaluation) -> tuple[str, str, dict[str, object]]:
    model = {key: value for key, value in item.model.items() if key != "start"}
    return item.task, item.method, model


def _summarize(
    verdicts: Sequence[Verdict], runs: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> Verdict:
    """Return the verdict on pretraining over several tasks."""
    found = mean_difference(runs)
    restarts = min(len(values) for pair in runs for values in pair)
    result = _Result(found.estimate, found.low, found.high, found.p, (restarts, restarts))
    count = len(verdicts)
    helped, hurt = (sum(one.outcome == name for one in verdicts) for name in ("better", "worse"))
    outcome = result.outcome
    if helped or hurt:
        said = " and ".join(
            f"{verb} on {n}" for verb, n in (("helps", helped), ("hurts", hurt)) if n
        )
        over = f"on average over all {count}"
        if count in (helped, hurt):
            said, over = said.replace("on ", "on all "), "on average"
        else:
            said += f" of {count}"
        sentence = f"Pretraining {said} tasks: {result.points} {over} {result.evidence[:-1]} each)"
        if not (helped and hurt):
            outcome = "better" if helped else "worse"
    else:
        sentence = _pretraining_sentence(result, f"on average over {count} tasks")
    return _verdict("pretraining", result, sentence, outcome=outcome, title=f"{count} tasks")


# Variants of a sweep


def _variant_verdicts(
    tables: Sequence[FilledTable], evaluations: Sequence[Evaluation], titles: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield a verdict for each pair of variants, on the mean of its columns if it has several."""
    by_entry = {item.entry: item for item in evaluations}
    for table in tables:
        pairs: dict[tuple[str, str, str], VariantComparison] = {}
        for item in table.comparisons:
            key = (item.first, item.second, item.context)
            if key not in pairs or item.column == MEAN:
                pairs[key] = item
        entries = {key: cell.entry for row in table.rows for key, cell in row.cells.items()}
        for item in pairs.values():
            scored = [by_entry[entries[key]] for key in item.columns]
            yield _variant_verdict(table, item, scored, titles)


def _variant_verdict(
    table: FilledTable,
    item: VariantComparison,
    scored: Sequence[Evaluation],
    titles: Mapping[str, str],
) -> Verdict:
    """Return the verdict on a pair, given an evaluation for each of its columns."""
    ablation = ABLATIONS.get(table.key, UNNAMED)
    result = _Result(item.difference, item.low, item.high, item.adjusted, item.runs)
    first, second = item.first, item.second
    if not ablation.is_ordered:  # a variant is named by its change to the first
        result, first, second = result.reversed, second, first
    claim = ablation.phrases.get(
        (first, second), f"{ablation.noun} {first} instead of {second}".strip()
    )
    if second == FINE_TUNED:
        claim = f"Features ({first}) instead of fine-tuning"
    tasks = {one.task for one in scored}
    is_mean = item.column == MEAN
    noun = "tasks" if len(tasks) == len(scored) else "columns"
    title = f"{len(scored)} {noun}" if is_mean else item.column
    if second == FINE_TUNED:
        title = titles[scored[0].task]
    context = f" ({item.context})" if item.context else ""
    place = f"on average over {title}" if is_mean else f"on {title}"
    return _verdict(
        "variants",
        result,
        _sentence(result, claim + context, place=place, first=first, second=second + context),
        task=tasks.pop() if len(tasks) == 1 else "",
        title=title,
        metric="" if is_mean else scored[0].metric,
        first=first,
        second=second,
    )


# Entries


def _entry_verdicts(
    pretrained: Sequence[Evaluation],
    comparisons: Sequence[EntryComparison],
    titles: Mapping[str, str],
) -> Iterator[Verdict]:
    """Yield a verdict for the best fine-tuned entry of each task and each other one."""
    for task, title in titles.items():
        group = [item for item in pretrained if item.task == task and item.method == "fine-tune"]
        group.sort(key=_mean, reverse=True)
        for best, other in zip(group[:1] * len(group), group[1:], strict=False):
            if not is_comparable(best, other):
                continue
            result = _compare(best, other, comparisons)
            claim = f"{best.entry} is better than {other.entry}"
            sides = {"first": best.entry, "second": other.entry}
            sentence = _sentence(result, claim, place=f"on {title}", **sides)
            about = {"task": task, "title": title, "metric": best.metric, **sides}
            yield _verdict("entries", result, sentence, **about)


# The majority class


def _at_majority(
    evaluations: Sequence[Evaluation], titles: Mapping[str, str], *, kind: str
) -> Iterator[Verdict]:
    """Yield a verdict for each entry that is not better than the majority class."""
    for item in evaluations:
        if (result := _over_majority(item)) is not None:
            title = titles[item.task]
            is_only = sum(other.task == item.task for other in evaluations) == 1
            about = f"{title} {kind}" if is_only else f"{title} {kind} ({item.entry})"
            yield _majority_verdict([item], result, title=title, about=about)


def _variants_at_majority(
    variants: Sequence[Evaluation], titles: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield a verdict for each task with variants that are not better than the majority class."""
    for task, title in titles.items():
        group = [item for item in variants if item.task == task]
        results = [(item, _over_majority(item)) for item in group]
        known = [(item, result) for item, result in results if result is not None]
        if known:
            result = max((result for _, result in known), key=lambda result: result.difference)
            about = f"{title}, {len(known)} of {len(group)} variants"
            items = [item for item, _ in known]
            yield _majority_verdict(items, result, title=title, about=about)


def _over_majority(item: Evaluation) -> _Result | None:
    """Return the mean minus the majority class; None where it is above 0, or not known."""
    majority = item.majority(DEV, item.metric)
    if majority is None:
        return None
    runs = item.dev_runs
    found = welch_test([runs], [1.0], null_value=majority)
    p = found.p_greater
    is_above = found.estimate > _EXACT if p is None else p < LEVEL
    counts = (len(runs), len(runs))
    return None if is_above else _Result(found.estimate, found.low, found.high, p, counts)


def _majority_verdict(
    items: Sequence[Evaluation], result: _Result, *, title: str, about: str
) -> Verdict:
    majority = items[0].majority(DEV, items[0].metric)
    clearly = "clearly " if result.difference > _EXACT else ""
    return _verdict(
        "baseline",
        result,
        f"{about}: not {clearly}better than the majority class ({format_percent(majority)})",
        outcome="not better than majority",
        task=items[0].task,
        title=title,
        metric=items[0].metric,
        first=", ".join(item.entry for item in items),
        majority=majority,
    )
