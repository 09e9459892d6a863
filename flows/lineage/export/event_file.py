"""The events of a run as lines of JSON in the store, written one by one as they happen.

    runs/RUN_ID/openlineage.ndjson      all events of a run in a local store
    runs/RUN_ID/openlineage.*.ndjson    further files, where none can be appended to

A local file is appended to under a lock, each time by one write. Object stores know no appending:
there each process has small files of its own, and puts one whole each time. Either way every event
that was written stays, whatever happens to the process afterwards. Each line carries its own digest
(`schemas.sealed`), which is no part of the event and is not sent to servers.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactNotFoundError
from schemas.sealed import read_sealed, sealed_line

_NAME = "openlineage"
_SUFFIX = ".ndjson"
_PART_BYTES = 64 << 10  # files that are put whole are small, so that no run uploads megabytes


class RecordedEvent(NamedTuple):
    """An event as it was written."""

    path: str
    """The file, relative to the root of the store."""

    line: int
    """From 1."""

    event: dict[str, Any]


class Recorded(NamedTuple):
    """What was found of a run's events."""

    events: list[RecordedEvent]
    """In the order of time; those of one file in the order of its lines."""

    problems: list[str]
    """Lines that are no events, such as one that a crash cut off."""


def write_events(
    store: ArtifactStore, run_id: str, lines: Iterable[str], *, durable: bool = False
) -> None:
    """Add events to those of a run. Any number of threads and processes may do so.

    Args:
        store: the store of the run.
        run_id: the run.
        lines: JSON objects without line breaks; all are there when this returns.
        durable: wait until a power cut could not take them (local stores).

    Raises:
        OSError: they cannot be written; then none of them is there.
    """
    data = "".join(f"{sealed_line(line)}\n" for line in lines).encode()
    path = f"runs/{run_id}/{_NAME}{_SUFFIX}"
    if store.backend.is_local:
        _append(Path(store.url(path)), data, durable=durable)
        return
    key = (os.getpid(), store.root, path)  # a forked process must not write its parent's file
    with _PUT_LOCK:
        file = _PUT.setdefault(key, _PutFile(store, path))
    file.append(data)


def _append(path: Path, data: bytes, *, durable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data  # a line that a crash cut off must not take this one with it
        try:
            left = memoryview(data)
            while left:  # after a short write, the next one raises the reason
                left = left[os.write(handle, left) :]
        except OSError as error:
            os.ftruncate(handle, size)
            raise OSError(error.errno, error.strerror, str(path)) from error
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)  # which ends the lock


class _PutFile:
    """What this process wrote of a run's events, put again with each that is added."""

    def __init__(self, store: ArtifactStore, path: str) -> None:
        self._backend = store.backend
        self._first = self._path = path
        self._is_mine = False
        self._data = b""
        self._lock = threading.Lock()

    def append(self, data: bytes) -> None:
        with self._lock:
            if len(self._data) >= _PART_BYTES:
                self._begin_another()
            data = self._data + data
            if not self._is_mine and self._backend.put_if_absent(self._path, data):
                self._is_mine = True
            else:
                if not self._is_mine:  # another process has the first name
                    self._begin_another()
                self._backend.replace(self._path, data)
            self._data = data

    def _begin_another(self) -> None:
        self._path = f"{self._first.removesuffix(_SUFFIX)}.{uuid.uuid4().hex}{_SUFFIX}"
        self._is_mine, self._data = True, b""


_PUT: dict[tuple[int, str, str], _PutFile] = {}
_PUT_LOCK = threading.Lock()


def read_events(store: ArtifactStore, run_id: str) -> Recorded:
    """All events of a run.

    Raises:
        ArtifactNotFoundError: there are none.
    """
    folder = f"runs/{run_id}"
    paths = [
        path
        for path in store.backend.names(folder)
        if path.startswith(f"{folder}/{_NAME}.") and path.endswith(_SUFFIX)
    ]
    if not paths:
        raise ArtifactNotFoundError(
            f"{store.root}: no lineage events of a run {run_id!r}; `bertloom runs` lists the runs"
        )
    problems: list[str] = []
    files = [_lines(store, path, problems) for path in paths]
    merged = heapq.merge(*files, key=lambda found: str(found.event.get("eventTime", "")))
    return Recorded(list(merged), problems)


def _lines(store: ArtifactStore, path: str, problems: list[str]) -> list[RecordedEvent]:
    found = []
    lines = store.backend.read(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            found.append(RecordedEvent(path, number, read_sealed(line)))
        except ValueError as error:  # UnicodeDecodeError is one
            cut = " (the file ends in it: its writer was stopped)" if number == len(lines) else ""
            problems.append(
                f"{store.url(path)}:{number}: expected an event as JSON{cut}; passed over: {error}"
            )
    return found
