"""The command `verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result, table
from flows.lineage.resolve import open_store, resolve
from flows.store.pointers import pointer_to
from flows.store.verification import check_records, quarantine
from flows.store.verification import verify as verify_artifacts


def verify(
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Artifacts, named as for `show`. Default: the whole store.",
        ),
    ] = None,
    store: options.Store = None,
    sizes_only: Annotated[
        bool, typer.Option("--sizes-only", help="Compare file sizes only.")
    ] = False,
    no_quarantine: Annotated[
        bool, typer.Option("--no-quarantine", help="Report only; keep corrupt artifacts published.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Compare artifacts with what was written, and find missing records.

    Exits with 1 if a file is corrupt or missing. Records are not checked if you name artifacts.
    """
    opened = open_store(store)
    if artifacts:
        pointers = [pointer_to(resolve(name, store=opened)) for name in artifacts]
    else:
        pointers = opened.pointers()[::-1]  # in the order in which they were built
    results = verify_artifacts(opened, pointers, deep=not sizes_only)
    errors = [] if artifacts else check_records(opened)
    lines = [
        (
            r.artifact_id,
            "ok" if r.is_ok else "CORRUPT",
            r.stage,
            f"{r.files:,}",
            "; ".join(r.errors),
        )
        for r in results
    ]
    header = ("artifact", "state", "stage", "files", "errors")
    data = [result._asdict() for result in results]
    print_result(data, table(header, lines, right=(3,)), as_json=as_json)
    conflicts = (f"conflict: {c.stage}: {path}" for path, c in opened.conflicts().items())
    for line in (*errors, *conflicts):
        echo(line, err=as_json)
    corrupt = [result for result in results if not result.is_ok]
    if corrupt and not no_quarantine:
        quarantine(opened, corrupt)
        echo("corrupt artifacts are quarantined; the next run builds them again", err=True)
    if corrupt or errors:
        raise typer.Exit(1)
