"""Types of arrays, and rows of different lengths as flat arrays with offsets."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools: TypeAlias = npt.NDArray[np.bool_]
Int64s: TypeAlias = npt.NDArray[np.int64]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
TokenIds: TypeAlias = npt.NDArray[np.uint16 | np.uint32]


def offsets_of(lengths: npt.NDArray[np.integer[Any] | np.bool_]) -> Int64s:
    """Where rows of these lengths begin and end, laid end to end; int64 of shape (rows + 1,).

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def list_array(values: npt.NDArray[Any], offsets: npt.NDArray[Any], kind: pa.ListType) -> pa.Array:
    """An Arrow array of lists of `kind`: row i has values[offsets[i] : offsets[i + 1]].

    >>> list_array(np.array([7, 8, 9]), np.array([0, 2, 3]), pa.list_(pa.uint16())).to_pylist()
    [[7, 8], [9]]
    """
    numbers = pa.array(values, kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), numbers, type=kind)
