"""Who uses a store: any number of runs, or one garbage collection that deletes.

    active/RUN_ID.json    Heartbeat of a run, from its start to its end
    active/gc.json        Heartbeat of the collection, written put-if-absent

Each writes its own file first, then looks for files of the other kind. So at least one of two that
start together sees the other: the collection refuses, the run waits. All files are in one folder,
because NFS clients forget what they cached of a folder when they write to it.

A process of this machine is alive as long as it exists, even if it is suspended. A process of
another machine is alive until it has written no heartbeat for `HEARTBEAT_TIMEOUT`, by the clocks of
the two machines.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import ProcessIdentity, this_process
from flows.store.records import load_records
from schemas.errors import StoreBusyError

HEARTBEAT_SECONDS = 20.0
HEARTBEAT_TIMEOUT = 60.0
"""Seconds."""

_COLLECTION = "gc"
_FOLDER = "active"
_POLL_SECONDS = 0.5

_LOGGER = logging.getLogger(__name__)


class Heartbeat(ProcessIdentity):
    """File of a run, or of a garbage collection."""

    name: str
    """Id of the run, or `gc`."""

    beat_at: float
    """Seconds since the epoch, by the clock of the process."""

    @property
    def silence(self) -> float:
        """Seconds since the heartbeat."""
        return max(time.time() - self.beat_at, 0.0)

    @property
    def is_live(self) -> bool:
        """True if the process is alive."""
        return not self.is_gone if self.is_here else self.silence <= HEARTBEAT_TIMEOUT

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid} on {self.host})"


def heartbeat_path(name: str) -> str:
    """Return the path of the heartbeat of a run."""
    return f"{_FOLDER}/{name}.json"


def new_heartbeat(name: str) -> Heartbeat:
    """Return a heartbeat of this process, as of now."""
    return Heartbeat(name=name, beat_at=time.time(), **this_process().model_dump())


def read_heartbeats(store: ArtifactStore) -> dict[str, Heartbeat]:
    """Return the last heartbeat of each process that is alive or crashed, by its name.

    Raises:
        ArtifactCorruptError: A record is corrupt.
    """
    heartbeats = load_records(store.backend, Heartbeat, _FOLDER).values()
    return {heartbeat.name: heartbeat for heartbeat in heartbeats}


def live_runs(store: ArtifactStore) -> list[Heartbeat]:
    """Return the heartbeats of the runs that are alive.

    Raises:
        ArtifactCorruptError: A record is corrupt.
    """
    heartbeats = read_heartbeats(store).values()
    return [item for item in heartbeats if item.is_live and item.name != _COLLECTION]


def read_live_heartbeat(store: ArtifactStore, name: str) -> Heartbeat | None:
    """Return the heartbeat of a run, or of the collection; None if its process is not alive."""
    heartbeat = Heartbeat.from_json(store.backend.read_if_exists(heartbeat_path(name)))
    return heartbeat if heartbeat is not None and heartbeat.is_live else None


def live_collection(store: ArtifactStore) -> list[Heartbeat]:
    """Return the heartbeat of the collection if its process is alive."""
    heartbeat = read_live_heartbeat(store, _COLLECTION)
    return [heartbeat] if heartbeat is not None else []


def _join(heartbeats: Sequence[Heartbeat]) -> str:
    return ", ".join(map(str, heartbeats))


def _wait_while(users: Callable[[], Sequence[Heartbeat]], *, log: Callable[[str], None]) -> None:
    """Wait until the store is unused, and log its users once."""
    is_logged = False
    while others := users():
        if not is_logged:
            log(f"waiting for {_join(others)}")
            is_logged = True
        time.sleep(_POLL_SECONDS)


class HeartbeatThread(threading.Thread):
    """Calls a function every few seconds until it is stopped or the process ends."""

    def __init__(self, beat: Callable[[], None], *, seconds: float) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._beat, self._seconds, self._ended = beat, seconds, threading.Event()

    def run(self) -> None:
        """Call the function. Log its errors: a failing disk or network can recover."""
        while not self._ended.wait(self._seconds):
            try:
                self._beat()
            except Exception as error:
                _LOGGER.debug("no heartbeat was written: %s", error)

    def stop(self) -> None:
        """Stop calling the function."""
        self._ended.set()
        self.join()


class ActiveRun:
    """A run of this process, which is alive until the end of its `with` block."""

    def __init__(
        self, store: ArtifactStore, run_id: str, *, log: Callable[[str], None] = _LOGGER.warning
    ) -> None:
        """Write nothing before the block begins. `log` gets a line if the run has to wait."""
        self.store, self.run_id, self._log = store, run_id, log
        self.watchers: set[Callable[[], None]] = set()
        """Functions to call after each heartbeat."""

        self._thread = HeartbeatThread(self._beat, seconds=HEARTBEAT_SECONDS)

    def __enter__(self) -> Self:
        self._wait_for_collection()
        self._beat()
        while live_collection(self.store):
            self._delete()  # otherwise a collection that waits for runs would wait for this one
            self._wait_for_collection()
            self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()
        try:
            self._delete()
        except Exception as error:  # it ends with the process
            _LOGGER.warning("the heartbeat of %s was not deleted: %s", self.run_id, error)

    def _delete(self) -> None:
        self.store.backend.delete(heartbeat_path(self.run_id))

    def _wait_for_collection(self) -> None:
        _wait_while(lambda: live_collection(self.store), log=self._log)

    def _beat(self) -> None:
        heartbeat = new_heartbeat(self.run_id)
        self.store.backend.replace(heartbeat_path(self.run_id), heartbeat.to_json())
        for watch in tuple(self.watchers):
            watch()


class CollectionLock:
    """The right to delete: no run is alive, and none starts, until the end of the `with` block.

    It ends with the process, like the heartbeat of a run.
    """

    def __init__(
        self,
        store: ArtifactStore,
        *,
        is_patient: bool = False,
        log: Callable[[str], None] = _LOGGER.warning,
    ) -> None:
        """Write nothing before the block begins.

        Args:
            store: Store to lock.
            is_patient: Wait until no run is alive, instead of refusing.
            log: Called with a line if it waits.
        """
        self._store, self._is_patient, self._log = store, is_patient, log
        self._path = heartbeat_path(_COLLECTION)
        self._heartbeat = new_heartbeat(_COLLECTION)
        self._lock, self._is_lost = threading.Lock(), False
        self._thread = HeartbeatThread(self._beat, seconds=HEARTBEAT_SECONDS)

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            StoreBusyError: A run or another collection is alive.
            ArtifactCorruptError: A heartbeat is corrupt.
        """
        if self._is_patient:
            _wait_while(self._acquire, log=self._log)
        elif others := self._acquire():
            raise StoreBusyError(
                f"store {self._store.root}: expected no active run, got {_join(others)}. Wait "
                "until it has ended (--wait), or end it"
            )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()
        self._release()

    def check(self) -> None:
        """Check that the lock is held; write a heartbeat if the last one is old.

        Raises:
            StoreBusyError: Another process took the lock while this one was suspended.
        """
        if self._heartbeat.silence > HEARTBEAT_SECONDS:
            self._beat()
        if self._is_lost:
            raise StoreBusyError(
                f"store {self._store.root}: garbage collection stopped, because it had written no "
                "heartbeat for too long. Run it again"
            )

    def _acquire(self) -> Sequence[Heartbeat]:
        """Take the lock and return nothing, or return who uses the store."""
        stored = self._store.backend.read_if_exists(self._path)
        if others := [*live_collection(self._store), *live_runs(self._store)]:
            return others
        self._heartbeat = new_heartbeat(_COLLECTION)
        if not self._store.backend.compare_and_swap(
            self._path, self._heartbeat.to_json(), expected=stored
        ):
            return self._acquire()  # another collection was faster
        if runs := live_runs(self._store):  # they started since, and wait
            self._release()
        return runs

    def _beat(self) -> None:
        with self._lock:
            heartbeat = new_heartbeat(_COLLECTION)
            is_held = self._store.backend.compare_and_swap(
                self._path, heartbeat.to_json(), expected=self._heartbeat.to_json()
            )
            self._heartbeat, self._is_lost = heartbeat, not is_held

    def _release(self) -> None:
        if self._store.backend.read_if_exists(self._path) == self._heartbeat.to_json():
            self._store.backend.delete(self._path)
