"""The paper's tables with our rows below. Our scores are from 0 to 1 until they are printed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from pydantic import Field

from model.formatting import format_percent
from model.tables.compare import Comparison, compare_features
from model.tables.paper import (
    ABLATIONS,
    GLUE_TABLE,
    PAPER_TABLES,
    Column,
    PaperTable,
    glue_average,
)
from model.tables.results import (
    MAJORITY_CLASS,
    ResultRow,
    model_label,
    task_label,
    with_bracket,
)
from model.task_results import Result
from model.tasks.reduced_data import cut_notes, marked

_MIXED = "mixed"
RESTARTS_NOTE = (
    "Ours with ±: mean and standard deviation over the restarts of the grid point with the best "
    "mean on dev."
)


class FilledCell(Result):
    """Our score from 0 to 1, or a perplexity."""

    text: str
    """Formatted score, such as `84.4` or `84.4 ± 0.3`, with a mark for reduced data."""

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

    @classmethod
    def of_share(
        cls, value: float, sd: float | None = None, *, cut: tuple[str, ...] = (), **fields: Any
    ) -> Self:
        """Return the cell of a score from 0 to 1, with its text."""
        text = marked(format_percent(value, sd), cut)
        return cls(text=text, value=value, sd=sd, cut=cut, **fields)


class PaperRow(Result):
    """A system of the paper over the columns of a table, times 100 as printed."""

    name: str = Field(alias="system")
    values: dict[str, float | None]
    average: float | None = None
    variant: str = ""
    """Name in a sweep of the paper's ablations."""


class OurRow(Result):
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
        return " to ".join(str(count) for count in dict.fromkeys((*counts[:1], *counts[-1:])))


class FilledTable(Result):
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

    comparisons: tuple[Comparison, ...] = ()
    """Tests of our rows, in tables where the paper compares its rows."""

    verdict: str = ""
    """Verdict on our rows: the data of the comparison, and its result. "": no rows."""

    data: str = ""
    """Data of our rows, if not the tasks' own; otherwise ""."""

    @property
    def heading(self) -> str:
        """Title with the name of our data if it is not the tasks' own."""
        return task_label(self.title, f"ours: {self.data}" if self.data else "")

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
                    cells.setdefault(key, FilledCell.of_share(cell.majority, split=cell.split))
        if not cells:
            return None
        name = _with_split(MAJORITY_CLASS, self.columns, cells)
        average = _average(cells) if self.has_average else None
        return OurRow(name=name, entries=(), cells=cells, average=average)


def fill_tables(results: Sequence[ResultRow]) -> tuple[FilledTable, ...]:
    """Return Tables 1, 2, 3, 4 and 7 of the paper with our rows, in the paper's order.

    A row is one model over all its tasks. If two entries fine-tune the same model on the same task,
    the better on dev comes first and the other has a separate row. An ensemble has a row, and its
    single models have another. Each table has one row for the majority class.

    Args:
        results: Results of any tasks; those that no table has are ignored.
    """
    filled = []
    for table in PAPER_TABLES.values():
        shown = [row for row in results if row.paper_table == table.key]
        rows = _our_rows(shown, table)
        comparisons = compare_features(shown)
        notes = _notes(table, rows)
        filled.append(fill_table(table, rows, results, notes=notes, comparisons=comparisons))
    return tuple(filled)


def fill_table(
    table: PaperTable,
    rows: Sequence[OurRow] = (),
    results: Sequence[ResultRow] = (),
    *,
    columns: Sequence[Column] | None = None,
    axis: str = "",
    notes: Iterable[str] = (),
    comparisons: tuple[Comparison, ...] = (),
) -> FilledTable:
    """Return a table of the paper with our rows.

    Args:
        table: Table of the paper.
        rows: Our rows.
        results: Results of all entries.
        columns: Columns, including ours that the paper lacks. Default: the columns of the paper.
        axis: Axis of the sweep whose variants are our rows.
        notes: Notes on our rows, after those of the table.
        comparisons: Tests of our rows.
    """
    columns = table.columns if columns is None else columns
    shown = {entry for row in rows for entry in row.entries}
    data = ", ".join(dict.fromkeys(r.data for r in results if r.entry in shown and r.data))
    cut = cut_notes((cell.entry, cell.cut) for row in rows for cell in row.cells.values())
    other = (
        f"Ours on {data}: other data in the task's format. Such scores do not compare with the "
        "paper's, only with each other."
    )
    return FilledTable(
        key=table.key,
        title=table.title,
        axis=axis,
        columns=tuple(columns),
        paper=tuple(
            PaperRow(
                name=system.name,
                variant=system.key if table.key in ABLATIONS else "",
                values={c.key: table.value(system.key or system.name, c.key) for c in columns},
                average=system.average,
            )
            for system in table.systems
        ),
        rows=tuple(rows),
        notes=(*table.notes, *notes, *cut, *([other] if data else ())),
        data=data,
        comparisons=comparisons,
    )


class _Part(NamedTuple):
    """Contribution of one entry to a row."""

    name: str
    score: float  # on dev; the better entry comes first
    entry: str
    cells: dict[str, FilledCell]


def _our_rows(results: Sequence[ResultRow], table: PaperTable) -> list[OurRow]:
    """Return the rows of all models; entries with equal models share a row."""
    models: dict[str, list[_Part]] = {}
    for entry, group in itertools.groupby(results, key=lambda row: row.entry):
        scored = list(group)
        first = scored[0]
        score = float("-inf") if first.dev_score is None else first.dev_score
        for size in dict.fromkeys((1, first.ensemble_of)):
            cells = _cells(scored, table, is_ensemble=size > 1)
            if cells:
                model = f"{first.method} {size} {first.settings}"
                name = model_label(first.settings, method=first.method, ensemble=size)
                models.setdefault(model, []).append(_Part(name, score, entry, cells))
    rows = [row for parts in models.values() for row in _rows_of_model(parts, table)]
    names = [row.name for row in rows]
    return [
        row.model_copy(update={"name": with_bracket(row.name, ", ".join(row.entries))})
        if names.count(row.name) > 1
        else row
        for row in rows
    ]


def _cells(
    results: Sequence[ResultRow], table: PaperTable, *, is_ensemble: bool
) -> dict[str, FilledCell]:
    """Return the scores of an entry by column, on the paper's split if it was scored."""
    splits = {column.key: column.split for column in table.columns}
    cells: dict[str, FilledCell] = {}
    for row in results:
        cell = score_cell(row, is_ensemble=is_ensemble)
        key = row.paper_column
        if cell is not None and (key not in cells or cell.split == splits[key]):
            cells[key] = cell
    return cells


def score_cell(row: ResultRow, *, is_ensemble: bool) -> FilledCell | None:
    """Return the mean over restarts; without one, the score of the model or the ensemble."""
    is_mean = not is_ensemble and row.mean is not None
    value = row.mean if is_mean else row.ensemble if is_ensemble else row.best
    if value is None:
        return None
    return FilledCell.of_share(
        value,
        row.sd if is_mean else None,
        runs=len(row.runs) if is_mean else 0,
        split=row.split.partition("-")[0],
        entry=row.entry,
        cut=row.cut,
        majority=row.majority,
        reference=row.reference,
    )


def _rows_of_model(parts: Sequence[_Part], table: PaperTable) -> list[OurRow]:
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
    split = splits.pop() if len(splits) == 1 else _MIXED
    return FilledCell.of_share(value, split=split, cut=cut)


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
        yield "Our scores with * are on test."
