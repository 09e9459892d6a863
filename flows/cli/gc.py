"""The command `gc`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Table

from flows.cli import options
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes, format_count
from flows.lineage.resolve import open_store
from flows.store.garbage_collection import GarbageReport, collect_garbage


def gc(
    delete: Annotated[bool, typer.Option("--delete", help="Delete. Default: list only.")] = False,
    keep_runs: Annotated[
        int, typer.Option(min=0, help="Number of newest runs whose artifacts are retained.")
    ] = 10,
    grace_period: Annotated[
        float, typer.Option(min=0, metavar="HOURS", help="Retain everything newer than this.")
    ] = 24.0,
    delete_run_records: Annotated[
        bool, typer.Option("--delete-run-records", help="Delete the records of older runs as well.")
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Delete artifacts that no ref or recent run uses, directly or as an input."""
    report = collect_garbage(
        open_store(store),
        keep_runs=keep_runs,
        grace_hours=grace_period,
        dry_run=not delete,
        delete_runs=delete_run_records,
    )
    data = {
        "deleted": delete,
        "freed_bytes": report.freed,
        "removable": [item._asdict() for item in report.garbage],
        "retained": [item._asdict() for item in report.retained],
        "restored": list(report.restored),
        "notes": list(report.notes),
    }
    print_result(data, *_parts(report, delete=delete), as_json=as_json)


def _parts(report: GarbageReport, *, delete: bool) -> Iterator[str | Table]:
    retained = [(item.path, format_bytes(item.size), item.reason) for item in report.retained]
    yield table(("retained", "size", "reason"), retained, right=(1,))
    title = "deleted" if delete else "would be deleted"
    garbage = [(item.path, format_bytes(item.size), item.kind) for item in report.garbage]
    if garbage:
        yield ""
        yield table((title, "size", "kind"), garbage, right=(1,))
    yield from (
        f"{format_count(items, kind)}, {format_count(files, 'file')}, {format_bytes(freed)}"
        for kind, (items, files, freed) in report.by_kind().items()
    )
    yield from (f"restored (in use again): {path}" for path in report.restored)
    yield from (f"note: {note}" for note in report.notes)
    size = format_bytes(report.freed)
    hint = f"{size} can be freed. To delete: bertloom gc --delete"
    yield f"{size} freed" if delete else hint
