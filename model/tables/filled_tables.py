"""The paper's tables with our rows below. Our scores are from 0 to 1 until they are printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field, SerializerFunctionWrapHandler, computed_field, model_serializer

from model.monitoring.formatting import format_percent
from model.tables.comparisons import VariantComparison, compare_features
from model.tables.paper_tables import (
    GLUE_TABLE,
    PAPER_TABLES,
    Column,
    PaperTable,
    glue_average,
    paper_cells,
)
from model.tables.results import (
    MAJORITY_CLASS,
    Evaluation,
    TableModel,
    is_redundant_ensemble,
    model_label,
)
from model.tasks.reduced_data import cut_notes, marked
from model.tasks.task import Task

_MIXED = "mixed"
RESTARTS_NOTE = (
    "Ours with ±: mean and standard deviation over the restarts of the grid point with the best "
    "mean on dev."
)


class FilledCell(TableModel):
    """Our score from 0 to 1, or a perplexity."""

    is_share: bool = Field(default=True, exclude=True)

    value: float
    """Mean over the restarts, or the score of the chosen model or of an ensemble."""

    sd: float | None = None
    """Standard deviation over the restarts; None for fewer than two."""

    runs: int = 0
    """Number of restarts in the mean; 0 if the value is not a mean over restarts."""

    split: str
    """`dev` or `test`; `mixed` for an average over both."""

    entry: str = ""
    """Entry of the score; "" for an average."""

    majority: float | None = None
    """Score of the majority class on the same rows."""

    cut: tuple[str, ...] = ()
    """Reductions of data or training; an average has those of all its scores."""

    reference: str = ""
    """Reference for `bertloom lineage` and `reproduce`; "" for an average."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def text(self) -> str:
        """Formatted score, such as `84.4` or `84.4 ± 0.3`, with a mark for reduced data."""
        shown = format_percent(self.value, self.sd) if self.is_share else f"{self.value:.2f}"
        return marked(shown, self.cut)


class PaperRow(TableModel):
    """A system of the paper over the columns of a table, times 100 as printed."""

    name: str = Field(alias="system")
    values: dict[str, float | None]
    average: float | None = None
    variant: str = ""
    """Name in a sweep of the paper's ablations."""


class OurRow(TableModel):
    """Scores of one of our models in the columns of a table."""

    name: str = Field(alias="system")
    entries: tuple[str, ...]
    cells: dict[str, FilledCell] = Field(alias="values")
    """Scores by column key, without empty columns."""

    average: FilledCell | None = None
    variant: str = ""
    """Variant of the table's axis, in a sweep."""

    context: dict[str, str] = Field(default={})
    """Variants of the other axes, in a sweep of several."""

    @property
    def restarts(self) -> str:
        """Number of restarts of its means: `3`, or `3 to 5` where columns differ."""
        counts = sorted({cell.runs for cell in self.cells.values() if cell.runs})
        return (
            " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
            if counts
            else ""
        )


class FilledTable(TableModel):
    """Table of the paper with our rows, or of a sweep with our rows only, as in `tables.json`."""

    key: str
    title: str
    axis: str = ""
    """Axis of the sweep whose variants are our rows."""

    columns: tuple[Column, ...]
    paper: tuple[PaperRow, ...]
    rows: tuple[OurRow, ...] = Field(alias="ours")
    notes: tuple[str, ...]
    """Notes of the table and on our rows."""

    comparisons: tuple[VariantComparison, ...] = ()
    """Tests of our rows, in tables where the paper compares its rows."""

    data: str = ""
    """Data of our rows, if not the tasks' own; otherwise ""."""

    @property
    def has_average(self) -> bool:
        """True if the last column is the mean of all columns."""
        return any(row.average is not None for row in self.paper)

    @property
    def majority(self) -> OurRow | None:
        """Row of the majority class, on the splits of our first rows; None without scores."""
        cells: dict[str, FilledCell] = {}
        for cell_of in (row.cells for row in self.rows):
            for key, cell in cell_of.items():
                if cell.majority is not None:
                    cells.setdefault(key, FilledCell(value=cell.majority, split=cell.split))
        if not cells:
            return None
        name = _with_split(MAJORITY_CLASS, self.columns, cells)
        average = _average(cells) if self.has_average else None
        return OurRow(name=name, entries=(), cells=cells, average=average)

    @model_serializer(mode="wrap")
    def _without_averages(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = dump(self)
        if not self.has_average:
            for row in (*data["paper"], *data["ours"]):
                del row["average"]
        return data


def fill_tables(
    evaluations: Sequence[Evaluation],
    *,
    tasks: Mapping[str, Task],
    only_in: Mapping[str, str] | None = None,
) -> tuple[FilledTable, ...]:
    """Return Tables 1, 2, 3, 4 and 7 of the paper with our rows, in the paper's order.

    A row is one model over all its tasks. If two entries fine-tune the same model on the same task,
    the better on dev comes first and the other has a separate row. An ensemble has a row, and its
    single models have another. Each table has one row for the majority class.

    Args:
        evaluations: Evaluations of any tasks; those that no table has are ignored.
        tasks: Tasks by name; `Task.paper` has the cell of each metric.
        only_in: Table of an entry, "" for none. Entries that it lacks can be in any table.

    Raises:
        ConfigError: A task refers to a column that its paper table does not have.
    """
    only = only_in or {}
    return tuple(
        _fill(
            table,
            [item for item in evaluations if only.get(item.entry, table.key) == table.key],
            tasks=tasks,
        )
        for table in PAPER_TABLES.values()
    )


def _fill(
    table: PaperTable, evaluations: Sequence[Evaluation], *, tasks: Mapping[str, Task]
) -> FilledTable:
    models: dict[str, list[_Part]] = {}
    for evaluation in evaluations:
        if (task := tasks.get(evaluation.task)) is not None and not evaluation.is_majority:
            for part in _parts(evaluation, task, table, evaluations=evaluations):
                models.setdefault(part.model, []).append(part)
    rows = _told_apart([row for parts in models.values() for row in _rows(parts, table)])
    data = other_data(rows, evaluations)
    notes = [*table.notes, *_notes(table, rows), *notes_of_rows(rows, data=data)]
    keys = [column.key for column in table.columns]
    return FilledTable(
        key=table.key,
        title=table.title,
        columns=table.columns,
        paper=tuple(
            PaperRow(
                name=name,
                values=dict(zip(keys, values, strict=True)),
                average=table.averages.get(name),
            )
            for name, values in table.systems.items()
        ),
        rows=tuple(rows),
        notes=tuple(notes),
        data=data,
        comparisons=(compare_features(evaluations, tasks=tasks) if table.features and rows else ()),
    )


def notes_of_rows(rows: Sequence[OurRow], *, data: str) -> Iterator[str]:
    """Return notes on reductions of rows and on data other than the tasks' own."""
    yield from cut_notes((cell.entry, cell.cut) for row in rows for cell in row.cells.values())
    if data:
        yield (
            f"Ours on {data}: other data in the task's format. Such scores do not compare with the "
            "paper's, only with each other."
        )


def other_data(rows: Sequence[OurRow], evaluations: Sequence[Evaluation]) -> str:
    """Return the data of rows, if not the tasks' own; otherwise ""."""
    shown = {entry for row in rows for entry in row.entries}
    others = [item for item in evaluations if item.entry in shown and item.is_on_other_data]
    return ", ".join(dict.fromkeys(str(item.model["data"]) for item in others))


def _told_apart(rows: Sequence[OurRow]) -> list[OurRow]:
    """Append the entries to the names of rows with equal names."""
    names = [row.name for row in rows]
    return [
        row.model_copy(update={"name": f"{row.name} ({', '.join(row.entries)})"})
        if names.count(row.name) > 1
        else row
        for row in rows
    ]


class _Part(NamedTuple):
    """Contribution of one entry to a row."""

    model: str  # entries with equal models share a row
    name: str
    score: float  # on dev; the better entry comes first
    entry: str
    cells: dict[str, FilledCell]


def _parts(
    evaluation: Evaluation, task: Task, table: PaperTable, *, evaluations: Sequence[Evaluation]
) -> Iterator[_Part]:
    sizes = [] if is_redundant_ensemble(evaluation, evaluations) else [1]
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
        # The paper's split if it was scored (`test-mismatched` for `dev-mismatched`).
        part, dash, rest = split.partition("-")
        for candidate in dict.fromkeys((f"{column.split}{dash}{rest}", split)):
            cell = score_cell(evaluation, candidate, metric, is_ensemble=is_ensemble)
            is_better = column.key not in cells or part == column.split
            if cell is not None and is_better:
                cells[column.key] = cell
                break
    return cells


def score_cell(
    evaluation: Evaluation, split: str, metric: str, *, is_ensemble: bool
) -> FilledCell | None:
    """Return the mean over restarts, or else the score of the one model or of the ensemble."""
    scores = evaluation.scores(split, metric)
    about: dict[str, Any] = {
        "split": split.partition("-")[0],
        "entry": evaluation.entry,
        "cut": evaluation.cut_on(split),
        "majority": evaluation.majority(split, metric),
        "reference": evaluation.reference(split, metric),
    }
    if not is_ensemble and scores.mean is not None:
        return FilledCell(value=scores.mean, sd=scores.sd, runs=len(scores.runs), **about)
    value = scores.ensemble if is_ensemble else scores.best
    return None if value is None else FilledCell(value=value, **about)


def _rows(parts: Sequence[_Part], table: PaperTable) -> list[OurRow]:
    """Return one row of a model, or several if its entries have the same cells."""
    rows: list[tuple[list[str], dict[str, FilledCell]]] = []
    for part in sorted(parts, key=lambda part: (-part.score, part.entry)):
        free = next((row for row in rows if not row[1].keys() & part.cells.keys()), None)
        if free is None:
            rows.append(free := ([], {}))
        free[0].append(part.entry)
        free[1].update(part.cells)
    order = [column.key for column in table.columns]
    return [
        OurRow(
            name=_with_split(parts[0].name, table.columns, cells),
            entries=tuple(sorted(entries)),
            cells={key: cells[key] for key in order if key in cells},
            average=_average(cells) if table is GLUE_TABLE else None,
        )
        for entries, cells in rows
    ]


def _with_split(name: str, columns: Sequence[Column], cells: Mapping[str, FilledCell]) -> str:
    return f"{name} [dev]" if other_splits(columns, cells) else name


def other_splits(columns: Sequence[Column], cells: Mapping[str, FilledCell]) -> set[str]:
    """Return the columns in which our score is on another split than the paper's."""
    splits = {column.key: column.split for column in columns}
    return {key for key, cell in cells.items() if cell.split != splits[key]}


def _average(cells: Mapping[str, FilledCell]) -> FilledCell | None:
    value = glue_average({key: cell.value for key, cell in cells.items()})
    if value is None:
        return None
    splits = {cell.split for cell in cells.values()}
    cut = tuple(dict.fromkeys(text for cell in cells.values() for text in cell.cut))
    return FilledCell(value=value, split=splits.pop() if len(splits) == 1 else _MIXED, cut=cut)


def _notes(table: PaperTable, rows: Sequence[OurRow]) -> Iterator[str]:
    """Return notes on our rows, such as a split other than the paper's."""
    cells = [cell for row in rows for cell in row.cells.values()]
    if any(cell.sd is not None for cell in cells):
        yield RESTARTS_NOTE
    if any(cell.runs == 0 for cell in cells):
        yield (
            "Ours where the restarts were not scored, as on test: the one model that is best on "
            "dev, or the ensemble of the best."
        )
    if table is not GLUE_TABLE or not rows:
        return
    others = any(other_splits(table.columns, row.cells) for row in rows)
    on_test = any(cell.split == "test" for cell in cells)
    if others:
        yield (
            "The paper's rows are scores of GLUE's test server, whose labels are not published; "
            "ours are on dev, by which the grid point was chosen too. They do not compare to the "
            "tenth."
        )
    if others and on_test:
        yield "Those of ours with * are on test."
