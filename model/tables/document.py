"""Contents of `tables.json`: scores in fractions of 1, the paper's as printed."""

from __future__ import annotations

import json

from model.tables.compare import Comparison
from model.tables.filled_tables import FilledTable, Sweep, all_tables
from model.tables.results import ResultRow, main_rows
from model.tables.verdicts import (
    Verdict,
    compare_entries,
    compare_with_majority,
    find_verdicts,
)
from model.task_results import Result

JSON_FILE = "tables.json"


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
