"""Contents of `tables.json`: scores in fractions of 1, the paper's as printed."""

from __future__ import annotations

import json

from model.tables.filled_tables import FilledTable
from model.tables.results import ResultRow, TableModel, main_rows
from model.tables.significance import EntryComparison
from model.tables.verdicts import Verdict

JSON_FILE = "tables.json"


class SubmittedFiles(TableModel):
    """Files of the GLUE submission."""

    entries: dict[str, str]
    """Entry of each file."""

    missing: tuple[str, ...]
    """Files that the server requires and no entry has."""


class Tables(TableModel):
    """Results of all evaluations of a recipe."""

    results: tuple[ResultRow, ...]
    comparisons: tuple[EntryComparison, ...]
    tables: tuple[FilledTable, ...]
    submission: SubmittedFiles | None = None
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

    def to_json(self) -> bytes:
        """Return the file; keys are sorted, so that equal tables give equal bytes."""
        data = self.model_dump(mode="json")
        return (json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
