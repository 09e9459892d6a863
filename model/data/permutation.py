"""A shuffle of any size that is computed, not stored.

`permuted` gives single places of a keyed permutation of 0 .. size-1, so that 400 million instances
are shuffled without a table of them and a run goes on in the middle of an epoch by a number. It is
a Feistel network (Luby, Rackoff, SIAM J. Comput. 17(2), 1988) on the smallest power of two that
holds the range, its rounds SplitMix64 of `pipelines.seeds`; a value outside the range is sent
through again until it falls inside (cycle walking: Black, Rogaway, CT-RSA 2002). Both steps keep
it a bijection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Int64s, UInt64s
from pipelines.seeds import key_for, random_bits

# Luby and Rackoff prove four for wide halves. Measured over all orders of 5 and of 6 things: with
# halves of one and two bits it takes 16 rounds before they are equally likely (chi squared).
_ROUNDS, _ROUNDS_OF_SMALL, _SMALL_BITS = 6, 24, 10
_LARGEST = 1 << 62


def permuted(
    indices: npt.NDArray[Any], size: int, *, key: int | npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Where a keyed permutation of 0 .. size-1 sends these indices.

    Args:
        indices: any of 0 .. size-1, in any order and as often as wanted; shape (n,).
        size: 1 to 2**62.
        key: of 64 bits, from `seeds.key_for`; or one for each index, uint64 of shape (n,).

    Returns:
        int64 of shape (n,). Memory grows with n alone.

    Raises:
        ValueError: the size or an index is out of range.
    """
    if not 1 <= size <= _LARGEST:
        raise ValueError(f"expected a size of 1 to 2**62, found {size}")
    values = np.asarray(indices).astype(np.int64)
    if len(values) and not (values.min() >= 0 and values.max() < size):
        raise ValueError(f"expected indices of 0 to {size - 1}, found others among them")
    if size == 1:
        return values
    # At least two bits, for two halves; at most 2 * size values, so that walks are short.
    bits = max(2, (size - 1).bit_length())
    rounds = _ROUNDS if bits > _SMALL_BITS else _ROUNDS_OF_SMALL
    # One row a round: shape (rounds, 1), or (rounds, n) with a key for each index.
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
    """A permutation of 0 .. 2**bits - 1."""
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
    """A run of the endless stream of instances.

    Attributes:
        rows: number of the instance at each position, int64.
        epochs: the pass over all instances that it belongs to, int64.
    """

    rows: Int64s
    epochs: Int64s


def stream_rows(start: int, count: int, *, size: int, seed: int) -> StreamRows:
    """Positions start .. start+count-1 of the endless shuffled stream of 0 .. size-1.

    Position p is place p % size of epoch p // size; each epoch is a permutation of its own, so
    that every row comes once in each.
    """
    positions = np.arange(start, start + count, dtype=np.int64)
    epochs = positions // size
    keys = _epoch_keys(epochs, seed=seed)
    return StreamRows(permuted(positions % size, size, key=keys), epochs)


def _epoch_keys(epochs: Int64s, *, seed: int) -> int | UInt64s:
    if not len(epochs) or epochs[0] == epochs[-1]:
        return key_for(seed, "instance-order", int(epochs[0]) if len(epochs) else 0)
    return keys_by_epoch(epochs, seed=seed, purpose="instance-order")


def keys_by_epoch(epochs: Int64s, *, seed: int, purpose: str) -> UInt64s:
    """`key_for(seed, purpose, epoch)` for each of these epochs, which lie close together."""
    if not len(epochs):
        return np.empty(0, np.uint64)
    first, last = int(epochs.min()), int(epochs.max())
    keys = [key_for(seed, purpose, epoch) for epoch in range(first, last + 1)]
    return np.array(keys, np.uint64)[epochs - first]
