"""Artifacts are published once, found by their key, and named by refs and pins."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from support.store_builder import STAGE, damage, file_of, prepared, published

from flows.store.artifacts import ArtifactStore
from flows.store.pointers import key_path, pointer_to, ref_path
from flows.store.verification import verify
from pipelines.io.files import write_text_file
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    DeterminismError,
    RefConflictError,
    StoreError,
)


@pytest.fixture
def store(any_store: ArtifactStore) -> ArtifactStore:
    return any_store


# Publishing and lookup


def test_committed_artifact_is_found(store: ArtifactStore) -> None:
    manifest = prepared(store)
    assert store.lookup(STAGE, manifest.cache_key) is None
    assert store.commit(manifest).created
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    assert ArtifactStore(store.root).lookup(STAGE, manifest.cache_key) == manifest


def test_attempt_without_pointer_is_not_found(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, create = prepared(store), store.backend.put_if_absent

    def fail_at_pointer(path: str, data: bytes) -> bool:
        if path.startswith("keys/"):
            raise ConnectionError("the machine is gone")
        return create(path, data)

    monkeypatch.setattr(store.backend, "put_if_absent", fail_at_pointer)
    with pytest.raises(ConnectionError):
        store.commit(manifest)
    monkeypatch.undo()
    assert store.lookup(STAGE, manifest.cache_key) is None
    assert store.pointers() == []
    rebuilt = published(store)
    assert store.lookup(STAGE, manifest.cache_key) == rebuilt
    assert rebuilt.artifact_id != manifest.artifact_id


def test_commit_deletes_files_of_retried_workers(store: ArtifactStore) -> None:
    manifest = prepared(store)
    write_text_file("vocab.txt", "of a retried worker", output=store.url(manifest.data_path))
    store.commit(manifest)
    assert list(store.backend.sizes(manifest.data_path)) == [manifest.files[0].stored_name]
    assert verify(store, store.pointers())[0].is_ok


def test_commit_without_files_fails(store: ArtifactStore) -> None:
    manifest = prepared(store)
    store.backend.delete(file_of(store, manifest))
    with pytest.raises(ArtifactCorruptError, match=manifest.files[0].stored_name):
        store.commit(manifest)
    assert store.pointers() == []


def test_second_commit_of_same_content_returns_first(store: ArtifactStore) -> None:
    first, second = prepared(store), prepared(store)
    store.commit(first)
    commit = store.commit(second)
    assert not commit.created
    assert commit.manifest == first
    assert store.backend.sizes(second.artifact_path) == {}


def test_second_commit_of_other_content_is_recorded_as_conflict(store: ArtifactStore) -> None:
    first, second = prepared(store, "one"), prepared(store, "two")
    store.commit(first)
    with pytest.raises(DeterminismError) as caught:
        store.commit(second)
    for text in ("vocab.txt", first.artifact_id, second.artifact_id):
        assert text in str(caught.value)
    [conflict] = store.conflicts().values()
    assert conflict.contents == (first.content_digest, second.content_digest)
    assert conflict.differing_files == ("vocab.txt",)
    assert store.lookup(STAGE, first.cache_key) == first
    assert store.read_manifest(second.manifest_path) == second


def test_rebuild_replaces_artifact(store: ArtifactStore) -> None:
    first = published(store)
    second = prepared(store, "two")
    commit = store.commit(second, replace=True)
    assert commit.created
    assert commit.replaced is not None
    assert commit.replaced.artifact_id == first.artifact_id
    assert store.lookup(STAGE, first.cache_key) == second


def test_abandoned_attempt_leaves_no_files(store: ArtifactStore) -> None:
    attempt = store.begin(STAGE)
    write_text_file("vocab.txt", "x", output=attempt.output)
    store.abandon(attempt)
    assert store.backend.sizes("artifacts") == {}


@pytest.mark.parametrize("kind", ["missing", "shorter", "manifest", "pointer"])
def test_corrupt_artifact_is_quarantined_and_can_be_built_again(
    store: ArtifactStore, kind: str
) -> None:
    manifest = published(store)
    if kind == "missing":
        store.backend.delete(file_of(store, manifest))
    elif kind == "shorter":
        damage(store, manifest, b"o")
    else:
        path = manifest.manifest_path if kind == "manifest" else key_path(STAGE, manifest.cache_key)
        store.backend.replace(path, b"{")
    assert store.lookup(STAGE, manifest.cache_key) is None
    [record] = store.backend.names("quarantine")
    assert manifest.cache_key in record
    pointer = json.loads(store.backend.read(record))["pointer"]
    assert kind == "pointer" or pointer["artifact_id"] == manifest.artifact_id
    rebuilt = published(store)
    assert store.lookup(STAGE, manifest.cache_key) == rebuilt


def test_replaced_pointer_is_not_quarantined(store: ArtifactStore) -> None:
    manifest = published(store)
    path = key_path(STAGE, manifest.cache_key)
    store.quarantine(path, expected=b"replaced since", reason="a test")
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    store.quarantine(path, expected=store.backend.read(path), reason="a test")
    assert store.lookup(STAGE, manifest.cache_key) is None


def test_failing_server_quarantines_nothing(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = published(store)

    def fail(folder: str) -> dict[str, int]:
        raise ConnectionError(f"{folder}: no answer")

    monkeypatch.setattr(store.backend, "sizes", fail)
    with pytest.raises(ConnectionError):
        store.lookup(STAGE, manifest.cache_key)
    monkeypatch.undo()
    assert store.lookup(STAGE, manifest.cache_key) == manifest


def test_artifact_of_read_only_store_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    manifest = published(store)

    def refuse(path: str) -> None:
        raise PermissionError(1, "read-only", path)

    monkeypatch.setattr(os, "utime", refuse)
    assert store.lookup(STAGE, manifest.cache_key) == manifest


# Refs and pins


def test_ref_points_to_last_artifact(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/build-tokens.a", first)
    store.set_ref("fake/build-tokens.a", second)
    pointer = store.ref("fake/build-tokens.a")
    assert pointer is not None
    assert pointer.artifact_id == second.artifact_id
    assert store.refs() == ["fake/build-tokens.a"]
    assert store.ref("fake/other") is None
    store.set_ref("fake/build-tokens.a", second)  # writes nothing
    assert store.ref("fake/build-tokens.a") == pointer


def test_ref_is_swapped_only_when_it_is_as_expected(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    one, two = pointer_to(first), pointer_to(second)
    parts = one.model_copy(update={"parts": {"build-tokens": second.manifest_path}})
    store.swap_ref("corpus/latest", parts, expected=None)
    assert store.ref("corpus/latest") == parts
    for expected in (None, two):
        with pytest.raises(RefConflictError):
            store.swap_ref("corpus/latest", two, expected=expected)
    store.swap_ref("corpus/latest", two, expected=parts)
    assert store.ref("corpus/latest") == two
    store.backend.delete(ref_path("corpus/latest"))
    assert store.refs() == []
    with pytest.raises(RefConflictError):
        store.swap_ref("corpus/latest", one, expected=two)


def test_concurrent_swaps_lose_no_change(store: ArtifactStore) -> None:
    pointer = pointer_to(published(store))
    store.swap_ref("corpus/latest", pointer, expected=None)

    def add_part(number: int) -> None:
        while True:
            current = store.ref("corpus/latest")
            assert current is not None
            parts = {**current.parts, str(number): pointer.manifest}
            changed = current.model_copy(update={"parts": parts})
            try:
                return store.swap_ref("corpus/latest", changed, expected=current)
            except RefConflictError:
                continue

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add_part, range(18)))
    current = store.ref("corpus/latest")
    assert current is not None
    assert sorted(map(int, current.parts)) == list(range(18))


def test_corrupt_ref_is_an_error_until_it_is_set(store: ArtifactStore) -> None:
    manifest = published(store)
    store.backend.replace("refs/fake/x.json", b"{")
    with pytest.raises(ArtifactCorruptError, match="fake/x"):
        store.ref("fake/x")
    store.set_ref("fake/x", manifest)
    assert store.ref("fake/x") is not None


@pytest.mark.parametrize("name", ["../keys/x", "a/../b", "/etc/x", "a//b", ".hidden", "a/.b", ""])
def test_ref_outside_of_its_folder_is_refused(store: ArtifactStore, name: str) -> None:
    with pytest.raises(ConfigError):
        store.set_ref(name, published(store))


def test_pin_is_kept_until_unpinned(store: ArtifactStore) -> None:
    manifest = published(store)
    store.pin(manifest, reason="the paper's numbers")
    [(artifact_id, pin)] = store.pins().items()
    assert artifact_id == manifest.artifact_id
    assert (pin.reason, pin.pointer.manifest) == ("the paper's numbers", manifest.manifest_path)
    store.unpin(manifest.artifact_id)
    assert store.pins() == {}
    with pytest.raises(ArtifactNotFoundError):
        store.unpin(manifest.artifact_id)


# Opening a store


def test_store_of_other_layout_is_refused(store: ArtifactStore) -> None:
    store.backend.replace("FORMAT.json", b'{"layout": 99}')
    with pytest.raises(StoreError, match=r"FORMAT\.json"):
        ArtifactStore(store.root)


def test_reading_creates_no_store(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFoundError):
        ArtifactStore(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()


def test_error_names_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=f"{tmp_path}/file/store"):
        ArtifactStore(str(tmp_path / "file" / "store"))


def test_error_names_bucket_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError, match="s3://nowhere/store"):
        ArtifactStore("s3://nowhere/store")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
