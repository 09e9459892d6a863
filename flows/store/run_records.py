"""What a run did: the record that it leaves in the store, from its start on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from flows.store.artifacts import ArtifactStore, now, to_json
from flows.store.processes import ProcessName, is_gone
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.sealed import read_sealed

RunState = Literal["running", "completed", "failed", "interrupted", "crashed"]


class StepRecord(BaseModel):
    """What became of a step; as small as an engine passes it on."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    label: str
    manifest: str
    """Path of the manifest in the store."""

    was_cached: bool
    seconds: float
    warning: str = ""


class RunRecord(BaseModel):
    """The file `runs/RUN_ID/run.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    run_id: str
    """Begins with the time of its start (UTC), so that run ids sort by it."""

    state: RunState
    started: str = ""
    """ISO 8601, UTC; `written` likewise. "" in records of version 0.1 before runs had reports."""

    written: str
    recipe: dict[str, Any]
    """The whole recipe, credentials cut out."""

    engine: str = ""
    """`prefect` or `local`."""

    flow_run_id: str = ""
    """Prefect's id of the flow run; "" without Prefect."""

    host: str = ""
    """With the next three: the process of the run, to tell a run that died; see
    `flows.store.processes.ProcessName`."""

    system: str = ""
    pid: int = 0
    process_start: str = ""
    beats: bool = False
    """Whether it leaves signs of life (`flows.store.run_beats`)."""

    git_commit: str = ""
    git_dirty: bool | None = None
    rebuild: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    """Labels of the steps to run, in order."""

    steps: tuple[StepRecord, ...] = ()
    """Those that are done, in order."""

    failures: dict[str, str] = {}
    """Error by label."""


def is_dead(record: RunRecord) -> bool:
    """Whether a run says that it is running and was on this machine, where its process is gone."""
    process = ProcessName(record.host, record.system, record.pid, record.process_start)
    return record.state == "running" and bool(record.pid) and is_gone(process)


def record_path(run_id: str) -> str:
    """Where the record of a run lies, relative to the root of the store."""
    return f"runs/{run_id}/run.json"


def write_run(store: ArtifactStore, record: RunRecord) -> None:
    """Write a run's record in place of what was written before."""
    written = record.model_copy(update={"written": now()})
    store.backend.replace(record_path(record.run_id), to_json(written.model_dump(mode="json")))


def run_ids(store: ArtifactStore) -> list[str]:
    """Of every run of the store that left a record, oldest first."""
    paths = store.backend.names("runs")
    return sorted(path.split("/")[1] for path in paths if path.endswith("/run.json"))


def read_run(store: ArtifactStore, run_id: str) -> RunRecord:
    """The record of a run.

    Raises:
        ArtifactNotFoundError: there is none.
        ArtifactCorruptError: it cannot be read.
    """
    try:
        stored = store.backend.read(record_path(run_id))
    except FileNotFoundError:
        raise ArtifactNotFoundError(
            f"{store.root}: no run {run_id!r}; `bertloom runs` lists them"
        ) from None
    try:
        return RunRecord.model_validate(read_sealed(stored).value)
    except ValueError as error:  # of which pydantic's are
        raise ArtifactCorruptError(
            f"{store.url(record_path(run_id))}: expected the record of a run: {error}"
        ) from error
