"""Ratios as the paper prints them."""

from __future__ import annotations


def format_percent(ratio: float | None, sd: float | None = None) -> str:
    """Return a ratio times 100 with one decimal; "" for None.

    >>> format_percent(0.3342), format_percent(0.3342, sd=0.012)
    ('33.4', '33.4 ± 1.2')
    """
    if ratio is None:
        return ""
    text = f"{100 * ratio:.1f}"
    return text if sd is None else f"{text} ± {100 * sd:.1f}"
