"""Computed losses are those of a loop that takes one token at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.instances.truncation import heads, lost_tokens
from pipelines.seeds import random_bits


def _loop(a: int, b: int, max_tokens: int) -> tuple[int, int]:
    lost_a = lost_b = 0
    while a - lost_a + b - lost_b > max_tokens:
        if a - lost_a > b - lost_b:
            lost_a += 1
        else:
            lost_b += 1
    return lost_a, lost_b


@given(st.integers(1, 300), st.integers(0, 300), st.integers(2, 300))
def test_losses_are_those_of_a_loop(a: int, b: int, max_tokens: int) -> None:
    a_lost, b_lost = lost_tokens(np.array([a]), np.array([b]), max_tokens=max_tokens)
    assert (int(a_lost[0]), int(b_lost[0])) == _loop(a, b, max_tokens)


@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, 300)), max_size=6))
def test_heads_count_single_bits(rows: list[tuple[int, int]]) -> None:
    keys = np.array([key for key, _ in rows], np.uint64)
    expected = []
    for key, throws in rows:
        bits = "".join(
            f"{int(random_bits(np.array([key], np.uint64), 7 + word)[0]):064b}"
            for word in range((throws + 63) // 64)
        )
        expected.append(bits[:throws].count("1"))
    counts = np.array([number for _, number in rows], np.int64)
    assert heads(keys, counts, counter=7).tolist() == expected


def test_heads_are_binomial() -> None:
    found = heads(np.arange(20_000, dtype=np.uint64), np.full(20_000, 100), counter=0)
    assert found.mean() == pytest.approx(50, abs=0.2)
    assert found.var() == pytest.approx(25, abs=1.2)
