"""Tables of a recipe's `sweep`: a row for each variant below the paper's rows of the same ablation,
and tests of the differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from model.tables.compare import Side, VariantPair, compare_variants
from model.tables.filled_tables import (
    RESTARTS_NOTE,
    FilledCell,
    FilledTable,
    OurRow,
    fill_table,
    fill_tables,
    score_cell,
)
from model.tables.paper import (
    ABLATIONS,
    FEATURES_TABLE,
    PAPER_TABLES,
    PERPLEXITY,
    STEPS_FIGURE,
    Column,
    PaperTable,
)
from model.tables.results import ResultRow, digits_of, main_rows, reference_to
from model.task_results import DEV
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput

STEPS, FEATURES = STEPS_FIGURE.key, FEATURES_TABLE.key

ONCE_NOTE = (
    "Restarts differ in the data order and new weights of fine-tuning. Each variant was pretrained "
    "once: what another seed of pretraining would change is not in the intervals."
)


class Sweep(NamedTuple):
    """Axes of a sweep and their results."""

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
        axes = {name for name, axis in self.config.axes.items() if axis.table == FEATURES}
        choices = {e.entry for e in self.config.expanded_sweep if axes & e.variants.keys()}
        return [
            row
            for row in self.results
            if row.entry not in self.entries
            or (row.entry in choices and row.paper_table == FEATURES)
        ]


def all_tables(sweep: Sweep) -> tuple[FilledTable, ...]:
    """Return the paper's tables and figure in its order with our rows, then the other axes."""
    found = fill_tables(sweep.results_outside) + fill_sweep(sweep)
    order = [*sorted({*PAPER_TABLES, *ABLATIONS} - {STEPS}), STEPS]
    return tuple(
        sorted(found, key=lambda one: order.index(one.key) if one.key in order else len(order))
    )


def fill_sweep(sweep: Sweep) -> tuple[FilledTable, ...]:
    """Return the paper's ablations that the sweep lacks, then a table for each axis of the sweep.

    If an axis has the steps of pretraining, the other axes are lines of its figure and have no
    table. Variants and tasks that the paper lacks are further rows and columns.
    """
    axes = sweep.config.axes
    with_steps = any(_is_steps(axis) for axis in axes.values())
    tables = []
    for name, axis in axes.items():
        is_line = with_steps and axis.table in ("", STEPS) and not _is_steps(axis)
        if axis.table != FEATURES and not is_line:
            table = _axis_table(sweep, name)
            tables += [table.fill()] if table.entries else []
    there = {table.key for table in tables}
    missing = (ablation for key, ablation in ABLATIONS.items() if key not in there)
    return (*(fill_table(ablation) for ablation in missing), *tables)


def _is_steps(axis: ExpandedAxis) -> bool:
    """Return whether the variants are numbers of pretraining steps."""
    return axis.table == STEPS and all(name.isdecimal() for name in axis.variants)


class _Line(NamedTuple):
    """Column of a table: an entry of the recipe in all its variants."""

    column: Column
    entries: Sequence[ExpandedEntry]  # () if the recipe has no entry for the column


class _Side(NamedTuple):
    """Row to compare, with its name in the comparison."""

    name: str
    variant: str
    context: Mapping[str, str]

    @property
    def place(self) -> tuple[str, str]:
        """Variant and those of the other axes."""
        return self.variant, _text(self.context)


@dataclass(frozen=True)
class _AxisTable:
    """Table of an axis."""

    name: str
    axis: ExpandedAxis
    ablation: PaperTable
    sweep: Sweep
    entries: Sequence[ExpandedEntry]
    contexts: Sequence[dict[str, str]]
    """Variants of the other axes that its entries have."""

    lines: Sequence[_Line]

    def fill(self) -> FilledTable:
        """Return the table with a row for each variant in each context."""
        places = itertools.product(self.contexts, self.axis.variants)
        rows = [row for context, variant in places if (row := self._row(variant, context))]
        notes = []
        if any(cell.sd is not None for row in rows for cell in row.cells.values()):
            notes.append(RESTARTS_NOTE)
        if len({entry.phase for entry in self.entries}) > 1:
            notes.append(ONCE_NOTE)
        return fill_table(
            self.ablation,
            rows,
            self.sweep.results,
            columns=[line.column for line in self.lines],
            axis=self.name,
            notes=notes,
            comparisons=compare_variants(list(self._pairs(rows))),
        )

    def _row(self, variant: str, context: dict[str, str]) -> OurRow | None:
        place = {self.name: variant, **context}
        cells = {
            line.column.key: cell
            for line in self.lines
            if (cell := self._cell(line, place)) is not None
        }
        name = ", ".join([variant, *context.values()])
        entries = tuple(sorted({cell.entry for cell in cells.values() if cell.entry}))
        row = OurRow(name=name, entries=entries, cells=cells, variant=variant, context=context)
        return row if cells else None

    def _cell(self, line: _Line, place: Mapping[str, str]) -> FilledCell | None:
        if line.column.metric == PERPLEXITY and not line.entries:
            phases = {entry.phase for entry in self.entries if entry.phase and _is_at(entry, place)}
            return _perplexity(self.sweep, phases.pop()) if len(phases) == 1 else None
        entry = next((entry.entry for entry in line.entries if _is_at(entry, place)), None)
        for row in self.sweep.results:
            if (row.entry, row.split, row.metric) == (entry, DEV, line.column.metric):
                return score_cell(row, is_ensemble=row.mean is None and row.ensemble is not None)
        return None

    def _pairs(self, rows: Sequence[OurRow]) -> Iterator[VariantPair]:
        """Yield comparisons on each column in which both rows have restarts."""
        scored = {(r.entry, r.metric): r for r in self.sweep.results if r.split == DEV}
        by_place = {(row.variant, _text(row.context)): row for row in rows}
        for first, second, context in self._compared():
            sides = [by_place[side.place] for side in (first, second) if side.place in by_place]
            for column in (line.column for line in self.lines):
                cells = [row.cells[column.key] for row in sides if column.key in row.cells]
                # An axis that does not affect an entry gives both rows its scores.
                if len({cell.entry for cell in cells}) == 2 and all(cell.runs for cell in cells):
                    yield VariantPair(
                        column=column.key,
                        first=first.name,
                        second=second.name,
                        context=context,
                        sides=(
                            Side.of(scored[cells[0].entry, column.metric]),
                            Side.of(scored[cells[1].entry, column.metric]),
                        ),
                        paper=self.ablation.difference(first.variant, second.variant, column.key),
                    )

    def _compared(self) -> Iterator[tuple[_Side, _Side, str]]:
        """Yield pairs of rows with their common context."""
        if _is_steps(self.axis):
            yield from _along_steps(sorted(map(int, self.axis.variants)), self.contexts)
            return
        for context in self.contexts:
            for first, second in self.ablation.compared(self.axis.variants):
                sides = [_Side(name, name, context) for name in (first, second)]
                yield sides[0], sides[1], _text(context)


def _axis_table(sweep: Sweep, name: str) -> _AxisTable:
    main = {row.entry: row for row in main_rows(sweep.results)}
    axes = sweep.config.axes
    entries = [
        entry
        for entry in sweep.config.expanded_sweep
        if name in entry.variants and entry.entry in main
    ]
    known = {other for entry in entries for other in entry.variants} - {name}
    others = {other: axis.variants for other, axis in axes.items() if other in known}
    places = itertools.product(*others.values())
    contexts = [dict(zip(others, place, strict=True)) for place in places]
    custom = PaperTable(key=f"sweep-{name}", title=f"Sweep: {name}")
    ablation = ABLATIONS.get(axes[name].table, custom)
    lines = _lines(ablation, entries, main)
    return _AxisTable(name, axes[name], ablation, sweep, entries, contexts, lines)


def _lines(
    ablation: PaperTable, entries: Sequence[ExpandedEntry], main: Mapping[str, ResultRow]
) -> list[_Line]:
    """Return the paper's columns, then those of the other entries."""
    by_entry: dict[str, list[ExpandedEntry]] = {}
    for entry in entries:
        by_entry.setdefault(entry.of, []).append(entry)
    firsts = {of: main[group[0].entry] for of, group in by_entry.items()}
    lines = []
    for column in ablation.columns:
        scored = (column.task, column.method)
        fits = (of for of, row in firsts.items() if (row.task, row.method) == scored)
        of = next(fits, "")
        firsts.pop(of, None)
        lines.append(_Line(column, by_entry.get(of, ())))
    own = {of: Column(key=of, metric=row.metric, split="dev") for of, row in firsts.items()}
    return lines + [_Line(column, by_entry[of]) for of, column in own.items()]


def _is_at(entry: ExpandedEntry, place: Mapping[str, str]) -> bool:
    """Return whether an entry belongs there; axes that do not affect the entry are ignored."""
    return all(place.get(axis) == variant for axis, variant in entry.variants.items())


def _perplexity(sweep: Sweep, phase: str) -> FilledCell | None:
    """Return the held-out perplexity of a phase."""
    if (given := sweep.phases.get(phase)) is None:
        return None
    value = given.statistics.get("held_out", {}).get(PERPLEXITY)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    reference = reference_to(digits_of(content_digest(given.files)), f"held_out.{PERPLEXITY}")
    return FilledCell(text=f"{value:.2f}", value=float(value), split=DEV, reference=reference)


def _along_steps(
    steps: Sequence[int], contexts: Sequence[dict[str, str]]
) -> Iterator[tuple[_Side, _Side, str]]:
    """Yield the first line with each other one at the last step, then each line with itself at half
    of the steps."""
    last = steps[-1]
    for other in contexts[1:]:
        sides = [_Side(_text(context), str(last), context) for context in (contexts[0], other)]
        yield sides[0], sides[1], f"at {last:,} steps"
    half = min(steps[:-1], key=lambda step: abs(2 * step - last), default=None)
    if half is not None:
        for context in contexts:
            early, late = (_Side(f"{step:,} steps", str(step), context) for step in (half, last))
            yield late, early, _text(context)


def _text(context: Mapping[str, str]) -> str:
    return ", ".join(context.values())
