"""Random draws that belong to one thing of the sample world, and are cheap enough for prose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from pipelines.seeds import Identity, key_for, uniform

T = TypeVar("T")

_BLOCK = 256


class Draws:
    """A stream of draws keyed by (seed, identity), the same on every machine and Python.

    Drawn in blocks from the counter-based generator of `pipelines.seeds`, so that a draw costs
    a list's `pop` and identities never share numbers.
    """

    def __init__(self, seed: int, *identity: Identity) -> None:
        self._key = np.asarray(key_for(seed, "sample", *identity), dtype=np.uint64)
        self._next_block = 0
        self._values: list[float] = []

    def _more(self) -> list[float]:
        start = self._next_block * _BLOCK
        counters = np.arange(start, start + _BLOCK, dtype=np.uint64)
        self._values += uniform(self._key, counters).tolist()
        self._next_block += 1
        return self._values

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        return int((self._values or self._more()).pop() * bound)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in `percent` of 100 draws."""
        return self.below(100) < percent

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, each as likely as the others."""
        return options[int((self._values or self._more()).pop() * len(options))]

    def some(self, options: Sequence[T], count: int = 1 << 30) -> list[T]:
        """`count` different ones (or all there are), in random order."""
        pool, below = list(options), self.below
        return [pool.pop(below(len(pool))) for _ in range(min(count, len(pool)))]


def fill(streams: Sequence[Draws]) -> None:
    """Draw the first block of many streams at once, for a tenth of what it costs one by one."""
    keys = np.array([stream._key for stream in streams])[:, None]
    blocks = uniform(keys, np.arange(_BLOCK, dtype=np.uint64)).tolist()
    for stream, block in zip(streams, blocks, strict=True):
        stream._values, stream._next_block = block, 1


class Deck(Draws):
    """Draws that pick an option again only when all the others have been picked."""

    def __init__(self, seed: int, *identity: Identity) -> None:
        super().__init__(seed, *identity)
        self._unused: dict[object, list[Any]] = {}

    def pick(self, options: Sequence[T]) -> T:
        unused: list[T] = self._unused.setdefault(tuple(options), [])
        unused += [] if unused else self.some(options)
        return unused.pop()
