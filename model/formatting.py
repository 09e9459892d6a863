"""Percentages and durations as text."""

from __future__ import annotations


def format_percent(ratio: float | None, sd: float | None = None) -> str:
    """Return a ratio times 100 with one decimal, as in the paper; "" for None.

    >>> format_percent(0.3342), format_percent(0.3342, sd=0.012)
    ('33.4', '33.4 ± 1.2')
    """
    if ratio is None:
        return ""
    text = f"{100 * ratio:.1f}"
    return text if sd is None else f"{text} ± {100 * sd:.1f}"


def format_rounded_duration(seconds: float) -> str:
    """Return a duration in its two largest units: 40 s, 3 min, 2 h 07 min, 4 d 3 h."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
