"""The events of a run as lines of JSON in the store, written one by one as they happen.

    runs/RUN_ID/openlineage.ndjson      all events of a run in a local store
    runs/RUN_ID/openlineage.*.ndjson    further files, where none can be appended to

A local file is appended to under a lock, each time by one write. Object stores know no appending:
there each process has small files of its own, and puts one whole each time. Either way every event
that was written stays, whatever happens to the process afterwards. Each line carries its own digest
(`schemas.sealed`), which is no part of the event and is not sent to servers.
"""

from __future__ import annotations

import errno
import fcntl
import heapq
import os
import threading
import uuid
from collections.abc import Sequence
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
    """Of the file, relative to the root of the store."""

    line: int
    """From 1."""

    event: dict[str, Any]


class Recorded(NamedTuple):
    """What was found of a run's events."""

    events: list[RecordedEvent]
    """In the order of time; those of one file in the order of its lines."""

    problems: list[str]
    """Lines that are no events, such as one that a crash cut off."""


class EventFile:
    """Where the events of a run go. Any number of threads and processes may write to it."""

    def __init__(self, store: ArtifactStore, run_id: str) -> None:
        self._store = store
        self._path = f"{_folder(run_id)}/{_NAME}{_SUFFIX}"

    def append(self, lines: Sequence[str], *, durable: bool = False) -> None:
        """Write lines, without line breaks in them; all are there when this returns.

        Args:
            lines: JSON objects.
            durable: wait until a power cut could not take them (local stores).

        Raises:
            OSError: they cannot be written; then none of them is there.
        """
        data = "".join(f"{sealed_line(line)}\n" for line in lines).encode()
        backend = self._store.backend
        if backend.is_local:
            _append(Path(backend.url(self._path)), data, durable=durable)
            return
        _written_here(self._store, self._path).append(data)


def _append(path: Path, data: bytes, *, durable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data  # a line that a crash cut off must not take this one with it
        written = os.write(handle, data)
        if written != len(data):
            os.ftruncate(handle, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)  # which ends the lock


class _WholeText:
    """What this process wrote of a run's events, put again with each that is added."""

    def __init__(self, store: ArtifactStore, path: str) -> None:
        self._backend = store.backend
        self._first = self._path = path
        self._is_mine = False
        self._text = b""
        self._lock = threading.Lock()

    def append(self, data: bytes) -> None:
        with self._lock:
            if len(self._text) >= _PART_BYTES:
                self._begin_another()
            text = self._text + data
            if not self._is_mine and self._backend.create(self._path, text):
                self._is_mine = True
            else:
                if not self._is_mine:  # another process has the first name
                    self._begin_another()
                self._backend.replace(self._path, text)
            self._text = text

    def _begin_another(self) -> None:
        self._path = f"{self._first.removesuffix(_SUFFIX)}.{uuid.uuid4().hex}{_SUFFIX}"
        self._is_mine, self._text = True, b""


_TEXTS: dict[tuple[int, str, str], _WholeText] = {}
_TEXTS_LOCK = threading.Lock()


def _written_here(store: ArtifactStore, path: str) -> _WholeText:
    key = (os.getpid(), store.root, path)  # a forked process must not write its parent's file
    with _TEXTS_LOCK:
        return _TEXTS.setdefault(key, _WholeText(store, path))


def read_events(store: ArtifactStore, run_id: str) -> Recorded:
    """All events of a run.

    Raises:
        ArtifactNotFoundError: there are none.
    """
    paths = [
        path
        for path in store.backend.names(_folder(run_id))
        if path.rpartition("/")[2].startswith(f"{_NAME}.") and path.endswith(_SUFFIX)
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
    stored = store.backend.read(path)
    lines = stored.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            found.append(RecordedEvent(path, number, read_sealed(line).value))
        except ValueError as error:  # UnicodeDecodeError is one
            cut = " (the file ends in it: its writer was stopped)" if number == len(lines) else ""
            problems.append(
                f"{store.url(path)}:{number}: expected an event as JSON{cut}; passed over: {error}"
            )
    return found


def _folder(run_id: str) -> str:
    return f"runs/{run_id}"
