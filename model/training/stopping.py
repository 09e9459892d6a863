"""Stop requests: a signal, or the end of the parent process."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Self

_POLL_SECONDS = 1.0


class StopRequest:
    """First reason to stop. A training checks it after each step.

    As a context manager in the main thread it catches SIGTERM and SIGINT. A second SIGINT raises
    KeyboardInterrupt.

    Args:
        launcher: Process id; the end of this process is a reason to stop.
    """

    def __init__(self, *, launcher: int | None = None) -> None:
        self._launcher = launcher
        self._reason = ""
        self._closed = threading.Event()
        self._handlers: dict[int, object] = {}

    @property
    def reason(self) -> str:
        """Reason to stop, or ""."""
        return self._reason

    def request(self, reason: str) -> None:
        """Request a stop; the first reason is kept."""
        self._reason = self._reason or reason

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, self._on_signal)
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
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._reason and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.request(signal.Signals(number).name)

    def _watch(self, launcher: int) -> None:
        # A run that is killed cannot stop its training, which could continue for days.
        while _is_running(launcher):
            if self._closed.wait(_POLL_SECONDS):
                return
        self.request("the run that started the training has ended")


def _is_running(process: int) -> bool:
    try:
        if sys.platform == "linux":
            handle = os.pidfd_open(process)
            try:
                # Readable when the process has ended, also before its parent waits for it.
                return not select.select([handle], [], [], 0)[0]
            finally:
                os.close(handle)
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
