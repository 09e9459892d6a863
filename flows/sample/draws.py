"""Random draws that belong to one thing of the sample world, and are cheap enough for prose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from pipelines.seeds import Identity, key_for, uniform

T = TypeVar("T")

_BLOCK = 256


class Draws:
    """A stream of draws keyed by (seed, identity), the same on every machine and Python.

    Drawn in blocks from the counter-based generator of `pipelines.seeds`, so that a draw costs
    a list's `pop` and identities never share numbers.
    """

    __slots__ = ("_key", "_next_block", "_values")

    def __init__(self, seed: int, *identity: Identity) -> None:
        self._key = np.uint64(key_for(seed, "sample", *identity))
        self._next_block = 0
        self._values: list[float] = []

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        if not self._values:
            start = self._next_block * _BLOCK
            counters = np.arange(start, start + _BLOCK, dtype=np.uint64)
            self._values = uniform(np.asarray(self._key), counters).tolist()
            self._next_block += 1
        return int(self._values.pop() * bound)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in `percent` of 100 draws."""
        return self.below(100) < percent

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, each as likely as the others."""
        return options[self.below(len(options))]

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """`count` different ones (or all there are), in random order."""
        pool = list(options)
        return [pool.pop(self.below(len(pool))) for _ in range(min(count, len(pool)))]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """All the options, in random order."""
        return self.some(options, len(options))
