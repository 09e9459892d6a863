"""Order of instances, and their distribution to ranks.

Everything is a function of (seed, position). The stream is endless: one shuffle of all instances
per epoch. A batch is the next instances of the stream, so no instance is lost, every batch is full,
and a run resumes from the number of instances that it has read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Int64s, UInt64s
from pipelines.seeds import key_for, random_bits

# Luby and Rackoff prove that four rounds suffice for wide halves. For halves of one and two bits,
# all orders of 5 and 6 elements are equally likely (chi squared test) from 16 rounds.
_ROUNDS, _ROUNDS_OF_SMALL, _SMALL_BITS = 6, 24, 10


def permute(
    indices: npt.NDArray[Any], size: int, *, key: int | npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Return the elements of a keyed permutation of 0 .. size-1 at these indices.

    A shuffle of 400 million instances so needs no table, and a run resumes in the middle of an
    epoch from a number. The permutation is a Feistel network (Luby, Rackoff, SIAM J. Comput. 17(2),
    1988) on the smallest power of two that covers the range, with SplitMix64 of `pipelines.seeds`
    as the round function. Values outside the range are permuted again until they fall inside (cycle
    walking: Black, Rogaway, CT-RSA 2002). Both steps are bijections.

    Args:
        indices: Indices from 0 to size-1, in any order, repeats allowed; shape (n,).
        size: 1 to 2**62.
        key: 64-bit key from `seeds.key_for`, or one per index, uint64 of shape (n,).

    Returns:
        int64 of shape (n,). Memory is proportional to n.
    """
    values = indices.astype(np.int64)
    if size == 1:
        return values
    # At least two bits, for two halves; at most 2 * size values, so that walks are short.
    bits = max(2, (size - 1).bit_length())
    rounds = _ROUNDS if bits > _SMALL_BITS else _ROUNDS_OF_SMALL
    # One row per round: shape (rounds, 1), or (rounds, n) with one key per index.
    counters = np.arange(rounds)[:, np.newaxis]
    round_keys = random_bits(np.atleast_1d(np.asarray(key, np.uint64)), counters)
    values = _encipher(values, bits, round_keys)
    outside = np.flatnonzero(values >= size)
    while len(outside):
        own_keys = round_keys[:, outside] if round_keys.shape[1] > 1 else round_keys
        again = _encipher(values[outside], bits, own_keys)
        values[outside] = again
        outside = outside[again >= size]
    return values


def _encipher(values: Int64s, bits: int, round_keys: UInt64s) -> Int64s:
    """Return elements of a permutation of 0 .. 2**bits - 1."""
    low_bits = bits // 2
    high_bits = bits - low_bits
    low = values & ((1 << low_bits) - 1)
    high = values >> low_bits
    for number, keys in enumerate(round_keys):
        if number % 2 == 0:
            high ^= _top(random_bits(keys, low), high_bits)
        else:
            low ^= _top(random_bits(keys, high), low_bits)
    high <<= low_bits
    high |= low
    return high


def _top(draws: UInt64s, bits: int) -> Int64s:
    draws >>= np.uint64(64 - bits)
    return draws.view(np.int64)


class StreamRows(NamedTuple):
    """Range of the endless stream of instances.

    Attributes:
        rows: Number of the instance at each position, int64.
        epochs: Epoch of each position, int64.
    """

    rows: Int64s
    epochs: Int64s


def stream_rows(start: int, count: int, *, size: int, seed: int) -> StreamRows:
    """Return positions start .. start+count-1 of the endless shuffled stream of 0 .. size-1.

    Position p is element p % size of epoch p // size. Every epoch is another permutation of all
    rows.
    """
    positions = np.arange(start, start + count, dtype=np.int64)
    epochs = positions // size
    keys: int | UInt64s
    if start // size == (start + count - 1) // size:  # one key for all is faster
        keys = key_for(seed, "instance-order", start // size)
    else:
        keys = keys_by_epoch(epochs, seed=seed, purpose="instance-order")
    return StreamRows(permute(positions % size, size, key=keys), epochs)


def keys_by_epoch(epochs: Int64s, *, seed: int, purpose: str) -> UInt64s:
    """Return `key_for(seed, purpose, epoch)` for each epoch; few of them are distinct."""
    if not len(epochs):
        return np.empty(0, np.uint64)
    first, last = int(epochs.min()), int(epochs.max())
    keys = [key_for(seed, purpose, epoch) for epoch in range(first, last + 1)]
    return np.array(keys, np.uint64)[epochs - first]


def rank_share(lengths: Int64s, *, rank: int, world_size: int) -> Int64s:
    """Return a rank's share of a global batch, longest instance first.

    Instances are assigned by descending length in serpentine order (0 1 2 2 1 0 0 1 2 ...), so that
    shares differ by at most one instance, and in tokens by at most the longest instance.

    Args:
        lengths: Tokens of the batch's instances, shape (B,).
        rank, world_size: Rank of this process and number of ranks.

    Returns:
        int64 indices into the batch.
    """
    order = np.argsort(-lengths, kind="stable")
    if world_size == 1:
        return order
    turn, seat = np.divmod(np.arange(len(lengths)), world_size)
    share: Int64s = order[np.where(turn % 2 == 0, seat, world_size - 1 - seat) == rank]
    return share
