"""Row digests: the same for the same rows in any order, another for any other value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipelines.io.row_digest import MODULUS, rows_digest

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("ids", pa.list_(pa.uint16())),
        ("words", pa.list_(pa.string())),
        ("digest", pa.binary(2)),
        ("page", pa.int64()),
    ]
)
ROWS = [
    {"name": "a", "ids": [1, 2], "words": ["x", "yz"], "digest": b"ab", "page": 7},
    {"name": "bc", "ids": [], "words": [], "digest": b"cd", "page": None},
    {"name": "", "ids": [3], "words": ["xy", "z"], "digest": b"ef", "page": 0},
]


def _digest(rows: list[dict[str, object]]) -> int:
    return rows_digest(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def test_order_and_batches_do_not_matter() -> None:
    whole = _digest(ROWS)
    assert whole == _digest(ROWS[::-1])
    assert whole == sum(_digest([row]) for row in ROWS) % MODULUS
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    assert rows_digest(batch.slice(1, 2)) == _digest(ROWS[1:])
    assert _digest([ROWS[0], ROWS[0]]) == 2 * _digest([ROWS[0]]) % MODULUS


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"ids": [2, 1]},
        {"ids": [1, 2, 0]},
        {"words": ["xy", "z"]},
        {"words": ["x", "y", "z"]},
        {"digest": b"ba"},
        {"page": 8},
        {"page": None},
        {"page": 0},
    ],
)
def test_digest_depends_on_each_value(change: dict[str, object]) -> None:
    assert _digest([{**ROWS[0], **change}]) != _digest([ROWS[0]])


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.float32(), pa.string()])
def test_digest_of_null_differs_from_that_of_zero(kind: pa.DataType) -> None:
    zero = "" if pa.types.is_string(kind) else pa.scalar(False).cast(kind).as_py()
    batches = [pa.record_batch({"value": pa.array([value], kind)}) for value in (zero, None)]
    assert rows_digest(batches[0]) != rows_digest(batches[1])
