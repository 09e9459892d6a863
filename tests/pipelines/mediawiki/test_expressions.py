"""`pipelines.mediawiki.expressions`: the arithmetic of `{{#expr:...}}`."""

# ruff: noqa: RUF001 - signs that editors write
from __future__ import annotations

import pytest

from pipelines.mediawiki.expressions import evaluate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1000 + 234 * 2", "1468"),
        ("(1+2)*3", "9"),
        ("1/3", "0.33333333333333"),
        ("0.1 + 0.2", "0.3"),
        ("10 / 4 round 0", "3"),
        ("-2.5 round 0", "-3"),
        ("1234567 / 89 round -2", "13900"),
        ("17 mod 5", "2"),
        ("17 div 4", "4.25"),
        ("2^3^2", "64"),
        ("- 3 + 5", "2"),
        ("7 − 2 × 3", "1"),
        ("abs(-4) + floor 2.7 + ceil 2.1", "9"),
        (" 5 ", "5"),
    ],
)
def test_value_is_that_of_mediawiki(expression: str, value: str) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "a", "1 2", "1 +", "+", "(1", "1)", "()", "1/0", "5 mod 0", "(-8)^0.5", "floor (-8)^0.5",
     "10^400", "9^9^9^9", "1,000", "1 + {x}", "(" * 5000, "1+" * 5000 + "1"],
)  # fmt: skip
def test_no_value_without_number(expression: str) -> None:
    assert evaluate(expression) == ""
