"""Runs that are alive, and their heartbeats.

    active/RUN_ID.json    Heartbeat, from the start of a run to its end

A process of this machine is alive as long as it exists, even if it is suspended. A process of
another machine is alive until it has written no heartbeat for `HEARTBEAT_TIMEOUT`, by the clocks of
the two machines.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import ProcessIdentity, this_process
from flows.store.records import load_records

HEARTBEAT_SECONDS = 20.0
HEARTBEAT_TIMEOUT = 60.0
"""Seconds."""

_FOLDER = "active"

_LOGGER = logging.getLogger(__name__)


class Heartbeat(ProcessIdentity):
    """File of a run that is alive."""

    name: str
    """Id of the run."""

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
    """Return the last heartbeat of each run that did not end by itself, by run id.

    Raises:
        ArtifactCorruptError: A record is corrupt.
    """
    heartbeats = load_records(store.backend, Heartbeat, _FOLDER).values()
    return {heartbeat.name: heartbeat for heartbeat in heartbeats}


def read_live_heartbeat(store: ArtifactStore, name: str) -> Heartbeat | None:
    """Return the heartbeat of a run, None if the run is not alive."""
    heartbeat = Heartbeat.from_json(store.backend.read_if_exists(heartbeat_path(name)))
    return heartbeat if heartbeat is not None and heartbeat.is_live else None


class HeartbeatThread(threading.Thread):
    """Calls a function every `HEARTBEAT_SECONDS` until it is stopped or the process ends."""

    def __init__(self, beat: Callable[[], None]) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._beat, self._ended = beat, threading.Event()

    def run(self) -> None:
        """Call the function. Log its errors: a failing disk or network can recover."""
        while not self._ended.wait(HEARTBEAT_SECONDS):
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

    def __init__(self, store: ArtifactStore, run_id: str) -> None:
        """Write nothing before the block begins."""
        self.store, self.run_id = store, run_id
        self.watchers: set[Callable[[], None]] = set()
        """Functions to call after each heartbeat."""

        self._thread = HeartbeatThread(self._beat)

    def __enter__(self) -> Self:
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()
        self.store.backend.delete(heartbeat_path(self.run_id))

    def _beat(self) -> None:
        heartbeat = new_heartbeat(self.run_id)
        self.store.backend.replace(heartbeat_path(self.run_id), heartbeat.to_json())
        for watch in tuple(self.watchers):
            watch()
