"""What is said of records that are not what was written."""

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


def conflict(store: ArtifactStore) -> str:
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
def test_a_damaged_record_is_named_with_what_to_do(
    tmp_path: Path,
    path: str,
    read: Callable[[ArtifactStore], object] | None,
    stored: bytes,
) -> None:
    store = ArtifactStore(str(tmp_path))
    store.backend.replace(path, stored)
    with pytest.raises(ArtifactCorruptError) as caught:
        read(store) if read else store.read_manifest(path)
    assert str(caught.value).startswith(f"{tmp_path}/{path}: ")
    assert "\n" not in str(caught.value)


def test_a_record_of_other_fields_names_the_first_that_is_wrong(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    store.backend.replace("refs/a.json", dump_json({"manifest": 1}))
    with pytest.raises(ArtifactCorruptError, match=r"refs/a\.json: .*manifest: "):
        store.ref("a")


def test_a_damaged_conflict_is_named(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    path = conflict(store)
    assert list(store.conflicts()) == [path]
    store.backend.replace(path, b"{")
    with pytest.raises(ArtifactCorruptError, match=path):
        store.conflicts()
