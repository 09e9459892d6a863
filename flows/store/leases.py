"""Leases: which run builds a cache key, so that other runs build something else or wait.

    leases/STAGE/CACHE_KEY.json    Lease record, which names a run

A lease is free if it was released or if its run is not alive (`flows.store.activity`).

A lease only saves work and protects the `work/` folder of the key: put-if-absent of the pointer
guarantees that a key gets one content. A run that loses its lease stops the step and publishes
nothing.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flows.store.activity import ActiveRun, Heartbeat, read_live_heartbeat
from flows.store.artifacts import ArtifactStore
from flows.store.records import Record

_LOST_SECONDS = 0.5
"""Seconds between two calls of `Lease.on_lost`."""

_LOGGER = logging.getLogger(__name__)


class LeaseRecord(Record):
    """File of a lease."""

    run_id: str
    token: str
    """Random, new each time that the lease is acquired."""


def lease_path(stage: str, cache_key: str) -> str:
    """Return the path of the lease of a key."""
    return f"leases/{stage}/{cache_key}.json"


def read_lease(store: ArtifactStore, path: str) -> tuple[bytes | None, Heartbeat | None]:
    """Return the bytes of a lease's file, and the run that holds it; None if it is free."""
    stored = store.backend.read_if_exists(path)
    lease = LeaseRecord.from_json(stored)
    return stored, read_live_heartbeat(store, lease.run_id) if lease is not None else None


def live_holders(store: ArtifactStore) -> dict[tuple[str, str], Heartbeat]:
    """Return the runs that hold all leases that are not free, by stage and cache key."""
    holders = {}
    for path in store.backend.names("leases"):
        _, stage, name = path.split("/")
        _, holder = read_lease(store, path)
        if holder is not None:
            holders[stage, name.removesuffix(".json")] = holder
    return holders


@contextmanager
def acquire_or_holder(run: ActiveRun, stage: str, cache_key: str) -> Iterator[Lease | Heartbeat]:
    """Hold a lease for a block if it is free. Yield it, or the run that holds it."""
    lease = Lease(run, lease_path(stage, cache_key))
    if (other := lease.acquire()) is not None:
        yield other
        return
    run.watchers.add(lease.watch)
    try:
        yield lease
    finally:
        run.watchers.discard(lease.watch)
        lease.release()


class Lease:
    """One acquisition of a lease."""

    def __init__(self, run: ActiveRun, path: str) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        """Called repeatedly after another run took the lease, until the block ends."""

        self.run_id = run.run_id
        self._store, self._path = run.store, path
        self._record = LeaseRecord(run_id=run.run_id, token=uuid.uuid4().hex)
        self._released = threading.Event()
        self._loss: threading.Thread | None = None

    def acquire(self) -> Heartbeat | None:
        """Acquire the lease if it is free. Return the run that holds it if it is not."""
        data = self._record.to_json()
        while True:
            stored, holder = read_lease(self._store, self._path)
            if holder is not None:
                return holder
            if self._store.backend.compare_and_swap(self._path, data, expected=stored):
                return None

    def is_held(self) -> bool:
        """Return False if another run took the lease.

        Raises:
            Exception: The file cannot be read.
        """
        return self._store.backend.read_if_exists(self._path) == self._record.to_json()

    def watch(self) -> None:
        """Call `on_lost` from now on if another run took the lease."""
        if self._loss is None and not self.is_held():
            _LOGGER.warning("another run took the lease %s", self._path)
            self._loss = threading.Thread(target=self._call_on_lost, name="lost", daemon=True)
            self._loss.start()

    def _call_on_lost(self) -> None:
        # Repeatedly: a training that is about to start has no process to stop yet.
        while not self._released.is_set():
            self.on_lost()
            self._released.wait(_LOST_SECONDS)

    def new_holder(self) -> str:
        """Return who holds the lease now, "" if it is free."""
        return str(read_lease(self._store, self._path)[1] or "")

    def release(self) -> None:
        """Delete the lease if it is still held."""
        self._released.set()
        if self._loss is not None:
            self._loss.join()
        try:
            if self.is_held():
                self._store.backend.delete(self._path)
        except Exception as error:  # it ends with the run
            _LOGGER.warning("the lease %s was not released: %s", self._path, error)
