"""Sweeps and tables of written evaluations, for the tests of tables, claims and the last screen."""

from __future__ import annotations

from typing import Any

from support.evaluation_builder import BASE, TASKS, evaluations, written

from model.tables.claims import Source
from model.tables.document import Tables
from model.tables.results import in_order, result_rows
from model.tables.significance import compare_entries
from model.tables.sweeps import Sweep, all_tables
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig

GOOD, FAIR, POOR = (
    [0.90, 0.91, 0.92, 0.90, 0.91],
    [0.89, 0.92, 0.90, 0.91, 0.90],
    [0.7, 0.72, 0.71, 0.7, 0.69],
)


def entry(of: str, phase: str = "", **variants: str) -> ExpandedEntry:
    return ExpandedEntry(
        entry=".".join([of, *variants.values()]), of=of, variants=variants, phase=phase
    )


def source(
    *given: dict[str, Any], axes: dict[str, ExpandedAxis] | None = None, swept: Any = ()
) -> Source:
    """Run tabulate on written evaluations."""
    rows = result_rows(in_order(evaluations(*given), tasks=TASKS), tasks=TASKS)
    sweep = Sweep(TabulateConfig(axes=axes or {}, expanded_sweep=swept), rows)
    tables = Tables(
        results=tuple(rows),
        comparisons=tuple(compare_entries(rows, swept=sweep.entries)),
        tables=all_tables(sweep),
    )
    return Source("mine", "0" * 16, Tables.model_validate_json(tables.to_json()))


def sweep_of(table: str, runs: dict[str, dict[str, list[float]]], **model: Any) -> Source:
    """A sweep with restarts by variant and task."""
    axes = {"axis": ExpandedAxis(table=table, variants=tuple(runs))}
    swept = [entry(task, axis=variant) for variant, tasks in runs.items() for task in tasks]
    given = [
        written(one.entry, one.of, runs[one.variants["axis"]][one.of], model={**BASE, **model})
        for one in swept
    ]
    return source(*given, axes=axes, swept=swept)
