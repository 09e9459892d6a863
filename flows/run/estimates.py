"""Estimate of the time of a run, from earlier artifacts of the same stages in its store."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from flows.formatting import format_bytes, format_duration
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from flows.run.plan import PlannedStep

_LOW_DISK_BYTES = 2_000_000_000


def expected_seconds(earlier: Sequence[Manifest]) -> float | None:
    """Return the median wall time of earlier artifacts of a stage; None without one."""
    return median(item.produced_by.duration_seconds for item in earlier) if earlier else None


def format_estimate(planned: Sequence[PlannedStep]) -> str:
    """Return one line: the time of the steps to build, and the stages without an estimate.

    It is "" if there is no estimate at all, as before the first run in a store.
    """
    to_build = [step for step in planned if step.state != "cached"]
    seconds = [step.expected_seconds for step in to_build if step.expected_seconds is not None]
    unknown = Counter(
        step.label.partition(".")[0] for step in to_build if step.expected_seconds is None
    )
    if not seconds:
        return ""
    stages = ", ".join(f"{count:,} {stage}" for stage, count in unknown.items())
    more = f" (not counting {stages}, of which this store has no earlier artifacts)"
    return f"estimate: about {format_duration(sum(seconds))}{more if stages else ''}"


def low_disk_warning(folder: str) -> str:
    """Return a warning if the disk of a folder is nearly full; "" if not, and for a URL."""
    if "://" in folder:
        return ""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    if free >= _LOW_DISK_BYTES:
        return ""
    return f"warning: {folder}: the disk has {format_bytes(free)} left. `bertloom gc` frees space"
