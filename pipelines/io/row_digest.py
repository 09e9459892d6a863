"""Digest of rows, independent of their order, their shards and Arrow's encoding.

It is the sum modulo 2**128 of the BLAKE2b digests of the rows. The digests of shards are added, so
artifacts with the same rows have the same digest. The golden tests compare it, because it does not
change with the version of pyarrow.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import flat_lists

MODULUS = 1 << 128

if sys.byteorder != "little":  # pragma: no cover - no supported machine is
    raise ImportError("bertloom's shards and digests are defined on little-endian machines only")


def rows_digest(batch: pa.RecordBatch) -> int:
    """Return the digest of the rows of a batch, to be added modulo 2**128."""
    columns = [
        _column_bytes(batch.column(index), nullable=field.nullable)
        for index, field in enumerate(batch.schema)
    ]
    total = 0
    blake2b, from_bytes = hashlib.blake2b, int.from_bytes
    for parts in zip(*columns, strict=True):
        total += from_bytes(blake2b(b"".join(parts), digest_size=16).digest(), "little")
    return total % MODULUS


def _column_bytes(column: pa.Array, *, nullable: bool) -> Iterator[bytes]:
    """Yield the value of each row as unique bytes."""
    kind = column.type
    if column.null_count:
        present = column.is_valid().to_pylist()
        filled = _column_bytes(pc.fill_null(column, pa.scalar(_zero(kind), kind)), nullable=False)
        pairs = zip(present, filled, strict=True)
        return (b"\1" + value if here else b"\0" for here, value in pairs)
    if nullable:
        return (b"\1" + value for value in _column_bytes(column, nullable=False))
    if pa.types.is_list(kind):
        return _list_bytes(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _string_bytes(column)
    if pa.types.is_fixed_size_binary(kind):
        return iter(column.to_pylist())
    values = column.to_numpy(zero_copy_only=False)
    width, data = values.dtype.itemsize, np.ascontiguousarray(values).tobytes()
    return (data[start : start + width] for start in range(0, len(data), width))


def _zero(kind: pa.DataType) -> object:
    if pa.types.is_list(kind):
        return []
    if pa.types.is_boolean(kind):
        return False
    return "" if pa.types.is_string(kind) or pa.types.is_binary(kind) else 0


def _string_bytes(column: pa.Array) -> Iterator[bytes]:
    encoded = column.cast(pa.binary()).to_pylist()
    return (len(value).to_bytes(4, "little") + value for value in encoded)


def _list_bytes(column: pa.Array) -> Iterator[bytes]:
    values, offsets = flat_lists(column)
    bounds = offsets.tolist()
    if pa.types.is_string(values.type):
        items = list(_string_bytes(values))
        for start, end in pairwise(bounds):
            yield (end - start).to_bytes(4, "little") + b"".join(items[start:end])
        return
    numbers = np.ascontiguousarray(values.to_numpy(zero_copy_only=False))
    width, data = numbers.dtype.itemsize, numbers.tobytes()
    for start, end in pairwise(bounds):
        yield (end - start).to_bytes(4, "little") + data[start * width : end * width]
