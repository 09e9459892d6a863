"""Commands that maintain a store: pins, garbage collection, verification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from flows.cards.cards import has_card
from flows.cli.completion import artifact_names
from flows.cli.console import echo, print_result
from flows.cli.options import ArtifactArgument, JsonOption, StoreOption, open_store
from flows.formatting import align_columns, format_bytes
from flows.lineage.resolve import resolve
from flows.store.garbage_collection import GarbageReport, collect_garbage
from flows.store.pointers import pointer_to
from flows.store.record_checks import (
    Problem,
    check_records,
    delete_corrupt_items,
    find_missing_items,
)
from flows.store.shard_checks import check_rows
from flows.store.verification import (
    VerifyResult,
    quarantine,
)
from flows.store.verification import verify as verify_artifacts
from schemas.errors import UsageError


def pin(
    name: ArtifactArgument,
    reason: Annotated[str, typer.Option(help="Reason, which `ls --pins` and `gc` show.")],
    store: StoreOption = None,
) -> None:
    """Retain an artifact and everything upstream of it in garbage collection."""
    if not reason.strip():
        raise UsageError("--reason: expected a text, got none. Say why the artifact is retained")
    opened = open_store(store)
    manifest = resolve(name, store=opened)
    opened.pin(manifest, reason=reason)
    echo(f"pinned {manifest.artifact_id} ({manifest.stage}): {reason}")


def unpin(name: ArtifactArgument, store: StoreOption = None) -> None:
    """Delete a pin. The artifact stays until garbage collection."""
    opened = open_store(store)
    artifact_id = name if name in opened.pins() else resolve(name, store=opened).artifact_id
    opened.unpin(artifact_id)
    echo(f"unpinned {artifact_id}")


def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete. Default: only list what would be deleted.")
    ] = False,
    keep_runs: Annotated[
        int, typer.Option(min=0, help="Number of newest runs whose artifacts are retained.")
    ] = 10,
    grace_period: Annotated[
        float, typer.Option(min=0, metavar="HOURS", help="Retain everything newer than this.")
    ] = 24.0,
    delete_run_records: Annotated[
        bool, typer.Option("--delete-run-records", help="Delete the records of older runs as well.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete artifacts that no ref, pin or recent run uses, directly or as an input."""
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
    print_result(data, _garbage_lines(report), as_json=as_json)


def _garbage_lines(report: GarbageReport) -> Iterator[str]:
    retained = [(item.path, format_bytes(item.size), item.reason) for item in report.retained]
    yield from align_columns([("retained", "size", "reason"), *retained], right=(1,))
    yield ""
    title = "would be deleted" if report.is_dry_run else "deleted"
    garbage = [(item.path, format_bytes(item.size), item.kind) for item in report.garbage]
    yield from align_columns([(title, "size", ""), *garbage], right=(1,))
    yield ""
    totals = [
        (kind, f"{items:,}", f"{files:,} files", format_bytes(freed))
        for kind, (items, files, freed) in report.by_kind().items()
    ]
    yield from align_columns(totals, right=(1, 2, 3))
    yield from (f"restored (in use again): {path}" for path in report.restored)
    yield from (f"note: {note}" for note in report.notes)
    if report.is_dry_run:
        yield f"{format_bytes(report.freed)} can be freed. To delete: bertloom gc --delete"
    else:
        yield f"{format_bytes(report.freed)} freed"


def verify(
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Artifacts, named as for `show`. Default: the whole store.",
            autocompletion=artifact_names,
        ),
    ] = None,
    store: StoreOption = None,
    sizes_only: Annotated[
        bool, typer.Option("--sizes-only", help="Compare file sizes only; read no file.")
    ] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Also read the rows of tables and check their digests.")
    ] = False,
    no_quarantine: Annotated[
        bool, typer.Option("--no-quarantine", help="Report only; keep corrupt artifacts published.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare artifacts and all other files of the store with what was written.

    Exits with 1 if a file is corrupt or missing. Named artifacts and --sizes-only: only artifacts.
    """
    if sizes_only and rows:
        raise UsageError("--sizes-only and --rows exclude each other. Pass one of them.")
    opened = open_store(store)
    corrupt_keys, problems, notes = dict[tuple[str, str], str](), list[Problem](), list[str]()
    if artifacts:
        pointers = [pointer_to(resolve(name, store=opened)) for name in artifacts]
    else:
        corrupt_keys = opened.corrupt_pointers()
        pointers = sorted(opened.pointers(), key=lambda pointer: pointer.committed)
    results = verify_artifacts(
        opened, pointers, deep=not sizes_only, check_rows=check_rows if rows else None
    )
    if not artifacts and not sizes_only:
        problems = check_records(opened, has_card=has_card)
        notes = list(find_missing_items(opened))
    lines = (line for result in results for line in _result_lines(result))
    print_result([result._asdict() for result in results], lines, as_json=as_json)
    texts = [f"{opened.url(problem.path)}: {problem.text}" for problem in problems]
    for text in (*corrupt_keys.values(), *texts):
        echo(f"CORRUPT  {text}", err=as_json)
    for note in notes:
        echo(f"note: {note}", err=as_json)
    corrupt = [result for result in results if not result.is_ok]
    if not no_quarantine:
        quarantine(opened, corrupt)
        for key in corrupt_keys:
            opened.lookup(*key)  # quarantines what it cannot read
        delete_corrupt_items(opened, problems)
        if corrupt or corrupt_keys:
            echo("corrupt artifacts are quarantined; the next run builds them again", err=True)
    for path, conflict in opened.conflicts().items():
        echo(f"conflict: {conflict.stage}: one key, two contents: {path}", err=True)
    if corrupt or corrupt_keys or problems:
        raise typer.Exit(1)


def _result_lines(result: VerifyResult) -> list[str]:
    state = "ok" if result.is_ok else "CORRUPT"
    head = f"{result.artifact_id}  {state:<7}  {result.stage}  {result.files:,} files"
    return [head, *(f"  {error}" for error in result.errors)]
