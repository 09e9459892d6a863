"""The terminal of a run: progress bars, and the lines above them.

One process writes to it. Its training processes send their progress and their lines to it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any, TextIO

from tqdm import tqdm

_BAR_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| "
_MIN_BAR_COLUMNS = 25
_CLEAR_BELOW = "\r\x1b[J"


class TerminalBar:
    """Progress bar of a job, removed when it is closed. Outside a terminal nothing is shown."""

    def __init__(self, job: str, *, total: float) -> None:
        self.is_shown = sys.stderr.isatty()
        self._bar: Any = tqdm(
            total=total,
            desc=job,
            leave=False,
            dynamic_ncols=True,
            disable=not self.is_shown,
            bar_format=_BAR_FORMAT,
        )

    def show(self, done: float, details: Sequence[str] = ()) -> None:
        """Draw the bar with the details that fit next to it. Default: the time spent and left."""
        if not self.is_shown:
            return
        bar = self._bar
        columns = bar.ncols  # None: unknown
        other_columns = len(f"{bar.desc}: 100%|| ") + _MIN_BAR_COLUMNS
        max_length = None if columns is None else int(columns) - other_columns
        text = fit_details(details, max_length=max_length) or "{elapsed}<{remaining}"
        bar.n, bar.bar_format = min(done, bar.total), _BAR_FORMAT + text
        bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


def fit_details(details: Sequence[str], *, max_length: int | None) -> str:
    """Return details in one line.

    Args:
        details: The most important first, except for the last, such as the time left.
        max_length: Maximum number of characters. Details before the last are dropped until the
            line fits; the first two and the last stay. None: no limit.
    """
    kept = list(details)
    while max_length is not None and len(", ".join(kept)) > max_length and len(kept) > 3:
        del kept[-2]
    return ", ".join(kept)


@contextlib.contextmanager
def lines_above_bars(stream: TextIO) -> Iterator[None]:
    """Remove the bars while the block writes lines to a stream, and draw them again below."""
    with tqdm.external_write_mode(file=stream):
        if stream.isatty():  # tqdm leaves the cursor behind a closed bar that was not the first
            stream.write(_CLEAR_BELOW)
        yield
        stream.flush()


class LogHandler(logging.StreamHandler[TextIO]):
    """Handler that writes log records to standard error, above the bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        with lines_above_bars(self.stream):
            super().emit(record)


def copy_lines(source: IO[bytes]) -> threading.Thread:
    """Write the lines of another process to standard error until its end, in a new thread."""

    def copy() -> None:
        with source:
            for line in source:
                text = line.decode(errors="replace").rstrip("\r\n")
                with lines_above_bars(sys.stderr):
                    sys.stderr.write(f"{text}\n")

    thread = threading.Thread(target=copy, name="worker-lines", daemon=True)
    thread.start()
    return thread
