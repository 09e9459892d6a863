"""What `tables.json` holds, to be written and read: ours as shares of 1, the paper's as printed."""

from __future__ import annotations

import json

from model.tables.comparisons import EntryComparison
from model.tables.filled_tables import FilledTable
from model.tables.results import DEV, ResultRow, TableModel
from model.tables.verdicts import Verdict

JSON_FILE = "tables.json"


class SubmittedFiles(TableModel):
    """What GLUE's submission is made of."""

    entries: dict[str, str]
    """Whose predictions each file holds."""

    missing: tuple[str, ...]
    """Files that the server asks for and that are not there."""


class Tables(TableModel):
    """All numbers of a recipe's evaluations."""

    results: tuple[ResultRow, ...]
    comparisons: tuple[EntryComparison, ...]
    tables: tuple[FilledTable, ...]
    submission: SubmittedFiles | None = None
    verdicts: tuple[Verdict, ...] = ()
    """What the comparisons say, most important first."""

    @property
    def main(self) -> list[ResultRow]:
        """The row of every entry on dev by the metric that chooses."""
        return [row for row in self.results if row.is_main and row.split == DEV]

    @property
    def headline(self) -> str:
        """The most important sentence; "" where nothing is compared."""
        return self.verdicts[0].sentence if self.verdicts else ""

    def to_json(self) -> bytes:
        """The file: sorted keys, so that equal tables are equal bytes."""
        data = self.model_dump(mode="json")
        return (json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
