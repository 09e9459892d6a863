from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from support.store_builder import STAGE, damage, file_of, prepared, published

from flows.lineage.resolve import resolve
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import key_path, pointer_to
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


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "local":
        return ArtifactStore(str(tmp_path / "store"))
    return ArtifactStore(f"memory://{tmp_path.name}/store")


def test_what_is_committed_is_found(store: ArtifactStore) -> None:
    manifest = prepared(store)
    assert store.lookup(STAGE, manifest.cache_key) is None
    commit = store.commit(manifest)
    assert commit.created
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    assert ArtifactStore(store.root).lookup(STAGE, manifest.cache_key) == manifest


def test_an_attempt_without_a_pointer_does_not_exist(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the data and the pointer."""
    manifest, create = prepared(store), store.backend.put_if_absent

    def die_at_the_pointer(path: str, data: bytes) -> bool:
        if path.startswith("keys/"):
            raise ConnectionError("the machine is gone")
        return create(path, data)

    monkeypatch.setattr(store.backend, "put_if_absent", die_at_the_pointer)
    with pytest.raises(ConnectionError):
        store.commit(manifest)
    monkeypatch.undo()
    assert store.lookup(STAGE, manifest.cache_key) is None
    assert list(store.pointers()) == []
    again = published(store)
    assert store.lookup(STAGE, manifest.cache_key) == again
    assert again.artifact_id != manifest.artifact_id


def test_files_that_no_manifest_lists_are_not_seen(store: ArtifactStore) -> None:
    manifest = prepared(store)
    write_text_file("vocab.txt", "of a repeated worker", output=store.url(manifest.data))
    found = store.commit(manifest).manifest
    assert [entry.object for entry in found.files] == [manifest.files[0].object]
    [verdict] = verify(store, list(store.pointers()))
    assert verdict.is_ok


@pytest.mark.parametrize("what", ["missing", "shorter", "manifest"])
def test_a_damaged_artifact_is_a_miss_and_can_be_built_again(
    store: ArtifactStore, what: str
) -> None:
    manifest = published(store)
    if what == "missing":
        store.backend.delete(file_of(store, manifest))
    elif what == "shorter":
        damage(store, manifest, b"o")
    else:
        store.backend.replace(manifest.path, b"{")
    assert store.lookup(STAGE, manifest.cache_key) is None
    [record] = store.backend.names("quarantine")
    assert json.loads(store.backend.read(record))["pointer"]["artifact_id"] == manifest.artifact_id
    again = published(store)
    assert store.lookup(STAGE, manifest.cache_key) == again


def test_a_pointer_that_is_none_is_a_miss(store: ArtifactStore) -> None:
    manifest = published(store)
    store.backend.replace(key_path(STAGE, manifest.cache_key), b"")
    with pytest.raises(ArtifactCorruptError, match=manifest.cache_key):
        store.pointer(STAGE, manifest.cache_key)
    assert store.lookup(STAGE, manifest.cache_key) is None
    assert store.lookup(STAGE, published(store).cache_key) is not None


def test_a_server_that_fails_damages_nothing(
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


def test_a_store_that_may_only_be_read_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    manifest = published(store)

    def refuse(path: str) -> None:
        raise PermissionError(1, "not yours", path)

    monkeypatch.setattr(os, "utime", refuse)
    assert store.lookup(STAGE, manifest.cache_key) == manifest


def test_a_loser_with_the_same_content_takes_the_winners(store: ArtifactStore) -> None:
    first, second = prepared(store), prepared(store)
    store.commit(first)
    commit = store.commit(second)
    assert not commit.created
    assert commit.manifest == first
    assert store.backend.sizes(second.location) == {}


def test_a_loser_with_other_content_is_a_conflict(store: ArtifactStore) -> None:
    first, second = prepared(store, "one"), prepared(store, "two")
    store.commit(first)
    with pytest.raises(DeterminismError, match=r"vocab\.txt") as caught:
        store.commit(second)
    assert first.artifact_id in str(caught.value)
    assert second.artifact_id in str(caught.value)
    [record] = store.backend.names("quarantine/conflicts")
    conflict = json.loads(store.backend.read(record))
    assert conflict["contents"] == [first.content, second.content]
    assert conflict["differing_files"] == ["vocab.txt"]
    assert store.lookup(STAGE, first.cache_key) == first
    assert store.read_manifest(second.path) == second


def test_a_commit_whose_files_are_not_there_is_refused(store: ArtifactStore) -> None:
    manifest = prepared(store)
    store.backend.delete(file_of(store, manifest))
    with pytest.raises(ArtifactCorruptError, match=manifest.files[0].object):
        store.commit(manifest)
    assert list(store.pointers()) == []


def test_a_rebuild_takes_the_place_of_what_was_there(store: ArtifactStore) -> None:
    first = published(store)
    second = prepared(store, "two")
    commit = store.commit(second, replace=True)
    assert commit.created
    assert commit.replaced is not None
    assert commit.replaced.artifact_id == first.artifact_id
    assert store.lookup(STAGE, first.cache_key) == second


def test_an_abandoned_attempt_leaves_nothing(store: ArtifactStore) -> None:
    attempt = store.begin(STAGE)
    write_text_file("vocab.txt", "x", output=attempt.output)
    store.abandon(attempt)
    assert store.backend.sizes("artifacts") == {}


def test_refs_move_on(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/build-tokens.a", first)
    store.set_ref("fake/build-tokens.a", second)
    found = store.ref("fake/build-tokens.a")
    assert found is not None
    assert found.artifact_id == second.artifact_id
    assert store.refs() == ["fake/build-tokens.a"]
    assert store.ref("fake/other") is None


def test_a_ref_that_is_right_is_not_written_again(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = published(store)
    store.set_ref("fake/build-tokens", manifest)
    before = store.ref("fake/build-tokens")
    for method in ("put_if_absent", "replace", "compare_and_swap"):
        monkeypatch.setattr(store.backend, method, lambda *_, **__: pytest.fail("it was written"))
    store.set_ref("fake/build-tokens", manifest)
    assert store.ref("fake/build-tokens") == before


def test_a_ref_is_moved_only_from_where_it_is(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    one, two = pointer_to(first), pointer_to(second)
    parts = one.model_copy(update={"parts": {"build-tokens": second.path}})
    store.swap_ref("corpus/latest", parts, expected=None)
    assert store.ref("corpus/latest") == parts
    with pytest.raises(RefConflictError):
        store.swap_ref("corpus/latest", two, expected=None)
    with pytest.raises(RefConflictError, match=second.artifact_id):
        store.swap_ref("corpus/latest", two, expected=two)
    store.swap_ref("corpus/latest", two, expected=parts)
    assert store.ref("corpus/latest") == two
    store.delete_ref("corpus/latest")
    store.delete_ref("corpus/latest")
    assert store.refs() == []
    with pytest.raises(RefConflictError):
        store.swap_ref("corpus/latest", one, expected=two)


def test_of_many_moves_of_a_ref_none_is_lost(store: ArtifactStore) -> None:
    """Each caller adds a part to the ref that it read. No part may be lost."""
    pointer = pointer_to(published(store))
    store.swap_ref("corpus/latest", pointer, expected=None)

    def add(number: int) -> None:
        while True:
            found = store.ref("corpus/latest")
            assert found is not None
            more = found.model_copy(
                update={"parts": {**found.parts, str(number): pointer.manifest}}
            )
            try:
                return store.swap_ref("corpus/latest", more, expected=found)
            except RefConflictError:
                continue

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(18)))
    found = store.ref("corpus/latest")
    assert found is not None
    assert sorted(map(int, found.parts)) == list(range(18))


def test_a_damaged_ref_is_said_and_put_right(store: ArtifactStore) -> None:
    manifest = published(store)
    store.backend.replace("refs/fake/x.json", b"{")
    with pytest.raises(ArtifactCorruptError, match="fake/x"):
        store.ref("fake/x")
    store.set_ref("fake/x", manifest)
    assert store.ref("fake/x") is not None


@pytest.mark.parametrize("name", ["../keys/x", "a/../b", "/etc/x", "a//b", ".hidden", "a/.b", ""])
def test_a_ref_stays_in_its_folder(store: ArtifactStore, name: str) -> None:
    with pytest.raises(ConfigError, match="ref "):
        store.set_ref(name, published(store))


def test_pins_are_kept_and_taken_away(store: ArtifactStore) -> None:
    manifest = published(store)
    store.pin(manifest, reason="the paper's numbers")
    found = store.pins()
    assert list(found) == [manifest.artifact_id]
    pin = found[manifest.artifact_id]
    assert (pin.reason, pin.pointer.manifest) == ("the paper's numbers", manifest.path)
    store.unpin(manifest.artifact_id)
    assert store.pins() == {}
    with pytest.raises(ArtifactNotFoundError):
        store.unpin(manifest.artifact_id)


def test_an_artifact_goes_by_many_names(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/build-tokens", first)
    for name in (
        first.artifact_id,
        first.artifact_id[:8],
        first.cache_key,
        first.cache_key[:9],
        "fake/build-tokens",
        store.url(first.location),
        store.url(first.path),
        store.url(file_of(store, first)),
    ):
        assert resolve(name, store=store) == first, name
    assert resolve(STAGE, store=store) == second


def test_what_is_not_there_is_said_with_what_is(store: ArtifactStore) -> None:
    store.set_ref("fake/build-tokens", published(store))
    with pytest.raises(ArtifactNotFoundError, match=r"did you mean|Did you mean 'fake/build-tok"):
        resolve("fake/build-token", store=store)
    with pytest.raises(ArtifactNotFoundError, match="at least 4 digits"):
        resolve("ab", store=store)


def test_a_prefix_of_several_artifacts_is_refused(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = pointer_to(published(store))
    twins = [pointer.model_copy(update={"artifact_id": f"abcdef000000000{n}"}) for n in (1, 2)]
    monkeypatch.setattr(store, "pointers", lambda stage=None: iter(twins))
    with pytest.raises(ArtifactNotFoundError, match="names 2 artifacts"):
        resolve("abcdef", store=store)
    # The pointers were ambiguous, not the lookup of a longer prefix.
    monkeypatch.undo()
    assert resolve(pointer.artifact_id[:10], store=store).artifact_id == pointer.artifact_id


def test_withdrawn_artifacts_are_gone(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    store.quarantine_artifacts({first.artifact_id: "a bit flipped"})
    assert store.lookup(STAGE, first.cache_key) is None
    assert store.lookup(STAGE, second.cache_key) == second


def test_a_store_of_another_layout_is_refused(store: ArtifactStore) -> None:
    store.backend.replace("FORMAT.json", b'{"layout": 99}')
    with pytest.raises(StoreError, match="layout"):
        ArtifactStore(store.root)


def test_a_store_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFoundError, match="--store"):
        ArtifactStore(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        ArtifactStore(str(tmp_path / "file" / "store"))


def test_a_bucket_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError, match="cannot be opened"):
        ArtifactStore("s3://nowhere/store")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
