"""Shared parts of the benchmarks: options, rounds in turn, CPU times and ratios."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def parser_for(doc: str | None, *, repeat: int | None = None) -> argparse.ArgumentParser:
    """Return a parser that describes itself by the first line of a module's docstring.

    Args:
        doc: Docstring of the benchmark.
        repeat: Default of the option `--repeat`; None for a benchmark without it.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    if repeat is not None:
        parser.add_argument(
            "--repeat", type=int, default=repeat, help="rounds (default %(default)s)"
        )
    return parser


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add `--data`, the folder of real dumps, books and tasks."""
    default = os.environ.get("BERTLOOM_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", type=Path, default=default, help="folder of the real data")


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process for a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def wall_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def take_turns(
    sides: Mapping[str, Callable[[], T]], *, repeat: int, warmup: int = 1
) -> dict[str, list[T]]:
    """Measure each side once per round.

    Args:
        sides: Function that measures, by the name of the side.
        repeat: Number of rounds.
        warmup: Number of rounds before those that count.

    Returns:
        The measurements of each side, one per round.
    """
    measurements: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(warmup + repeat):
        for name, measure in sides.items():
            measured = measure()
            if number >= warmup:
                measurements[name].append(measured)
    return measurements


def ratio(times: Sequence[float], peer_times: Sequence[float]) -> str:
    """Return how many times as fast as a peer: median, minimum and maximum over the rounds."""
    ratios = [theirs / ours for ours, theirs in zip(times, peer_times, strict=True)]
    return f"x{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def peak_memory(process_id: int | str = "self") -> int:
    """Return the peak of a process's own memory in bytes (Linux)."""
    status = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10
