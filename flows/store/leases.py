"""Leases: who is building a key, so that others wait for it in place of building it too.

    leases/STAGE/CACHE_KEY.json    {holder, host, system, pid, process start, expires_at, token}

A lease is advice. That two runs never publish different things under one key is seen to by the
store's conditional commit; a lease only saves the work of building twice, and keeps `work/` folders
from being written by two at once.

It is renewed every third of its time to live by a thread. It is free when it was let go, when its
time is over, or when its process is of this machine and gone, so that what a `kill -9` leaves
behind makes nobody wait. The process is known by its number and its start (a number is given out
again), on this start of this machine and in this container.

Time to live is counted by the clocks of the hosts that share a store. A clock that is ahead by more
than two thirds of it takes a live lease over: both then build, and the commit decides. One that is
behind waits longer after a crash of another host, by as much as it is behind.

A lease is taken with one conditional write and is the first thing that a build leaves in the store:
dying before it leaves nothing, dying after it leaves a lease of a process that is gone.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from flows.store.processes import ProcessName, is_gone, this_process
from flows.store.backend import StoreBackend
from schemas.sealed import read_sealed, sealed_json

TIME_TO_LIVE = 60.0
"""Seconds."""

_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
_LOGGER = logging.getLogger(__name__)


class HasBackend(Protocol):
    """An artifact store, as far as leases need it."""

    @property
    def backend(self) -> StoreBackend:
        """Where the lease files are."""
        ...


class Holder(BaseModel):
    """Who has a lease."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    holder: str
    """What the holder calls itself: the id of its run."""

    host: str
    system: str
    """See `flows.store.processes.ProcessName`."""

    pid: int
    process_start: str
    expires_at: float
    """Seconds since the epoch, by the holder's clock; 0 where it was let go."""

    token: str
    """Another one at each taking."""

    @property
    def is_live(self) -> bool:
        """Whether others should wait for it."""
        process = ProcessName(self.host, self.system, self.pid, self.process_start)
        return self.expires_at > time.time() and not is_gone(process)


class _Found(NamedTuple):
    stored: bytes | None
    """The file's bytes; None where there is none."""

    holder: Holder | None
    """None where the file is none of ours, which counts as free."""


def lease_path(stage: str, cache_key: str) -> str:
    """Where the lease of a key lies, relative to the root of the store."""
    return f"leases/{stage}/{cache_key}.json"


def live_holder(store: HasBackend, stage: str, cache_key: str) -> Holder | None:
    """Who is building a key right now, or None."""
    holder = _read(store.backend, lease_path(stage, cache_key)).holder
    return holder if holder is not None and holder.is_live else None


def live_holders(store: HasBackend) -> dict[tuple[str, str], Holder]:
    """Every live lease of a store, by stage and cache key."""
    found = {}
    for path in store.backend.names("leases"):
        _, stage, name = path.split("/")
        holder = _read(store.backend, path).holder
        if holder is not None and holder.is_live:
            found[stage, name.removesuffix(".json")] = holder
    return found


@contextmanager
def hold_lease(
    store: HasBackend,
    stage: str,
    cache_key: str,
    *,
    holder: str,
    ttl_seconds: float = TIME_TO_LIVE,
    is_done: Callable[[], bool],
    say: Callable[[str], None],
) -> Iterator[bool]:
    """Have the lease of a key for the length of a block.

    Waits while another live holder has it, and says once who that is.

    Args:
        store: where leases are.
        stage: name of the stage.
        cache_key: what it builds.
        holder: names the run, for those who wait.
        ttl_seconds: how long a holder on another machine that died keeps it.
        is_done: whether there is nothing to build any more; asked while waiting.
        say: takes a line of text.

    Yields:
        True if it is held; False if `is_done` came true while another one had it.
    """
    lease = _Lease(store.backend, lease_path(stage, cache_key), holder, ttl_seconds)
    waited = _FIRST_LOOK
    said = False
    while (other := lease.take()) is not None:
        if is_done():
            yield False
            return
        if not said:
            said = True
            where = f"process {other.pid} on {other.host}"
            say(f"{stage}: {other.holder} ({where}) is building the same; waiting for it")
        time.sleep(waited)
        waited = min(2 * waited, _LONGEST_LOOK)
    lease.keep()
    try:
        yield True
    finally:
        lease.let_go()


class _Lease:
    """One taking of a lease."""

    def __init__(self, backend: StoreBackend, path: str, holder: str, ttl_seconds: float) -> None:
        me = this_process()
        self._backend, self._path, self._ttl = backend, path, ttl_seconds
        self._mine = Holder(
            holder=holder,
            host=me.host,
            system=me.system,
            pid=me.pid,
            process_start=me.started,
            expires_at=0,
            token=uuid.uuid4().hex,
        )
        self._stored: bytes | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self) -> Holder | None:
        """Take it if it is free; else its live holder."""
        while True:
            found = _read(self._backend, self._path)
            if found.holder is not None and found.holder.is_live:
                return found.holder
            if self._write(expected=found.stored):
                return None

    def _write(self, *, expected: bytes | None) -> bool:
        renewed = self._mine.model_copy(update={"expires_at": time.time() + self._ttl})
        data = sealed_json(renewed.model_dump())
        if not self._backend.swap(self._path, data, expected=expected):
            return False
        self._stored = data
        return True

    def keep(self) -> None:
        """Renew it until it is let go."""
        self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(self._ttl / 3):
            try:
                if not self._write(expected=self._stored):
                    _LOGGER.warning(
                        "the lease %s was taken over by another run; the first one to publish wins",
                        self._path,
                    )
                    return
            except Exception as error:  # the disk's or the network's; the next turn tries again
                _LOGGER.debug("the lease %s was not renewed: %s", self._path, error)

    def let_go(self) -> None:
        """Free it, if it is still ours."""
        self._ended.set()
        self._thread.join()
        try:
            if self._stored is not None:
                self._backend.remove(self._path, expected=self._stored)
        except Exception as error:  # what was built is there; the lease ends by itself
            _LOGGER.warning("the lease %s was not let go: %s", self._path, error)


def _read(backend: StoreBackend, path: str) -> _Found:
    try:
        stored = backend.read(path)
    except FileNotFoundError:
        return _Found(None, None)
    try:
        return _Found(stored, Holder.model_validate(read_sealed(stored).value))
    except ValueError:  # of which pydantic's are
        return _Found(stored, None)
