"""Format sizes, durations, counts and tables as plain text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from model.formatting import format_percent

_METRIC = re.compile(
    r"(?:^|\.)(?:metrics|baseline|held_out|averages)\.|_(?:accuracy|fill|share|utilization)$"
    r"|^(?:entries|points)\..+\.(?:best|ensemble|majority|mean|sd)$"
)
"""Paths of ratios, losses and perplexities in an artifact's statistics."""


def format_bytes(size: int) -> str:
    """Return a number of bytes as text, in powers of 1000.

    >>> format_bytes(999), format_bytes(1_500_000_000)
    ('999 B', '1.5 GB')
    """
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def format_duration(seconds: float) -> str:
    """Return a duration as text.

    >>> format_duration(12.34), format_duration(245), format_duration(7620)
    ('12.3 s', '4 min 05 s', '2 h 07 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, singular or plural.

    >>> format_count(1, "step"), format_count(1_200, "step")
    ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_metric(name: str, value: float, *, sd: float | None = None) -> str:
    """Return a metric as the paper prints it: times 100, except losses and perplexities.

    >>> format_metric("f1", 0.3342, sd=0.012), format_metric("held_out.perplexity", 6.839)
    ('33.4 ± 1.2', '6.84')
    """
    if name.endswith(("loss", "perplexity")):
        return f"{value:,.2f}" if sd is None else f"{value:,.2f} ± {sd:,.2f}"
    return format_percent(value, sd)


def format_statistic(path: str, value: float) -> str:
    """Return a number of an artifact's statistics: a metric as `format_metric`, others as they are.

    >>> format_statistic("masked_share", 0.1547), format_statistic("vocab_size", 30522)
    ('15.5', '30,522')
    """
    if is_metric(path):
        return format_metric(path, value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def is_metric(path: str) -> bool:
    """Return whether a dotted path in an artifact's statistics is that of a metric or a ratio."""
    return _METRIC.search(path) is not None


def align_columns(rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Return rows of cells as aligned lines; columns whose numbers are in `right` align right.

    >>> align_columns([("a", "1"), ("bcd", "22")], right=(1,))
    ['a     1', 'bcd  22']
    """
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in itertools.zip_longest(*table, fillvalue="")]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in table
    ]


def format_time(timestamp: str) -> str:
    """Return an ISO timestamp without fractions of a second: `2026-01-31 12:00:00`."""
    return timestamp[:19].replace("T", " ")
