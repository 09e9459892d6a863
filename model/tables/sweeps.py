"""Tables of a recipe's `sweep`: a row for each variant below the paper's rows of the same ablation,
and tests of the differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from model.tables.comparisons import ONCE_NOTE, VariantPair, compare_variants
from model.tables.filled_tables import (
    RESTARTS_NOTE,
    FilledCell,
    FilledTable,
    OurRow,
    PaperRow,
    fill_tables,
    notes_of_rows,
    other_data,
    score_cell,
)
from model.tables.paper_ablations import ABLATIONS, PERPLEXITY, UNNAMED, Ablation
from model.tables.paper_tables import PAPER_TABLES, Column
from model.tables.results import DEV, Evaluation, digits_of, reference_to
from model.tasks.task import Task
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry

STEPS = "figure-5"
FEATURES = "table-7"
"""Table that is filled with all entries, of a sweep or not."""


class Sweep(NamedTuple):
    """Axes of a sweep and their results."""

    axes: Mapping[str, ExpandedAxis]
    swept: Sequence[ExpandedEntry]
    evaluations: Mapping[str, Evaluation]
    """Evaluations by entry."""

    phases: Mapping[str, Mapping[str, Any]]
    """Statistics of the pretraining phases that entries start from."""

    contents: Mapping[str, str] = {}
    """Content digests of these phases' artifacts."""

    @property
    def entries(self) -> frozenset[str]:
        """Entries that the axis varies."""
        return frozenset(entry.entry for entry in self.swept if entry.variants)

    @property
    def only_in(self) -> dict[str, str]:
        """Further table of its entries; "" for none."""
        axes = {name for name, axis in self.axes.items() if axis.table == FEATURES}
        return {
            entry.entry: FEATURES if axes & entry.variants.keys() else ""
            for entry in self.swept
            if entry.variants
        }


class _Line(NamedTuple):
    """Column of a table: an entry of the recipe in all its variants."""

    column: Column
    entries: Sequence[ExpandedEntry]  # () if the recipe has no entry for the column
    is_ensemble: bool = False


class _Variants(NamedTuple):
    """Axis of a sweep, and the variants of the other axes (contexts) that its entries have."""

    name: str
    axis: ExpandedAxis
    ablation: Ablation
    entries: Sequence[ExpandedEntry]
    contexts: Sequence[dict[str, str]]


def all_tables(sweep: Sweep, *, tasks: Mapping[str, Task]) -> tuple[FilledTable, ...]:
    """Return the paper's tables and figure in its order with our rows, then the other axes.

    Raises:
        ConfigError: A task refers to a column that its paper table does not have.
    """
    evaluations = list(sweep.evaluations.values())
    found = fill_tables(evaluations, tasks=tasks, only_in=sweep.only_in) + fill_sweep(sweep)
    order = [*sorted({*PAPER_TABLES, *ABLATIONS} - {STEPS}), STEPS]
    return tuple(
        sorted(found, key=lambda one: order.index(one.key) if one.key in order else len(order))
    )


def fill_sweep(sweep: Sweep) -> tuple[FilledTable, ...]:
    """Return the paper's ablations that the sweep lacks, then a table for each axis of the sweep.

    If an axis has the steps of pretraining, the other axes are lines of its figure and have no
    table. Variants and tasks that the paper lacks are further rows and columns.
    """
    with_steps = any(is_steps(axis) for axis in sweep.axes.values())
    tables = []
    for name, axis in sweep.axes.items():
        is_line = axis.table in ("", STEPS) and not is_steps(axis)
        if axis.table == FEATURES or (with_steps and is_line):
            continue
        found = _variants(sweep, name, axis)
        if found.entries:
            tables.append(_filled(sweep, found))
    there = {table.key for table in tables}
    return (*(_without_ours(of) for key, of in ABLATIONS.items() if key not in there), *tables)


def is_steps(axis: ExpandedAxis) -> bool:
    """Return whether the variants are numbers of pretraining steps."""
    return axis.table == STEPS and all(name.isdecimal() for name in axis.variants)


def _without_ours(ablation: Ablation) -> FilledTable:
    columns = _columns(ablation)
    paper = tuple(_paper_rows(ablation, columns))
    return FilledTable(
        key=ablation.key,
        title=ablation.title,
        columns=columns,
        paper=paper,
        rows=(),
        notes=ablation.notes,
    )


def _columns(ablation: Ablation) -> tuple[Column, ...]:
    return tuple(
        Column(key=known.key, metric=known.metric, split=known.split, is_share=known.is_share)
        for known in ablation.columns
    )


def _variants(sweep: Sweep, name: str, axis: ExpandedAxis) -> _Variants:
    entries = [
        entry
        for entry in sweep.swept
        if name in entry.variants and entry.entry in sweep.evaluations
    ]
    met = {other for entry in entries for other in entry.variants} - {name}
    others = {other: sweep.axes[other].variants for other in sweep.axes if other in met}
    contexts = [
        dict(zip(others, found, strict=True)) for found in itertools.product(*others.values())
    ]
    return _Variants(name, axis, ABLATIONS.get(axis.table, UNNAMED), entries, contexts)


def _filled(sweep: Sweep, found: _Variants) -> FilledTable:
    lines = _lines(sweep, found)
    rows = [
        row
        for context in found.contexts
        for variant in found.axis.variants
        if (row := _row(sweep, found, lines, variant=variant, context=context)) is not None
    ]
    data = other_data(rows, list(sweep.evaluations.values()))
    notes = [*found.ablation.notes]
    if any(cell.sd is not None for row in rows for cell in row.cells.values()):
        notes.append(RESTARTS_NOTE)
    comparisons = compare_variants(list(_pairs(sweep, found, rows)))
    if len({entry.phase for entry in found.entries}) > 1:
        notes.append(ONCE_NOTE)
    columns = tuple(line.column for line in lines)
    return FilledTable(
        key=found.ablation.key or f"sweep-{found.name}",
        title=found.ablation.title or f"Sweep: {found.name}",
        axis=found.name,
        columns=columns,
        paper=tuple(_paper_rows(found.ablation, columns)),
        rows=tuple(rows),
        notes=(*notes, *notes_of_rows(rows, data=data)),
        data=data,
        comparisons=comparisons,
    )


def _paper_rows(ablation: Ablation, columns: Sequence[Column]) -> Iterator[PaperRow]:
    keys = [column.key for column in ablation.columns]
    for variant, values in ablation.values.items():
        known = dict(zip(keys, values, strict=True))
        yield PaperRow(
            name=ablation.names[variant],
            variant=variant,
            values={column.key: known.get(column.key) for column in columns},
        )


def _lines(sweep: Sweep, found: _Variants) -> list[_Line]:
    """Return the paper's columns, then those of the other entries."""
    by_entry: dict[str, list[ExpandedEntry]] = {}
    for entry in found.entries:
        by_entry.setdefault(entry.of, []).append(entry)
    firsts = {of: sweep.evaluations[entries[0].entry] for of, entries in by_entry.items()}
    lines = []
    for known, column in zip(found.ablation.columns, _columns(found.ablation), strict=True):
        fits = (
            of
            for of, item in firsts.items()
            if (item.task, item.method) == (known.task, known.method)
        )
        of = next(fits, None)
        item = firsts.pop(of) if of is not None else None
        lines.append(_Line(column, by_entry[of] if of else (), bool(item and item.ensemble > 1)))
    return lines + [
        _Line(Column(key=of, metric=item.metric, split="dev"), by_entry[of], item.ensemble > 1)
        for of, item in firsts.items()
    ]


def _row(
    sweep: Sweep,
    found: _Variants,
    lines: Sequence[_Line],
    *,
    variant: str,
    context: dict[str, str],
) -> OurRow | None:
    place = {found.name: variant, **context}
    cells: dict[str, FilledCell] = {}
    for line in lines:
        if line.column.metric == PERPLEXITY and not line.entries:
            cell = _perplexity(sweep, [entry for entry in found.entries if _is_at(entry, place)])
        else:
            cell = _score(sweep, line, place)
        if cell is not None:
            cells[line.column.key] = cell
    if not cells:
        return None
    name = ", ".join([variant, *context.values()])
    entries = tuple(sorted({cell.entry for cell in cells.values() if cell.entry}))
    return OurRow(name=name, entries=entries, cells=cells, variant=variant, context=context)


def _score(sweep: Sweep, line: _Line, place: Mapping[str, str]) -> FilledCell | None:
    entry = next((entry for entry in line.entries if _is_at(entry, place)), None)
    if entry is None:
        return None
    item = sweep.evaluations[entry.entry]
    return score_cell(item, DEV, line.column.metric, is_ensemble=line.is_ensemble)


def _is_at(entry: ExpandedEntry, place: Mapping[str, str]) -> bool:
    """Return whether an entry belongs there; axes that do not affect the entry are ignored."""
    return all(place.get(axis) == variant for axis, variant in entry.variants.items())


def _perplexity(sweep: Sweep, entries: Sequence[ExpandedEntry]) -> FilledCell | None:
    """Return the held-out perplexity of the phase that entries start from."""
    found = {entry.phase for entry in entries if entry.phase}
    if len(found) != 1:
        return None
    phase = found.pop()
    value = sweep.phases.get(phase, {}).get("held_out", {}).get(PERPLEXITY)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    content = digits_of(sweep.contents.get(phase, ""))
    reference = reference_to(content, f"held_out.{PERPLEXITY}")
    return FilledCell(is_share=False, value=float(value), split=DEV, reference=reference)


class _Point(NamedTuple):
    """Row to compare, with its name in the comparison."""

    name: str
    variant: str
    context: Mapping[str, str]


def _pairs(sweep: Sweep, found: _Variants, rows: Sequence[OurRow]) -> Iterator[VariantPair]:
    """Return comparisons on each column in which both rows have restarts."""
    metrics = {line.column.key: line.column.metric for line in _lines(sweep, found)}

    def row_at(point: _Point) -> OurRow | None:
        fits = (row for row in rows if (row.variant, row.context) == point[1:])
        return next(fits, None)

    for first, second, context in _compared(found):
        a, b = row_at(first), row_at(second)
        for key, metric in metrics.items() if a and b else ():
            cells = [row.cells[key] for row in (a, b) if row and key in row.cells]
            if len(cells) < 2 or not all(cell.runs for cell in cells):
                continue
            if cells[0].entry == cells[1].entry:  # the axis does not affect the entry
                continue
            runs = [sweep.evaluations[cell.entry].scores(DEV, metric).runs for cell in cells]
            paper = found.ablation.paper_difference(first.variant, second.variant, key)
            yield VariantPair(key, first.name, second.name, context, runs[0], runs[1], paper)


def _compared(found: _Variants) -> Iterator[tuple[_Point, _Point, str]]:
    """Yield pairs of rows with their common context."""
    variants, contexts = found.axis.variants, found.contexts
    if is_steps(found.axis):
        yield from _along_steps(sorted(map(int, variants)), contexts)
        return
    for context in contexts:
        for first, second in found.ablation.compared(variants):
            points = [_Point(name, name, context) for name in (first, second)]
            yield points[0], points[1], _text(context)


def _along_steps(
    steps: Sequence[int], contexts: Sequence[dict[str, str]]
) -> Iterator[tuple[_Point, _Point, str]]:
    """Yield the first line with each other one at the last step, then each line with itself at half
    of the steps."""
    last = steps[-1]
    for other in contexts[1:]:
        points = [_Point(_text(context), str(last), context) for context in (contexts[0], other)]
        yield points[0], points[1], f"at {last:,} steps"
    half = min(steps[:-1], key=lambda step: abs(2 * step - last), default=None)
    if half is not None:
        for context in contexts:
            early, late = (_Point(f"{step:,} steps", str(step), context) for step in (half, last))
            yield late, early, _text(context)


def _text(context: Mapping[str, str]) -> str:
    return ", ".join(context.values())
