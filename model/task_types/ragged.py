"""Rows of different lengths, end to end in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class Ragged(NamedTuple):
    """Rows of numbers."""

    values: Int64s
    offsets: Int64s
    """Row i has the values offsets[i] .. offsets[i + 1] - 1."""

    @property
    def lengths(self) -> Int64s:
        """Of each row."""
        return np.diff(self.offsets)


def offsets_of(lengths: npt.NDArray[np.integer] | Sequence[int]) -> Int64s:
    """Where rows of these lengths begin when put end to end, and where the last ends.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """start, start + 1, ... (length of them) for each pair, end to end.

    >>> ranges(np.array([7, 1]), np.array([2, 3])).tolist()
    [7, 8, 1, 2, 3]
    """
    offsets = offsets_of(lengths)
    positions: Int64s = np.repeat(starts - offsets[:-1], lengths)
    positions += np.arange(len(positions))
    return positions


def joined(parts: Sequence[Int64s]) -> Int64s:
    """Arrays end to end; an empty one of none."""
    return np.concatenate([np.empty(0, np.int64), *parts])
