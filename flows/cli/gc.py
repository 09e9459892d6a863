"""The command `gc`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes, format_count
from flows.lineage.resolve import open_store
from flows.report.artifact_pages import remove_links
from flows.store.activity import CollectionLock
from flows.store.garbage_collection import GarbageReport, collect_garbage, find_garbage


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
    wait: Annotated[
        bool, typer.Option("--wait", help="With --delete: wait until no run is active.")
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Delete artifacts that no ref or recent run uses, directly or as an input.

    --delete refuses while a run is active. A run that starts meanwhile waits.
    """
    opened = open_store(store)
    settings: dict[str, Any] = {
        "keep_runs": keep_runs,
        "grace_hours": grace_period,
        "delete_runs": delete_run_records,
    }
    if delete:
        lock = CollectionLock(opened, is_patient=wait, log=lambda text: echo(text, err=True))
        report = collect_garbage(opened, **settings, lock=lock)
        remove_links(opened, [item.path for item in report.garbage if item.kind == "page"])
    else:
        report = find_garbage(opened, **settings)
    data = {
        "deleted": delete,
        "freed_bytes": report.freed,
        "removable": [item._asdict() for item in report.garbage],
        "retained": [item._asdict() for item in report.retained],
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
    yield from (f"note: {note}" for note in report.notes)
    size = format_bytes(report.freed)
    hint = f"{size} can be freed. To delete: bertloom gc --delete"
    yield f"{size} freed" if delete else hint
