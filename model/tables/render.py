"""Results of a recipe as `tables.json`, GitHub Markdown and CSV.

Scores in `tables.json` are fractions of 1, the paper's are as printed. The report of a run shows
the same tables as HTML (`flows/report/templates`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from model.formatting import format_percent
from model.tables.compare import LEVEL, MEAN, Comparison
from model.tables.filled_tables import FilledTable, OurRow, other_splits
from model.tables.paper import Column, PaperModel
from model.tables.results import MAJORITY_CLASS, ResultRow, main_rows
from model.tables.sweeps import Sweep, all_tables
from model.tables.verdicts import (
    Verdict,
    compare_entries,
    compare_with_majority,
    find_verdicts,
)
from model.task_results import Result, cut_notes, marked
from model.tasks import TASKS

JSON_FILE = "tables.json"
CSV_COLUMNS = ("entry", "task", "split", "metric", "statistic", "value", "cut", "reference")
TEST_NOTE = (
    f"better, worse: p below {LEVEL:g}, two-sided, after Holm's correction for all comparisons of "
    "this table; within noise: not below. Interval (95 %, not corrected) and p: dev rows and "
    "restarts resampled, with two restarts or more of both."
)

_OPTIONAL = frozenset({"ensemble", MAJORITY_CLASS, "reference", "with", "the paper's", "Average"})
"""Columns that a table lacks if all their cells are empty."""


class Tables(Result):
    """Results of all evaluations of a recipe."""

    results: tuple[ResultRow, ...]
    comparisons: tuple[Comparison, ...]
    baselines: tuple[Comparison, ...] = ()
    """Comparisons of entries with the majority class."""

    tables: tuple[FilledTable, ...]
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts on the comparisons, most important first."""

    @property
    def main(self) -> list[ResultRow]:
        """Row of each entry on dev in the main metric of its task."""
        return main_rows(self.results)

    @property
    def headline(self) -> str:
        """Most important sentence, or ""."""
        return self.verdicts[0].sentence if self.verdicts else ""

    def verdict_on(self, table: FilledTable) -> str:
        """Return the verdicts on the rows of a table."""
        entries = {entry for row in table.rows for entry in row.entries}
        sentences = [
            item.sentence
            for item in self.verdicts
            if item.table == table.key
            or (item.kind == "pretraining" and item.test.first in entries)
        ]
        return ". ".join(sentences or ["No two of our rows were compared"]) + "."

    def to_json(self) -> bytes:
        """Return the file; keys are sorted, so that equal tables give equal bytes."""
        data = self.model_dump(mode="json")
        return (json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def build_tables(sweep: Sweep) -> Tables:
    """Return the tables of a recipe with all comparisons and verdicts.

    Args:
        sweep: Results of all entries, and the axes that some of them vary.
    """
    results, swept = sweep.results, sweep.entries
    comparisons, baselines = compare_entries(results, swept=swept), compare_with_majority(results)
    tables = all_tables(sweep)
    verdicts = find_verdicts(results, comparisons, baselines, tables, swept=swept)
    return Tables(
        results=tuple(results),
        comparisons=comparisons,
        baselines=baselines,
        tables=tables,
        verdicts=verdicts,
    )


# Text


class TextTable(NamedTuple):
    """Table of formatted cells."""

    title: str
    header: tuple[str, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    """Groups of rows: those of a task, or the paper's and ours."""

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


def text_tables(tables: Tables) -> list[TextTable]:
    """Return the tables of results, entries and comparisons, and the paper's tables with results
    of the recipe, each with the comparisons of its variants."""
    grids = result_tables(
        tables, [row for row in tables.results if row.metric in TASKS[row.task].metrics]
    )
    for table in tables.tables:
        grids += [paper_table(table, tables)] if table.rows else []
        grids += [variants_table(table)] if table.comparisons else []
    return grids


def result_tables(tables: Tables, rows: Sequence[ResultRow]) -> list[TextTable]:
    """Return rows of results, their entries, and the comparisons of entries."""
    grids = [results_table(rows), entries_table(rows)] if rows else []
    if tables.comparisons:
        cut = {row.entry: row.cut for row in tables.main}
        note = (
            "Means over the restarts of each entry's best grid point, which was chosen on the same "
            "dev rows: means lean upward, and more after wider grids."
        )
        title = "Entries on the same task"
        grids.append(comparisons_table(title, tables.comparisons, notes=[note], cut=cut))
    return grids


def variants_table(filled: FilledTable) -> TextTable:
    """Return the comparisons of a table's variants, with the paper's differences."""
    return comparisons_table(f"{filled.heading}: differences", filled.comparisons)


def _text_table(
    title: str, *groups: Sequence[Mapping[str, str]], notes: Iterable[str], numbers: str
) -> TextTable:
    """Return a table of groups of rows with their cells by column.

    Args:
        title: Title of the table.
        *groups: Groups of rows. Cells that a row lacks are empty; the first row has all.
        notes: Notes below the table.
        numbers: First column of numbers.
    """
    every = [row for group in groups for row in group]
    header = [n for n in every[0] if n not in _OPTIONAL or any(row.get(n) for row in every)]
    cells = tuple(tuple(tuple(row.get(n, "") for n in header) for row in rows) for rows in groups)
    return TextTable(title, tuple(header), cells, tuple(notes), texts=header.index(numbers))


def entries_table(rows: Sequence[ResultRow]) -> TextTable:
    """Return the model and the number of trials of each entry."""
    firsts: dict[str, ResultRow] = {}
    for row in rows:
        firsts.setdefault(row.entry, row)
    cells = [
        {
            "task": row.name,
            "entry": row.entry,
            "model": row.model,
            "cells": str(row.trials),
            "ensemble of": str(row.ensemble_of) if row.ensemble_of > 1 else "",
            "reference": row.reference.partition(":")[0],
        }
        for row in firsts.values()
    ]
    notes = ["cells: trainings of the entry, over its grid and restarts."]
    return _text_table("Entries", cells, notes=notes, numbers="cells")


def results_table(rows: Sequence[ResultRow]) -> TextTable:
    """Return a row for each entry, split and metric."""
    cells = [
        {
            "task": row.name,
            "entry": row.entry,
            "split": row.split,
            "metric": row.metric,
            "mean ± sd": marked(format_percent(row.mean, row.sd), row.cut),
            "restarts": str(row.restarts or ""),
            "best": marked(format_percent(row.best), row.cut),
            "ensemble": marked(format_percent(row.ensemble), row.cut),
            MAJORITY_CLASS: format_percent(row.majority),
            "BERT_BASE": _paper_score(row, "BERT_BASE"),
            "BERT_LARGE": _paper_score(row, "BERT_LARGE"),
            "reference": row.reference,
        }
        for row in rows
    ]
    return _text_table("Results", cells, notes=_result_notes(rows), numbers="mean ± sd")


def _paper_score(row: ResultRow, model: PaperModel) -> str:
    """Return a score of the paper, with its split if ours is on another one."""
    if (value := row.paper.get(model)) is None:
        return ""
    is_same = row.split.partition("-")[0] == row.paper_split
    return f"{value:.1f}" if is_same else f"{value:.1f} ({row.paper_split})"


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
            "lineage REFERENCE` shows its inputs, `bertloom reproduce REFERENCE --into STORE` "
            "builds it again."
        )
    notes += [
        f"{row.entry}, {row.split}: {row.metric} has no value in {row.failed} of {row.restarts} "
        "restarts, so there is no mean."
        for row in rows
        if row.failed
    ]
    return notes + cut_notes((row.entry, row.cut) for row in rows)


def comparisons_table(
    title: str,
    comparisons: Sequence[Comparison],
    *,
    notes: Iterable[str] = (),
    cut: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> TextTable:
    """Return the difference of each two sides with its test.

    Args:
        title: Title of the table.
        comparisons: Comparisons of one family.
        notes: Further notes.
        cut: Reductions of data by side.
    """
    cells = []
    for item in comparisons:
        reductions = [text for side in (item.first, item.second) for text in cut.get(side, ())]
        ends = [_signed(end) for end in (item.low, item.high) if end is not None]
        cells.append(
            {
                "on": f"mean of {len(item.columns)}" if item.title == MEAN else item.title,
                "first": item.first,
                "is": item.verdict,
                "than": item.second,
                "with": item.context,
                "difference": marked(_signed(item.difference), reductions),
                "95 % interval": " to ".join(ends),
                "p (Holm)": "" if item.adjusted is None else f"{item.adjusted:.2g}",
                "restarts": "/".join(map(str, item.runs)),
                "rows": f"{item.rows:,}" if item.rows else "",
                "the paper's": "" if item.paper is None else f"{item.paper:+.1f}",
            }
        )
    sides = dict.fromkeys(side for item in comparisons for side in (item.first, item.second))
    cuts = cut_notes((side, cut.get(side, ())) for side in sides)
    notes = ["Times 100.", TEST_NOTE, *notes, *cuts]
    return _text_table(title, cells, notes=notes, numbers="difference")


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}"


def paper_table(filled: FilledTable, tables: Tables) -> TextTable:
    """Return the rows of the paper, of the recipe and of the majority class, and the verdict."""
    paper = [
        {
            "system": row.name,
            **{c.key: _paper_number(row.values.get(c.key), c) for c in filled.columns},
            "Average": "" if row.average is None else f"{row.average:.1f}",
            "restarts": "",
        }
        for row in filled.systems
    ]
    ours = [_our_cells(row, filled, name=f"ours: {row.name}") for row in filled.rows]
    if (majority := filled.majority) is not None:
        ours.append(_our_cells(majority, filled, name=majority.name))
    references = [
        f"{row.name}: " + ", ".join(f"{key} {cell.reference}" for key, cell in cells.items())
        for row in filled.rows
        if (cells := {key: cell for key, cell in row.cells.items() if cell.reference})
    ]
    notes = [f"Verdict. {tables.verdict_on(filled)}", *filled.notes]
    notes += [f"References of our rows. {'; '.join(references)}."] if references else []
    return _text_table(filled.heading, paper, ours, notes=notes, numbers=filled.columns[0].key)


def _paper_number(value: float | None, column: Column) -> str:
    """Return a number as the paper prints it: perplexities with two decimals."""
    return "-" if value is None else f"{value:.{1 if column.is_share else 2}f}"


def _our_cells(row: OurRow, filled: FilledTable, *, name: str) -> dict[str, str]:
    """Return cells; * marks those on the paper's split in a row that also has other splits."""
    others = other_splits(filled.columns, row.cells)
    texts = {
        key: cell.text + ("*" if others and key not in others else "")
        for key, cell in row.cells.items()
    }
    return {
        "system": name,
        **{column.key: texts.get(column.key, "") for column in filled.columns},
        "Average": row.average.text if row.average else "",
        "restarts": row.restarts,
    }


def to_markdown(tables: Tables) -> str:
    """Return the verdicts and all tables with results of the recipe as Markdown."""
    verdicts = "\n".join(f"- {_escaped(verdict.sentence)}" for verdict in tables.verdicts)
    blocks = ["## Verdicts", verdicts] if verdicts else []
    for grid in text_tables(tables):
        blocks += markdown_table(grid)
    if missing := [table.title for table in tables.tables if not table.rows]:
        blocks.append(_escaped(f"Without our rows and not shown: {'; '.join(missing)}."))
    return "\n\n".join(blocks) + "\n"


def markdown_table(grid: TextTable) -> list[str]:
    """Return the blocks of GitHub's table: heading, table and notes."""
    aligned = ["---" if n < grid.texts else "---:" for n in range(len(grid.header))]
    lines = ["| " + " | ".join(map(_escaped, row)) + " |" for row in (grid.header, *grid.rows)]
    lines.insert(1, "| " + " | ".join(aligned) + " |")
    return [f"## {_escaped(grid.title)}", "\n".join(lines), *map(_escaped, grid.notes)]


def _escaped(text: str) -> str:
    for sign in "\\|*_<":
        text = text.replace(sign, f"\\{sign}")
    return text


def to_csv(rows: Sequence[ResultRow]) -> str:
    """Return one line per value: ratios in full, the paper's values divided by 100."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in (line for row in rows for line in _result_lines(row)):
        writer.writerow({name: _csv_cell(cell) for name, cell in line.items()})
    return out.getvalue()


def _result_lines(row: ResultRow) -> Iterator[dict[str, object]]:
    about = {name: getattr(row, name) for name in ("entry", "task", "split", "metric")}
    ours = about | {"cut": "; ".join(row.cut), "reference": row.reference}
    values = {"mean": row.mean, "sd": row.sd, "runs": row.restarts, "best": row.best}
    values |= {"ensemble": row.ensemble, "cells": row.trials}
    values |= {f"run-{number}": value for number, value in enumerate(row.runs)}
    values["majority"] = row.majority
    for name, value in values.items():
        if value is not None:
            yield ours | {"statistic": name, "value": value}
    for model, score in row.paper.items():
        name = f"paper-{model}-{row.paper_split}"
        yield about | {"statistic": name, "value": round(score / 100, 6)}


def _csv_cell(cell: object) -> object:
    """Return a cell that a spreadsheet does not execute as a formula."""
    is_formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if is_formula else cell
