"""Format sizes, durations, counts and tables as plain text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence


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


def align_columns(rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Return rows of cells as aligned lines; columns whose numbers are in `right` align right."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in itertools.zip_longest(*table, fillvalue="")]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in table
    ]
