"""The paper's tables with rows of ours beneath. Ours are shares of 1 until they are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from model.tables.paper_tables import (
    GLUE_TABLE,
    PAPER_TABLES,
    PaperTable,
    glue_average,
    paper_cells,
)
from model.tables.task_results import Evaluation, cut_notes, marked, model_label, repeats_others
from model.tasks.task import Task

_MIXED = "mixed"


class FilledCell(NamedTuple):
    """A number of ours, in shares of 1."""

    value: float
    """Mean over the restarts; of the chosen model where only that was scored, or of an ensemble."""

    sd: float | None
    """Over the restarts; None for fewer than two."""

    runs: int
    """Restarts in the mean; 0 where the value is of the chosen model, an ensemble or an average."""

    split: str
    """What it is on, in the paper's words: `dev` or `test`; `mixed` for an average over both."""

    entry: str
    """Whose it is; "" for an average."""

    cut: tuple[str, ...] = ()
    """What it was not given: rows, steps, ends of texts; of an average, of any of its scores."""

    @property
    def text(self) -> str:
        """`84.4`, `84.4 ± 0.3` where there are several restarts, with a mark where it is cut."""
        return marked(percent(self.value, self.sd), self.cut)


@dataclass(frozen=True, kw_only=True)
class OurRow:
    """A model of ours over the columns of a table."""

    name: str
    entries: tuple[str, ...]
    cells: Mapping[str, FilledCell]
    """By column key; a column of which we have nothing is left out."""

    average: FilledCell | None = None


@dataclass(frozen=True, kw_only=True)
class FilledTable:
    """A table of the paper with ours."""

    table: PaperTable
    rows: tuple[OurRow, ...]
    notes: tuple[str, ...]
    """The table's own, and what has to be known of our rows."""


def percent(value: float | None, sd: float | None = None) -> str:
    """A share as the paper prints it, times 100 with one decimal, "" for None."""
    if value is None:
        return ""
    shown = f"{100 * value:.1f}"
    return shown if sd is None else f"{shown} ± {100 * sd:.1f}"


def fill_tables(
    evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]
) -> tuple[FilledTable, ...]:
    """Each table of the paper with our rows, in the paper's order.

    A row is one model over all its tasks. Where two entries tune the same model on the same task,
    the better on dev comes first and the other has a row of its own. An entry that lets several
    models answer together gives a row for them and one for its single models.

    Args:
        evaluations: of any tasks; those that no table has are passed over.
        tasks: by name; their `paper` says which cell a metric belongs to.

    Raises:
        ConfigError: a task names a column that its table has not.
    """
    return tuple(_fill(table, evaluations, tasks=tasks) for table in PAPER_TABLES.values())


def _fill(
    table: PaperTable, evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]
) -> FilledTable:
    models: dict[str, list[_Part]] = {}
    for evaluation in evaluations:
        task = tasks.get(evaluation.task)
        others = [other for other in evaluations if other is not evaluation]
        for part in _parts(evaluation, task, table, others=others) if task else ():
            models.setdefault(part.model, []).append(part)
    rows = [row for parts in models.values() for row in _rows(parts, table)]
    names = [row.name for row in rows]
    told = tuple(
        replace(row, name=f"{row.name} ({', '.join(row.entries)})")
        if names.count(row.name) > 1
        else row
        for row in rows
    )
    shown = {entry for row in told for entry in row.entries}
    others = [item for item in evaluations if item.entry in shown and item.is_on_other_data]
    notes = [*table.notes, *_notes(table, told)]
    notes += cut_notes((cell.entry, cell.cut) for row in told for cell in row.cells.values())
    if others:
        data = ", ".join(dict.fromkeys(str(item.model["data"]) for item in others))
        notes.append(
            f"Ours on {data}: other data in the task's format. Such scores do not compare with the "
            "paper's, only with each other."
        )
    return FilledTable(table=table, rows=told, notes=tuple(notes))


class _Part(NamedTuple):
    """What one entry gives to a row."""

    model: str  # equal for those that may share a row
    name: str
    score: float  # on dev, for which of two comes first
    entry: str
    cells: dict[str, FilledCell]


def _parts(
    evaluation: Evaluation, task: Task, table: PaperTable, *, others: Sequence[Evaluation]
) -> Iterator[_Part]:
    sizes = [] if repeats_others(evaluation, others) else [1]
    if evaluation.ensemble > 1:
        sizes.append(evaluation.ensemble)
    for size in sizes:
        cells = _cells(evaluation, task, table, is_ensemble=size > 1)
        if cells:
            score = evaluation.dev_score
            yield _Part(
                model=json.dumps([evaluation.method, size, evaluation.model], sort_keys=True),
                name=model_label(evaluation.model, method=evaluation.method, ensemble=size),
                score=float("-inf") if score is None else score,
                entry=evaluation.entry,
                cells=cells,
            )


def _cells(
    evaluation: Evaluation, task: Task, table: PaperTable, *, is_ensemble: bool
) -> dict[str, FilledCell]:
    cells: dict[str, FilledCell] = {}
    for split, metric, column in paper_cells(task, table):
        # The paper's own split where it was scored (for `dev-mismatched` that is
        # `test-mismatched`), else the one that the task says.
        part, dash, rest = split.partition("-")
        for candidate in dict.fromkeys((f"{column.split}{dash}{rest}", split)):
            cell = _cell(evaluation, candidate, metric, is_ensemble=is_ensemble)
            is_better = column.key not in cells or part == column.split
            if cell is not None and is_better:
                cells[column.key] = cell
                break
    return cells


def _cell(
    evaluation: Evaluation, split: str, metric: str, *, is_ensemble: bool
) -> FilledCell | None:
    figures = evaluation.figures(split, metric)
    kind, cut, entry = split.partition("-")[0], evaluation.cut_on(split), evaluation.entry
    if not is_ensemble and figures.mean is not None:
        return FilledCell(figures.mean, figures.sd, len(figures.runs), kind, entry, cut)
    value = figures.ensemble if is_ensemble else figures.best
    return None if value is None else FilledCell(value, None, 0, kind, entry, cut)


def _rows(parts: Sequence[_Part], table: PaperTable) -> list[OurRow]:
    """One row of a model, or more where its entries would share a cell."""
    rows: list[tuple[list[str], dict[str, FilledCell]]] = []
    for part in sorted(parts, key=lambda part: (-part.score, part.entry)):
        free = next((row for row in rows if not row[1].keys() & part.cells.keys()), None)
        if free is None:
            rows.append(free := ([], {}))
        free[0].append(part.entry)
        free[1].update(part.cells)
    return [
        OurRow(
            name=_name(parts[0].name, cells, table),
            entries=tuple(sorted(entries)),
            cells={
                column.key: cells[column.key] for column in table.columns if column.key in cells
            },
            average=_average(cells) if table.has_average else None,
        )
        for entries, cells in rows
    ]


def _name(name: str, cells: Mapping[str, FilledCell], table: PaperTable) -> str:
    """With the split that its cells are on, where that is not the paper's."""
    return f"{name} [dev]" if any(is_other_split(table, key, cells) for key in cells) else name


def is_other_split(table: PaperTable, key: str, cells: Mapping[str, FilledCell]) -> bool:
    """Whether our cell in a column is on another split than the paper's numbers there."""
    column = next(column for column in table.columns if column.key == key)
    return key in cells and cells[key].split != column.split


def _average(cells: Mapping[str, FilledCell]) -> FilledCell | None:
    value = glue_average({key: cell.value for key, cell in cells.items()})
    if value is None:
        return None
    splits = {cell.split for cell in cells.values()}
    cut = tuple(dict.fromkeys(text for cell in cells.values() for text in cell.cut))
    return FilledCell(value, None, 0, splits.pop() if len(splits) == 1 else _MIXED, "", cut)


def _notes(table: PaperTable, rows: Sequence[OurRow]) -> Iterator[str]:
    """What has to be known of our rows, such as that they are on another split than the paper's."""
    cells = [cell for row in rows for cell in row.cells.values()]
    if any(cell.sd is not None for cell in cells):
        yield (
            "Ours with ±: mean and standard deviation over the restarts of the grid point with "
            "the best mean on dev."
        )
    if any(cell.runs == 0 for cell in cells):
        yield (
            "Ours where the restarts were not scored, as on test: the one model that is best on "
            "dev, or the ensemble of the best."
        )
    if table is not GLUE_TABLE or not rows:
        return
    others = any(is_other_split(table, key, row.cells) for row in rows for key in row.cells)
    on_test = any(cell.split == "test" for cell in cells)
    if others:
        yield (
            "The paper's rows are scores of GLUE's test server, whose labels are not published; "
            "ours are on dev, by which the grid point was chosen too. They do not compare to the "
            "tenth."
        )
    if others and on_test:
        yield "Those of ours with * are on test."
