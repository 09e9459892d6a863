"""Array types, and ragged rows as flat arrays with offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools: TypeAlias = npt.NDArray[np.bool_]
Float32s: TypeAlias = npt.NDArray[np.float32]
Int64s: TypeAlias = npt.NDArray[np.int64]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
TokenIds: TypeAlias = npt.NDArray[np.uint16 | np.uint32]

_Scalar = TypeVar("_Scalar", bound=np.generic)


def offsets_of(
    lengths: npt.NDArray[np.integer[Any] | np.bool_] | Sequence[int],
    *,
    dtype: type[np.signedinteger[Any]] = np.int64,
) -> npt.NDArray[Any]:
    """Return the offsets of rows of these lengths, end to end; shape (rows + 1,).

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(
    starts: Int64s | int,
    lengths: npt.NDArray[np.integer[Any]],
    *,
    dtype: type[np.signedinteger[Any]] = np.int64,
) -> npt.NDArray[Any]:
    """Return the concatenation of start, start + 1, ..., start + length - 1 of each row.

    >>> ranges(np.array([7, 1]), np.array([2, 3])).tolist()
    [7, 8, 1, 2, 3]
    """
    positions = np.repeat((starts - offsets_of(lengths)[:-1]).astype(dtype), lengths)
    positions += np.arange(len(positions), dtype=dtype)
    return positions


def joined(parts: Sequence[Int64s]) -> Int64s:
    """Concatenate any number of arrays."""
    return np.concatenate([np.empty(0, np.int64), *parts])


def flat_lists(column: pa.ListArray) -> tuple[pa.Array, Int64s]:
    """Return the values of an Arrow column of lists, without a copy, and offsets from 0.

    >>> values, offsets = flat_lists(pa.array([[1], [2, 3], []]).slice(1))
    >>> values.to_pylist(), offsets.tolist()
    ([2, 3], [0, 2, 2])
    """
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return values, offsets - offsets[0]


def list_array(values: npt.NDArray[Any], offsets: npt.NDArray[Any], kind: pa.ListType) -> pa.Array:
    """Return an Arrow array of lists of `kind`: row i has values[offsets[i] : offsets[i + 1]].

    >>> list_array(np.array([7, 8, 9]), np.array([0, 2, 3]), pa.list_(pa.uint16())).to_pylist()
    [[7, 8], [9]]
    """
    numbers = pa.array(values, kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), numbers, type=kind)


def with_room(buffer: npt.NDArray[_Scalar], size: int) -> npt.NDArray[_Scalar]:
    """Return a buffer with the same content and at least `size` items, doubled if too small."""
    if size <= len(buffer):
        return buffer
    grown = np.zeros(max(size, 2 * len(buffer)), buffer.dtype)
    grown[: len(buffer)] = buffer
    return grown
