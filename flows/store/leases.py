"""Leases: which run builds a cache key, so that other runs build something else or wait.

    leases/STAGE/CACHE_KEY.json    LeaseHolder

A lease only saves work and protects the `work/` folder of the key: put-if-absent of the pointer
guarantees that a key gets one content. A run that loses its lease stops the step and publishes
nothing.

A thread renews a lease three times per time to live. A lease is free if it was released, if it
expired, or if its process was on this machine and is gone: no run waits after `kill -9`.

Expiry uses the clocks of the hosts. A host whose clock is ahead by more than two thirds of the time
to live can take a live lease. Then both build, and the commit decides.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flows.store.artifacts import ArtifactStore
from flows.store.backend import StoreBackend
from flows.store.process_identity import ProcessIdentity, this_process

TIME_TO_LIVE = 60.0
"""Seconds."""

_LOST_SECONDS = 0.5
"""Seconds between two calls of `Lease.on_lost`."""

_LOGGER = logging.getLogger(__name__)


class LeaseHolder(ProcessIdentity):
    """Run that holds a lease, and its process."""

    key: str
    """`STAGE/CACHE_KEY` of the lease."""

    holder: str
    """Id of the run."""

    expires_at: float
    """Seconds since the epoch, by the holder's clock."""

    token: str
    """Random, new each time that the lease is acquired."""

    job_id: str = ""
    """Job on an engine that builds the key, "" for none."""

    job_url: str = ""

    def is_at_home(self, path: str) -> bool:
        """Return whether the lease belongs at a path."""
        return path == f"leases/{self.key}.json"

    @property
    def is_live(self) -> bool:
        """True if others have to wait for it."""
        return self.expires_at > time.time() and not self.is_gone

    def __str__(self) -> str:
        job = f"; job {self.job_id} {self.job_url}".rstrip() if self.job_id else ""
        return f"{self.holder} (process {self.pid} on {self.host}{job})"


def lease_path(stage: str, cache_key: str) -> str:
    """Return the path of the lease of a key."""
    return f"leases/{stage}/{cache_key}.json"


def read_lease(backend: StoreBackend, path: str) -> tuple[bytes | None, LeaseHolder | None]:
    """Return the bytes of a lease's file, and its live holder.

    None if it is free, corrupt, or the copy of another lease.
    """
    stored = backend.read_if_exists(path)
    holder = LeaseHolder.from_json(stored)
    if holder is None or not holder.is_live or not holder.is_at_home(path):
        return stored, None
    return stored, holder


def live_holders(store: ArtifactStore) -> dict[tuple[str, str], LeaseHolder]:
    """Return the holders of all live leases, by stage and cache key."""
    holders = {}
    for path in store.backend.names("leases"):
        _, stage, name = path.split("/")
        _, holder = read_lease(store.backend, path)
        if holder is not None:
            holders[stage, name.removesuffix(".json")] = holder
    return holders


@contextmanager
def acquire_or_holder(
    store: ArtifactStore, stage: str, cache_key: str, *, holder: str
) -> Iterator[Lease | LeaseHolder]:
    """Hold a lease for a block if it is free. Yield it, or its holder if it is not free.

    `holder` is the id of the run. The lease stays for `TIME_TO_LIVE` if this machine dies.
    """
    lease = Lease(store.backend, lease_path(stage, cache_key), holder)
    if (other := lease.acquire()) is not None:
        yield other
        return
    ended = threading.Event()
    thread = threading.Thread(target=lease.keep, args=(ended,), name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join()
        lease.release()


class Lease:
    """One acquisition of a lease."""

    def __init__(self, backend: StoreBackend, path: str, holder: str) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        """Called repeatedly after another run took the lease, until the block ends."""

        self._backend, self._path = backend, path
        process, token = this_process().model_dump(), uuid.uuid4().hex
        key = path.removeprefix("leases/").removesuffix(".json")
        self._own = LeaseHolder(key=key, holder=holder, **process, expires_at=0, token=token)
        self._stored: bytes | None = None
        self._lock = threading.Lock()

    @property
    def run_id(self) -> str:
        """Id of the run that acquired the lease."""
        return self._own.holder

    def acquire(self) -> LeaseHolder | None:
        """Acquire the lease if it is free. Return its holder if it is not."""
        while True:
            self._stored, holder = read_lease(self._backend, self._path)
            if holder is not None or self.renew():
                return holder

    def renew(self) -> bool:
        """Renew the lease. Return False if another run took it.

        Raises:
            Exception: The file cannot be read or written.
        """
        with self._lock:
            renewed = self._own.model_copy(update={"expires_at": time.time() + TIME_TO_LIVE})
            data = renewed.to_json()
            is_held = self._backend.compare_and_swap(self._path, data, expected=self._stored)
            if is_held:
                self._stored = data
            return is_held

    def is_held(self) -> bool:
        """Renew the lease. Return False only if another run certainly took it."""
        try:
            return self.renew()
        except Exception as error:  # a failing disk or network: the next turn tries again
            _LOGGER.debug("the lease %s was not renewed: %s", self._path, error)
            return True

    def keep(self, ended: threading.Event) -> None:
        """Renew the lease until `ended` is set. If it is lost, call `on_lost` until then."""
        while not ended.wait(TIME_TO_LIVE / 3) and self.is_held():
            pass
        if not ended.is_set():
            _LOGGER.warning("another run took the lease %s", self._path)
        # Repeatedly: a training that is about to start has no process to stop yet.
        while not ended.is_set():
            self.on_lost()
            ended.wait(_LOST_SECONDS)

    def name_job(self, job_id: str, url: str) -> None:
        """Add the engine's job that builds the key to the lease."""
        with self._lock:
            self._own = self._own.model_copy(update={"job_id": job_id, "job_url": url})
        self.is_held()

    def new_holder(self) -> str:
        """Return who holds the lease now, "" if it is free."""
        return str(read_lease(self._backend, self._path)[1] or "")

    def release(self) -> None:
        """Delete the lease if it is still held."""
        try:
            self._backend.compare_and_delete(self._path, expected=self._stored or b"")
        except Exception as error:  # it expires
            _LOGGER.warning("the lease %s was not released: %s", self._path, error)
