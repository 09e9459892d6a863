"""Records of a store: paths, errors and digests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError
from support.store_builder import STAGE, file_entry

from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import find_garbage
from flows.store.pointers import Pointer, key_path
from flows.store.runs import StepRecord, read_run
from pipelines.shard_job.item_cache import CacheRecord
from schemas.errors import ArtifactCorruptError, FingerprintError
from schemas.fingerprint import (
    canonical_json,
    content_digest,
    fingerprint,
)
from schemas.json_files import dump_json
from schemas.manifest import FileEntry, InputRef, Manifest, path_order

PATHS = [
    (FileEntry, "path"),
    (FileEntry, "stored_name"),
    (InputRef, "manifest"),
    (Manifest, "artifact_path"),
    (Pointer, "manifest"),
    (StepRecord, "manifest"),
    (CacheRecord, "created_in"),
]


@pytest.mark.parametrize(("model", "field"), PATHS)
@pytest.mark.parametrize("path", ["", "/etc/passwd", "a/../../x"])
def test_record_with_path_outside_of_its_folder_is_refused(
    model: type[BaseModel], field: str, path: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({field: path})
    assert [error["type"] for error in caught.value.errors() if error["loc"] == (field,)] == [
        "value_error"
    ]


def test_path_order_is_numeric_only_when_numbers_outgrow_their_width() -> None:
    shards = [
        f"part-{split:05d}-{file:03d}.arrow"
        for split in (7, 99_999, 100_000)
        for file in (999, 1000)
    ]
    paths = ["__held-out__/held-out-00000.arrow", "duplicates.arrow", *shards, "vocab.txt"]
    assert sorted(paths, key=path_order) == paths
    paths = ["part-00010-000.arrow", "part-00009-001.arrow", "vocab.txt", "bucket-000010.arrow"]
    assert sorted(paths, key=path_order) == sorted(paths)


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("refs/a/b.json", lambda store: store.ref("a/b")),
        ("runs/r/run.json", lambda store: read_run(store, "r")),
        (key_path(STAGE, "ab" * 32), lambda store: store.pointer(STAGE, "ab" * 32)),
        ("active/r.json", lambda store: find_garbage(store, keep_runs=0, grace_hours=0)),
        (f"artifacts/{STAGE}/x/manifest.json", None),
    ],
)
@pytest.mark.parametrize("stored", [b"{", b"[]", b'{"sha256": "x"}'])
def test_corrupt_record_is_named(
    tmp_path: Path,
    path: str,
    read: Callable[[ArtifactStore], object] | None,
    stored: bytes,
) -> None:
    store = ArtifactStore(str(tmp_path))
    store.backend.replace(path, stored)
    with pytest.raises(ArtifactCorruptError) as error:
        read(store) if read else store.read_manifest(path)
    assert str(error.value).startswith(f"{tmp_path}/{path}: ")
    assert "\n" not in str(error.value)


def test_record_with_wrong_field_is_named_by_field(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    store.backend.replace("refs/a.json", dump_json({"name": "a", "pointer": {"manifest": 1}}))
    with pytest.raises(ArtifactCorruptError, match=r"refs/a\.json: .*pointer\.manifest: "):
        store.ref("a")


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
