from __future__ import annotations

import json
import multiprocessing
import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from racing import FILES, REPEATS, race

from flows.artifacts import ArtifactStore, Attempt, key_path, pointer_to
from flows.resolution import resolve
from flows.store_backend import StoreBackend
from flows.verification import verify
from pipelines.shards import write_text_file
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    DeterminismError,
    StoreError,
)
from schemas.fingerprint import cache_key, content_digest, logical_digest
from schemas.manifest import Environment, InputRef, Manifest, ProducedBy

STAGE = "build-tokens"


def describe(store: ArtifactStore, attempt: Attempt, files: Any, **changes: Any) -> Manifest:
    spec = {"stage": STAGE, "seed": 0, **changes.pop("spec", {})}
    made = ProducedBy(
        run_id="r", runner="local", host_kind="Linux", started="s", ended="e", seconds=1.0
    )
    given: dict[str, Any] = {
        "artifact_id": attempt.artifact_id,
        "stage": STAGE,
        "stage_version": 1,
        "cache_key": cache_key(spec),
        "key_spec": spec,
        "code": {},
        "content": content_digest(files),
        "logical_content": logical_digest(files),
        "location": attempt.location,
        "files": tuple(files),
        "counters": {},
        "statistics": {},
        "table": "",
        "notes": (),
        "raw_inputs": (),
        "inputs": (),
        "produced_by": made,
        "environment": Environment(python="3.11.7", platform="Linux", packages={}),
        "config": {},
    }
    return Manifest(**{**given, **changes})


def prepared(store: ArtifactStore, text: str = "one", **changes: Any) -> Manifest:
    """An attempt with one file, not committed."""
    attempt = store.begin(STAGE)
    entry = write_text_file("vocab.txt", text, output=attempt.output)
    return describe(store, attempt, [entry], **changes)


def published(store: ArtifactStore, text: str = "one", **changes: Any) -> Manifest:
    return store.commit(prepared(store, text, **changes)).manifest


def file_of(store: ArtifactStore, manifest: Manifest) -> str:
    return f"{manifest.data}/{manifest.files[0].object}"


def damage(store: ArtifactStore, manifest: Manifest, data: bytes) -> None:
    store.backend.replace(file_of(store, manifest), data)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "local":
        return ArtifactStore(str(tmp_path / "store"))
    return ArtifactStore(f"memory://{tmp_path.name}/store")


def test_what_is_committed_is_found(store: ArtifactStore) -> None:
    manifest = prepared(store)
    assert store.lookup(STAGE, manifest.cache_key) is None
    commit = store.commit(manifest)
    assert commit.won
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    assert ArtifactStore(store.root).lookup(STAGE, manifest.cache_key) == manifest


def test_an_attempt_without_a_pointer_does_not_exist(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the data and the pointer."""
    manifest, create = prepared(store), store.backend.create

    def die_at_the_pointer(path: str, data: bytes) -> bool:
        if path.startswith("keys/"):
            raise ConnectionError("the machine is gone")
        return create(path, data)

    monkeypatch.setattr(store.backend, "create", die_at_the_pointer)
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
    assert verdict.is_sound


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
    with pytest.raises(ArtifactCorruptError, match="pointer"):
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


def test_a_loser_with_the_same_content_takes_the_winners(store: ArtifactStore) -> None:
    first, second = prepared(store), prepared(store)
    store.commit(first)
    commit = store.commit(second)
    assert not commit.won
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
    with pytest.raises(ArtifactCorruptError, match="found nothing"):
        store.commit(manifest)
    assert list(store.pointers()) == []


def test_a_rebuild_takes_the_place_of_what_was_there(store: ArtifactStore) -> None:
    first = published(store)
    second = prepared(store, "two")
    commit = store.commit(second, replace=True)
    assert commit.won
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


def test_verifying_reads_every_byte(store: ArtifactStore) -> None:
    manifest = published(store)
    [verdict] = verify(store, list(store.pointers()))
    assert (verdict.is_sound, verdict.files, verdict.size) == (True, 1, 3)
    damage(store, manifest, b"onf")  # one bit, the same size
    assert verify(store, list(store.pointers()), deep=False)[0].is_sound
    [verdict] = verify(store, list(store.pointers()))
    assert "vocab.txt: expected sha256" in verdict.problems[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"key_spec": {"stage": STAGE, "seed": 9}}, "cache_key"),
        ({"content": f"sha256:{'0' * 64}"}, "content"),
        ({"logical_content": "3:0"}, "logical_content"),
        ({"artifact_id": "0" * 16}, "pointer says"),
    ],
)
def test_verifying_finds_a_manifest_that_was_edited(
    store: ArtifactStore, change: dict[str, Any], problem: str
) -> None:
    manifest = published(store)
    edited = manifest.model_copy(update=change).model_dump_json()
    store.backend.replace(manifest.path, edited.encode())
    [verdict] = verify(store, list(store.pointers()))
    assert any(problem in text for text in verdict.problems)


def test_verifying_follows_inputs(store: ArtifactStore) -> None:
    source = published(store)
    reference = InputRef(
        name="documents",
        stage=STAGE,
        artifact_id=source.artifact_id,
        cache_key=source.cache_key,
        content=source.content,
        manifest=source.path,
    )
    spec = {"seed": 5, "inputs": {"documents": {"content": source.content}}}
    product = published(store, "two", spec=spec, inputs=(reference,))
    pointer = pointer_to(product)
    assert verify(store, [pointer])[0].is_sound
    store.backend.delete(source.path)
    assert "input documents" in verify(store, [pointer])[0].problems[0]


def test_withdrawn_artifacts_are_gone(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    store.withdraw_artifacts({first.artifact_id: "a bit flipped"})
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


@pytest.mark.parametrize("url", ["https://example.org/store", "nosuch://x"])
def test_backends_without_put_if_absent_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="memory://, s3:// or gs://"):
        ArtifactStore(url)


def test_of_twelve_processes_one_creates_each_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results, start = context.Queue(), context.Barrier(12)
    names = [f"{number:02d}" for number in range(12)]
    processes = [
        context.Process(target=race, args=(str(tmp_path), name, start, results)) for name in names
    ]
    for process in processes:
        process.start()
    won = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    for number in range(FILES):
        winners = [name for name in names if won[name][number]]
        assert len(winners) == 1
        assert (tmp_path / "keys" / f"{number}.json").read_text() == winners[0] * REPEATS
    left = [path for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert left == []


def test_in_memory_one_of_many_threads_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = StoreBackend("memory://race")
    exists = backend.fs.exists

    def look_slowly(path: str) -> bool:
        found = bool(exists(path))
        time.sleep(0.01)
        return found

    monkeypatch.setattr(backend.fs, "exists", look_slowly)
    with ThreadPoolExecutor(12) as pool:
        won = list(pool.map(lambda n: backend.create("key", b"%d" % n), range(24)))
    assert won.count(True) == 1
    assert backend.read("key") == b"%d" % won.index(True)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket on an S3 server in this process."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    name = f"corpora-{uuid.uuid4().hex[:12]}"  # the server's buckets outlive it in this process
    fs.mkdir(name)
    yield f"s3://{name}"
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    server.stop()


@pytest.mark.network
def test_a_store_on_s3(bucket: str) -> None:
    store = ArtifactStore(f"{bucket}/store")
    manifest = prepared(store)
    assert store.commit(manifest).won
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    twin = store.commit(prepared(store))
    assert (twin.won, twin.manifest) == (False, manifest)
    with pytest.raises(DeterminismError):
        store.commit(prepared(store, "two"))
    assert resolve(store.url(manifest.location), store=store) == manifest
    assert verify(store, list(store.pointers()))[0].is_sound
    damage(store, manifest, b"onf")
    assert not verify(store, list(store.pointers()))[0].is_sound
    store.backend.delete(file_of(store, manifest))
    assert store.lookup(STAGE, manifest.cache_key) is None
    assert store.lookup(STAGE, published(store).cache_key) is not None


@pytest.mark.network
def test_on_s3_one_of_many_wins(bucket: str) -> None:
    backend = StoreBackend(f"{bucket}/race")
    with ThreadPoolExecutor(12) as pool:
        won = list(pool.map(lambda n: backend.create("key", b"%d" % n), range(36)))
    assert won.count(True) == 1
    assert backend.read("key") == b"%d" % won.index(True)


@pytest.mark.network
def test_a_server_that_ignores_conditions_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = StoreBackend(f"{bucket}/probe")
    backend.probe()
    pipe = backend.fs.pipe_file
    monkeypatch.setattr(backend.fs, "pipe_file", lambda path, data, mode=None: pipe(path, data))
    with pytest.raises(StoreError, match="created twice"):
        backend.probe()


@pytest.mark.network
def test_an_answer_that_got_lost_is_no_defeat(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends the request again and finds its own file."""
    backend = StoreBackend(f"{bucket}/retry")
    pipe = backend.fs.pipe_file

    def pipe_twice(path: str, data: bytes, **options: Any) -> None:
        pipe(path, data, **options)
        pipe(path, data, **options)

    monkeypatch.setattr(backend.fs, "pipe_file", pipe_twice)
    assert backend.create("key", b"mine")


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
