"""One verdict under each table of the paper: what was compared, on which data, with which result.

Our rows are compared with each other. They are never tested against the paper's rows, whose
predictions are not published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from model.tables.filled_tables import FilledTable
from model.tables.paper_results import ABLATIONS
from model.tables.results import ResultRow
from model.tables.significance import LEVEL, MEAN, VariantComparison
from model.tables.verdicts import Verdict
from model.task_results import DEV


def table_verdict(
    table: FilledTable, results: Sequence[ResultRow], verdicts: Sequence[Verdict]
) -> str:
    """Return the verdict on a table; "" if the table has no row of the recipe.

    Args:
        table: Table with our rows and their comparisons.
        results: Results of all entries.
        verdicts: Verdicts on all results.
    """
    if not table.rows:
        return ""
    entries = {entry for row in table.rows for entry in row.entries}
    findings = [*_pretraining(verdicts, entries), *_variants(table)]
    return " ".join([_sentence(findings, table, results, entries), _about_paper(table)])


def _sentence(
    findings: Sequence[str],
    table: FilledTable,
    results: Sequence[ResultRow],
    entries: set[str],
) -> str:
    if not findings:
        return "No two of our rows were compared."
    rows = [row for row in results if row.entry in entries and row.split == DEV and row.runs]
    restarts = _span(len(row.runs) for row in rows)
    data = table.data or "the tasks' own data"
    where = f"Compared on dev ({data}), {restarts} restarts"
    if sizes := [row.sample.size for row in rows if row.sample]:
        where += f", {_span(sizes)} rows"
    return f"{where}: {'; '.join(findings)}."


def _span(values: Iterable[int]) -> str:
    """Return the smallest and largest number: `3`, or `3 to 5`."""
    ordered = sorted(set(values))
    return " to ".join(f"{value:,}" for value in dict.fromkeys((*ordered[:1], *ordered[-1:])))


def _pretraining(verdicts: Sequence[Verdict], entries: set[str]) -> Iterator[str]:
    """Yield on which tasks of the table pretraining helps."""
    kinds = {
        "better": "pretraining helps on",
        "worse": "pretraining hurts on",
        "no difference": "pretraining makes no visible difference on",
        "untested": "pretraining was not tested on",
    }
    own = [item for item in verdicts if item.kind == "pretraining" and item.first in entries]
    for outcome, words in kinds.items():
        same = (item for item in own if item.outcome == outcome)
        if names := [item.title.removesuffix(f" ({item.data})") for item in same]:
            yield f"{words} {', '.join(names)}"


def _variants(table: FilledTable) -> Iterator[str]:
    """Yield the outcome of each pair of variants, on the mean of its columns if it has several."""
    pairs: dict[tuple[str, str, str], VariantComparison] = {}
    for item in table.comparisons:
        key = (item.first, item.second, item.context)
        if key not in pairs or item.column == MEAN:
            pairs[key] = item
    for item in pairs.values():
        yield _finding(item, has_order=table.key in ABLATIONS)


def _finding(item: VariantComparison, *, has_order: bool) -> str:
    """Return `A is better than B by 3.1 points, as in the paper`."""
    context = f" ({item.context})" if item.context else ""
    difference = f"{100 * abs(item.difference):.1f} points"
    if item.adjusted is None:
        return f"{item.first} and {item.second}{context} were not tested"
    if item.adjusted >= LEVEL:
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
