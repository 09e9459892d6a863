"""How far a fetch is: a bar in a terminal, elsewhere a plain line now and then; and readings."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tqdm import tqdm

from flows.formats import byte_text, time_text
from pipelines.telling.progress import Listeners, Reading

_LINE_SECONDS = 15.0
_READING_SECONDS = 1.0


class Arrivals:
    """Counts bytes that arrive, in any thread; a context manager.

    Args:
        total: bytes expected, those that are there already included.
        there: bytes that are there already, and will be told to `arrived` as well.
        say: is given the plain lines.
    """

    def __init__(self, name: str, *, total: int, there: int, say: Callable[[str], None]) -> None:
        self._name, self._total, self._say = name, total, say
        self._lock = threading.Lock()
        self._in_terminal = sys.stderr.isatty()
        self._listeners = Listeners()
        self._done, self._there = 0, there
        self._started = self._said = self._told = time.monotonic()
        self._bar = tqdm(
            total=total,
            desc=name,
            unit="B",
            unit_scale=True,
            leave=False,
            disable=not self._in_terminal,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
        self._tell(time.monotonic())

    def arrived(self, size: int) -> None:
        """So many bytes more are there; negative: some were given up."""
        with self._lock:
            self._done += size
            self._bar.update(size)
            now = time.monotonic()
            if self._listeners and now - self._told >= _READING_SECONDS:
                self._told = now
                self._tell(now)
            if self._in_terminal or now - self._said < _LINE_SECONDS:
                return
            self._said = now
            self._say(
                f"{self._name}: {byte_text(max(self._done, 0))} of {byte_text(self._total)} after "
                f"{time_text(now - self._started)}"
            )

    def _tell(self, now: float) -> None:
        self._listeners.tell(
            Reading(
                job=self._name,
                done=self._done,
                total=self._total,
                unit="byte",
                bytes=self._done,
                seconds=now - self._started,
                first=self._there,
            )
        )
