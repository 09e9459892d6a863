"""The command `runs`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo, print_json
from flows.cli.ls import format_time
from flows.cli.tables import print_parts, table
from flows.formatting import format_duration
from flows.lineage.openlineage import send_aborts
from flows.lineage.resolve import open_store
from flows.report.index import RunRow, read_rows
from flows.store.runs import RunRecord, list_runs, reconcile_runs

_HEADER = (
    "run", "state", "recipe", "engine", "started", "duration", "steps", "cached", "result",
)  # fmt: skip


def runs(
    mark_crashed: Annotated[
        bool,
        typer.Option("--mark-crashed", help="First mark runs whose process is gone as crashed."),
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """List the runs of a store, newest first."""
    opened = open_store(store)
    if mark_crashed:
        checked = reconcile_runs(opened)
        send_aborts(opened, [run_id for run_id, liveness in checked.items() if liveness.is_over])
        for run_id, liveness in checked.items():
            state = "marked as crashed" if liveness.is_over else "left as running"
            echo(f"{run_id}: {state}: {liveness.reason}", err=True)
    if as_json:
        print_json(
            [
                record.model_dump(mode="json")
                if isinstance(record, RunRecord)
                else {"run_id": run_id, "state": "corrupt"}
                for run_id, record in list_runs(opened).items()
            ]
        )
        return
    rows = map(_cells, read_rows(opened))
    print_parts(table(_HEADER, rows, right=(5, 6, 7), optional=(1, 2, 4, 5, 3, 6, 7), wrap=False))


def _cells(row: RunRow) -> tuple[str, ...]:
    return (
        row.run_id,
        row.state,
        row.recipe,
        row.engine,
        format_time(row.started),
        "" if row.seconds is None else format_duration(row.seconds),
        f"{row.built + row.cached}/{row.planned}",
        str(row.cached),
        "; ".join(row.failures) or row.result,
    )
