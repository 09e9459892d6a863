"""Progress of training processes: a file that the process writes and its launcher reads.

The launcher draws the bar and notifies the listeners of the run. This module does not load torch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.progress import Listeners, ProgressUpdate
from pipelines.terminal import TerminalBar

_LOGGER = logging.getLogger(__name__)
_READ_SECONDS = 1.0
_WRITE_SECONDS = 1.0

PROGRESS_FILE = "reading.json"
"""Name of the file, in its folder, to which a training process writes its progress."""


class ProgressFile:
    """Progress of a training process: one update, replaced at most once per second.

    A file that cannot be written is ignored.
    """

    def __init__(self, path: Path | None, *, job: str, unit: str) -> None:
        """Describe the training. `path`: file to write, None for none."""
        self._path, self._job, self._unit = path, job, unit
        self._started = time.monotonic()
        self._written = -_WRITE_SECONDS
        self._first: float | None = None

    def write(self, done: float, *, total: float, details: Sequence[str] = ()) -> None:
        """Write an update, unless the last one is too new; the last update is always written."""
        if self._path is None:
            return
        if self._first is None:
            self._first, self._started = done, time.monotonic()
        now = time.monotonic()
        if now - self._written < _WRITE_SECONDS and done < total:
            return
        self._written = now
        update = ProgressUpdate(
            self._job,
            done,
            total,
            self._unit,
            seconds=now - self._started,
            first=self._first,
            details=details,
        )
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps(update._asdict()), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            _LOGGER.debug("%s: cannot write %s: %s", self._job, self._path, error)
            self._path = None


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
        last = ""
        is_ending = False
        with contextlib.ExitStack() as bars:
            bar, job = None, ""
            while not is_ending:
                is_ending = stop.wait(_READ_SECONDS)
                with contextlib.suppress(OSError, ValueError, TypeError):
                    text = path.read_text(encoding="utf-8")
                    if text != last:
                        update = ProgressUpdate(**json.loads(text))
                        listeners.notify(update)
                        if bar is None or update.job != job:
                            bars.close()
                            bar, job = TerminalBar(update.job, total=update.total), update.job
                            bars.callback(bar.close)
                        bar.show(update.done, update.details)
                    last = text

    thread = threading.Thread(target=follow, name=f"progress-{path.parent.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
