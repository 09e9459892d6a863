"""Measure the available share of the CPU cores, and limit how long waiting threads spin.

OpenMP threads that wait for others spin: fast on an idle machine. On a busy machine they occupy the
core that the last thread needs, by default for longer than a time slice of the scheduler. Results
do not depend on it. This module does not load torch: OpenMP reads its environment when torch loads.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import MutableMapping
from typing import NamedTuple

SPIN_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Environment variables of the wait policy. If the user sets one, none is changed."""

_SPIN_COUNT, _SPIN_COUNT_BUSY = 20_000, 2_000  # GNU OpenMP
_BLOCK_TIME, _BLOCK_TIME_BUSY = 1, 0  # OpenMP of LLVM and Intel, in milliseconds

_BUSY_FRACTION = 0.7  # one process that never rests leaves two thirds of two cores
_PROBE_SECONDS = 0.2
_PROBE_BYTES = bytes(1 << 21)


class CoreShare(NamedTuple):
    """Available share of the CPU cores."""

    cores: int
    available_fraction: float
    """CPU time divided by elapsed time of one thread per core, 0 to 1."""

    @property
    def is_busy(self) -> bool:
        """True if waiting threads should sleep early, because other work needs the cores."""
        return self.available_fraction < _BUSY_FRACTION

    @property
    def text(self) -> str:
        """Available cores, and the expected slowdown of a busy machine."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        text = f"{self.available_fraction * self.cores:.1f} of {cores} available"
        if not self.is_busy:
            return text
        fraction = self.available_fraction
        slowdown = f", expect {1 / fraction:.1f} times the run time" if fraction else ""
        return f"{text}; other processes or a quota use the rest{slowdown}"


def measure_core_share(*, seconds: float = _PROBE_SECONDS) -> CoreShare:
    """Run one thread per core and compare its CPU time with the elapsed time.

    The result includes other processes, the quota of a container and the host of a virtual machine.
    The cores are those that this process may use, or OMP_NUM_THREADS.
    """
    cores = _count_cores()
    start = threading.Barrier(cores)
    times: list[tuple[float, float]] = []

    def run() -> None:
        start.wait()
        start_time, start_cpu = time.monotonic(), time.thread_time()
        while time.monotonic() - start_time < seconds:
            hashlib.sha256(_PROBE_BYTES)  # releases the interpreter lock
        times.append((time.thread_time() - start_cpu, time.monotonic() - start_time))

    threads = [threading.Thread(target=run, name="bertloom-cores") for _ in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fraction = sum(cpu for cpu, _ in times) / sum(elapsed for _, elapsed in times)
    return CoreShare(cores, min(1.0, fraction))


def _count_cores() -> int:
    try:
        return max(1, int(os.environ.get("OMP_NUM_THREADS", "")))
    except ValueError:  # not set, or one number per nesting level
        if sys.platform == "linux":
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


def limit_thread_spinning(environ: MutableMapping[str, str] = os.environ) -> CoreShare | None:
    """Make waiting threads of this process sleep early. Call it before torch is loaded.

    Args:
        environ: Environment to change, unless it has one of `SPIN_VARIABLES`.

    Returns:
        The measured share. None: torch is loaded, nothing was changed.
    """
    if "torch" in sys.modules:
        return None
    share = measure_core_share()
    if not any(name in environ for name in SPIN_VARIABLES):
        environ["GOMP_SPINCOUNT"] = str(_SPIN_COUNT_BUSY if share.is_busy else _SPIN_COUNT)
        environ["KMP_BLOCKTIME"] = str(_BLOCK_TIME_BUSY if share.is_busy else _BLOCK_TIME)
    return share
