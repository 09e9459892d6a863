"""The paper's tables with our rows below. Our scores are from 0 to 1 until they are printed.

A row of Tables 1 to 4 and 7 is one model over all its tasks. A row of an ablation, or of a table of
a recipe's own `sweep`, is one variant (`model.tables.sweeps`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from pydantic import Field, computed_field

from model.formatting import format_percent
from model.tables.compare import Comparison, Pair, compare_in_columns
from model.tables.paper import (
    FEATURES_TABLE,
    PAPER_TABLES,
    Column,
    PaperTable,
)
from model.tables.results import (
    MAJORITY_CLASS,
    ResultRow,
    comparable_rows,
    model_label,
    task_label,
    with_bracket,
)
from model.task_results import FinetunedModel, Result, cut_notes, marked

FINE_TUNED = "fine-tuned"


class FilledCell(Result):
    """Our score from 0 to 1, or a perplexity."""

    value: float
    """Mean over the restarts, or the score of the chosen model or of an ensemble."""

    is_share: bool = True
    """False for a perplexity."""

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

    result: ResultRow | None = Field(default=None, exclude=True)
    """Result that has the score; None for an average and a perplexity."""

    @property
    def text(self) -> str:
        """Formatted score, such as `84.4` or `84.4 ± 0.3`, with a mark for reduced data."""
        if not self.is_share:
            return f"{self.value:.2f}"
        return marked(format_percent(self.value, self.sd), self.cut)

    @classmethod
    def of_result(cls, row: ResultRow, *, is_ensemble: bool) -> Self | None:
        """Return the mean over restarts; without one, the score of the model or the ensemble."""
        is_mean = not is_ensemble and row.mean is not None
        value = row.mean if is_mean else row.ensemble if is_ensemble else row.best
        if value is None:
            return None
        return cls(
            value=value,
            sd=row.sd if is_mean else None,
            runs=len(row.runs) if is_mean else 0,
            split=row.split.partition("-")[0],
            entry=row.entry,
            cut=row.cut,
            majority=row.majority,
            reference=row.reference,
            result=row,
        )


Cells = dict[str, FilledCell]
"""Scores by column key, without empty columns."""


class OurRow(Result):
    """Scores of one of our models in the columns of a table."""

    name: str = Field(alias="system")
    cells: Cells = Field(alias="values")
    average: FilledCell | None = None
    variant: str = ""
    """Variant of the table's axis, in a sweep."""

    context: dict[str, str] = Field(default={})
    """Variants of the other axes, in a sweep of several."""

    @property
    def context_label(self) -> str:
        """Variants of the other axes as text."""
        return ", ".join(self.context.values())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def entries(self) -> tuple[str, ...]:
        """Entries of its scores."""
        return tuple(sorted({cell.entry for cell in self.cells.values() if cell.entry}))

    @property
    def restarts(self) -> str:
        """Number of restarts of its means: `3`, or `3 to 5` where columns differ."""
        counts = sorted({cell.runs for cell in self.cells.values() if cell.runs})
        return " to ".join(str(count) for count in dict.fromkeys((*counts[:1], *counts[-1:])))


class FilledTable(PaperTable):
    """Table of the paper with our rows, or of a sweep with our rows only, as in `tables.json`."""

    axis: str = ""
    """Axis of the sweep whose variants are our rows."""

    rows: tuple[OurRow, ...] = Field(alias="ours")
    comparisons: tuple[Comparison, ...] = ()
    """Tests of our rows, in tables where the paper compares its rows."""

    data: str = ""
    """Data of our rows, if not the tasks' own; otherwise ""."""

    @property
    def heading(self) -> str:
        """Title with the name of our data if it is not the tasks' own."""
        return task_label(self.title, f"ours: {self.data}" if self.data else "")

    @property
    def majority(self) -> OurRow | None:
        """Row of the majority class, on the splits of our first rows; None without scores."""
        cells: Cells = {}
        for key, cell in (item for row in self.rows for item in row.cells.items()):
            if cell.majority is not None:
                cells.setdefault(key, FilledCell(value=cell.majority, split=cell.split))
        return _our_row(MAJORITY_CLASS, self, cells) if cells else None


def fill_table(
    table: PaperTable,
    rows: Sequence[OurRow],
    *,
    columns: Sequence[Column] = (),
    axis: str = "",
    notes: Iterable[str] = (),
    pairs: Sequence[Pair] = (),
) -> FilledTable:
    """Return a table of the paper with our rows.

    Args:
        table: Table of the paper.
        rows: Our rows.
        columns: Further columns, which the paper lacks.
        axis: Axis of the sweep whose variants are our rows.
        notes: Further notes on our rows.
        pairs: Rows to compare, by column.
    """
    results = [cell.result for row in rows for cell in row.cells.values() if cell.result]
    data = ", ".join(dict.fromkeys(result.data for result in results if result.data))
    changes = {
        "columns": (*table.columns, *columns),
        "notes": (*table.notes, *_notes(table, rows, data), *notes),
    }
    return FilledTable(
        **(dict(table) | changes),
        axis=axis,
        rows=tuple(rows),
        data=data,
        comparisons=compare_in_columns(pairs),
    )


def _notes(table: PaperTable, rows: Sequence[OurRow], data: str) -> Iterator[str]:
    """Yield notes on our rows: what their scores are of, and why they differ from the paper's."""
    cells = [cell for row in rows for cell in row.cells.values()]
    if any(cell.sd is not None for cell in cells):
        yield (
            "Ours with ±: mean and standard deviation over the restarts of the grid point with the "
            "best mean on dev."
        )
    if any(cell.result and not cell.runs for cell in cells):
        yield (
            "Ours where the restarts were not scored, as on test: the one model that is best on "
            "dev, or the ensemble of the best."
        )
    if any(other_splits(table.columns, row.cells) for row in rows):
        yield (
            "The paper's rows are scores of GLUE's test server, whose labels are not published; "
            "ours are on dev, by which the grid point was chosen too. They do not compare to the "
            "tenth. Our scores with * are on test."
        )
    yield from cut_notes((cell.entry, cell.cut) for cell in cells)
    if data:
        yield (
            f"Ours on {data}: other data in the task's format. Such scores do not compare with the "
            "paper's, only with each other."
        )
    elif rows and table.systems:
        yield "Ours are not tested against the paper's rows, whose predictions are not public."


# Tables 1, 2, 3, 4 and 7


def fill_tables(results: Sequence[ResultRow]) -> list[FilledTable]:
    """Return Tables 1, 2, 3, 4 and 7 of the paper with our rows, in the paper's order.

    A row is one model over all its tasks. If two entries fine-tune the same model on the same task,
    the better on dev comes first and the other has a separate row. An ensemble has a row, and its
    single models have another. Each table has one row for the majority class.

    Args:
        results: Results of any tasks; those that no table has are ignored.
    """
    filled = []
    for table in PAPER_TABLES.values():
        shown = [row for row in results if row.paper_cell[0] == table.key]
        pairs = _feature_pairs(shown) if table is FEATURES_TABLE else []
        filled.append(fill_table(table, _model_rows(shown, table), pairs=pairs))
    return filled


def _model_rows(results: Sequence[ResultRow], table: PaperTable) -> list[OurRow]:
    """Return the rows of all models; entries with equal models share a row."""
    models: dict[str, list[Cells]] = {}
    scored: list[tuple[float, str, str, Cells]] = []
    for entry, group in itertools.groupby(results, key=lambda row: row.entry):
        rows = list(group)
        first = rows[0]
        for size in dict.fromkeys((1, first.ensemble_of)):
            model = model_label(first.settings, method=first.method, ensemble=size)
            if cells := _model_cells(rows, table, is_ensemble=size > 1):
                models[model] = []
                score = -math.inf if first.dev_score is None else first.dev_score
                scored.append((-score, entry, model, cells))
    for _, _, model, cells in sorted(scored, key=lambda item: item[:2]):
        free = next((row for row in models[model] if not row.keys() & cells.keys()), None)
        if free is None:
            models[model].append(free := {})
        free.update(cells)
    return [
        _our_row(model, table, cells, has_entries=len(rows) > 1)
        for model, rows in models.items()
        for cells in rows
    ]


def _model_cells(results: Sequence[ResultRow], table: PaperTable, *, is_ensemble: bool) -> Cells:
    """Return the scores of an entry by column, on the paper's split if it was scored."""
    cells: Cells = {}
    for row in results:
        cell, (_, key) = FilledCell.of_result(row, is_ensemble=is_ensemble), row.paper_cell
        if cell and (key not in cells or cell.split == table.columns_by_key[key].split):
            cells[key] = cell
    return cells


def _our_row(model: str, table: PaperTable, cells: Cells, *, has_entries: bool = False) -> OurRow:
    """Return the row of a model, with its average and its name, which may list the entries."""
    name = f"{model} [dev]" if other_splits(table.columns, cells) else model
    cells = {key: cells[key] for key in table.columns_by_key if key in cells}
    row = OurRow(name=name, cells=cells, average=_average(table, cells))
    if has_entries:
        row = row.model_copy(update={"name": with_bracket(name, ", ".join(row.entries))})
    return row


def other_splits(columns: Sequence[Column], cells: Mapping[str, FilledCell]) -> set[str]:
    """Return the columns in which our score is on another split than the paper's."""
    return {c.key for c in columns if c.key in cells and cells[c.key].split != c.split}


def _average(table: PaperTable, cells: Mapping[str, FilledCell]) -> FilledCell | None:
    value = table.average({key: cell.value for key, cell in cells.items()})
    if value is None:
        return None
    splits = {cell.split for cell in cells.values()}
    cut = tuple(dict.fromkeys(text for cell in cells.values() for text in cell.cut))
    return FilledCell(value=value, split=splits.pop() if len(splits) == 1 else "mixed", cut=cut)


def _feature_pairs(rows: Sequence[ResultRow]) -> list[Pair]:
    """Return fine-tuning and each choice of feature layers of a model (Table 7), on dev."""
    scored = comparable_rows(rows)
    ranked = sorted(scored, key=lambda row: row.side.mean)  # the best comes last
    tuned = {_encoder(row): row for row in ranked if row.method == "fine-tune"}
    return [
        Pair(
            first=FINE_TUNED,
            second=layers,
            title=row.title,
            sides=(tuned[_encoder(row)].side, row.side),
            context=row.start if len(tuned) > 1 else "",
            paper=FEATURES_TABLE.difference("BERT_BASE", layers, row.paper_cell[1]),
        )
        for row in scored
        if (layers := row.settings.feature_layers) and _encoder(row) in tuned
    ]


def _encoder(row: ResultRow) -> FinetunedModel:
    return row.settings.model_copy(update={"feature_layers": ""})
