from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import FingerprintError
from schemas.fingerprint import (
    cache_key,
    cache_key_inputs,
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


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical_json({"b": 1, "a": [1.0, None, True]}) == b'{"a":[1,null,true],"b":1}'
    assert canonical_json((1, 2)) == canonical_json([1, 2])


def test_integers_that_doubles_cannot_hold_stay_apart() -> None:
    big = (1 << 62) + 1
    assert len({fingerprint(value) for value in (big, big - 1, str(big), -big)}) == 4


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, {1: "a"}, b"x", Path("x"), "\ud800"]
)
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(FingerprintError, match="expected"):
        fingerprint({"value": value})


def test_the_content_digest_is_that_of_names_and_bytes() -> None:
    files = [entry("a"), entry("b")]
    known = content_digest(files)
    assert content_digest(reversed(files)) == known
    assert content_digest([entry("a", stored_name="elsewhere"), entry("b", rows=3)]) == known
    for other in (
        [entry("a")],
        [entry("a"), entry("c")],
        [entry("a"), entry("b", size=4)],
        [entry("a"), entry("b", sha256="2" * 64)],
    ):
        assert content_digest(other) != known


def test_two_files_of_one_name_have_no_content_digest() -> None:
    with pytest.raises(FingerprintError, match="a"):
        content_digest([entry("a"), entry("a", size=4)])


def test_the_logical_digest_does_not_depend_on_shards() -> None:
    one = [entry("a", rows=5, rows_digest=f"{7:032x}")]
    two = [
        entry("a", rows=2, rows_digest=f"{(1 << 128) - 3:032x}"),
        entry("b", rows=3, rows_digest=f"{10:032x}"),
        entry("vocab.txt"),
    ]
    assert logical_digest(one) == logical_digest(two) == f"5:{7:032x}"
    assert logical_digest([entry("vocab.txt")]) == ""


SPEC: dict[str, Any] = {
    "stage_version": 1,
    "config": {"seed": 0},
    "inputs": {"tokens": {"content": "sha256:1"}},
    "raw_inputs": ["b", "a"],
    "environment": {"python": "3.11"},
}


def test_a_key_does_not_depend_on_the_order_of_raw_files() -> None:
    other = {**SPEC, "raw_inputs": ["a", "b"]}
    assert cache_key(cache_key_inputs("x", **SPEC)) == cache_key(cache_key_inputs("x", **other))


@pytest.mark.parametrize(
    "change",
    [
        {"stage_version": 2},
        {"config": {"seed": 1}},
        {"inputs": {"tokens": {"content": "sha256:9"}}},
        {"inputs": {"other": {"content": "sha256:1"}}},
        {"raw_inputs": ["a"]},
        {"environment": {"python": "3.12"}},
    ],
)
def test_a_key_depends_on_every_part(change: dict[str, Any]) -> None:
    known = cache_key(cache_key_inputs("x", **SPEC))
    assert cache_key(cache_key_inputs("x", **{**SPEC, **change})) != known
    assert cache_key(cache_key_inputs("y", **SPEC)) != known
