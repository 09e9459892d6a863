"""Render results as GitHub Markdown, aligned text and CSV.

The report of a run shows the same tables as HTML (`flows/report/templates`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from model.monitoring.formatting import format_percent
from model.tables.comparisons import TEST_NOTE, EntryComparison, VariantComparison
from model.tables.filled_tables import FilledTable, OurRow, PaperRow, other_splits
from model.tables.paper_tables import Column
from model.tables.results import MAJORITY, MAJORITY_CLASS, ResultRow
from model.tasks.reduced_data import cut_notes, marked

CSV_COLUMNS = ("entry", "task", "split", "metric", "statistic", "value", "cut", "reference")
VARIANTS_COLUMNS = (
    *("table", "axis", "variant", "context", "column", "metric", "value", "sd", "runs", "entry"),
    *("paper", "reference"),
)
COMPARISONS_COLUMNS = (
    *("table", "axis", "context", "column", "first", "second", "first_mean", "second_mean"),
    *("difference", "low", "high", "p", "p_holm", "test", "verdict", "paper_difference"),
)

_Item = TypeVar("_Item")
_REFERENCE = "reference"
_Rows = tuple[tuple[str, ...], ...]


class TextTable(NamedTuple):
    """Table of formatted cells."""

    title: str
    header: tuple[str, ...]
    groups: tuple[_Rows, ...]
    """Groups of rows, which plain text separates with an empty line."""

    notes: tuple[str, ...]
    texts: int = 1
    """Number of left-aligned columns; the others are numbers, aligned right."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of all groups."""
        return [row for group in self.groups for row in group]

    @property
    def columns(self) -> list[tuple[str, tuple[str, ...]]]:
        """Title and cells of each column."""
        return list(zip(self.header, zip(*self.rows, strict=True), strict=True))


def text_tables(
    rows: Sequence[ResultRow],
    comparisons: Sequence[EntryComparison],
    filled: Sequence[FilledTable],
) -> list[TextTable]:
    """Return the tables of results, entries and comparisons, and the paper's tables with results
    of the recipe, each with the comparisons of its variants."""
    listed = [row for row in rows if row.is_listed]
    grids = [results_table(listed), entries_table(rows)] if rows else []
    if comparisons:
        grids.append(comparisons_table(comparisons))
    for table in filled:
        grids += [paper_table(table)] if table.rows else []
        grids += [variants_table(table)] if table.comparisons else []
    return grids


def _cells(columns: Mapping[str, Callable[[_Item], str]], items: Sequence[_Item]) -> _Rows:
    return tuple(tuple(cell(item) for cell in columns.values()) for item in items)


_ENTRY: dict[str, Callable[[ResultRow], str]] = {
    "task": lambda row: row.name,
    "entry": lambda row: row.entry,
    "model": lambda row: row.model,
    "cells": lambda row: str(row.trials),
    "ensemble of": lambda row: str(row.ensemble_of) if row.ensemble_of > 1 else "",
    _REFERENCE: lambda row: row.reference.partition(":")[0],
}


def entries_table(rows: Sequence[ResultRow]) -> TextTable:
    """Return the model and the number of trials of each entry."""
    firsts = {row.entry: row for row in reversed(rows)}
    shown = [firsts[entry] for entry in dict.fromkeys(row.entry for row in rows)]
    notes = ("cells: trainings of the entry, over its grid and restarts.",)
    columns = dict(_ENTRY)
    if not any(row.reference for row in rows):
        del columns[_REFERENCE]
    return TextTable("Entries", tuple(columns), (_cells(columns, shown),), notes, texts=3)


_RESULT: dict[str, Callable[[ResultRow], str]] = {
    "task": lambda row: row.name,
    "entry": lambda row: row.entry,
    "split": lambda row: row.split,
    "metric": lambda row: row.metric,
    "mean ± sd": lambda row: marked(format_percent(row.mean, row.sd), row.cut),
    "restarts": lambda row: str(row.restarts or ""),
    "best": lambda row: marked(format_percent(row.best), row.cut),
    "ensemble": lambda row: marked(format_percent(row.ensemble), row.cut),
    "BERT_BASE": lambda row: _paper_text(row, row.paper.get("BERT_BASE")),
    "BERT_LARGE": lambda row: _paper_text(row, row.paper.get("BERT_LARGE")),
    _REFERENCE: lambda row: row.reference,
}


def results_table(rows: Sequence[ResultRow]) -> TextTable:
    """Return the entries by task, a row for each split and metric, then the majority class."""
    columns = dict(_RESULT)
    if all(row.ensemble is None for row in rows):
        del columns["ensemble"]
    if not any(row.reference for row in rows):
        del columns[_REFERENCE]
    tasks = dict.fromkeys(row.task for row in rows)
    by_task = ([row for row in rows if row.task == task] for task in tasks)
    groups = tuple((*_cells(columns, group), *_majority_rows(group, columns)) for group in by_task)
    return TextTable("Results", tuple(columns), groups, tuple(_result_notes(rows)), texts=4)


def _majority_rows(rows: Sequence[ResultRow], columns: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each split and metric on which no entry is the majority class."""
    known: dict[tuple[str, str], str] = {}
    for row in rows:
        known.setdefault((row.split, row.metric), format_percent(row.majority))
    for split, metric in {(row.split, row.metric) for row in rows if row.method == MAJORITY}:
        del known[split, metric]
    for (split, metric), score in known.items():
        texts = {"task": rows[0].name, "entry": MAJORITY_CLASS, "split": split, "metric": metric}
        texts["mean ± sd"] = score
        if score:
            yield tuple(texts.get(name, "") for name in columns)


def _paper_text(row: ResultRow, value: float | None) -> str:
    if value is None:
        return ""
    mark = "" if row.split.partition("-")[0] == row.paper_split else f" ({row.paper_split})"
    return f"{value:.1f}{mark}"


def _result_notes(rows: Sequence[ResultRow]) -> list[str]:
    notes = [
        "Times 100. mean ± sd: over the restarts of the grid point with the best mean on dev; sd "
        "of a sample. best: the one training of all cells that is best on dev.",
        "majority class: always the most frequent answer of the training data. BERT_BASE, "
        "BERT_LARGE: the paper's, with the split where it is another.",
    ]
    if any(row.reference for row in rows):
        notes.append(
            "reference: the evaluation that a row's numbers are of, with the metric: `bertloom "
            "lineage REFERENCE` says what it was made from, `bertloom reproduce REFERENCE FOLDER` "
            "how to make it again."
        )
    notes += [
        f"{row.entry}, {row.split}: {row.metric} has no value in {row.failed} of {row.restarts} "
        "restarts, so there is no mean."
        for row in rows
        if row.failed
    ]
    return notes + cut_notes((row.entry, row.cut) for row in rows)


_COMPARISON: dict[str, Callable[[EntryComparison], str]] = {
    "task": lambda item: item.task,
    "entry": lambda item: item.first,
    "minus": lambda item: item.second,
    "difference": lambda item: marked(
        f"{100 * item.difference:+.1f}", (*item.first_cut, *item.second_cut)
    ),
    "95 % interval": lambda item: _interval(item.low, item.high),
    "p (Holm)": lambda item: "" if item.adjusted is None else f"{item.adjusted:.2g}",
    "restarts": lambda item: f"{item.first_runs}/{item.second_runs}",
}


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f}"


def comparisons_table(comparisons: Sequence[EntryComparison]) -> TextTable:
    """Return the difference of means of each two entries of a task with its 95 % interval."""
    cut = cut_notes(
        pair
        for item in comparisons
        for pair in ((item.first, item.first_cut), (item.second, item.second_cut))
    )
    notes = (
        "Means over the restarts of each entry's best grid point on dev, times 100. Interval and "
        "p: Welch's t test (a permutation test where the restarts of each entry score the same), "
        "with two restarts or more of both. p is corrected by Holm for all pairs, the interval is "
        "not.",
        "The grid points were chosen on the same dev rows, so means lean upward, and more after "
        "wider grids.",
        *cut,
    )
    rows = _cells(_COMPARISON, comparisons)
    return TextTable("Entries on the same task", tuple(_COMPARISON), (rows,), notes, texts=3)


def paper_table(filled: FilledTable) -> TextTable:
    """Return the rows of the paper, of the recipe and of the majority class."""
    header = ["system", *(column.key for column in filled.columns)]
    header += ["Average", "restarts"] if filled.has_average else ["restarts"]
    paper = tuple((row.name, *_paper_cells(row, filled), "") for row in filled.paper)
    ours = [(f"ours: {row.name}", *_our_cells(row, filled), row.restarts) for row in filled.rows]
    if (majority := filled.majority) is not None:
        ours.append((majority.name, *_our_cells(majority, filled), ""))
    return TextTable(
        filled.title, tuple(header), (paper, tuple(ours)), (*filled.notes, *_references(filled))
    )


def _references(filled: FilledTable) -> Iterator[str]:
    """Yield a note with the references of all scores of the recipe."""
    rows = [
        f"{row.name}: " + ", ".join(f"{key} {cell.reference}" for key, cell in cells.items())
        for row in filled.rows
        if (cells := {key: cell for key, cell in row.cells.items() if cell.reference})
    ]
    if rows:
        yield f"References of ours. {'; '.join(rows)}."


def _paper_cells(row: PaperRow, filled: FilledTable) -> list[str]:
    shown = [_paper_number(row.values[column.key], column) for column in filled.columns]
    return shown + ([_paper_number(row.average)] if filled.has_average else [])


def _paper_number(value: float | None, column: Column | None = None) -> str:
    """Return a number as the paper prints it: perplexities with two decimals."""
    if value is None:
        return "-"
    return f"{value:.1f}" if column is None or column.is_share else f"{value:.2f}"


def _our_cells(row: OurRow, filled: FilledTable) -> Iterator[str]:
    """Yield cells; * marks those on the paper's split in a row that also has other splits."""
    others = other_splits(filled.columns, row.cells)
    for column in filled.columns:
        cell = row.cells.get(column.key)
        mark = "*" if others and column.key not in others else ""
        yield cell.text + mark if cell else ""
    if filled.has_average:
        yield row.average.text if row.average else ""


_VARIANTS: dict[str, Callable[[VariantComparison], str]] = {
    "column": lambda item: item.column,
    "variant": lambda item: item.first,
    "is": lambda item: item.verdict,
    "than": lambda item: item.second,
    "with": lambda item: item.context,
    "difference": lambda item: f"{100 * item.difference:+.1f}",
    "95 % interval": lambda item: _interval(item.low, item.high),
    "p (Holm)": lambda item: "" if item.adjusted is None else f"{item.adjusted:.2g}",
    "restarts": lambda item: "/".join(map(str, item.runs)),
    "the paper's": lambda item: "" if item.paper is None else f"{item.paper:+.1f}",
}


def variants_table(filled: FilledTable) -> TextTable:
    """Return the comparisons of a table's variants, with the paper's differences."""
    columns = dict(_VARIANTS)
    if not any(item.context for item in filled.comparisons):
        del columns["with"]
    if all(item.paper is None for item in filled.comparisons):
        del columns["the paper's"]
    title = f"{filled.title}: differences"
    rows = _cells(columns, filled.comparisons)
    texts = 5 if "with" in columns else 4
    return TextTable(title, tuple(columns), (rows,), ("Times 100.", TEST_NOTE), texts=texts)


def to_markdown(
    grids: Sequence[TextTable], *, verdicts: Sequence[str] = (), closing: Sequence[str] = ()
) -> str:
    """Return a list of verdicts and GitHub's tables, each with a heading and its notes below."""
    items = "\n".join(f"- {_escaped(sentence)}" for sentence in verdicts)
    blocks = ["## Verdicts", items] if items else []
    for grid in grids:
        lines = [_markdown_row(grid.header)]
        aligned = ["---" if n < grid.texts else "---:" for n in range(len(grid.header))]
        lines.append(_markdown_row(aligned))
        lines += [_markdown_row(row) for row in grid.rows]
        blocks += [f"## {_escaped(grid.title)}", "\n".join(lines)]
        blocks += [_escaped(note) for note in grid.notes]
    return "\n\n".join([*blocks, *(_escaped(line) for line in closing)]) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    for sign in "\\|*_<":
        text = text.replace(sign, f"\\{sign}")
    return text


def to_text(
    grids: Sequence[TextTable], *, verdicts: Sequence[str] = (), closing: Sequence[str] = ()
) -> str:
    """Return a list of verdicts, then columns aligned with spaces, an empty line between groups and
    notes below."""
    items = "\n".join(f"- {sentence}" for sentence in verdicts)
    blocks = ["Verdicts", items] if items else []
    blocks += [_text_block(grid) for grid in grids]
    return "\n\n".join([*blocks, *closing]) + "\n"


def _text_block(grid: TextTable) -> str:
    widths = [max(map(len, column)) for column in zip(grid.header, *grid.rows, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    lines = [grid.title, "", _text_row(grid.header, widths, grid.texts), rule]
    for number, group in enumerate(group for group in grid.groups if group):
        lines += [""] if number else []
        lines += [_text_row(row, widths, grid.texts) for row in group]
    return "\n".join([*lines, "", *grid.notes])


def _text_row(cells: Sequence[str], widths: Sequence[int], texts: int) -> str:
    padded = (
        cell.ljust(width) if number < texts else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def to_csv(rows: Sequence[ResultRow]) -> str:
    """Return one line per value: ratios in full, the paper's values divided by 100."""
    return _csv(CSV_COLUMNS, (cells for row in rows for cells in _result_cells(row)))


def _result_cells(row: ResultRow) -> Iterator[list[object]]:
    for statistic, value in _values(row):
        if value is not None:
            cut = "; ".join(() if statistic.startswith("paper-") else row.cut)
            is_ours = not statistic.startswith(("paper-", "majority"))
            reference = row.reference if is_ours else ""
            where = [row.entry, row.task, row.split, row.metric]
            yield [*where, statistic, value, cut, reference]


def variants_csv(filled: Sequence[FilledTable]) -> str:
    """Return one line per cell of a sweep: ratios in full, the paper's values divided by 100."""
    rows = (
        _variant_cells(table, row, column)
        for table in filled
        for row in table.rows
        for column in table.columns
        if row.variant and column.key in row.cells
    )
    return _csv(VARIANTS_COLUMNS, rows)


def _variant_cells(table: FilledTable, row: OurRow, column: Column) -> list[object]:
    cell = row.cells[column.key]
    fits = (one.values[column.key] for one in table.paper if one.variant == row.variant)
    paper = next(fits, None)
    if paper is not None and column.is_share:
        paper = round(paper / 100, 6)
    where = [table.key, table.axis, row.variant, _pairs_text(row.context), column.key]
    ours = [column.metric, cell.value, cell.sd, cell.runs, cell.entry]
    return [*where, *ours, paper, cell.reference]


def _comparison_cells(table: FilledTable, item: VariantComparison) -> list[object]:
    where = [table.key, table.axis, item.context, item.column, item.first, item.second]
    means = [item.first_mean, item.second_mean, item.difference, item.low, item.high]
    paper = None if item.paper is None else round(item.paper / 100, 6)
    return [*where, *means, item.p, item.adjusted, item.test, item.verdict, paper]


def comparisons_csv(filled: Sequence[FilledTable]) -> str:
    """Return one line per comparison of variants: ratios, the paper's difference divided by 100."""
    rows = (_comparison_cells(table, item) for table in filled for item in table.comparisons)
    return _csv(COMPARISONS_COLUMNS, rows)


def _pairs_text(values: Mapping[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in values.items())


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def _csv_cell(cell: object) -> object:
    """Return a cell that a spreadsheet does not execute as a formula."""
    is_formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if is_formula else cell


def _values(row: ResultRow) -> Iterator[tuple[str, float | int | None]]:
    yield from (("mean", row.mean), ("sd", row.sd), ("runs", row.restarts), ("best", row.best))
    yield from (("ensemble", row.ensemble), ("majority", row.majority), ("cells", row.trials))
    yield from ((f"run-{number}", value) for number, value in enumerate(row.runs))
    for model, value in row.paper.items():
        yield f"paper-{model}-{row.paper_split}", round(value / 100, 6)
