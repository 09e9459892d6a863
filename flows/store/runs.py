"""Runs: the record of each run in the store, and which runs have ended.

    runs/RUN_ID/run.json      RunRecord, written from the start on

A run that says `running` and is not alive (`flows.store.activity`) has ended without saying so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import Field

from flows.formatting import format_duration
from flows.store.activity import read_heartbeats
from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import ProcessIdentity
from flows.store.records import Record, read_record, read_records
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError, ConfigError
from schemas.manifest import RelativePath

RESUME_HINT = "Completed steps are cached; rerun to resume."

RunState = Literal["running", "completed", "failed", "interrupted", "crashed"]
_MAX_NEWEST = 50


class StepRecord(Record):
    """Result of a step, small enough for Prefect's database."""

    label: str
    manifest: RelativePath
    """Path of the manifest in the store."""

    was_cached: bool
    seconds: float
    warning: str = ""


class JobRecord(Record):
    """Job that a step submitted to an engine."""

    label: str
    """Label of the step."""

    name: str
    """`bertloom-RECIPE-STEP-KEY`."""

    runner: str
    id: str
    """Id that the engine gave it."""

    url: str = ""
    """Page of the job."""


class RunRecord(ProcessIdentity):
    """File `runs/RUN_ID/run.json`: a run and its process."""

    run_id: str
    """Starts with the start time (UTC), so that ids sort by it."""

    state: RunState
    started: str
    """ISO 8601, UTC."""

    updated_at: str
    """ISO 8601, UTC."""

    recipe: dict[str, Any]
    """Whole recipe without credentials."""

    engine: str = ""
    """`prefect` or `local`."""

    flow_run_id: str = ""
    """Id of Prefect's flow run, "" without Prefect."""

    git_commit: str = ""
    git_dirty: bool | None = None
    rebuild: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    """Labels of the steps to run, in order."""

    steps: tuple[StepRecord, ...] = ()
    """Finished steps, in order."""

    failures: dict[str, str] = Field(default_factory=dict)
    """Error by step label. "" is the run itself."""

    jobs: tuple[JobRecord, ...] = ()
    headline: str = ""
    """Most important result, which the report writes when the run has ended."""

    @property
    def recipe_name(self) -> str:
        """Name of the recipe."""
        return str(self.recipe.get("name", ""))


def record_path(run_id: str) -> str:
    """Return the path of a run's record."""
    return f"runs/{run_id}/run.json"


def report_path(run_id: str) -> str:
    """Return the path of a run's report."""
    return f"runs/{run_id}/report.html"


def write_run(store: ArtifactStore, record: RunRecord) -> None:
    """Write a run's record."""
    store.backend.replace(record_path(record.run_id), record.to_json())
    _remember(store, record)


def _remember(store: ArtifactStore, record: RunRecord) -> None:
    """Keep the record of a run that has ended; others change."""
    if record.state in ("completed", "failed"):
        store.ended_runs[record.run_id] = record


def run_ids(store: ArtifactStore) -> list[str]:
    """Return the id of every run with a record, oldest first."""
    paths = store.backend.names("runs")
    return sorted(path.split("/")[1] for path in paths if path.endswith("/run.json"))


def read_run(store: ArtifactStore, run_id: str) -> RunRecord:
    """Read the record of a run.

    Raises:
        ArtifactNotFoundError: There is no such run.
        ArtifactCorruptError: The record is corrupt.
    """
    record = read_record(store.backend, RunRecord, record_path(run_id))
    if record is None:
        raise ArtifactNotFoundError(
            f"{store.root}: expected the id of a run, got {run_id!r}. `bertloom runs` lists them"
        )
    return record


def read_runs(
    store: ArtifactStore, ids: Iterable[str]
) -> dict[str, RunRecord | ArtifactCorruptError]:
    """Return the records that exist, by run id, or the error of a corrupt one.

    A store object reads the record of a run that has ended only once.
    """
    listed = list(dict.fromkeys(ids))
    paths = {record_path(run_id): run_id for run_id in listed if run_id not in store.ended_runs}
    read = {
        paths[path]: record
        for path, record in read_records(store.backend, RunRecord, paths).items()
    }
    for record in read.values():
        if isinstance(record, RunRecord):
            _remember(store, record)
    known = {**store.ended_runs, **read}
    return {run_id: known[run_id] for run_id in listed if run_id in known}


def list_runs(
    store: ArtifactStore, ids: Iterable[str] | None = None
) -> dict[str, RunRecord | ArtifactCorruptError]:
    """Return all runs newest first, or some. One that ended without saying so is `crashed`."""
    records = read_runs(store, reversed(run_ids(store)) if ids is None else ids)
    for run_id, reason in _find_crashed(store, records.values()).items():
        current = read_run(store, run_id)
        if current.state == "running":  # otherwise it has ended since
            current = _ended(current, "crashed", f"{reason}. {RESUME_HINT}")
        records[run_id] = current
    return records


def find_run(store: ArtifactStore, name: str) -> tuple[RunRecord, bool]:
    """Return a run, and whether it is the last one of its recipe.

    Args:
        store: Artifact store.
        name: Id of a run or a prefix of it, or a recipe for its last run. "" for the last run.

    Raises:
        ArtifactNotFoundError: There is no such run.
        ConfigError: The prefix is ambiguous.
        ArtifactCorruptError: The record is corrupt.
    """
    records = read_runs(store, reversed(run_ids(store)))
    recipes = {key: getattr(record, "recipe_name", None) for key, record in records.items()}
    of_recipe = [run_id for run_id, recipe in recipes.items() if name in (recipe, "")]
    matches = [run_id for run_id in recipes if name and run_id.startswith(name)]
    matches = [name] if name in recipes else matches or of_recipe[:1]
    if not matches:
        raise ArtifactNotFoundError(
            f"{store.root}: expected a run or a recipe, got {name!r}. `bertloom runs` lists the "
            f"{len(recipes):,} runs"
        )
    if len(matches) > 1:
        shown = ", ".join(reversed(matches[:3]))
        raise ConfigError(
            f"{name!r}: expected one run, got {len(matches)}, for example {shown}. Add digits"
        )
    record = read_run(store, matches[0])
    last = next(run_id for run_id, recipe in recipes.items() if recipe == recipes[matches[0]])
    return record, last == matches[0]


# Records of runs that ended without saying so


def _find_crashed(
    store: ArtifactStore, records: Iterable[RunRecord | ArtifactCorruptError]
) -> dict[str, str]:
    """Return why the records that say `running` and are not alive have ended, by run id.

    A run deletes its heartbeat after the last write of its record. The heartbeats are therefore
    read after the records.
    """
    heartbeats, reasons = read_heartbeats(store), {}
    for record in records:
        if isinstance(record, RunRecord) and record.state == "running":
            heartbeat = heartbeats.get(record.run_id)
            if heartbeat is None or heartbeat.is_gone:
                reasons[record.run_id] = f"process {record.pid} on {record.host} is gone"
            elif not heartbeat.is_live:
                silence = format_duration(heartbeat.silence)
                reasons[record.run_id] = f"last heartbeat {silence} ago"
    return reasons


def mark_crashed_runs(store: ArtifactStore, *, recipe: str) -> list[str]:
    """Mark the newest runs of a recipe whose process on this machine is gone; return their ids."""
    runs = (run for run in _newest_running(store) if run.recipe_name == recipe and run.is_gone)
    return [run.run_id for run in runs if _mark(store, run.run_id)]


def mark_flow_run_ended(
    store: ArtifactStore, flow_run_id: str, *, state: RunState, reason: str
) -> list[str]:
    """Write the end of a Prefect flow run to its records; return their ids."""
    runs = (run for run in _newest_running(store) if run.flow_run_id == flow_run_id)
    return [run.run_id for run in runs if _mark(store, run.run_id, state=state, reason=reason)]


def _newest_running(store: ArtifactStore) -> Iterator[RunRecord]:
    for record in read_runs(store, run_ids(store)[-_MAX_NEWEST:]).values():
        if isinstance(record, RunRecord) and record.state == "running":
            yield record


def _mark(
    store: ArtifactStore,
    run_id: str,
    *,
    state: RunState = "crashed",
    reason: str = f"Process exited unexpectedly. {RESUME_HINT}",
) -> bool:
    # Read again: the process may have written its end just before it was gone.
    current = read_run(store, run_id)
    if current.state != "running":
        return False
    write_run(store, _ended(current, state, reason))
    return True


def _ended(record: RunRecord, state: RunState, reason: str) -> RunRecord:
    """Return the record of an ended run. `updated_at` stays: the run ended at its last write."""
    failures = {**record.failures, "": reason}
    return record.model_copy(update={"state": state, "failures": failures})
