"""Verdicts on a recipe's results: one sentence for each comparison, most important first.

A sentence claims a difference only where p is below `LEVEL` after Holm's correction for all
comparisons of its table. `table_verdict` says below a table which of its rows were compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from model.formatting import format_percent
from model.tables.compare import (
    FINE_TUNED,
    MEAN,
    SCRATCH,
    Comparison,
    comparable_rows,
    is_comparable,
    mean_of,
    on_means,
    pretraining_twins,
)
from model.tables.filled_tables import FilledTable
from model.tables.paper import ABLATIONS, PaperTable
from model.tables.results import ResultRow, main_rows, task_label, with_bracket
from model.task_results import DEV, Result

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

    title: str
    """Name of the task or column in tables; `4 tasks` for an average over several."""

    data: str = ""
    """Name of the data if it is not the task's own."""

    test: Comparison
    """Both sides, and the test of their difference."""

    sentence: str


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
        *_variant_verdicts(tables, results),
        *_entry_verdicts(pretrained, comparisons),
        *_at_majority(scratch, low, kind="from scratch"),
        *_variants_at_majority(variants, low),
    )


def _verdict(kind: str, item: Comparison, sentence: str, **fields: Any) -> Verdict:
    """Return the verdict on a comparison; its outcome is that of the comparison by default."""
    own = {"kind": kind, "outcome": item.verdict, "sentence": sentence, "test": item}
    return Verdict(**own | fields)


def _about(row: ResultRow) -> dict[str, str]:
    return {"task": row.task, "title": row.name, "data": row.data}


def _data_of(items: Iterable[Verdict | ResultRow]) -> str:
    """Return the names of data that is not the tasks' own."""
    return ", ".join(dict.fromkeys(item.data for item in items if item.data))


def _by_task(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    groups: dict[str, list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(row.task, []).append(row)
    return groups


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


# Pretraining


def _pretraining_verdicts(
    results: Sequence[ResultRow], comparisons: Sequence[Comparison], *, swept: Collection[str]
) -> list[Verdict]:
    """Return a verdict for each task with pretrained twins, after one for all of them."""
    verdicts = []
    for first, second in pretraining_twins(results, swept=swept).values():
        item = _comparison_of(first, second, comparisons)
        sentence = _pretraining_sentence(item, f"on {first.name}")
        verdicts.append(_verdict("pretraining", item, sentence, **_about(first)))
    mean = next((item for item in comparisons if item.title == MEAN), None)
    return [*([_summarize(verdicts, mean)] if mean else []), *verdicts]


def _comparison_of(
    first: ResultRow, second: ResultRow, comparisons: Sequence[Comparison]
) -> Comparison:
    for item in comparisons:
        if {item.first, item.second} == {first.entry, second.entry}:
            return item if item.first == first.entry else item.reversed
    raise KeyError(f"no comparison of {first.entry} and {second.entry}")


def _pretraining_sentence(item: Comparison, where: str) -> str:
    claim = f"Pretraining {'helps' if item.difference > 0 else 'hurts'}"
    return _sentence(item, claim, where=where, first="pretrained", second="from scratch")


def _summarize(verdicts: Sequence[Verdict], mean: Comparison) -> Verdict:
    """Return the verdict on pretraining over several tasks."""
    count, data = len(mean.columns), _data_of(verdicts)
    outcome: str = mean.verdict
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
    return _verdict("pretraining", mean, sentence, outcome=outcome, title=tasks, data=data)


# Variants of a sweep


def _variant_verdicts(
    tables: Sequence[FilledTable], results: Sequence[ResultRow]
) -> Iterator[Verdict]:
    """Yield a verdict for each pair of variants, on the mean of its columns if it has several."""
    main = {row.entry: row for row in main_rows(results)}
    for table in tables:
        entries = {key: cell.entry for row in table.rows for key, cell in row.cells.items()}
        for item in on_means(table.comparisons):
            yield _variant_verdict(table, item, [main[entries[key]] for key in item.columns])


def _variant_verdict(table: FilledTable, item: Comparison, scored: Sequence[ResultRow]) -> Verdict:
    """Return the verdict on a pair, given a row of results for each of its columns."""
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
    about = {"task": tasks[0] if len(tasks) == 1 else "", "title": title, "data": data}
    return _verdict("variants", item, sentence, **about)


# Entries


def _entry_verdicts(
    pretrained: Sequence[ResultRow], comparisons: Sequence[Comparison]
) -> Iterator[Verdict]:
    """Yield a verdict for the best fine-tuned entry of each task and each other one."""
    for rows in _by_task([row for row in pretrained if row.method == "fine-tune"]).values():
        best, *others = sorted(rows, key=mean_of, reverse=True)
        for other in others:
            if is_comparable(best, other):
                item = _comparison_of(best, other, comparisons)
                claim = f"{item.first} is better than {item.second}"
                where = f"on {best.name}"
                sentence = _sentence(item, claim, where=where, first=item.first, second=item.second)
                yield _verdict("entries", item, sentence, **_about(best))


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
    clearly, score = "clearly " if item.difference > _EXACT else "", row.majority
    return _verdict(
        "baseline",
        item,
        f"{about}: not {clearly}better than the majority class ({format_percent(score)})",
        outcome="not better than majority",
        **_about(row),
    )


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
    has_order = table.key in ABLATIONS
    findings = [
        *_pretraining_findings(verdicts, entries),
        *(_variant_finding(item, has_order=has_order) for item in on_means(table.comparisons)),
    ]
    if not findings:
        return f"No two of our rows were compared. {_about_paper(table)}"
    rows = [row for row in results if row.entry in entries and row.split == DEV and row.runs]
    data = table.data or "the tasks' own data"
    where = f"Compared on dev ({data}), {_span(len(row.runs) for row in rows)} restarts"
    if sizes := [row.sample.size for row in rows if row.sample]:
        where += f", {_span(sizes)} rows"
    return f"{where}: {'; '.join(findings)}. {_about_paper(table)}"


def _span(values: Iterable[int]) -> str:
    """Return the smallest and largest number: `3`, or `3 to 5`."""
    ordered = sorted(set(values))
    return " to ".join(f"{value:,}" for value in dict.fromkeys((*ordered[:1], *ordered[-1:])))


def _pretraining_findings(verdicts: Sequence[Verdict], entries: set[str]) -> Iterator[str]:
    """Yield on which tasks of the table pretraining helps."""
    kinds = {
        "better": "pretraining helps on",
        "worse": "pretraining hurts on",
        "within noise": "pretraining makes no visible difference on",
        "not tested": "pretraining was not tested on",
    }
    own = [item for item in verdicts if item.kind == "pretraining" and item.test.first in entries]
    for outcome, words in kinds.items():
        same = (item for item in own if item.outcome == outcome)
        if names := [item.title.removesuffix(f" ({item.data})") for item in same]:
            yield f"{words} {', '.join(names)}"


def _variant_finding(item: Comparison, *, has_order: bool) -> str:
    """Return `A is better than B by 3.1 points, as in the paper`."""
    context = f" ({item.context})" if item.context else ""
    difference = f"{100 * abs(item.difference):.1f} points"
    if item.verdict == "not tested":
        return f"{item.first} and {item.second}{context} were not tested"
    if item.verdict == "within noise":
        return f"{item.first} and {item.second}{context} are within noise ({difference})"
    words = f"{item.first} is {item.verdict} than {item.second}{context} by {difference}"
    # In an ablation the first is the one that should be better, also where the paper has no number.
    expected = item.paper if item.paper is not None else float(has_order)
    if not expected:
        return words
    return f"{words}, {'as in' if expected * item.difference > 0 else 'unlike'} the paper"


def _about_paper(table: FilledTable) -> str:
    """Return why our rows are not tested against the paper's."""
    if not table.paper:
        return "The paper has no such table."
    if table.data:
        return f"Not compared with the paper's rows: ours are scores on other data ({table.data})."
    splits = {column.key: column.split for column in table.columns}
    cells = (cell for row in table.rows for cell in row.cells.items())
    others = any(cell.split != splits[key] for key, cell in cells)
    reason = "ours are on dev, the paper's on test" if others else "its predictions are not public"
    return f"Not tested against the paper's rows: {reason}."
