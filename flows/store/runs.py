"""Runs: the record that each one keeps in the store, its signs of life, and which runs are over.

    runs/RUN_ID/run.json      what it is doing or did, from its start on
    runs/RUN_ID/alive.json    {run_id, written}: written every minute while its process is there

A run that says `running` **is over** if it is of this machine and its process is gone, or
if it is of another machine and has written nothing to its folder for a quarter of an hour. When it
last wrote is what a listing of its folder says, by the disk's or the server's clock.
`reconcile_runs` marks runs that are over as crashed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from flows.formatting import format_duration
from flows.store.artifacts import ArtifactStore
from flows.store.leases import live_holders
from flows.store.pointers import now
from flows.store.process_identity import ProcessName
from flows.store.records import content_of, parse_record
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError, ConfigError
from schemas.paths import RelativePath
from schemas.sealed import sealed_json

RESUME_HINT = "what was finished is kept, and the next run goes on from there"
"""Said of runs that ended before their end."""

RunState = Literal["running", "completed", "failed", "interrupted", "crashed"]
Close = Callable[[ArtifactStore, str], object]
"""Ends the lineage events of a run, given its id."""

HEARTBEAT_SECONDS = 60.0
HEARTBEAT_TIMEOUT = 15 * 60.0
"""After so long without a sign a run is over; a machine that slept for less counts as there."""

_NEWEST, _NEWEST_FLOW_RUNS = 20, 50
"""How many runs are looked at, where it is known which was meant."""

_LOGGER = logging.getLogger(__name__)


class StepRecord(BaseModel):
    """What became of a step; as small as an engine passes it on."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    label: str
    manifest: RelativePath
    """Path of the manifest in the store."""

    was_cached: bool
    seconds: float
    warning: str = ""


class JobRecord(BaseModel):
    """A job that a step handed to an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    label: str
    """Of the step."""

    name: str
    """`bertloom-RECIPE-STEP-KEY`."""

    runner: str
    id: str
    """The engine's own."""

    url: str = ""
    """Of its page."""

    attached: bool = False
    """Whether an earlier run had submitted it."""

    took: dict[str, float] = {}
    """What its engine says that it took (`vcpu-seconds`); empty while it runs, or says nothing."""


class RunRecord(BaseModel):
    """The file `runs/RUN_ID/run.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    run_id: str
    """Begins with the time of its start (UTC), so that run ids sort by it."""

    state: RunState
    started: str = ""
    """ISO 8601, UTC; `written` likewise."""

    written: str
    recipe: dict[str, Any]
    """The whole recipe, credentials cut out."""

    engine: str = ""
    """`prefect` or `local`."""

    flow_run_id: str = ""
    """Prefect's id of the flow run; "" without Prefect."""

    host: str = ""
    """With the next three: the process of the run, see `ProcessName`."""

    system: str = ""
    pid: int = 0
    process_start: str = ""
    git_commit: str = ""
    git_dirty: bool | None = None
    rebuild: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    """Labels of the steps to run, in order."""

    steps: tuple[StepRecord, ...] = ()
    """Those that are done, in order."""

    failures: dict[str, str] = {}
    """Error by label."""

    jobs: tuple[JobRecord, ...] = ()
    """What was handed to an engine, in order."""

    @property
    def is_dead(self) -> bool:
        """Whether it says that it is running on this machine, where its process is gone."""
        return self.state == "running" and ProcessName.of(dict(self)).is_gone


def record_path(run_id: str) -> str:
    """Path of the record of a run, relative to the root of the store."""
    return f"runs/{run_id}/run.json"


def write_run(store: ArtifactStore, record: RunRecord) -> None:
    """Write a run's record in place of what was written before."""
    _put(store, record.model_copy(update={"written": now()}))


def _put(store: ArtifactStore, record: RunRecord) -> None:
    store.backend.replace(record_path(record.run_id), sealed_json(record.model_dump(mode="json")))


def run_ids(store: ArtifactStore) -> list[str]:
    """The id of every run of the store that left a record, oldest first."""
    paths = store.backend.names("runs")
    return sorted(path.split("/")[1] for path in paths if path.endswith("/run.json"))


def read_run(store: ArtifactStore, run_id: str) -> RunRecord:
    """The record of a run.

    Raises:
        ArtifactNotFoundError: there is none.
        ArtifactCorruptError: it cannot be read.
    """
    path = record_path(run_id)
    if (stored := store.backend.read_if_exists(path)) is None:
        raise ArtifactNotFoundError(f"{store.root}: no run {run_id!r}; `bertloom runs` lists them")
    return parse_record(RunRecord, stored, store.url(path), kind="runs")


def stored_records(
    store: ArtifactStore, ids: Iterable[str]
) -> dict[str, dict[str, Any] | ArtifactCorruptError]:
    """The records of some runs as they are stored, by the runs' ids."""
    found: dict[str, dict[str, Any] | ArtifactCorruptError] = {}
    paths = {record_path(run_id): run_id for run_id in ids}
    for path, stored in store.backend.read_many(paths).items():
        try:
            found[paths[path]] = content_of(stored, store.url(path), kind="runs")
        except ArtifactCorruptError as error:
            found[paths[path]] = error
    return found


def run_records(store: ArtifactStore) -> list[dict[str, Any]]:
    """The record of every run, the newest first, as it is stored.

    `state` is `died` where the run is over without having said so, and `damaged` where the record
    cannot be read.
    """
    found: list[dict[str, Any]] = []
    moment, signs = time.time(), last_heartbeats(store)
    for run_id, record in stored_records(store, reversed(run_ids(store))).items():
        if isinstance(record, ArtifactCorruptError):
            found.append({"run_id": run_id, "state": "damaged"})
            continue
        state = str(record.get("state", "?"))
        silence = moment - signs.get(run_id, moment)
        if state == "running" and check_liveness(record, silence=silence).is_over:
            state = "died"
        found.append({"run_id": run_id, **record, "state": state})
    return found


def find_run(store: ArtifactStore, name: str) -> tuple[RunRecord, bool]:
    """The run that a name means, and whether it is its recipe's last.

    The name is a run's id or the beginning of one, a recipe's, or "" for the last run.

    Raises:
        ArtifactNotFoundError: there is none.
        ConfigError: several runs begin like this.
        ArtifactCorruptError: its record cannot be read.
    """
    recipes = {
        record["run_id"]: record.get("recipe", {}).get("name") for record in run_records(store)
    }  # the newest first; None of those that cannot be read
    if not recipes:
        raise ArtifactNotFoundError(f"{store.root}: no run has left a record; `bertloom run` does")
    found = [run_id for run_id in recipes if run_id.startswith(name)]
    if not name or name in recipes:
        found = [name or found[0]]
    if not found:
        found = [run_id for run_id, recipe in recipes.items() if recipe == name][:1]
    if len(found) > 1:
        shown = ", ".join(reversed(found[:3]))
        raise ConfigError(f"{len(found)} runs begin with {name!r}, such as {shown}: say more of it")
    if not found:
        damaged = sum(recipe is None for recipe in recipes.values())
        unread = f", {damaged} of which cannot be read" if damaged else ""
        raise ArtifactNotFoundError(
            f"{store.root}: no run and no recipe {name!r} among {len(recipes)} runs{unread}; "
            "`bertloom runs` lists them"
        )
    record = read_run(store, found[0])
    last = next(run_id for run_id, recipe in recipes.items() if recipe == recipes[found[0]])
    return record, last == found[0]


# Signs of life


class Heartbeat:
    """Writes signs of life of one run until it is stopped, or its process ends."""

    def __init__(self, store: ArtifactStore, run_id: str) -> None:
        """Nothing is written yet: the run's record is the first sign."""
        self._store, self._run_id = store, run_id
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"alive-{run_id}", daemon=True)

    def start(self) -> None:
        """Write one every `HEARTBEAT_SECONDS` from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more; one that is being written is waited for."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            sign = sealed_json({"run_id": self._run_id, "written": now()})
            try:
                self._store.backend.replace(f"runs/{self._run_id}/alive.json", sign)
            except Exception as error:  # the disk's or the network's; the next turn tries again
                _LOGGER.debug("run %s: no sign of life was left: %s", self._run_id, error)


def last_heartbeats(store: ArtifactStore) -> dict[str, float]:
    """When each run last wrote to its folder, seconds since the epoch by the store's clock."""
    signs: dict[str, float] = {}
    for path, facts in store.backend.stat("runs").items():
        parts = path.split("/")
        if len(parts) > 2:
            signs[parts[1]] = max(signs.get(parts[1], 0.0), facts.modified)
    return signs


class Liveness(NamedTuple):
    """Whether a run that says it is running is over."""

    is_over: bool
    why: str


def check_liveness(record: Mapping[str, Any], *, silence: float) -> Liveness:
    """Tell whether a run that says it is running is over, `silence` seconds after its last sign."""
    process = ProcessName.of(record)
    where = f"its process {process.pid} on this machine is"
    if process.is_gone:
        return Liveness(True, f"{where} gone")
    if process.is_here:
        return Liveness(False, f"{where} there")
    return Liveness(
        silence > HEARTBEAT_TIMEOUT, f"no sign of life for {format_duration(max(silence, 0.0))}"
    )


# Settling


class ReconciledRun(NamedTuple):
    """What became of a run that said it was running."""

    run_id: str
    is_dead: bool
    """It is marked as crashed now."""

    why: str


def mark_crashed_runs(store: ArtifactStore, *, recipe: str, close: Close) -> list[str]:
    """Mark as crashed the newest runs of a recipe whose process here is gone; their ids."""
    return [
        record.run_id
        for record in _running(store, run_ids(store)[-_NEWEST:])
        if record.recipe.get("name") == recipe and record.is_dead and _settle(store, record, close)
    ]


def mark_flow_run_ended(
    store: ArtifactStore, flow_run_id: str, *, state: RunState, reason: str, close: Close
) -> list[str]:
    """Say in the records of a flow run of Prefect's what became of it; their run ids.

    Artifacts, work and leases are left alone: the leases of a process that is gone expire, and the
    next run goes on from what is there.
    """
    return [
        record.run_id
        for record in _running(store, run_ids(store)[-_NEWEST_FLOW_RUNS:])
        if record.flow_run_id == flow_run_id
        and _settle(store, record, close, state=state, reason=reason)
    ]


def reconcile_runs(store: ArtifactStore, *, close: Close) -> list[ReconciledRun]:
    """Mark every run of any machine as crashed that says it is running, is over, and has no lease.

    Returns:
        what became of each run that said it was running.
    """
    moment, signs = time.time(), last_heartbeats(store)
    holders = {holder.holder for holder in live_holders(store).values()}
    found = []
    for record in _running(store, sorted(signs)):
        run_id = record.run_id
        silence = moment - signs[run_id]
        is_over, why = check_liveness(dict(record), silence=silence)
        if run_id in holders and not record.is_dead:
            is_over, why = False, "it holds a lease"
        found.append(ReconciledRun(run_id, is_over and _settle(store, record, close), why))
    return found


def _running(store: ArtifactStore, ids: Sequence[str]) -> Iterator[RunRecord]:
    """The records among some that say `running`."""
    for path, stored in store.backend.read_many(map(record_path, ids)).items():
        try:
            record = parse_record(RunRecord, stored, store.url(path), kind="runs")
        except ArtifactCorruptError as error:
            _LOGGER.debug("a run is passed over: %s", error)
            continue
        if record.state == "running":
            yield record


def _settle(
    store: ArtifactStore,
    record: RunRecord,
    close: Close,
    *,
    state: RunState = "crashed",
    reason: str = f"its process ended without a word; {RESUME_HINT}",
) -> bool:
    # Read again: the process may have written its end just before it was found gone.
    found = read_run(store, record.run_id)
    if found.state != "running":
        return False
    failures = {**found.failures, "": reason}
    # It was last at work when it wrote its record, and not today.
    _put(store, found.model_copy(update={"state": state, "failures": failures}))
    close(store, found.run_id)
    return True
