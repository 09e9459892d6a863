"""Progress of training processes: a file that the process writes and its launcher reads.

The launcher draws a bar or logs lines, and notifies the listeners of the run. This module does not
load torch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.formatting import format_rounded_duration
from pipelines.progress import Listeners, ProgressUpdate
from pipelines.terminal import TerminalBar
from schemas.model_configs import BudgetConfig, BudgetUnit

_LOGGER = logging.getLogger(__name__)
_READ_SECONDS = 1.0
_WRITE_SECONDS = 1.0
_LINE_SECONDS = 15.0

PROGRESS_FILE = "reading.json"
"""Name of the file, in its folder, to which a training process writes its progress."""


@dataclass
class Amounts:
    """Amount of training in each unit of budgets; seconds are those of `loop.Stopwatch`."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def in_unit(self, unit: BudgetUnit) -> float:
        return {"steps": self.steps, "tokens": self.tokens, "minutes": self.seconds / 60}[unit]


class ProgressFile:
    """Progress of a process: one update, replaced at most once per second.

    A file that cannot be written is ignored.

    Args:
        path: File to write; None for none.
        job: Name of the job.
        unit, total: See `ProgressUpdate`.
        done: Work of earlier starts.
    """

    def __init__(
        self, path: Path | None, *, job: str, unit: str, total: float, done: float = 0.0
    ) -> None:
        self._path = path
        self._update = ProgressUpdate(job, done, total, unit, first=done)
        self._started = time.monotonic()
        self._written = -_WRITE_SECONDS
        self.write(done)

    def write(self, done: float, details: Sequence[str] = ()) -> None:
        """Write an update, unless the last one is too new; the last update is always written."""
        now = time.monotonic()
        is_too_soon = now - self._written < _WRITE_SECONDS and done < self._update.total
        if self._path is None or is_too_soon:
            return
        self._written = now
        update = self._update._replace(done=done, seconds=now - self._started, details=details)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps(update._asdict()), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            _LOGGER.debug("%s: cannot write %s: %s", update.job, self._path, error)
            self._path = None


class TrainingProgress:
    """Progress of a training, with details such as its loss, in a `ProgressFile`.

    Attributes:
        details: Texts to show next to the position, the most important first.

    Args:
        name: Name of the training, `pretrain.phase-1`.
        path: File to write. None: no file.
        budget: Budget in steps, tokens or minutes.
        done: Work of earlier starts of the run.
    """

    def __init__(
        self, name: str, *, path: Path | None, budget: BudgetConfig, done: Amounts
    ) -> None:
        self.details: Sequence[str] = ()
        self._unit, self._total = budget.unit, budget.size
        amount, unit = done.in_unit(self._unit), self._unit.removesuffix("s")
        self._file = ProgressFile(path, job=name, unit=unit, total=self._total, done=amount)

    def update(self, done: Amounts) -> None:
        """Write the work done so far, earlier starts included. Call it after each step."""
        amount = min(done.in_unit(self._unit), self._total)
        self._file.write(amount, [self._describe(done), *self.details])

    def _describe(self, done: Amounts) -> str:
        step = f"step {done.steps:,}"
        if self._unit == "steps":
            return f"{step} of {self._total:,.0f}"
        if self._unit == "tokens":
            return f"{step}, {done.tokens:,} tokens of {self._total:,.0f} tokens"
        return f"{step}, {done.seconds / 60:,.1f} min of {self._total:,.1f} min"


class _Display:
    """Bar of the job that a process works on; outside a terminal a log line every 15 s."""

    def __init__(self) -> None:
        self._bar: TerminalBar | None = None
        self._job = ""
        self._logged = time.monotonic()

    def show(self, update: ProgressUpdate) -> None:
        """Show an update, with the time left at the pace of this start."""
        if self._bar is None or update.job != self._job:
            self.close()
            self._bar, self._job = TerminalBar(update.job, total=update.total), update.job
        details, left = list(update.details), update.seconds_left()
        if details and left is not None:
            details.append(f"{format_rounded_duration(left)} left")
        self._bar.show(update.done, details)
        now = time.monotonic()
        if details and not self._bar.is_shown and now - self._logged >= _LINE_SECONDS:
            self._logged = now
            _LOGGER.info("%s: %s", update.job, ", ".join(details))

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


@contextlib.contextmanager
def forward_progress(folder: Path) -> Iterator[None]:
    """Show what a process writes to its `ProgressFile` in a folder, and notify the listeners.

    One bar is shown at a time: that of the job which the process works on.
    """
    listeners = Listeners()
    path = folder / PROGRESS_FILE
    path.unlink(missing_ok=True)
    stop = threading.Event()

    def follow() -> None:
        last, is_ending = "", False
        with contextlib.closing(_Display()) as display:
            while not is_ending:
                is_ending = stop.wait(_READ_SECONDS)
                with contextlib.suppress(OSError, ValueError, TypeError):
                    text = path.read_text(encoding="utf-8")
                    if text != last:
                        update = ProgressUpdate(**json.loads(text))
                        listeners.notify(update)
                        display.show(update)
                    last = text

    thread = threading.Thread(target=follow, name=f"progress-{path.parent.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
