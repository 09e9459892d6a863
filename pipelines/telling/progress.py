"""Progress of a running job: bars and lines for people, readings for whoever listens.

Of a job that fills a folder with shards the folder tells it, of one in a process of its own a small
file that the process writes. It looks from outside, so it works the same for a runner in this
process, in others, or in a data centre, and costs the workers nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import itertools
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import fsspec
from tqdm import tqdm

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_REMOTE_LOOK_SECONDS = 5.0  # each look is a request or more
_LINE_SECONDS = 15.0
_WRITE_SECONDS = 1.0

READING_FILE = "reading.json"
"""Where, in its own folder, a process that trains writes how far it is."""


class Reading(NamedTuple):
    """How far a job is."""

    job: str
    """What people call it."""

    done: float
    """How much of `total` is done, by earlier starts too."""

    total: float
    """0 if it is not known."""

    unit: str
    """`shard`, `step`, `token` or `minute`."""

    bytes: int = 0
    """Sum of the sizes of the finished shards, as written; 0 for trainings."""

    seconds: float = 0.0
    """Since this start of the job."""

    rows: int = 0
    """Rows of the finished shards (documents, instances); 0 for trainings, and in remote stores
    where the runner does not count them."""

    first: float = 0.0
    """What was done when it started."""

    def seconds_left(self) -> float | None:
        """At the pace so far; None while there is none."""
        if self.done <= self.first or not self.total:
            return None
        return max(0.0, self.total - self.done) * self.seconds / (self.done - self.first)


Listener = Callable[[Reading], None]
_LISTENERS: contextvars.ContextVar[tuple[Listener, ...]] = contextvars.ContextVar(
    "_LISTENERS", default=()
)


@contextlib.contextmanager
def listening(callback: Listener) -> Iterator[None]:
    """Hand readings of the jobs that start in this block, by this thread, to `callback`.

    It is called from other threads, about once a second a job, and at a job's end. It should
    return at once; one that raises is not called again.
    """
    token = _LISTENERS.set((*_LISTENERS.get(), callback))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


_STEP: contextvars.ContextVar[str] = contextvars.ContextVar("_STEP", default="")


@contextlib.contextmanager
def working_on(step: str) -> Iterator[None]:
    """Jobs that start in this block, by this thread, are called as the step is in the recipe."""
    token = _STEP.set(step)
    try:
        yield
    finally:
        _STEP.reset(token)


def step_name(otherwise: str) -> str:
    """What people call the step in progress, `pretrain.phase-1`; outside of one, what is given."""
    return _STEP.get() or otherwise


class Listeners:
    """Those of the block that a job starts in."""

    def __init__(self) -> None:
        self._callbacks = list(_LISTENERS.get())

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def tell(self, reading: Reading) -> None:
        """Call them all."""
        for callback in tuple(self._callbacks):
            try:
                callback(reading)
            except Exception as error:  # whoever watches must not stop the work
                _LOGGER.debug("%s: a listener is dropped: %r", reading.job, error)
                self._callbacks.remove(callback)


class Places:
    """Lines of the terminal, so that the bars of jobs that run side by side do not overlap.

    Jobs may be processes of their own, trainings for one: those of a terminal take their lines by
    locks on small files, which the system frees when a process ends.
    """

    def __init__(self) -> None:
        """None is taken by this process."""
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    @contextlib.contextmanager
    def taken(self) -> Iterator[int]:
        """The first line that nobody else of the terminal has, for this block."""
        with contextlib.ExitStack() as held:
            with self._lock:
                place = next(
                    place
                    for place in itertools.count()
                    if place not in self._taken and (place >= _MOST_PLACES or _locked(place, held))
                )
                self._taken.add(place)
            try:
                yield place
            finally:
                with self._lock:
                    self._taken.discard(place)


_MOST_PLACES = 16


def _locked(place: int, held: contextlib.ExitStack) -> bool:
    """Whether no other process of this terminal has a line; it is kept from them by `held` then."""
    try:
        terminal = os.ttyname(sys.stderr.fileno()).strip("/").replace("/", "-")
        path = Path(tempfile.gettempdir()) / f"bertloom-bar-{os.getuid()}-{terminal}-{place}"
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
    except (OSError, ValueError):
        return True  # no terminal, or nowhere to put the file: bars may overlap, and no more
    held.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


PLACES = Places()


_WATCHED: contextvars.ContextVar[Progress | None] = contextvars.ContextVar("_WATCHED", default=None)


def note_rows(rows: int) -> None:
    """Say how many rows the job of this thread has written, where its engine counts them."""
    if watched := _WATCHED.get():
        watched.rows = rows


class Progress:
    """Watches `folder` until the block ends; `total` shards are expected."""

    rows = 0
    """As an engine counts them."""

    def __init__(self, job: str, *, fs: fsspec.AbstractFileSystem, folder: str, total: int) -> None:
        self._job, self._fs, self._folder, self._total = job, fs, folder, total
        self._is_local = isinstance(fs, fsspec.get_filesystem_class("file"))
        self._listeners = Listeners()
        self._rows: dict[str, int] = {}
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"progress-{job}", daemon=True)

    def __enter__(self) -> Self:
        self._watched = _WATCHED.set(self)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _WATCHED.reset(self._watched)
        self._stop.set()
        self._thread.join()
        if kind is None and self._listeners and (last := self._look()) is not None:
            # Pieces need not come to a shard each: what is held out of one may be nothing.
            self._listeners.tell(last._replace(done=last.total))

    def _look(self) -> Reading | None:
        try:
            listed = self._fs.find(self._folder, detail=True).values()
        except Exception as error:  # an object store's client has errors of its own for it
            _LOGGER.debug("%s: cannot list %s: %s", self._job, self._folder, error)
            return None
        shards = [entry for entry in listed if entry["name"].endswith(".arrow")]
        return Reading(
            self._job,
            done=min(len(shards), self._total),
            total=self._total,
            unit="shard",
            bytes=sum(entry.get("size") or 0 for entry in shards),
            seconds=time.monotonic() - self._started,
            rows=self._count_rows([entry["name"] for entry in shards]) if self._listeners else 0,
        )

    def _count_rows(self, paths: list[str]) -> int:
        if not self._is_local:
            return self.rows  # each file would cost a request or two
        import pyarrow as pa  # start-up: 340 ms, with data sets
        import pyarrow.dataset as datasets  # start-up: 340 ms

        for path in paths:
            if path in self._rows:
                continue
            # A shard that is still being written is no Arrow file yet.
            with contextlib.suppress(OSError, pa.ArrowException):
                self._rows[path] = datasets.dataset(path, format="ipc").count_rows()
        return sum(self._rows.values())

    def _watch(self) -> None:
        in_terminal = sys.stderr.isatty()
        said = time.monotonic()
        with (
            PLACES.taken() as place,
            tqdm(
                total=self._total,
                desc=self._job,
                unit="shard",
                leave=False,
                disable=not in_terminal,
                position=place,
            ) as bar,
        ):
            while not self._stop.wait(_LOOK_SECONDS if self._is_local else _REMOTE_LOOK_SECONDS):
                reading = self._look()
                if reading is None:
                    continue
                bar.n = int(reading.done)
                bar.refresh()
                self._listeners.tell(reading)
                now = time.monotonic()
                if not in_terminal and now - said >= _LINE_SECONDS:
                    said = now
                    _LOGGER.info(
                        "%s: %d of %d shards%s after %.0f s",
                        self._job,
                        reading.done,
                        self._total,
                        f", {self.rows:,} rows" if self.rows else "",
                        reading.seconds,
                    )


class ReadingFile:
    """What a process of its own leaves of how far it is: one reading, replaced at most each second.

    A file that cannot be written is passed over: training goes on without it.
    """

    def __init__(self, path: Path | None, *, job: str, unit: str) -> None:
        """`path` is None where nobody reads it."""
        self._path, self._job, self._unit = path, job, unit
        self._started = time.monotonic()
        self._written = -_WRITE_SECONDS
        self._first: float | None = None

    def write(self, done: float, *, total: float) -> None:
        """Leave a reading, unless the last one is too new; the end is always left."""
        if self._path is None:
            return
        if self._first is None:
            self._first, self._started = done, time.monotonic()
        now = time.monotonic()
        if now - self._written < _WRITE_SECONDS and done < total:
            return
        self._written = now
        reading = Reading(
            self._job, done, total, self._unit, seconds=now - self._started, first=self._first
        )
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            beside.write_text(json.dumps(reading._asdict()), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            _LOGGER.debug("%s: cannot write %s: %s", self._job, self._path, error)
            self._path = None


@contextlib.contextmanager
def following(folder: Path) -> Iterator[None]:
    """Tell the listeners what a process that works in a folder writes to its `ReadingFile`."""
    listeners = Listeners()
    if not listeners:
        yield
        return
    path = folder / READING_FILE
    path.unlink(missing_ok=True)
    stop = threading.Event()

    def follow() -> None:
        last = ""
        is_ending = False
        while not is_ending:
            is_ending = stop.wait(_LOOK_SECONDS)
            with contextlib.suppress(OSError, ValueError, TypeError):
                text = path.read_text(encoding="utf-8")
                if text != last:
                    listeners.tell(Reading(**json.loads(text)))
                last = text

    thread = threading.Thread(target=follow, name=f"following-{path.parent.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
