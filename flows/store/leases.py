"""Leases: who is building a key, so that others build something else, or wait.

    leases/STAGE/CACHE_KEY.json    {holder, host, system, pid, process start, expires_at, token,
                                    job_id, job_url}

`try_acquire` takes one, or says who has it. The store's conditional commit makes sure that two runs
never publish different things under one key. A lease saves the work of building twice, and keeps
two runs from writing one `work/` folder: a run that lost its lease stops the step and publishes
nothing.

It is renewed by a thread every third of its time to live. **It is free** when it
was let go, when it has expired, or when its process is of this machine and gone, so that what a
`kill -9` leaves behind makes nobody wait.

Time to live is counted by the clocks of the hosts that share a store. A host whose clock is ahead
by more than two thirds of it takes a live lease: both then build, and the commit decides. One that
is behind waits longer after a crash of another host, by as much as it is behind.

A lease is taken with one conditional write, and is the first thing that a build writes to the
store: dying before it leaves nothing, dying after it leaves a lease of a process that is gone.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from flows.store.artifacts import ArtifactStore
from flows.store.backend import StoreBackend
from flows.store.process_identity import ProcessName, this_process
from schemas.sealed import read_sealed, sealed_json

TIME_TO_LIVE = 60.0
"""Seconds."""

_LOST_SECONDS = 0.5
"""Pause between two calls of `Lease.on_lost`."""

_LOGGER = logging.getLogger(__name__)


class LeaseHolder(BaseModel):
    """Who has a lease."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    holder: str
    """The id of its run."""

    host: str
    system: str
    """With the next two: its process, see `ProcessName`."""

    pid: int
    process_start: str
    expires_at: float
    """Seconds since the epoch, by the holder's clock."""

    token: str
    """Differs each time that the lease is taken."""

    job_id: str = ""
    """Of the job on an engine that builds it, as the engine calls it; "" for none."""

    job_url: str = ""
    """Of that job's page."""

    @property
    def is_live(self) -> bool:
        """Whether others should wait for it."""
        return self.expires_at > time.time() and not ProcessName.of(dict(self)).is_gone

    def __str__(self) -> str:
        """The run, its process and its job."""
        job = f"; job {self.job_id} {self.job_url}".rstrip() if self.job_id else ""
        return f"{self.holder} (process {self.pid} on {self.host}{job})"


class StoredLease(NamedTuple):
    """The file of a lease."""

    stored: bytes | None
    """Its bytes; None where there is none."""

    holder: LeaseHolder | None
    """Its live holder; None where it is free. A file that cannot be read is of nobody."""


def lease_path(stage: str, cache_key: str) -> str:
    """Path of the lease of a key, relative to the root of the store."""
    return f"leases/{stage}/{cache_key}.json"


def read_lease(backend: StoreBackend, path: str) -> StoredLease:
    """A lease as it is now."""
    stored = backend.read_if_exists(path)
    try:
        holder = stored and LeaseHolder.model_validate(read_sealed(stored))
    except ValueError:  # of which pydantic's are
        holder = None
    return StoredLease(stored, holder if holder and holder.is_live else None)


def live_holder(store: ArtifactStore, stage: str, cache_key: str) -> LeaseHolder | None:
    """Who is building a key right now, or None."""
    return read_lease(store.backend, lease_path(stage, cache_key)).holder


def live_holders(store: ArtifactStore) -> dict[tuple[str, str], LeaseHolder]:
    """Every live lease of a store, by stage and cache key."""
    found = {}
    for path in store.backend.names("leases"):
        _, stage, name = path.split("/")
        if (holder := read_lease(store.backend, path).holder) is not None:
            found[stage, name.removesuffix(".json")] = holder
    return found


@contextmanager
def try_acquire(
    store: ArtifactStore,
    stage: str,
    cache_key: str,
    *,
    holder: str,
    ttl_seconds: float = TIME_TO_LIVE,
) -> Iterator[LeaseHolder | None]:
    """Hold the lease of a key for a block, in the name of a run, if nobody else has it.

    If this machine dies, it stays for `ttl_seconds`.

    Yields:
        None where the lease is held; else its live holder, and the block has no lease.
    """
    with acquire_or_holder(
        store, stage, cache_key, holder=holder, ttl_seconds=ttl_seconds
    ) as found:
        yield found if isinstance(found, LeaseHolder) else None


@contextmanager
def acquire_or_holder(
    store: ArtifactStore,
    stage: str,
    cache_key: str,
    *,
    holder: str,
    ttl_seconds: float = TIME_TO_LIVE,
) -> Iterator[Lease | LeaseHolder]:
    """As `try_acquire`; yields the lease itself where it is held."""
    lease = Lease(store.backend, lease_path(stage, cache_key), holder, ttl_seconds)
    if (other := lease.acquire()) is not None:
        yield other
        return
    ended = threading.Event()
    renewing = threading.Thread(target=lease.keep, args=(ended,), name="lease", daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        ended.set()
        renewing.join()
        lease.release()


class Lease:
    """One taking of a lease."""

    def __init__(self, backend: StoreBackend, path: str, holder: str, ttl_seconds: float) -> None:
        """It is not taken yet."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called after another run took the lease, again and again until the block ends."""

        self._backend, self._path, self._ttl = backend, path, ttl_seconds
        process, token = this_process()._asdict(), uuid.uuid4().hex
        self._mine = LeaseHolder(holder=holder, **process, expires_at=0, token=token)
        self._stored = b""
        self._lock = threading.Lock()

    def acquire(self) -> LeaseHolder | None:
        """Take it if it is free; else its live holder."""
        while True:
            found = read_lease(self._backend, self._path)
            if found.holder is not None:
                return found.holder
            if self._write(expected=found.stored):
                return None

    def name_job(self, job_id: str, url: str) -> None:
        """Have it say which job of an engine builds its key. It is advice: a failure is logged."""
        with self._lock:
            self._mine = self._mine.model_copy(update={"job_id": job_id, "job_url": url})
        self.is_held()

    @property
    def run_id(self) -> str:
        """Id of the run that took the lease."""
        return self._mine.holder

    def new_holder(self) -> str:
        """Return who holds the lease now, "" for nobody."""
        return str(read_lease(self._backend, self._path).holder or "")

    def _write(self, *, expected: bytes | None = None, is_ours: bool = False) -> bool:
        with self._lock:
            renewed = self._mine.model_copy(update={"expires_at": time.time() + self._ttl})
            data = sealed_json(renewed.model_dump())
            before = self._stored if is_ours else expected
            if not self._backend.compare_and_swap(self._path, data, expected=before):
                return False
            self._stored = data
            return True

    def keep(self, ended: threading.Event) -> None:
        """Renew the lease until `ended` is set. Once it is lost, call `on_lost` until then."""
        while not ended.wait(self._ttl / 3) and self.is_held():
            pass
        # More than once: a training that is about to start has no process to stop yet.
        while not ended.is_set():
            self.on_lost()
            ended.wait(_LOST_SECONDS)

    def renew(self) -> bool:
        """Renew the lease. Return False if another run took it.

        Raises:
            Exception: The store's file cannot be read or written.
        """
        return self._write(is_ours=True)

    def is_held(self) -> bool:
        """Renew the lease. Return False if another run is known to have taken it."""
        try:
            if not self.renew():
                _LOGGER.warning("another run took the lease %s", self._path)
                return False
        except Exception as error:  # the disk's or the network's; the next turn tries again
            _LOGGER.debug("the lease %s was not renewed: %s", self._path, error)
        return True

    def release(self) -> None:
        """Free it, if it is still ours."""
        try:
            self._backend.remove(self._path, expected=self._stored)
        except Exception as error:  # what was built is there; the lease ends by itself
            _LOGGER.warning("the lease %s was not let go: %s", self._path, error)
