"""Making pairs of segments fit, by computation in place of a loop over tokens.

The reference (google-research/bert create_pretraining_data.py, lines 418-433) takes one token at a
time from the longer segment (from B where they are equal), from its front or its back with
probability 1/2 each. How many tokens each segment loses follows from the two lengths; how many of n
come off the front is the number of heads in n throws of a coin.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Int64s, ranges
from pipelines.seeds import random_bits


def lost_tokens(a_lengths: Int64s, b_lengths: Int64s, *, max_tokens: int) -> tuple[Int64s, Int64s]:
    """How many tokens A and B lose so that both together have at most `max_tokens`.

    The longer one loses first. Once they are equally long they take turns, beginning with B.
    """
    excess = np.maximum(a_lengths + b_lengths - max_tokens, 0)
    difference = a_lengths - b_lengths
    alone = np.minimum(excess, np.abs(difference))  # what the longer one loses
    both = excess - alone
    a_lost = np.where(difference > 0, alone, 0) + both // 2
    return a_lost, excess - a_lost


def heads(keys: npt.NDArray[np.uint64], throws: Int64s, *, counter: int) -> Int64s:
    """Number of heads in so many throws of a fair coin, exactly binomial(throws, 1/2).

    Args:
        keys: one a row.
        throws: at least 0. Row r uses the `ceil(throws[r] / 64)` counters from `counter` on.
        counter: the first of them.
    """
    words = (throws + 63) >> 6
    rows = np.repeat(np.arange(len(throws)), words)
    word = ranges(0, words)
    bits = random_bits(keys[rows], word + counter)
    unused = np.clip(64 * (word + 1) - throws[rows], 0, 63).astype(np.uint64)
    ones = np.bitwise_count(bits >> unused)
    return np.bincount(rows, weights=ones, minlength=len(throws)).astype(np.int64)
