"""Tables of results for a page: ours, the paper's with ours beneath, and comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flows.store.artifacts import ArtifactStore
from model.tasks.cut_data import MARK
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest

TABLES_FILE = "tables.json"


class Row(NamedTuple):
    """A row of texts; `is_ours` sets it apart from the paper's."""

    cells: tuple[str, ...]
    is_ours: bool = False


class Table(NamedTuple):
    """A table of texts for the page."""

    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    texts: int = 1
    """How many columns from the left are words; the others are numbers."""


def read_tables(store: ArtifactStore, manifest: Manifest) -> dict[str, Any]:
    """What `tables.json` of a tabulate artifact holds.

    Raises:
        ArtifactCorruptError: it is not listed, not there or not what it should be.
    """
    entry = manifest.file(TABLES_FILE)
    if entry is None:
        raise ArtifactCorruptError(f"{manifest.path}: the artifact lists no {TABLES_FILE}")
    path = f"{manifest.data}/{entry.object}"
    try:
        data = json.loads(store.backend.read(path))
    except FileNotFoundError:
        raise ArtifactCorruptError(f"{store.url(path)}: the tables are gone") from None
    except ValueError as error:
        raise ArtifactCorruptError(f"{store.url(path)}: expected JSON: {error}") from error
    wanted = ("results", "comparisons", "tables")
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in wanted):
        raise ArtifactCorruptError(f"{store.url(path)}: expected lists of {', '.join(wanted)}")
    return data


def main_results(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The result of every entry on dev by the metric that chooses, in the tables' order."""
    return [row for row in data["results"] if row["is_main"] and row["split"] == "dev"]


def percent(value: float | None, sd: float | None = None) -> str:
    """A share times 100 with one decimal, as the paper prints it; "" for None."""
    if value is None:
        return ""
    shown = f"{100 * value:.1f}"
    return shown if sd is None else f"{shown} ± {100 * sd:.1f}"


def marked(text: str, row: Mapping[str, Any]) -> str:
    """A number with the mark of those that are of cut-down data."""
    return f"{text} {MARK}" if text and row.get("cut") else text


def cut_notes(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each entry whose number is of cut-down data: what it was not given."""
    told = {str(row["entry"]): "; ".join(row["cut"]) for row in rows if row.get("cut")}
    return [f"{MARK} {entry}: {cut}." for entry, cut in told.items()]


def results_table(data: dict[str, Any]) -> Table:
    """The main number of every entry."""
    rows = [
        Row(
            (
                row["task"],
                row["entry"],
                row["metric"],
                marked(percent(row["mean"], row["sd"]), row),
                marked(percent(row["best"]), row),
                marked(percent(row["ensemble"]), row),
                percent(row["majority"]),
                _paper(row),
                str(len(row["runs"]) + row["failed"]),
                row["model"],  # last, as it is long: on a phone the numbers are looked for
            )
        )
        for row in main_results(data)
    ]
    header = ("task", "entry", "metric", "mean", "best", "ensemble", "majority")
    notes = (
        "Times 100, on dev. mean: over the restarts of the best grid point, with their standard "
        "deviation; best: the model that was chosen.",
        *cut_notes(main_results(data)),
    )
    return _without_empty(
        Table("Results", (*header, "BERT_BASE", "restarts", "model"), tuple(rows), notes, texts=3)
    )


def _paper(row: dict[str, Any]) -> str:
    value = row["paper"].get("BERT_BASE")
    if value is None:
        return ""
    return f"{value:.1f}" if row["paper_split"] == "dev" else f"{value:.1f} ({row['paper_split']})"


def _without_empty(table: Table) -> Table:
    """Without the columns that no row has anything in."""
    kept = [n for n in range(len(table.header)) if any(row.cells[n] for row in table.rows)]
    return table._replace(
        header=tuple(table.header[n] for n in kept),
        rows=tuple(row._replace(cells=tuple(row.cells[n] for n in kept)) for row in table.rows),
        texts=sum(n < table.texts for n in kept),
    )


def paper_tables(data: dict[str, Any]) -> list[Table]:
    """Those of the paper's tables that have rows of ours."""
    return [_paper_table(table) for table in data["tables"] if table["ours"]]


def _paper_table(table: dict[str, Any]) -> Table:
    keys = [column["key"] for column in table["columns"]]
    has_average = any("average" in row for row in table["paper"])
    rows = []
    for system in table["paper"]:
        values = [_printed(system["values"].get(key)) for key in keys]
        average = [_printed(system.get("average"))] if has_average else []
        rows.append(Row((system["system"], *values, *average)))
    for system in table["ours"]:
        values = [_ours(system["values"].get(key)) for key in keys]
        average = [_ours(system.get("average"))] if has_average else []
        rows.append(Row((f"ours: {system['system']}", *values, *average), is_ours=True))
    header = ("system", *keys, *(["Average"] if has_average else []))
    return Table(table["title"], tuple(header), tuple(rows), tuple(table["notes"]))


def _printed(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ours(cell: dict[str, Any] | None) -> str:
    return "" if cell is None else str(cell["text"])


def comparison_table(data: dict[str, Any]) -> Table:
    """Entries of the same task against each other."""
    rows = [
        Row(
            (
                item["task"],
                item["first"],
                item["second"],
                item["metric"],
                marked(
                    f"{100 * item['difference']:+.1f}",
                    {"cut": [*item.get("first_cut", ()), *item.get("second_cut", ())]},
                ),
                _interval(item),
                _chance(item["p"]),
            )
        )
        for item in data["comparisons"]
    ]
    notes = (
        "difference: of the means, times 100, with its 95 % interval; p: two-sided, of Welch's "
        "test that the means are equal. Neither is corrected for the number of comparisons, and "
        "the grid points were chosen on the same rows.",
        *cut_notes(
            {"entry": item[side], "cut": item.get(f"{side}_cut", ())}
            for item in data["comparisons"]
            for side in ("first", "second")
        ),
    )
    header = ("task", "first", "second", "metric", "difference", "95 % interval", "p")
    return Table("How sure the differences are", header, tuple(rows), notes, texts=4)


def _interval(item: dict[str, Any]) -> str:
    if item["low"] is None or item["high"] is None:
        return ""
    return f"{100 * item['low']:+.1f} to {100 * item['high']:+.1f}"


def _chance(p: float | None) -> str:
    if p is None:
        return ""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
