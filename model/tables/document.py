"""Contents of `tables.json`: scores in fractions of 1, the paper's as printed."""

from __future__ import annotations

import json

from model.tables.compare import Comparison, compare_entries, compare_with_majority
from model.tables.filled_tables import FilledTable
from model.tables.results import ResultRow, main_rows
from model.tables.sweeps import Sweep, all_tables
from model.tables.verdicts import Verdict, find_verdicts, table_verdict
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
    def comparison_count(self) -> int:
        """Number of comparisons in all tables."""
        return len(self.comparisons) + sum(len(table.comparisons) for table in self.tables)

    @property
    def headline(self) -> str:
        """Most important sentence, or ""."""
        return self.verdicts[0].sentence if self.verdicts else ""

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
    tables = Tables(
        results=tuple(results),
        comparisons=compare_entries(results, swept=swept),
        baselines=compare_with_majority(results),
        tables=all_tables(sweep),
    )
    verdicts = find_verdicts(
        results, tables.comparisons, tables.baselines, tables.tables, swept=swept
    )
    with_verdicts = (
        table.model_copy(update={"verdict": table_verdict(table, results, verdicts)})
        for table in tables.tables
    )
    return tables.model_copy(update={"verdicts": verdicts, "tables": tuple(with_verdicts)})
