from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import FingerprintError
from schemas.fingerprint import (
    canonical_json,
    content_digest,
    fingerprint,
    logical_digest,
)
from schemas.manifest import FileEntry


def entry(path: str, **changes: Any) -> FileEntry:
    return FileEntry(
        **{"path": path, "stored_name": f"{path}-x", "size_bytes": 3, "sha256": "1" * 64, **changes}
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
    files = [entry("a"), entry("b")]
    known = content_digest(files)
    assert content_digest(reversed(files)) == known
    assert content_digest([entry("a", stored_name="elsewhere"), entry("b", rows=3)]) == known
    for other in (
        [entry("a")],
        [entry("a"), entry("c")],
        [entry("a"), entry("b", size_bytes=4)],
        [entry("a"), entry("b", sha256="2" * 64)],
    ):
        assert content_digest(other) != known


def test_content_digest_refuses_two_files_with_one_name() -> None:
    with pytest.raises(FingerprintError):
        content_digest([entry("a"), entry("a", size_bytes=4)])


def test_logical_digest_does_not_depend_on_shards() -> None:
    one = [entry("a", rows=5, rows_digest=f"{7:032x}")]
    two = [
        entry("a", rows=2, rows_digest=f"{(1 << 128) - 3:032x}"),
        entry("b", rows=3, rows_digest=f"{10:032x}"),
        entry("vocab.txt"),
    ]
    assert logical_digest(one) == logical_digest(two) == f"5:{7:032x}"
    assert logical_digest([entry("vocab.txt")]) == ""
