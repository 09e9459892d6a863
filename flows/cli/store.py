"""The commands about a store: what is in it, what to keep, what to delete, whether it is sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from flows.cli.completion import artifact_names, stage_names
from flows.cli.console import print_found, print_json, print_lines, print_table, say
from flows.cli.listing import artifact_json, artifact_rows, ref_records, run_results, run_row
from flows.cli.options import ArtifactArgument, JsonOption, StoreOption, open_store
from flows.formats import byte_text, columns
from flows.lineage.names import resolve
from flows.store.artifacts import ArtifactStore
from flows.store.garbage import GarbageReport, collect_garbage
from flows.store.listing import listed
from flows.store.pointers import pointer_to
from flows.store.runs import Settled, run_records, settle_runs
from flows.store.verification import (
    RecordReport,
    Verdict,
    check_records,
    delete_damaged_pieces,
    withdraw,
)
from flows.store.verification import verify as check
from schemas.errors import UsageError


def ls(
    stage: Annotated[
        str | None,
        typer.Argument(help="Artifacts of this stage only.", autocompletion=stage_names),
    ] = None,
    refs: Annotated[bool, typer.Option("--refs", help="List refs, and where they lead.")] = False,
    pins: Annotated[bool, typer.Option("--pins", help="List pins, and their reasons.")] = False,
    trials: Annotated[
        bool, typer.Option("--trials", help="List each trial of a grid by itself.")
    ] = False,
    cells: Annotated[bool, typer.Option("--cells", hidden=True)] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what is in the store, the newest first."""
    if refs and pins:
        raise UsageError("expected one of --refs and --pins")
    opened = open_store(store)
    if refs:
        records = ref_records(opened)
        rows = [(r["ref"], r["artifact_id"], r["stage"], r["committed"][:19]) for r in records]
        print_found(records, ("ref", "artifact", "stage", "moved"), rows, as_json=as_json)
    elif pins:
        pinned = opened.pins()
        rows = [
            (artifact_id, pin["pointer"]["stage"], pin["pinned"][:19], pin["reason"])
            for artifact_id, pin in pinned.items()
        ]
        print_found(pinned, ("artifact", "stage", "pinned", "reason"), rows, as_json=as_json)
    else:
        artifacts = listed(opened, stage)
        print_found(
            [artifact_json(item) for item in artifacts],
            ("artifact", "stage", "committed", "holds", "size", "refs"),
            artifact_rows(artifacts, all_trials=trials or cells),
            right=(3, 4),
            as_json=as_json,
        )


def _settled(store: ArtifactStore) -> list[Settled]:
    from flows.lineage.export.events import close_abandoned  # start-up: 50 ms

    return settle_runs(store, close=close_abandoned)


def runs(
    settle: Annotated[
        bool,
        typer.Option(
            "--settle", help="First mark those as crashed whose process or machine is gone."
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that the store has records of, the newest first."""
    opened = open_store(store)
    for item in _settled(opened) if settle else ():
        state = "marked as crashed" if item.is_dead else "left as running"
        say(f"{item.run_id}: {state}: {item.why}", err=True)
    found = run_records(opened)
    if as_json:
        print_json(found)
        return
    results = run_results(opened, found)
    head = ("run", "state", "recipe", "engine", "started", "took", "steps", "cached", "result")
    rows = [run_row(record, result=results[record["run_id"]]) for record in found]
    print_table(head, rows, right=(5, 6, 7))


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
    if not as_json:
        _print_garbage(report)
        return
    print_json(
        {
            "deleted": delete,
            "freed": report.freed,
            "garbage": [item._asdict() for item in report.garbage],
            "kept": [item._asdict() for item in report.kept],
            "revived": list(report.revived),
            "notes": list(report.notes),
        }
    )


def _print_garbage(report: GarbageReport) -> None:
    kept = [(item.path, byte_text(item.size), item.reason) for item in report.kept]
    print_table(("kept", "size", "because of"), kept, right=(1,))
    verb = "would be deleted" if report.is_dry_run else "deleted"
    gone = [(item.path, byte_text(item.size), item.kind) for item in report.garbage]
    say("")
    print_table((verb, "size", ""), gone, right=(1,))
    sums = [
        (kind, f"{things:,}", f"{files:,} files", byte_text(freed))
        for kind, (things, files, freed) in report.by_kind().items()
    ]
    print_lines(["", *columns(sums, right=(1, 2, 3))])
    for location in report.revived:
        say(f"left as it was, it came into use: {location}")
    for note in report.notes:
        say(f"note: {note}")
    if report.is_dry_run:
        say(f"{byte_text(report.freed)} would come free; to delete: bertloom gc --delete")
    else:
        say(f"{byte_text(report.freed)} came free")


def verify(
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            help="As for show; without any, every artifact of the store.",
            autocompletion=artifact_names,
        ),
    ] = None,
    store: StoreOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare sizes only, and read no file.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read the rows of tables, and digest them again.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Only report; damaged artifacts stay published.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that artifacts, and the store's own records, are to the byte what was written.

    Exits with 1 if not. Records are checked where no artifact is named, and not with --quick.
    """
    if quick and deep:
        raise UsageError("expected one of --quick and --deep")
    opened = open_store(store)
    lost: dict[tuple[str, str], str] = {}
    records = RecordReport(0, (), ())
    if artifacts:
        chosen = [pointer_to(resolve(name, store=opened)) for name in artifacts]
    else:
        lost = opened.damaged_pointers()
        chosen = sorted(opened.pointers(), key=lambda pointer: pointer.committed)
    verdicts = check(opened, chosen, deep=not quick, rows=deep)
    if not artifacts and not quick:
        records = check_records(opened)
    if as_json:
        print_json([verdict._asdict() for verdict in verdicts])
    else:
        _print_verdicts(verdicts)
    for damage in (
        *lost.values(),
        *(f"{opened.url(record.path)}: {record.text}" for record in records.problems),
    ):
        say(f"DAMAGED  {damage}", err=as_json)
    for note in records.notes:
        say(f"note: {note}", err=as_json)
    damaged = [verdict for verdict in verdicts if not verdict.is_sound]
    if not keep:
        withdraw(opened, damaged)
        for key in lost:
            opened.lookup(*key)  # which takes back what it cannot read
        delete_damaged_pieces(opened, records)
        if damaged or lost:
            say("damaged artifacts were withdrawn; the next run builds them again", err=True)
    for conflict in opened.conflicts():
        text = f"conflict: {conflict['stage']}: one key, two contents: {conflict['record']}"
        say(text, err=True)
    if damaged or lost or records.problems:
        raise typer.Exit(1)


def _print_verdicts(verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        state = "sound" if verdict.is_sound else "DAMAGED"
        say(f"{verdict.artifact_id}  {state:<7}  {verdict.stage}  {verdict.files:,} files")
        print_lines(f"  {problem}" for problem in verdict.problems)
