"""The paper's tables with our rows below. Our scores are from 0 to 1 until they are printed.

A row of Tables 1 to 4 and 7 is one model over all its tasks. A row of an ablation, or of a table of
a recipe's own `sweep`, is one variant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from pydantic import Field

from model.formatting import format_percent
from model.tables.compare import Comparison, Pair, compare_in_columns
from model.tables.paper import (
    ABLATIONS,
    FEATURES_TABLE,
    GLUE_TABLE,
    PAPER_TABLES,
    PERPLEXITY,
    STEPS_FIGURE,
    Column,
    PaperTable,
    glue_average,
)
from model.tables.results import (
    MAJORITY_CLASS,
    ResultRow,
    comparable_rows,
    digits_of,
    main_rows,
    model_label,
    reference_to,
    side_of,
    task_label,
    with_bracket,
)
from model.task_results import DEV, Result
from model.tasks.reduced_data import cut_notes, marked
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput

FINE_TUNED = "fine-tuned"
RESTARTS_NOTE = (
    "Ours with ±: mean and standard deviation over the restarts of the grid point with the best "
    "mean on dev."
)
ONCE_NOTE = (
    "Restarts differ in the data order and new weights of fine-tuning. Each variant was pretrained "
    "once: what another seed of pretraining would change is not in the intervals."
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
    """What the comparisons of our rows show, and why they are not tested against the paper's. "":
    no rows."""

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


class Sweep(NamedTuple):
    """Results of a recipe, and the axes that some of its entries vary."""

    config: TabulateConfig
    results: Sequence[ResultRow]
    """Results of all entries."""

    phases: Mapping[str, StageInput] = {}
    """Pretraining phases that entries start from."""

    @property
    def entries(self) -> frozenset[str]:
        """Entries that the axes vary."""
        return frozenset(entry.entry for entry in self.config.expanded_sweep if entry.variants)

    @property
    def results_outside(self) -> list[ResultRow]:
        """Results for the paper's tables: of all entries that no axis varies, and for Table 7 of
        the choices of layers."""
        axes = {name for name, axis in self.config.axes.items() if _is_of(axis, FEATURES_TABLE)}
        choices = {e.entry for e in self.config.expanded_sweep if axes & e.variants.keys()}
        return [
            row
            for row in self.results
            if row.entry not in self.entries
            or (row.entry in choices and row.paper_table == FEATURES_TABLE.key)
        ]


def all_tables(sweep: Sweep) -> tuple[FilledTable, ...]:
    """Return the paper's tables and figure in its order with our rows, then the other axes."""
    tables = [*fill_tables(sweep.results_outside), *_sweep_tables(sweep)]
    missing = ABLATIONS.keys() - {table.key for table in tables}
    tables += [_fill(ABLATIONS[key]) for key in missing]
    order = [*sorted({*PAPER_TABLES, *ABLATIONS} - {STEPS_FIGURE.key}), STEPS_FIGURE.key]
    return tuple(
        sorted(tables, key=lambda one: order.index(one.key) if one.key in order else len(order))
    )


def _fill(
    table: PaperTable,
    rows: Sequence[OurRow] = (),
    results: Sequence[ResultRow] = (),
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
        results: Results of all entries.
        columns: Columns, including ours that the paper lacks. Default: the columns of the paper.
        axis: Axis of the sweep whose variants are our rows.
        notes: Notes on our rows, after those of the table.
        pairs: Rows to compare, by column.
    """
    columns = columns or table.columns
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
        comparisons=compare_in_columns(pairs),
    )


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
        shown = [row for row in results if row.paper_table == table.key]
        rows = _our_rows(shown, table)
        filled.append(
            _fill(table, rows, results, notes=_notes(table, rows), pairs=_feature_pairs(shown))
        )
    return filled


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
        score = -math.inf if first.dev_score is None else first.dev_score
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
    cells: dict[str, FilledCell] = {}
    for row in results:
        cell = score_cell(row, is_ensemble=is_ensemble)
        key = row.paper_column
        if cell and (key not in cells or cell.split == table.columns_by_key[key].split):
            cells[key] = cell
    return cells


def _rows_of_model(parts: Sequence[_Part], table: PaperTable) -> list[OurRow]:
    """Return one row of a model, or several if its entries have the same cells."""
    rows: list[tuple[list[str], dict[str, FilledCell]]] = []
    for part in sorted(parts, key=lambda part: (-part.score, part.entry)):
        free = next((row for row in rows if not row[1].keys() & part.cells.keys()), None)
        if free is None:
            rows.append(free := ([], {}))
        free[0].append(part.entry)
        free[1].update(part.cells)
    return [
        OurRow(
            name=_with_split(parts[0].name, table.columns, cells),
            entries=tuple(sorted(entries)),
            cells={key: cells[key] for key in table.columns_by_key if key in cells},
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
    split = splits.pop() if len(splits) == 1 else "mixed"
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
    if table is not GLUE_TABLE or not any(other_splits(table.columns, row.cells) for row in rows):
        return
    yield (
        "The paper's rows are scores of GLUE's test server, whose labels are not published; ours "
        "are on dev, by which the grid point was chosen too. They do not compare to the tenth."
    )
    if any(cell.split == "test" for cell in cells):
        yield "Our scores with * are on test."


def _feature_pairs(rows: Sequence[ResultRow]) -> list[Pair]:
    """Return fine-tuning and each choice of feature layers of a model (Table 7), on dev."""
    models: dict[str, list[ResultRow]] = {}
    for row in comparable_rows(rows):
        if row.paper_table == FEATURES_TABLE.key:
            shape = row.settings.model_copy(update={"feature_layers": ""})
            models.setdefault(f"{row.task} {shape}", []).append(row)
    pairs = []
    for group in models.values():
        fine_tuned = [side_of(row) for row in group if row.method == "fine-tune"]
        best = max(fine_tuned, key=lambda side: side.mean, default=None)
        pairs += [
            Pair(
                first=FINE_TUNED,
                second=layers,
                title=row.paper_column,
                column=row.paper_column,
                sides=(best, side_of(row)),
                context=row.start if len(models) > 1 else "",
                paper=FEATURES_TABLE.difference("BERT_BASE", layers, row.paper_column),
            )
            for row in group
            if best and (layers := row.settings.feature_layers)
        ]
    return pairs


# Sweeps


def _sweep_tables(sweep: Sweep) -> Iterator[FilledTable]:
    """Yield a table for each axis of a sweep; variants and tasks that the paper lacks are further
    rows and columns.

    If an axis has the steps of pretraining, the other axes are lines of its figure and have no
    table.
    """
    axes = sweep.config.axes
    with_steps = any(map(_is_steps, axes.values()))
    for name, axis in axes.items():
        is_line = with_steps and axis.table in ("", STEPS_FIGURE.key) and not _is_steps(axis)
        if is_line or _is_of(axis, FEATURES_TABLE):
            continue
        if (table := _axis_table(sweep, name)) is not None:
            yield table


def _is_of(axis: ExpandedAxis, table: PaperTable) -> bool:
    return axis.table == table.key


def _is_steps(axis: ExpandedAxis) -> bool:
    """Return whether the variants are numbers of pretraining steps."""
    return _is_of(axis, STEPS_FIGURE) and all(name.isdecimal() for name in axis.variants)


def _axis_table(sweep: Sweep, name: str) -> FilledTable | None:
    """Return the table of an axis; None if no entry with scores has the axis."""
    axis, main = sweep.config.axes[name], {row.entry: row for row in main_rows(sweep.results)}
    expanded = sweep.config.expanded_sweep
    entries = [e for e in expanded if name in e.variants and e.entry in main]
    if not entries:
        return None
    table = ABLATIONS.get(axis.table, PaperTable(key=f"sweep-{name}", title=f"Sweep: {name}"))
    firsts: dict[str, ResultRow] = {}
    for entry in entries:
        firsts.setdefault(entry.of, main[entry.entry])
    columns = _columns(table, firsts)
    contexts = _contexts(sweep, entries, without=name)
    rows = list(_variant_rows(sweep, name, entries, columns, contexts))
    notes = [RESTARTS_NOTE] if any(c.sd is not None for r in rows for c in r.cells.values()) else []
    notes += [ONCE_NOTE] if len({entry.phase for entry in entries}) > 1 else []
    shown = [column for column, _ in columns]
    pairs = list(_variant_pairs(sweep, axis, table, shown, rows, contexts))
    return _fill(table, rows, sweep.results, columns=shown, axis=name, notes=notes, pairs=pairs)


def _variant_rows(
    sweep: Sweep,
    name: str,
    entries: Sequence[ExpandedEntry],
    columns: Sequence[tuple[Column, str]],
    contexts: Sequence[dict[str, str]],
) -> Iterator[OurRow]:
    """Yield a row for each variant of an axis in each context that has scores."""
    for context, variant in itertools.product(contexts, sweep.config.axes[name].variants):
        variants = {name: variant, **context}
        here = [e for e in entries if all(variants.get(x) == v for x, v in e.variants.items())]
        cells = {
            column.key: cell
            for column, of in columns
            if (cell := _variant_cell(sweep, column, of, here)) is not None
        }
        if cells:
            yield OurRow(
                name=", ".join(variants.values()),
                entries=tuple(sorted({cell.entry for cell in cells.values() if cell.entry})),
                cells=cells,
                variant=variant,
                context=context,
            )


def _columns(table: PaperTable, firsts: Mapping[str, ResultRow]) -> list[tuple[Column, str]]:
    """Return the paper's columns, then those of the other entries, with the entry of the recipe.

    The entry is "" if the recipe has none for the column.

    Args:
        table: Table of the paper.
        firsts: Result of the first variant of each entry of the recipe.
    """
    left = dict(firsts)
    columns = []
    for column in table.columns:
        scored = (column.task, column.method)
        of = next((of for of, row in left.items() if (row.task, row.method) == scored), "")
        left.pop(of, None)
        columns.append((column, of))
    own = ((Column(key=of, metric=row.metric, split="dev"), of) for of, row in left.items())
    return [*columns, *own]


def _contexts(
    sweep: Sweep, entries: Sequence[ExpandedEntry], *, without: str
) -> list[dict[str, str]]:
    """Return the combinations of variants of the other axes that the entries have."""
    known = {name for entry in entries for name in entry.variants} - {without}
    axes = {name: axis.variants for name, axis in sweep.config.axes.items() if name in known}
    return [dict(zip(axes, names, strict=True)) for names in itertools.product(*axes.values())]


def _variant_cell(
    sweep: Sweep, column: Column, of: str, here: Sequence[ExpandedEntry]
) -> FilledCell | None:
    """Return the score in a column, given the entries of a row."""
    if column.metric == PERPLEXITY and not of:
        phases = {entry.phase for entry in here if entry.phase}
        return _perplexity(sweep, phases.pop()) if len(phases) == 1 else None
    names = {entry.entry for entry in here if entry.of == of}
    for row in sweep.results:
        if row.entry in names and (row.split, row.metric) == (DEV, column.metric):
            return score_cell(row, is_ensemble=row.mean is None and row.ensemble is not None)
    return None


def _perplexity(sweep: Sweep, phase: str) -> FilledCell | None:
    """Return the held-out perplexity of a phase; None for a phase without it."""
    if (artifact := sweep.phases.get(phase)) is None:
        return None
    value = artifact.statistics.get("held_out", {}).get(PERPLEXITY)
    if value is None or not math.isfinite(value):
        return None
    reference = reference_to(digits_of(content_digest(artifact.files)), f"held_out.{PERPLEXITY}")
    return FilledCell(text=f"{value:.2f}", value=value, split=DEV, reference=reference)


class _RowPair(NamedTuple):
    """Two rows to compare, by variant and context, with their names in the comparison."""

    rows: tuple[tuple[str, str], tuple[str, str]]
    names: tuple[str, str]
    context: str


def _variant_pairs(
    sweep: Sweep,
    axis: ExpandedAxis,
    table: PaperTable,
    columns: Sequence[Column],
    rows: Sequence[OurRow],
    contexts: Sequence[Mapping[str, str]],
) -> Iterator[Pair]:
    """Yield comparisons on each column in which both rows have restarts."""
    scored = {(row.entry, row.metric): row for row in sweep.results if row.split == DEV}
    cells_at = {(row.variant, ", ".join(row.context.values())): row.cells for row in rows}
    texts = [", ".join(context.values()) for context in contexts]
    for pair in _row_pairs(axis, table, texts):
        for column in columns:
            cells = [cells_at[key].get(column.key) for key in pair.rows if key in cells_at]
            both = [cell for cell in cells if cell is not None and cell.runs]
            # An axis that does not affect an entry gives both rows its scores.
            if len({cell.entry for cell in both}) == 2:
                first, second = (side_of(scored[cell.entry, column.metric]) for cell in both)
                yield Pair(
                    *pair.names,
                    title=column.key,
                    column=column.key,
                    sides=(first, second),
                    context=pair.context,
                    paper=table.difference(pair.rows[0][0], pair.rows[1][0], column.key),
                )


def _row_pairs(
    axis: ExpandedAxis, table: PaperTable, contexts: Sequence[str]
) -> Iterator[_RowPair]:
    """Yield the rows to compare.

    Steps: the first line with each other one at the last step, then each line with itself at half
    of the steps.
    """
    if not _is_steps(axis):
        for context in contexts:
            for names in table.compared(axis.variants):
                yield _RowPair(((names[0], context), (names[1], context)), names, context)
        return
    *steps, last = sorted(map(int, axis.variants))
    for other in contexts[1:]:
        names = (contexts[0], other)
        rows = ((str(last), contexts[0]), (str(last), other))
        yield _RowPair(rows, names, f"at {last:,} steps")
    if steps:
        half = min(steps, key=lambda step: abs(2 * step - last))
        for context in contexts:
            rows = ((str(last), context), (str(half), context))
            yield _RowPair(rows, (f"{last:,} steps", f"{half:,} steps"), context)
