"""Random numbers as pure functions of (seed, purpose, identity).

* `rng_for` returns a NumPy generator.
* `key_for` returns a 64-bit key. `random_bits` and `uniform` turn arrays of keys and counters into
  arrays of draws: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) as a counter-based generator. A draw
  depends only on its key and counter, so draws do not depend on batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = (np.uint64(bits) for bits in (30, 27, 31, 11))

Identity = str | int


def _digest(seed: int, purpose: str, identity: tuple[Identity, ...], size: int) -> bytes:
    return hashlib.blake2b(_prefixed(seed, purpose, *identity), digest_size=size).digest()


def _prefixed(*parts: Identity) -> bytes:
    # Length-prefixed, so that ("ab", "c") and ("a", "bc") are different identities.
    encoded = [str(part).encode() for part in parts]
    return b"".join([b"%d:%b" % (len(part), part) for part in encoded])


def key_for(seed: int, purpose: str, *identity: Identity) -> int:
    """Return a 64-bit key for `random_bits` and `uniform`.

    >>> key_for(0, "masking", "wiki:12") == key_for(0, "masking", "wiki:12")
    True
    """
    return int.from_bytes(_digest(seed, purpose, identity, 8), "little")


def keys_for(
    seed: int, purpose: str, names: Sequence[str], *last: Identity
) -> npt.NDArray[np.uint64]:
    """Return `key_for(seed, purpose, name, *last)` of each name; shape (names,)."""
    before, after = _prefixed(seed, purpose), _prefixed(*last)
    digests = bytearray()
    for name in names:
        encoded = name.encode()
        text = b"%b%d:%b%b" % (before, len(encoded), encoded, after)
        digests += hashlib.blake2b(text, digest_size=8).digest()
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def rng_for(seed: int, purpose: str, *identity: Identity) -> np.random.Generator:
    """Return a generator that depends only on the arguments."""
    key = int.from_bytes(_digest(seed, purpose, identity, 16), "little")
    return np.random.Generator(np.random.Philox(key=key))


def random_bits(
    keys: npt.NDArray[np.uint64], counters: npt.NDArray[Any] | int
) -> npt.NDArray[np.uint64]:
    """Return 64 random bits per (key, counter). Shapes broadcast; counters are at least 0."""
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2**64
        offset = (np.asarray(counters).astype(np.uint64) + np.uint64(1)) * _GAMMA
        state = np.atleast_1d(np.asarray(keys, dtype=np.uint64) + offset)
        # In place: allocation would dominate for small arrays.
        shifted = state >> _30
        state ^= shifted
        state *= _MIX_1
        state ^= np.right_shift(state, _27, out=shifted)
        state *= _MIX_2
        state ^= np.right_shift(state, _31, out=shifted)
    return state.reshape(np.broadcast_shapes(np.shape(keys), np.shape(counters)))


def uniform(
    keys: npt.NDArray[np.uint64], counters: npt.NDArray[Any] | int
) -> npt.NDArray[np.float64]:
    """Return draws from [0, 1) with 53 random bits, one per (key, counter)."""
    return (random_bits(keys, counters) >> _11).astype(np.float64) * 2.0**-53


def integers(
    keys: npt.NDArray[np.uint64],
    counters: npt.NDArray[Any] | int,
    *,
    below: npt.NDArray[np.int64] | int,
) -> npt.NDArray[np.int64]:
    """Return draws from 0 .. below-1, one per (key, counter); `below`, 1 to 2**32, broadcasts.

    The largest uniform draw is 1 - 2**-53, and its product with any such `below` rounds to less
    than `below`.
    """
    return (uniform(keys, counters) * below).astype(np.int64)
