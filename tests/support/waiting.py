"""Waits for other threads and processes, which a busy machine may leave without CPU for long."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

SECONDS = 300.0
"""Time limit: only a wait that never ends takes so long, however busy the machine is."""


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; fail after the time limit."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {SECONDS:.0f} s"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether a process runs. An orphan that has ended is a zombie until init reaps it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
