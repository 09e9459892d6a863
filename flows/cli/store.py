"""The commands that keep a store in order: what to keep, what to delete, whether it is sound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from flows.cli.completion import artifact_names
from flows.cli.console import print_found, say
from flows.cli.options import ArtifactArgument, JsonOption, StoreOption, open_store
from flows.formatting import align_columns, format_bytes
from flows.lineage.names import resolve
from flows.store.garbage_collection import GarbageReport, collect_garbage
from flows.store.pointers import pointer_to
from flows.store.verification import (
    RecordReport,
    VerifyResult,
    check_records,
    delete_damaged_pieces,
    quarantine,
)
from flows.store.verification import verify as check
from schemas.errors import UsageError


def pin(
    name: ArtifactArgument,
    reason: Annotated[str, typer.Option(help="Why it is kept; shown by ls --pins and gc.")],
    store: StoreOption = None,
) -> None:
    """Keep an artifact, and all that it was made from, from being deleted by gc."""
    if not reason.strip():
        raise UsageError("--reason: expected some words on why it is kept")
    opened = open_store(store)
    manifest = resolve(name, store=opened)
    opened.pin(manifest, reason=reason)
    say(f"pinned {manifest.artifact_id} ({manifest.stage}): {reason}")


def unpin(name: ArtifactArgument, store: StoreOption = None) -> None:
    """Take a pin away; the artifact stays until gc is asked to delete."""
    opened = open_store(store)
    artifact_id = name if name in opened.pins() else resolve(name, store=opened).artifact_id
    opened.unpin(artifact_id)
    say(f"unpinned {artifact_id}")


def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete it; without this, only say what would be.")
    ] = False,
    keep_runs: Annotated[
        int, typer.Option(min=0, help="The newest runs, whose artifacts are kept.")
    ] = 10,
    grace: Annotated[
        float, typer.Option(min=0, metavar="HOURS", help="What is younger is kept.")
    ] = 24.0,
    runs: Annotated[
        bool, typer.Option("--runs", help="Also delete the records of older runs.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what nothing needs: no ref, pin, recent run, nor anything made from it."""
    report = collect_garbage(
        open_store(store),
        keep_runs=keep_runs,
        grace_hours=grace,
        dry_run=not delete,
        delete_runs=runs,
    )
    found = {
        "deleted": delete,
        "freed": report.freed,
        "garbage": [item._asdict() for item in report.garbage],
        "kept": [item._asdict() for item in report.kept],
        "restored": list(report.restored),
        "notes": list(report.notes),
    }
    print_found(found, _garbage_lines(report), as_json=as_json)


def _garbage_lines(report: GarbageReport) -> Iterator[str]:
    kept = [(item.path, format_bytes(item.size), item.reason) for item in report.kept]
    yield from align_columns([("kept", "size", "because of"), *kept], right=(1,))
    yield ""
    verb = "would be deleted" if report.is_dry_run else "deleted"
    gone = [(item.path, format_bytes(item.size), item.kind) for item in report.garbage]
    yield from align_columns([(verb, "size", ""), *gone], right=(1,))
    yield ""
    sums = [
        (kind, f"{things:,}", f"{files:,} files", format_bytes(freed))
        for kind, (things, files, freed) in report.by_kind().items()
    ]
    yield from align_columns(sums, right=(1, 2, 3))
    yield from (f"left as it was, it came into use: {path}" for path in report.restored)
    yield from (f"note: {note}" for note in report.notes)
    if report.is_dry_run:
        yield f"{format_bytes(report.freed)} would come free; to delete: bertloom gc --delete"
    else:
        yield f"{format_bytes(report.freed)} came free"


def verify(
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            help="As for show; without any, every artifact of the store.",
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
    """Check that artifacts, and the store's own records, are to the byte what was written.

    Exits with 1 if not. Records are checked where no artifact is named, and not with --sizes-only.
    """
    if sizes_only and rows:
        raise UsageError("--sizes-only and --rows exclude each other. Pass one of them.")
    opened = open_store(store)
    lost, records = dict[tuple[str, str], str](), RecordReport(0, (), ())
    if artifacts:
        chosen = [pointer_to(resolve(name, store=opened)) for name in artifacts]
    else:
        lost = opened.corrupt_pointers()
        chosen = sorted(opened.pointers(), key=lambda pointer: pointer.committed)
    verdicts = check(opened, chosen, deep=not sizes_only, rows=rows)
    if not artifacts and not sizes_only:
        records = check_records(opened)
    lines = (line for verdict in verdicts for line in _verdict_lines(verdict))
    print_found([verdict._asdict() for verdict in verdicts], lines, as_json=as_json)
    broken = [f"{opened.url(record.path)}: {record.text}" for record in records.problems]
    for damage in (*lost.values(), *broken):
        say(f"DAMAGED  {damage}", err=as_json)
    for note in records.notes:
        say(f"note: {note}", err=as_json)
    damaged = [verdict for verdict in verdicts if not verdict.is_ok]
    if not no_quarantine:
        quarantine(opened, damaged)
        for key in lost:
            opened.lookup(*key)  # which takes back what it cannot read
        delete_damaged_pieces(opened, records)
        if damaged or lost:
            say("damaged artifacts were withdrawn; the next run builds them again", err=True)
    for conflict in opened.conflicts():
        text = f"conflict: {conflict['stage']}: one key, two contents: {conflict['record']}"
        say(text, err=True)
    if damaged or lost or broken:
        raise typer.Exit(1)


def _verdict_lines(verdict: VerifyResult) -> list[str]:
    state = "sound" if verdict.is_ok else "DAMAGED"
    head = f"{verdict.artifact_id}  {state:<7}  {verdict.stage}  {verdict.files:,} files"
    return [head, *(f"  {problem}" for problem in verdict.problems)]
