"""Identity of a process, and whether it still runs."""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path

import psutil

from flows.store.records import Record

_START_TOLERANCE = 1.0
"""Seconds. Clock adjustments move the boot time that psutil subtracts."""


class ProcessIdentity(Record):
    """Identity of a process, distinct from later processes with the same number.

    Run records and leases extend it by what the process does.
    """

    host: str
    """Name of the machine."""

    system: str
    """Boot id and process namespace, "" if unknown. Distinguishes containers and restarts."""

    pid: int
    process_start: float
    """Start of the process in seconds after boot."""

    @property
    def is_here(self) -> bool:
        """True if it is a process of this machine since its last boot."""
        return (self.host, self.system) == (socket.gethostname(), _system())

    @property
    def is_gone(self) -> bool:
        """True if it has certainly ended. False for processes of other machines."""
        if not self.is_here:
            return False
        start = start_of(self.pid)
        return start is None or abs(start - self.process_start) >= _START_TOLERANCE


def this_process() -> ProcessIdentity:
    """Return the identity of the current process."""
    pid = os.getpid()
    return ProcessIdentity(
        host=socket.gethostname(), system=_system(), pid=pid, process_start=start_of(pid) or 0.0
    )


def start_of(pid: int) -> float | None:
    """Return when a process started, in seconds after boot. None if it does not run.

    A killed process that its parent has not waited for does not run.
    """
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return round(float(process.create_time() - psutil.boot_time()), 2)
    except psutil.NoSuchProcess:
        return None


@functools.cache
def _system() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
