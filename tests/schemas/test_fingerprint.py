"""Digests depend on values and contents, not on their order or shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.store_builder import file_entry

from schemas.errors import FingerprintError
from schemas.fingerprint import (
    canonical_json,
    content_digest,
    fingerprint,
    logical_digest,
)


def test_canonical_json_does_not_depend_on_order_of_keys() -> None:
    assert canonical_json({"b": 1, "a": [1.0, None, True]}) == b'{"a":[1,null,true],"b":1}'
    assert canonical_json((1, 2)) == canonical_json([1, 2])


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1 << 53, {1, 2}, {1: "a"}, b"x", Path("x"), "\ud800"]
)
def test_value_other_than_plain_json_is_refused(value: object) -> None:
    with pytest.raises(FingerprintError):
        fingerprint({"value": value})


def test_content_digest_covers_names_and_bytes_only() -> None:
    files = [file_entry("a"), file_entry("b")]
    known = content_digest(files)
    assert content_digest(reversed(files)) == known
    assert (
        content_digest([file_entry("a", stored_name="elsewhere"), file_entry("b", rows=3)]) == known
    )
    for other in (
        [file_entry("a")],
        [file_entry("a"), file_entry("c")],
        [file_entry("a"), file_entry("b", size_bytes=4)],
        [file_entry("a"), file_entry("b", sha256="2" * 64)],
    ):
        assert content_digest(other) != known


def test_content_digest_refuses_two_files_with_one_name() -> None:
    with pytest.raises(FingerprintError):
        content_digest([file_entry("a"), file_entry("a", size_bytes=4)])


def test_logical_digest_does_not_depend_on_shards() -> None:
    one = [file_entry("a", rows=5, rows_digest=f"{7:032x}")]
    two = [
        file_entry("a", rows=2, rows_digest=f"{(1 << 128) - 3:032x}"),
        file_entry("b", rows=3, rows_digest=f"{10:032x}"),
        file_entry("vocab.txt"),
    ]
    assert logical_digest(one) == logical_digest(two) == f"5:{7:032x}"
    assert logical_digest([file_entry("vocab.txt")]) == ""
