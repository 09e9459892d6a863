"""Which process on which machine holds something, and whether it is still there."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

_PS_SECONDS = 10


class ProcessName(NamedTuple):
    """Tells a process from every other, also from a later one with the same number."""

    host: str
    """Name of the machine."""

    system: str
    """Which start of which machine, and which of its process tables; "" where that is unknown."""

    pid: int
    process_start: str
    """When the process began, as its system counts; "" where that is unknown."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Read the name of a process from a run's record."""
        return cls(
            str(record.get("host", "")),
            str(record.get("system", "")),
            int(record.get("pid", 0)),
            str(record.get("process_start", "")),
        )

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this machine since its last start."""
        return (self.host, self.system) == (socket.gethostname(), system_name())

    @property
    def is_gone(self) -> bool:
        """Whether it has ended for certain; of another machine's nothing is known."""
        if not self.is_here:
            return False
        found = start_of(self.pid)
        return found is None or bool(self.process_start and found and found != self.process_start)


def this_process() -> ProcessName:
    """The process that asks."""
    pid = os.getpid()
    return ProcessName(socket.gethostname(), system_name(), pid, start_of(pid) or "")


@functools.cache
def system_name() -> str:
    """Two containers of one name, or one machine before and after a restart, differ in it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def start_of(pid: int) -> str | None:
    """When a process began, "" where that is unknown; None where there is none.

    One that was killed and whose parent has not noticed yet counts as gone.
    """
    try:
        # The name in brackets may itself have spaces and brackets.
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _start_without_proc(pid)
    return None if fields[0] in ("Z", "X") else fields[19]


def _start_without_proc(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # another user's, so it is there
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            ["ps", "-o", "state=,lstart=", "-p", str(pid)],  # noqa: S607 - the system's ps
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_PS_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    state, _, start = done.stdout.strip().partition(" ")
    return None if state.startswith("Z") else start.strip()
