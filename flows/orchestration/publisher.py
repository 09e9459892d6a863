"""A thread that publishes to Prefect what nobody waits for.

A server that hangs or restarts makes Prefect's client wait and try again. No stage may wait with
it: whatever is published is queued here, and dropped if it cannot be sent.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from queue import Full, Queue

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS = 0.02


class Publisher:
    """Does one job after the other in a thread of its own, and drops those that fail."""

    def __init__(self, *, longest: int = 200) -> None:
        """`longest` is how many jobs may wait; further ones are dropped."""
        self._jobs: Queue[tuple[contextvars.Context, Callable[[], object]]] = Queue(longest)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], object], *, context: contextvars.Context) -> None:
        """Have a job done in a context, such as that of a task run. Returns at once."""
        try:
            self._jobs.put_nowait((context.copy(), job))
        except Full:
            _LOGGER.debug("not told to Prefect, which does not keep up")
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)
                self._thread.start()

    def flush(self, *, seconds: float) -> bool:
        """Wait until all jobs are done, `seconds` at most; return whether they are."""
        deadline = time.monotonic() + seconds
        while self._jobs.unfinished_tasks:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _work(self) -> None:
        while True:
            context, job = self._jobs.get()
            try:
                context.run(job)
            except Exception as error:  # telling is a courtesy: no stage fails for it
                _LOGGER.debug("not told to Prefect: %r", error)
            finally:
                self._jobs.task_done()
