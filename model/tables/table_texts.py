"""Tables as GitHub Markdown, as aligned text for a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from model.tables.entry_comparison import Comparison
from model.tables.filled_tables import FilledTable, OurRow, is_other_split, percent
from model.tables.paper_tables import PaperTable, System
from model.tables.result_rows import ResultRow
from model.tables.task_results import cut_notes, marked

_AVERAGE = "Average"
CSV_COLUMNS = ("entry", "task", "split", "metric", "statistic", "value", "cut")


class Grid(NamedTuple):
    """A table of texts."""

    title: str
    header: tuple[str, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    """Rows in groups; plain text parts them with an empty line."""

    notes: tuple[str, ...]
    texts: int = 1
    """How many columns from the left are words; the others are numbers, set to the right."""


def all_grids(
    rows: Sequence[ResultRow],
    comparisons: Sequence[Comparison],
    filled: Sequence[FilledTable],
) -> list[Grid]:
    """Results, entries, comparisons, and those tables of the paper that have rows of ours."""
    listed = [row for row in rows if row.is_listed]
    grids = [results_grid(listed), entries_grid(rows)] if rows else []
    if comparisons:
        grids.append(comparisons_grid(comparisons))
    return grids + [paper_grid(table) for table in filled if table.rows]


def entries_grid(rows: Sequence[ResultRow]) -> Grid:
    """What each entry is."""
    header = ("task", "entry", "model", "cells", "ensemble of")
    firsts = {row.entry: row for row in reversed(rows)}
    shown = [firsts[entry] for entry in dict.fromkeys(row.entry for row in rows)]
    cells = (
        (
            row.title,
            row.entry,
            row.model,
            str(row.cells),
            str(row.ensemble) if row.ensemble > 1 else "",
        )
        for row in shown
    )
    notes = ("cells: trainings of the entry, over its grid and restarts.",)
    return Grid("Entries", header, (tuple(cells),), notes, texts=3)


def results_grid(rows: Sequence[ResultRow]) -> Grid:
    """All entries, a row for each split and metric, in groups by task."""
    has_ensemble = any(row.figures.ensemble is not None for row in rows)
    header = ["task", "entry", "split", "metric", "majority", "mean ± sd", "runs", "best"]
    header += ["ensemble"] if has_ensemble else []
    header += ["BERT_BASE", "BERT_LARGE"]
    tasks = dict.fromkeys(row.task for row in rows)
    groups = tuple(
        tuple(_result(row, has_ensemble=has_ensemble) for row in rows if row.task == task)
        for task in tasks
    )
    return Grid("Results", tuple(header), groups, tuple(_result_notes(rows)), texts=4)


def _result(row: ResultRow, *, has_ensemble: bool) -> tuple[str, ...]:
    figures = row.figures
    cells = [row.title, row.entry, row.split, row.metric]
    cells += [percent(row.majority), marked(percent(figures.mean, figures.sd), row.cut)]
    cells += [str(len(figures.runs) + figures.failed or "")]
    cells += [marked(percent(figures.best), row.cut)]
    cells += [marked(percent(figures.ensemble), row.cut)] if has_ensemble else []
    cells += [_paper_text(row, row.paper.get("BERT_BASE"))]
    cells += [_paper_text(row, row.paper.get("BERT_LARGE"))]
    return tuple(cells)


def _paper_text(row: ResultRow, value: float | None) -> str:
    if value is None:
        return ""
    mark = "" if row.split.partition("-")[0] == row.paper_split else f" ({row.paper_split})"
    return f"{value:.1f}{mark}"


def _result_notes(rows: Sequence[ResultRow]) -> list[str]:
    notes = [
        "Times 100. mean ± sd: over the restarts (runs) of the grid point with the best mean on "
        "dev; sd of a sample. best: the one training of all cells that is best on dev.",
        "majority: always the most frequent label of the training data. BERT_BASE, BERT_LARGE: "
        "the paper's, with the split where it is another.",
    ]
    for row in rows:
        if row.figures.failed:
            notes.append(
                f"{row.entry}, {row.split}: {row.metric} has no value in {row.figures.failed} of "
                f"{row.figures.failed + len(row.figures.runs)} restarts, so there is no mean."
            )
    return notes + cut_notes((row.entry, row.cut) for row in rows)


def comparisons_grid(comparisons: Sequence[Comparison]) -> Grid:
    """Each two entries of a task: the difference of means with its 95 % interval."""
    header = ["task", "better", "other", "metric", "better mean", "other mean", "runs"]
    header += ["difference", "95 % interval", "p"]
    rows = tuple(_comparison(item) for item in comparisons)
    cut = cut_notes(
        pair
        for item in comparisons
        for pair in ((item.first, item.first_cut), (item.second, item.second_cut))
    )
    notes = (
        "Means over the restarts of each entry's best grid point on dev, times 100; interval and "
        "p of Welch's t test, where both have two restarts or more.",
        "The points were chosen on the same dev rows, so means lean upward, and more after wider "
        "grids. Neither interval nor p is corrected for the number of comparisons.",
        *cut,
    )
    return Grid("Entries on the same task", tuple(header), (rows,), notes, texts=4)


def _comparison(item: Comparison) -> tuple[str, ...]:
    interval = ""
    if item.low is not None and item.high is not None:
        interval = f"{100 * item.low:+.1f} to {100 * item.high:+.1f}"
    return (
        item.task,
        item.first,
        item.second,
        item.metric,
        marked(percent(item.first_mean), item.first_cut),
        marked(percent(item.second_mean), item.second_cut),
        f"{item.first_runs}/{item.second_runs}",
        f"{100 * item.difference:+.1f}",
        interval,
        "" if item.p is None else f"{item.p:.2g}",
    )


def paper_grid(filled: FilledTable) -> Grid:
    """The paper's rows, and ours beneath."""
    table = filled.table
    header = ("system", *(column.key for column in table.columns))
    header += (_AVERAGE,) if table.has_average else ()
    paper = tuple(_paper_row(system, table) for system in table.systems)
    ours = tuple(_our_row(row, table) for row in filled.rows)
    return Grid(table.title, header, (paper, ours), filled.notes)


def _paper_row(system: System, table: PaperTable) -> tuple[str, ...]:
    values = [*system.values, *([system.average] if table.has_average else [])]
    return (system.name, *("-" if value is None else f"{value:.1f}" for value in values))


def _our_row(row: OurRow, table: PaperTable) -> tuple[str, ...]:
    has_other = any(is_other_split(table, key, row.cells) for key in row.cells)
    texts = []
    for column in table.columns:
        cell = row.cells.get(column.key)
        is_marked = has_other and not is_other_split(table, column.key, row.cells)
        texts.append("" if cell is None else cell.text + ("*" if is_marked else ""))
    if table.has_average:
        texts.append(row.average.text if row.average else "")
    return (f"ours: {row.name}", *texts)


def to_markdown(grids: Sequence[Grid], *, closing: Sequence[str] = ()) -> str:
    """GitHub's tables, each with a heading and its notes below."""
    blocks = []
    for grid in grids:
        lines = [_markdown_row(grid.header)]
        aligned = ["---" if n < grid.texts else "---:" for n in range(len(grid.header))]
        lines.append(_markdown_row(aligned))
        lines += [_markdown_row(row) for group in grid.groups for row in group]
        blocks += [f"## {_escaped(grid.title)}", "\n".join(lines)]
        blocks += [_escaped(note) for note in grid.notes]
    return "\n\n".join([*blocks, *(_escaped(line) for line in closing)]) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    for sign in "\\|*_<":
        text = text.replace(sign, f"\\{sign}")
    return text


def to_text(grids: Sequence[Grid], *, closing: Sequence[str] = ()) -> str:
    """Columns aligned with spaces, an empty line between groups, notes below."""
    blocks = [_text_block(grid) for grid in grids]
    return "\n\n".join([*blocks, *closing]) + "\n"


def _text_block(grid: Grid) -> str:
    rows = [grid.header, *(row for group in grid.groups for row in group)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(grid.header))]
    rule = "  ".join("-" * width for width in widths)
    lines = [grid.title, "", _text_row(grid.header, widths, grid.texts), rule]
    for number, group in enumerate(group for group in grid.groups if group):
        lines += [""] if number else []
        lines += [_text_row(row, widths, grid.texts) for row in group]
    return "\n".join([*lines, "", *grid.notes])


def _text_row(cells: Sequence[str], widths: Sequence[int], texts: int) -> str:
    padded = (
        cell.ljust(width) if place < texts else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def to_csv(rows: Sequence[ResultRow]) -> str:
    """Long form: one value a line, shares of 1 in full (the paper's as it prints them, / 100)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        for statistic, value in _values(row):
            if value is not None:
                writer.writerow(
                    (
                        *(row.entry, row.task, row.split, row.metric, statistic, repr(value)),
                        "; ".join(() if statistic.startswith("paper-") else row.cut),
                    )
                )
    return out.getvalue()


def _values(row: ResultRow) -> list[tuple[str, float | int | None]]:
    figures = row.figures
    values: list[tuple[str, float | int | None]] = [
        ("mean", figures.mean),
        ("sd", figures.sd),
        ("runs", len(figures.runs) + figures.failed),
        ("best", figures.best),
        ("ensemble", figures.ensemble),
        ("majority", row.majority),
        ("cells", row.cells),
    ]
    values += [(f"run-{place}", value) for place, value in enumerate(figures.runs)]
    values += [
        (f"paper-{model}-{row.paper_split}", round(value / 100, 6))
        for model, value in row.paper.items()
    ]
    return values
