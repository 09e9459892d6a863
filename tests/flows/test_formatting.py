"""Numbers and tables as text."""

from __future__ import annotations

import pytest

from flows.formatting import align_columns, format_bytes, format_duration


def test_columns_are_aligned() -> None:
    assert align_columns([("a", "1"), ("bcd", "22")], right=(1,)) == ["a     1", "bcd  22"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_500_000_000_000, "2.5 TB")]
)
def test_format_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.26, "1.3 s"), (245.2, "4 min 05 s"), (7620, "2 h 07 min")]
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
