"""The artifact that each number in the tables of results comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flows.report.run_steps import Steps
from flows.report.task_results import TaskResult
from model.tables.filled_tables import FilledTable
from model.tables.render import TextTable
from model.tables.results import ResultRow


@dataclass(frozen=True)
class NumberSources:
    """Ids of the artifacts that numbers come from; "" for numbers of the paper."""

    tables: str = ""
    """Artifact of the tables, for numbers that are computed from several evaluations."""

    evaluations: Mapping[str, str] = field(default_factory=dict)
    """Evaluation of each entry of the recipe."""

    @classmethod
    def of_run(cls, steps: Steps) -> NumberSources:
        """Return the sources of the tables of a run."""
        tables = steps.last_of_type("tables")
        evaluations = {built.name: built.id for built in steps.of_type("evaluation")}
        return cls(tables.id if tables else "", evaluations)

    def of_entry(self, entry: str) -> str:
        """Return the evaluation of an entry; the tables for an entry without evaluation."""
        return self.evaluations.get(entry, self.tables)

    def of_rows(self, table: TextTable) -> list[str]:
        """Return the source of each row of a table, by the row's entry."""
        if "entry" not in table.header:
            return [self.tables] * len(table.rows)
        column = table.header.index("entry")
        return [self.of_entry(row[column]) for row in table.rows]

    def of_tasks(self, tasks: Sequence[TaskResult]) -> dict[str, list[str]]:
        """Return the sources of the scores in the overview of all tasks, by column."""

        def source(row: ResultRow | None) -> str:
            return self.of_entry(row.entry) if row is not None else ""

        return {
            "pretrained": [source(task.pretrained) for task in tasks],
            "from scratch": [source(task.scratch) for task in tasks],
        }

    def of_paper_table(self, filled: FilledTable) -> dict[str, list[str]]:
        """Return the sources of the cells of one of the paper's tables, by column."""
        papers = [""] * len(filled.systems)
        last = [self.tables] if filled.majority is not None else []
        columns = {
            column.key: [
                self.of_entry(row.cells[column.key].entry) if column.key in row.cells else ""
                for row in filled.rows
            ]
            for column in filled.columns
        }
        computed = {name: [self.tables] * len(filled.rows) for name in ("Average", "restarts")}
        return {name: [*papers, *ids, *last] for name, ids in (columns | computed).items()}


NO_SOURCES = NumberSources()
