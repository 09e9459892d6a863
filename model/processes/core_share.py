"""What share of the cores is really to be had, and threads that do not burn it while they wait.

torch's threads meet after each operation, thousands of times in a step, and those that are early
spin until the last one is there. On a quiet machine that is the fastest way to wait. Beside other
work the last one is often not running at all, and the spinning takes the core that it needs: by
GNU's OpenMP, which torch's own builds have, for 300,000 turns, longer than a turn of the scheduler.
What is computed does not depend on how threads wait. Loads no torch, whose OpenMP reads its
environment once, when it is loaded.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import MutableMapping
from typing import NamedTuple

OWN_CHOICE = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Environment variables that say how threads wait. One that the user has set is the last word."""

_SPINS, _SPINS_BUSY = 20_000, 2_000
_BLOCKTIME_MS, _BLOCKTIME_MS_BUSY = 1, 0
"""The same for the OpenMP of LLVM and Intel, which counts in milliseconds."""

_BUSY_SHARE = 0.7
"""Of two cores, one other process that never rests leaves two thirds."""

_PROBE_SECONDS = 0.2
_PROBE_BYTES = bytes(1 << 21)


class CoreShare(NamedTuple):
    """What of the cores there was to be had for a moment."""

    cores: int
    share: float
    """Of the time of as many threads as there are cores, that in which they ran, 0 to 1."""

    @property
    def is_busy(self) -> bool:
        """Whether other work takes so much that waiting threads should sleep early."""
        return self.share < _BUSY_SHARE

    @property
    def text(self) -> str:
        """For people: `1.9 of 2 cores are to be had`, and what it means if that is little."""
        cores = "1 core is" if self.cores == 1 else f"{self.cores} cores are"
        had = f"{self.share * self.cores:.1f} of {cores} to be had"
        if not self.is_busy:
            return had
        # Not one of them had a moment: then how much longer is not known.
        longer = f", so expect {1 / self.share:.1f} times the time" if self.share else ""
        return f"{had}: other work or a quota takes the rest{longer}"


def measured_share(*, seconds: float = _PROBE_SECONDS) -> CoreShare:
    """Keep every core busy for a moment, and see how much of it this process is given.

    That holds other processes, a container's quota and a virtual machine's neighbours alike. The
    cores are those that this process may run on, or as many as OMP_NUM_THREADS says.
    """
    cores = _cores()
    start = threading.Barrier(cores)
    found: list[tuple[float, float]] = []

    def run() -> None:
        start.wait()
        began, ran = time.monotonic(), time.thread_time()
        while time.monotonic() - began < seconds:
            hashlib.sha256(_PROBE_BYTES)  # computes without the interpreter's lock
        found.append((time.thread_time() - ran, time.monotonic() - began))

    threads = [threading.Thread(target=run, name="bertloom-cores") for _ in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    share = sum(ran for ran, _ in found) / sum(took for _, took in found)
    return CoreShare(cores, min(1.0, share))


def _cores() -> int:
    try:
        return max(1, int(os.environ.get("OMP_NUM_THREADS", "")))
    except ValueError:  # not set, or a list by nesting
        if sys.platform == "linux":
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


def bound_spinning(environ: MutableMapping[str, str] = os.environ) -> CoreShare | None:
    """Have this process's threads sleep soon when they wait; to be called before torch is loaded.

    Args:
        environ: is left as it is where the user has chosen, see `OWN_CHOICE`.

    Returns:
        What was measured to choose by; None where torch is loaded, and it is too late.
    """
    if "torch" in sys.modules:
        return None
    found = measured_share()
    if not any(name in environ for name in OWN_CHOICE):
        environ["GOMP_SPINCOUNT"] = str(_SPINS_BUSY if found.is_busy else _SPINS)
        environ["KMP_BLOCKTIME"] = str(_BLOCKTIME_MS_BUSY if found.is_busy else _BLOCKTIME_MS)
    return found
