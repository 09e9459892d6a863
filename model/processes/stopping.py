"""Knowing when to stop: a signal, or the end of the process that this one works for."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_LOOK_SECONDS = 1.0


class StopRequest:
    """Remembers the first reason to stop; training looks at it after each step.

    Use as a context manager in the main thread: SIGTERM and SIGINT are caught while it is open. A
    second SIGINT interrupts at once.
    """

    def __init__(self, *, launcher: int | None = None) -> None:
        """`launcher` is the id of the process whose end is a reason to stop as well."""
        self._launcher = launcher
        self._reason = ""
        self._closed = threading.Event()
        self._before: dict[int, object] = {}

    @property
    def reason(self) -> str:
        """Why to stop, "" for no reason."""
        return self._reason

    def ask(self, reason: str) -> None:
        """Ask for a stop; the first reason counts."""
        self._reason = self._reason or reason

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._on_signal)
        if self._launcher is not None:
            threading.Thread(
                target=self._watch, args=(self._launcher,), name="watch-launcher", daemon=True
            ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._reason and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.ask(signal.Signals(number).name)

    def _watch(self, launcher: int) -> None:
        # A run that is killed cannot tell its training to stop; left alone, that would go on
        # for days with nobody to take its result.
        if hasattr(os, "pidfd_open"):
            try:
                handle = os.pidfd_open(launcher)
            except ProcessLookupError:
                self.ask("the run that started the training has ended")
                return
            try:
                while not self._closed.is_set():
                    if select.select([handle], [], [], _LOOK_SECONDS)[0]:
                        self.ask("the run that started the training has ended")
                        return
            finally:
                os.close(handle)
        while not self._closed.wait(_LOOK_SECONDS):
            if not _is_alive(launcher):
                self.ask("the run that started the training has ended")
                return


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
