"""Counts add up, or the job does not finish."""

from __future__ import annotations

import pytest

from pipelines.counters import Counters, check_balance
from schemas.errors import CountMismatchError


def test_balanced_counts_pass() -> None:
    counters = Counters()
    counters.count("pages-in", 3)
    counters.count("pages-kept")
    counters.count("pages-dropped-redirect", 2)
    counters.count("pages-of-another-kind", 9)
    check_balance(counters, "pages", where="here")


def test_lost_record_is_an_error() -> None:
    counters = Counters({"pages-in": 5, "pages-kept": 3, "pages-dropped-empty": 1})
    with pytest.raises(CountMismatchError, match=r"here: pages .* 5 in, 3 kept.*empty 1.* 1 are"):
        check_balance(counters, "pages", where="here")


def test_surplus_record_is_an_error() -> None:
    with pytest.raises(CountMismatchError):
        check_balance({"pages-kept": 1}, "pages", where="here")
