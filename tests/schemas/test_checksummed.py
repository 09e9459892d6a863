"""Corrupt records of a store are reported by path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.store_builder import STAGE, prepared

from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import collect_garbage
from flows.store.pointers import key_path
from flows.store.runs import read_run
from schemas.checksummed import dump_json
from schemas.errors import ArtifactCorruptError, DeterminismError


def write_conflict(store: ArtifactStore) -> str:
    first, second = prepared(store), prepared(store, "two")
    store.commit(first)
    with pytest.raises(DeterminismError):
        store.commit(second)
    return f"quarantine/conflicts/{STAGE}/{second.artifact_id}.json"


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("pins/x.json", lambda store: store.pins()),
        ("refs/a/b.json", lambda store: store.ref("a/b")),
        ("runs/r/run.json", lambda store: read_run(store, "r")),
        (key_path(STAGE, "ab" * 32), lambda store: store.pointer(STAGE, "ab" * 32)),
        (
            "tombstones/x.json",
            lambda store: collect_garbage(store, keep_runs=0, grace_hours=0, dry_run=True),
        ),
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
    store.backend.replace("refs/a.json", dump_json({"manifest": 1}))
    with pytest.raises(ArtifactCorruptError, match=r"refs/a\.json: .*manifest: "):
        store.ref("a")


def test_corrupt_conflict_is_named(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    path = write_conflict(store)
    assert list(store.conflicts()) == [path]
    store.backend.replace(path, b"{")
    with pytest.raises(ArtifactCorruptError, match=path):
        store.conflicts()
