"""The command `runs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.cli.ls import format_time
from flows.cli.tables import print_result, table
from flows.formatting import format_duration
from flows.lineage.openlineage import send_aborts
from flows.lineage.resolve import open_store
from flows.run.stages import summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, list_runs, reconcile_runs
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest

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
    records = list_runs(opened)
    data = [
        record.model_dump(mode="json")
        if isinstance(record, RunRecord)
        else {"run_id": run_id, "state": "corrupt"}
        for run_id, record in records.items()
    ]
    rows = () if as_json else _rows(opened, records)
    print_result(
        data, table(_HEADER, rows, right=(5, 6, 7), optional=(3, 4, 5, 6, 7)), as_json=as_json
    )


def _rows(
    store: ArtifactStore, records: Mapping[str, RunRecord | ArtifactCorruptError]
) -> Iterator[tuple[str, ...]]:
    last_manifests = store.manifests(
        record.steps[-1].manifest
        for record in records.values()
        if isinstance(record, RunRecord) and record.steps
    )
    for run_id, record in records.items():
        if isinstance(record, ArtifactCorruptError):
            yield run_id, "corrupt", "", "", "", "", "", "", str(record)
            continue
        yield (
            run_id,
            record.state,
            record.recipe_name,
            record.engine,
            format_time(record.started),
            _duration(record),
            f"{len(record.steps)}/{len(record.planned) or len(record.steps)}",
            str(sum(step.was_cached for step in record.steps)),
            _result(record, last_manifests),
        )


def _duration(record: RunRecord) -> str:
    started, updated = map(datetime.fromisoformat, (record.started, record.updated_at))
    ended = datetime.now(UTC) if record.state == "running" else updated
    return format_duration(max(0.0, (ended - started).total_seconds()))


def _result(record: RunRecord, manifests: Mapping[str, Manifest | ArtifactCorruptError]) -> str:
    """Return the failed steps of a run, why it ended early, or the contents of its last step."""
    if record.failures:
        failures = record.failures.items()
        return ", ".join(f"{label} failed" if label else text for label, text in failures)
    manifest = manifests.get(record.steps[-1].manifest) if record.steps else None
    return summarize(manifest) if isinstance(manifest, Manifest) else ""
