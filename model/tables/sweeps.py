"""Tables of a recipe's `sweep`: a row for each variant. The paper's ablations are some of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from model.tables.compare import Pair
from model.tables.filled_tables import (
    Cells,
    FilledCell,
    FilledTable,
    OurRow,
    fill_table,
    fill_tables,
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
from model.tables.results import ResultRow, main_rows, reference_to
from model.task_results import DEV
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput

ONCE_NOTE = (
    "Restarts differ in the data order and new weights of fine-tuning. Each variant was pretrained "
    "once: what another seed of pretraining would change is not in the intervals."
)


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
        axes = {n for n, axis in self.config.axes.items() if axis.table == FEATURES_TABLE.key}
        choices = {e.entry for e in self.config.expanded_sweep if axes & e.variants.keys()}
        return [
            row
            for row in self.results
            if row.entry not in self.entries
            or (row.entry in choices and row.paper_cell[0] == FEATURES_TABLE.key)
        ]


def all_tables(sweep: Sweep) -> tuple[FilledTable, ...]:
    """Return the paper's tables and figure in its order with our rows, then the other axes."""
    tables = [*fill_tables(sweep.results_outside), *_sweep_tables(sweep)]
    missing = ABLATIONS.keys() - {table.key for table in tables}
    tables += [fill_table(ABLATIONS[key], ()) for key in missing]
    order = [*sorted({*PAPER_TABLES, *ABLATIONS} - {STEPS_FIGURE.key}), STEPS_FIGURE.key]
    return tuple(sorted(tables, key=lambda one: (*order, one.key).index(one.key)))


def _sweep_tables(sweep: Sweep) -> Iterator[FilledTable]:
    """Yield a table for each axis of a sweep; variants and tasks that the paper lacks are further
    rows and columns.

    If an axis has the steps of pretraining, the other axes are lines of its figure and have no
    table.
    """
    axes, scored = sweep.config.axes, {row.entry for row in main_rows(sweep.results)}
    with_steps = any(map(_is_steps, axes.values()))
    for name, axis in axes.items():
        is_line = with_steps and axis.table in ("", STEPS_FIGURE.key) and not _is_steps(axis)
        expanded = sweep.config.expanded_sweep
        entries = [e for e in expanded if name in e.variants and e.entry in scored]
        if entries and not is_line and axis.table != FEATURES_TABLE.key:
            yield _axis_table(sweep, name, entries)


def _is_steps(axis: ExpandedAxis) -> bool:
    """Return whether the variants are numbers of pretraining steps."""
    return axis.table == STEPS_FIGURE.key and all(name.isdecimal() for name in axis.variants)


def _axis_table(sweep: Sweep, name: str, entries: Sequence[ExpandedEntry]) -> FilledTable:
    """Return the table of an axis, with a row for each variant in each context that has scores."""
    axis = sweep.config.axes[name]
    table = ABLATIONS.get(axis.table, PaperTable(key=f"sweep-{name}", title=f"Sweep: {name}"))
    columns = _columns(table, sweep, entries)
    others = {other for entry in entries for other in entry.variants} - {name}
    axes = {other: a.variants for other, a in sweep.config.axes.items() if other in others}
    rows = []
    for *names, variant in itertools.product(*axes.values(), axis.variants):
        context = dict(zip(axes, names, strict=True))
        variants = {name: variant, **context}
        here = [e for e in entries if all(variants.get(x) == v for x, v in e.variants.items())]
        if cells := _variant_cells(sweep, table, columns, here):
            label = ", ".join(variants.values())
            rows.append(OurRow(name=label, cells=cells, variant=variant, context=context))
    return fill_table(
        table,
        rows,
        columns=[column for column in columns.values() if column not in table.columns],
        axis=name,
        notes=[ONCE_NOTE] if len({entry.phase for entry in entries}) > 1 else [],
        pairs=list(_variant_pairs(axis, table, rows)),
    )


def _columns(
    table: PaperTable, sweep: Sweep, entries: Sequence[ExpandedEntry]
) -> dict[str, Column]:
    """Return the column of each entry of the recipe: those of the paper, then further ones."""
    main = {row.entry: row for row in main_rows(sweep.results)}
    paper: dict[tuple[str, str], Column] = {(c.task, c.method): c for c in table.columns}
    columns: dict[str, Column] = {}
    for entry in entries:
        if entry.of not in columns:
            row = main[entry.entry]
            own = Column(key=entry.of, metric=row.metric, split="dev")
            columns[entry.of] = paper.pop((row.task, row.method), own)
    order = {column.key: position for position, column in enumerate(table.columns)}
    return dict(sorted(columns.items(), key=lambda item: order.get(item[1].key, len(order))))


def _variant_cells(
    sweep: Sweep,
    table: PaperTable,
    columns: Mapping[str, Column],
    entries: Sequence[ExpandedEntry],
) -> Cells:
    """Return the scores of a row, given its entries."""
    cells: Cells = {}
    phases = {entry.phase for entry in entries if entry.phase}
    for column in (column for column in table.columns if column.metric == PERPLEXITY):
        phase = sweep.phases.get(phases.pop()) if len(phases) == 1 else None
        if phase and (cell := _perplexity(phase)):
            cells[column.key] = cell
    rows = {(row.entry, row.metric): row for row in sweep.results if row.split == DEV}
    names = {entry.of: entry.entry for entry in entries}
    for of, column in columns.items():
        row = rows.get((names.get(of, ""), column.metric))
        is_ensemble = row is not None and row.mean is None and row.ensemble is not None
        if row and (cell := FilledCell.of_result(row, is_ensemble=is_ensemble)):
            cells[column.key] = cell
    return cells


def _perplexity(artifact: StageInput) -> FilledCell | None:
    """Return the held-out perplexity of a phase; None for a phase without it."""
    value = artifact.statistics.get("held_out", {}).get(PERPLEXITY)
    if value is None or not math.isfinite(value):
        return None
    reference = reference_to(content_digest(artifact.files), f"held_out.{PERPLEXITY}")
    return FilledCell(value=value, is_share=False, split=DEV, reference=reference)


def _variant_pairs(axis: ExpandedAxis, table: PaperTable, rows: Sequence[OurRow]) -> Iterator[Pair]:
    """Yield comparisons on each column in which both rows have restarts."""
    for first, second in _row_pairs(axis, table, rows):
        names, context = _name_pair(first, second, is_steps=_is_steps(axis))
        for column in (key for key in first.cells if key in second.cells):
            a, b = first.cells[column], second.cells[column]
            # An axis that does not affect an entry gives both rows its scores.
            if a.result and b.result and a.runs and b.runs and a.entry != b.entry:
                yield Pair(
                    *names,
                    title=column,
                    sides=(a.result.side, b.result.side),
                    context=context,
                    paper=table.difference(first.variant, second.variant, column),
                )


def _row_pairs(
    axis: ExpandedAxis, table: PaperTable, rows: Sequence[OurRow]
) -> Iterator[tuple[OurRow, OurRow]]:
    """Yield the rows to compare.

    Steps: the first line with each other one at the last step, then each line with itself at half
    of the steps.
    """
    compared, lines = table.compared(axis.variants), _lines(rows)
    if _is_steps(axis):
        *steps, last = sorted(axis.variants, key=int)
        at_end = [line[last] for line in lines if last in line]
        yield from ((at_end[0], other) for other in at_end[1:])
        half = min(steps, key=lambda step: abs(2 * int(step) - int(last)), default=last)
        compared = [(last, half)]
    for line, (first, second) in itertools.product(lines, compared):
        if first in line and second in line:
            yield line[first], line[second]


def _lines(rows: Sequence[OurRow]) -> list[dict[str, OurRow]]:
    """Return the rows of each context by variant."""
    lines: dict[str, dict[str, OurRow]] = {}
    for row in rows:
        lines.setdefault(row.context_label, {})[row.variant] = row
    return list(lines.values())


def _name_pair(first: OurRow, second: OurRow, *, is_steps: bool) -> tuple[tuple[str, str], str]:
    """Return how two rows differ, and what they share."""
    if first.variant == second.variant:
        names = (first.context_label, second.context_label)
        return names, f"at {int(first.variant):,} steps"
    names = (first.variant, second.variant)
    if is_steps:
        names = (f"{int(first.variant):,} steps", f"{int(second.variant):,} steps")
    return names, first.context_label
