"""Hash the n-grams of words.

The hash of an n-gram is `sum(h[k] * BASE**(k - start))` modulo 2**64 over the hashes of its words.
Cumulative sums give the hashes of all n-grams of any length in linear time.
"""

from __future__ import annotations

import numpy as np

from pipelines.arrays import Int64s, UInt64s, offsets_of
from pipelines.documents.word_hashes import Words

_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64


class WordStream:
    """Words of texts, end to end. No n-gram crosses the end of a text."""

    def __init__(self, words: Words) -> None:
        """Prepare the words; `words.offsets` are the bounds of the texts."""
        count = len(words.hashes)
        self._inverses = _powers(pow(_BASE, -1, 1 << 64), count)
        self._sums = np.zeros(count + 1, np.uint64)
        np.cumsum(words.hashes * _powers(_BASE, count), out=self._sums[1:])
        # Weight of all words before each word, and the index of the word that reaches a weight.
        self._weights = offsets_of(words.weights)
        self._index = np.repeat(np.arange(count + 1), np.r_[1, words.weights])
        ends = self._weights[words.offsets]
        self.sizes: Int64s = np.diff(ends)
        """Weight of each text."""

        lengths = np.diff(words.offsets)
        self.texts = np.repeat(np.arange(len(lengths)), lengths)
        """Text of each word."""

        self._limits = ends[self.texts + 1]

    def ngrams(self, weight: int | Int64s) -> tuple[Int64s, Int64s, UInt64s]:
        """Return the shortest n-gram of at least this weight at each word, if the text has one.

        Args:
            weight: Number of half words: one number, or one for each word of the stream.

        Returns:
            starts: Index of the first word of each n-gram, ascending.
            ends: Index after its last word.
            hashes: Its hash.
        """
        reached = self._weights[:-1] + weight
        starts = np.flatnonzero(reached <= self._limits)
        ends = self._index[reached[starts]]
        return starts, ends, (self._sums[ends] - self._sums[starts]) * self._inverses[starts]


def _powers(base: int, count: int) -> UInt64s:
    """Return base**0, base**1, ... modulo 2**64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)
