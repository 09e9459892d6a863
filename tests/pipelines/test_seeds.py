"""Draws are functions of (seed, purpose, identity, counter) and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.seeds import integers, key_for, keys_for, random_bits, uniform

WIDTH = 1 << 64
U64 = st.integers(0, WIDTH - 1)


def splitmix(key: int, counter: int) -> int:
    """SplitMix64 as published, in Python's integers."""
    state = (key + (counter + 1) * 0x9E3779B97F4A7C15) % WIDTH
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % WIDTH
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % WIDTH
    return state ^ (state >> 31)


def test_first_draws_are_those_of_splitmix64() -> None:
    # The published test vector: seed 1234567.
    bits = random_bits(np.full(3, 1234567, np.uint64), np.arange(3))
    assert bits.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.lists(U64, max_size=5), st.integers(0, 1 << 40))
def test_bits_are_splitmix64_of_each_key(keys: list[int], counter: int) -> None:
    bits = random_bits(np.array(keys, np.uint64), counter)
    assert bits.tolist() == [splitmix(key, counter) for key in keys]


def test_keys_and_counters_broadcast() -> None:
    keys, counters = np.arange(3, dtype=np.uint64)[:, None], np.arange(4)
    bits = random_bits(keys, counters)
    assert bits.shape == (3, 4)
    assert bits[2, 1] == splitmix(2, 1)
    assert random_bits(keys[:0], 0).shape == (0, 1)


def test_uniform_is_even_and_below_one() -> None:
    draws = uniform(np.array([key_for(0, "test")], np.uint64), np.arange(100_000))
    assert 0.0 <= draws.min() < draws.max() < 1.0
    assert np.histogram(draws, 10, (0, 1))[0] == pytest.approx(10_000, abs=400)


@pytest.mark.parametrize("below", [1, 2, 3, 1000, (1 << 32) - 1, 1 << 32])
def test_integers_stay_below_even_for_the_largest_draw(below: int) -> None:
    assert int((1 - 2.0**-53) * below) == below - 1
    draws = integers(np.arange(2000, dtype=np.uint64), 5, below=below)
    assert 0 <= draws.min() <= draws.max() < below
    if below <= 3:
        assert set(draws.tolist()) == set(range(below))


def test_identities_do_not_run_into_each_other() -> None:
    keys = {
        key_for(0, "a", "bc"),
        key_for(0, "ab", "c"),
        key_for(0, "a", "b", "c"),
        key_for(1, "a", "bc"),
        key_for(0, "a", "bc", 1),
        key_for(0, "a", "bc", 11),
    }
    assert len(keys) == 6


def test_keys_stay_what_they_were() -> None:
    # Instances written by one version are made again, bit for bit, by the next.
    assert f"{key_for(3, 'instances', 'wiki/12', 0):016x}" == "ffdc1991d88e1ad0"


@given(st.integers(0, 1 << 62), st.lists(st.text(max_size=5)), st.lists(st.integers(0, 9)))
def test_keys_of_many_names_are_those_of_each(seed: int, names: list[str], last: list[int]) -> None:
    keys = keys_for(seed, "test", names, *last)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [key_for(seed, "test", name, *last) for name in names]
