"""Runs of words, hashed: those of a stream of documents, and a table to look them up in.

The hash of a run is `sum(h[k] * BASE**(k - start))` modulo 2**64 over its words' hashes, which
running sums give for all runs at once, of whatever length: time is linear in the words, whatever
they are.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Bools, Int64s, UInt64s, offsets_of
from pipelines.documents.words import Words

_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_BITS_A_HASH = 16
_MOST_BITS = 27  # a filter of 16 MB
_BLOCK = 1 << 15  # words, whose arrays stay in a core's cache
_EMPTY = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))


class Runs(NamedTuple):
    """Runs of words in a stream."""

    starts: Int64s
    """Index of the first word of each."""

    ends: Int64s
    """Index behind the last."""

    values: npt.NDArray[Any]
    """Of each its hash, or its number in a table."""


class Stream:
    """Documents end to end, prepared for runs of any weight."""

    def __init__(self, words: Words) -> None:
        """`words.offsets` are the bounds of documents (or texts), no run crosses them."""
        count = len(words.hashes)
        powers, self._inverse = _powers(max(1 << 16, 1 << count.bit_length()))
        self._sums = np.zeros(count + 1, np.uint64)
        np.cumsum(words.hashes * powers[:count], out=self._sums[1:])
        self._bounds, self._count = words.offsets, count
        self._weights = offsets_of(words.weights)
        self._at = _first_at(self._weights)

    def all(self, weight: int) -> Runs:
        """From each word on the shortest run of at least this weight, where there is one."""
        runs = [self._runs(block, weight) for block in range(0, self._count, _BLOCK)]
        return self._within([Runs(*_EMPTY), *runs])

    def found(self, table: NgramTable) -> Runs:
        """Those that a table has, with their numbers."""
        runs = [Runs(*_EMPTY[:2], _EMPTY[0])]
        for block in range(0, self._count, _BLOCK):
            starts, ends, hashes = self._runs(block, table.weight)
            at, numbers = table.find(hashes)
            runs.append(Runs(starts[at], ends[at], numbers))
        return self._within(runs)

    def whole(self, rows: Int64s) -> Runs:
        """All words of some documents, a run each."""
        starts, ends = self._bounds[rows], self._bounds[rows + 1]
        return Runs(starts, ends, (self._sums[ends] - self._sums[starts]) * self._inverse[starts])

    def _runs(self, block: int, weight: int) -> Runs:
        """Of the words of a block, also over the ends of documents."""
        wanted = self._weights[block : min(block + _BLOCK, self._count)] + weight
        wanted = wanted[: np.searchsorted(wanted, len(self._at))]
        ends, stop = self._at[wanted], block + len(wanted)
        hashes = self._sums[ends] - self._sums[block:stop]
        hashes *= self._inverse[block:stop]
        return Runs(np.arange(block, stop), ends, hashes)

    def _within(self, runs: list[Runs]) -> Runs:
        starts, ends, values = map(np.concatenate, zip(*runs, strict=True))
        limits = self._bounds[np.searchsorted(self._bounds, starts, side="right")]
        fits = ends <= limits
        return Runs(starts[fits], ends[fits], values[fits])


def _first_at(weights: Int64s) -> Int64s:
    """Of each weight up to the last the first index from which on the sums are no less."""
    at = np.zeros(int(weights[-1]) + 1, np.int64)
    indices = np.arange(len(weights))
    at[np.maximum(weights - 1, 0)] = indices  # of a whole word; a half's is written over
    at[weights] = indices
    return at


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[UInt64s, UInt64s]:
    """BASE**0, BASE**1, ... modulo 2**64, and their inverses."""
    return tuple(
        np.cumprod(np.r_[np.uint64(1), np.full(count, base, np.uint64)])
        for base in (_BASE, pow(_BASE, -1, 1 << 64))
    )  # type: ignore[return-value]


class NgramTable(NamedTuple):
    """Distinct runs of one weight, to look others up among them."""

    weight: int
    first: int
    """Number of the first of them; the others follow."""

    hashes: UInt64s
    """Ascending."""

    filter: npt.NDArray[np.uint8]
    """A bit for each value of the hashes' first bits: whether any begins so."""

    @classmethod
    def of(cls, weight: int, first: int, hashes: UInt64s) -> Self:
        wanted = (_BITS_A_HASH * len(hashes)).bit_length()
        bits = min(_MOST_BITS, max(10, wanted))
        marked = np.zeros(1 << bits, np.bool_)
        marked[hashes >> np.uint64(64 - bits)] = True
        return cls(weight, first, hashes, np.packbits(marked, bitorder="little"))

    def find(self, hashes: UInt64s) -> tuple[Int64s, Int64s]:
        """Which of these hashes are in the table, and the number of each."""
        bits = (8 * len(self.filter)).bit_length() - 1
        begin = hashes >> np.uint64(64 - bits)
        maybe = np.flatnonzero(_are_set(self.filter, begin))
        at = np.searchsorted(self.hashes, hashes[maybe])
        at[at == len(self.hashes)] = 0
        found = self.hashes[at] == hashes[maybe]
        return maybe[found], at[found] + self.first


def _are_set(bits: npt.NDArray[np.uint8], numbers: UInt64s) -> Bools:
    bytes_ = bits[(numbers >> np.uint64(3)).view(np.int64)]
    marks: Bools = (bytes_ >> (numbers & np.uint64(7)).astype(np.uint8)) & np.uint8(1) != 0
    return marks
