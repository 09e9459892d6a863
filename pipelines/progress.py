"""Progress of running jobs: bars, log lines, and updates for listeners.

A local Beam job reports its work items to the `Progress` of its thread. A job on an engine has a
page there, with Beam's counters. `model.training.progress` reports trainings.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from pipelines.terminal import TerminalBar

_LOGGER = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_LINE_SECONDS = 15.0
_REPORT_SECONDS = 0.5
_MAX_UNFINISHED = 0.99


class ProgressUpdate(NamedTuple):
    """Progress of a job."""

    job: str
    """Name of the job or step."""

    done: float
    """Finished part of `total`, earlier starts included. Beam jobs count items by weight: half of
    `total` is half of the input."""

    total: float
    """Number of units; 0 if it is not known."""

    unit: str
    """`item`, `step`, `token` or `minute`."""

    seconds: float = 0.0
    """Seconds since this start of the job."""

    rows: int = 0
    """Rows of the finished shards (documents, instances). 0 for trainings."""

    first: float = 0.0
    """Value of `done` when the work started."""

    details: Sequence[str] = ()
    """Texts next to the bar of a training: step, loss, ..."""

    def seconds_left(self) -> float | None:
        """Return the remaining seconds at the average pace; None before there is one."""
        if self.done <= self.first or not self.total:
            return None
        return max(0.0, self.total - self.done) * self.seconds / (self.done - self.first)


Listener = Callable[[ProgressUpdate], None]
_LISTENERS: contextvars.ContextVar[tuple[Listener, ...]] = contextvars.ContextVar(
    "_LISTENERS", default=()
)


@contextlib.contextmanager
def progress_listener(callback: Listener) -> Iterator[None]:
    """Send updates of the jobs that this thread starts in the block to `callback`.

    Other threads call it about once per second and job, and at the end of a job. It should return
    at once; a callback that raises is not called again.
    """
    token = _LISTENERS.set((*_LISTENERS.get(), callback))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


_STEP: contextvars.ContextVar[str] = contextvars.ContextVar("_STEP", default="")


@contextlib.contextmanager
def step_scope(step: str) -> Iterator[None]:
    """Name the jobs that this thread starts in the block after a step of the recipe."""
    token = _STEP.set(step)
    try:
        yield
    finally:
        _STEP.reset(token)


def current_step_name(default: str) -> str:
    """Return the name of the step in progress, such as `pretrain.phase-1`, or the default."""
    return _STEP.get() or default


class Listeners:
    """Listeners of the block that a job starts in."""

    def __init__(self) -> None:
        self._callbacks = list(_LISTENERS.get())

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def notify(self, update: ProgressUpdate) -> None:
        """Call all listeners."""
        for callback in tuple(self._callbacks):
            try:
                callback(update)
            except Exception as error:  # a listener must not stop the work
                _LOGGER.debug("%s: dropping a listener: %r", update.job, error)
                self._callbacks.remove(callback)


# Beam jobs


class ItemProgress(NamedTuple):
    """Progress of a work item. Of two values the greater is the newer."""

    fraction: float
    """Part of the input that is done, in [0, 1]."""

    rows: int = 0
    """Rows of its shards, once it is finished."""


RecordItem = Callable[[int, ItemProgress], None]
"""Records the progress of an item of a job, by its number. For any thread."""

_RECORD_ITEM: contextvars.ContextVar[RecordItem | None] = contextvars.ContextVar(
    "_RECORD_ITEM", default=None
)
_ITEM: contextvars.ContextVar[int | None] = contextvars.ContextVar("_ITEM", default=None)
_last_report = 0.0


def current_record_item() -> RecordItem | None:
    """Return the function that records the items of this thread's job."""
    return _RECORD_ITEM.get()


def set_record_item(record_item: RecordItem) -> None:
    """Record all items that this thread processes."""
    _RECORD_ITEM.set(record_item)


@contextlib.contextmanager
def item_scope(number: int) -> Iterator[None]:
    """Report fractions as those of an item while the block runs."""
    token = _ITEM.set(number)
    try:
        yield
    finally:
        _ITEM.reset(token)


def report_fraction(fraction: float) -> None:
    """Report how much of its input the item in progress has read, in [0, 1]."""
    global _last_report
    number, record_item, now = _ITEM.get(), _RECORD_ITEM.get(), time.monotonic()
    if number is None or record_item is None or now - _last_report < _REPORT_SECONDS:
        return
    _last_report = now
    record_item(number, ItemProgress(min(fraction, _MAX_UNFINISHED)))


class Progress:
    """Progress of a local Beam job from the start to the end of its `with` block."""

    def __init__(self, job: str, *, weights: Mapping[int, int]) -> None:
        """Watch a job.

        Args:
            job: Name of the job.
            weights: Weight of each item, by number.
        """
        self._job, self._weights = job, weights
        self._total, self._total_weight = len(weights), sum(weights.values()) or 1
        self._items: dict[int, ItemProgress] = {}
        self._lock = threading.Lock()
        self._first: float | None = None
        self._listeners = Listeners()
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"progress-{job}", daemon=True)

    def record(self, number: int, progress: ItemProgress) -> None:
        """Note the progress of an item; it does not fall."""
        with self._lock:
            self._items[number] = max(progress, self._items.get(number, progress))

    def __enter__(self) -> Self:
        self._token = _RECORD_ITEM.set(self.record)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _RECORD_ITEM.reset(self._token)
        self._stop.set()
        self._thread.join()
        if kind is None:
            last = self._measure()
            self._listeners.notify(last._replace(done=last.total))

    def _measure(self) -> ProgressUpdate:
        with self._lock:
            items = dict(self._items)
        weight = sum(self._weights[number] * item.fraction for number, item in items.items())
        done = self._total * weight / self._total_weight
        if self._first is None and done:
            self._first = done
        return ProgressUpdate(
            self._job,
            done,
            self._total,
            unit="item",
            seconds=time.monotonic() - self._started,
            rows=sum(item.rows for item in items.values()),
            first=self._first or 0.0,
        )

    def _watch(self) -> None:
        logged = time.monotonic()
        with contextlib.closing(TerminalBar(self._job, total=self._total)) as bar:
            while not self._stop.wait(_POLL_SECONDS):
                update = self._measure()
                bar.show(update.done)
                self._listeners.notify(update)
                now = time.monotonic()
                if not bar.is_shown and now - logged >= _LINE_SECONDS:
                    logged = now
                    self._log(update)

    def _log(self, update: ProgressUpdate) -> None:
        left = update.seconds_left()
        _LOGGER.info(
            "%s: %.0f %% after %.0f s%s%s",
            self._job,
            100 * update.done / (self._total or 1),
            update.seconds,
            f", {update.rows:,} rows" if update.rows else "",
            "" if left is None else f", about {left:.0f} s left",
        )
