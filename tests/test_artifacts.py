from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fake_gcs import FakeGcs
from racing import FILES, REPEATS, race
from store_writing import STAGE, damage, file_of, input_from, prepared, published

from flows.lineage.names import resolve
from flows.store.artifacts import ArtifactStore
from flows.store.backend import StoreBackend, open_backend
from flows.store.garbage import collect_garbage
from flows.store.leases import hold_lease, live_holders
from flows.store.pointers import Pointer, key_path, pointer_to
from flows.store.verification import verify
from pipelines.io.shards import write_text_file
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


def test_a_ref_that_is_right_is_not_written_again(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = published(store)
    store.set_ref("fake/build-tokens", manifest)
    before = store.ref("fake/build-tokens")
    for method in ("create", "replace", "swap"):
        monkeypatch.setattr(store.backend, method, lambda *_, **__: pytest.fail("it was written"))
    store.set_ref("fake/build-tokens", manifest)
    assert store.ref("fake/build-tokens") == before


def test_a_ref_is_moved_only_from_where_it_is(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    one, two = pointer_to(first), pointer_to(second)
    parts = one.model_copy(update={"parts": {"build-tokens": second.path}})
    store.swap_ref("corpus/latest", parts, expected=None)
    assert store.ref("corpus/latest") == parts
    with pytest.raises(RefConflictError, match="expected it to lead to nothing, found"):
        store.swap_ref("corpus/latest", two, expected=None)
    with pytest.raises(RefConflictError, match=second.artifact_id):
        store.swap_ref("corpus/latest", two, expected=two)
    store.swap_ref("corpus/latest", two, expected=parts)
    assert store.ref("corpus/latest") == two
    store.delete_ref("corpus/latest")
    store.delete_ref("corpus/latest")
    assert store.refs() == []
    with pytest.raises(RefConflictError, match="found nothing"):
        store.swap_ref("corpus/latest", one, expected=two)


def test_of_many_moves_of_a_ref_none_is_lost(store: ArtifactStore) -> None:
    """Each adds a part to what it found; in the end all are there."""
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
    with pytest.raises(ConfigError, match="expected letters"):
        store.set_ref(name, published(store))


def test_pins_are_kept_and_taken_away(store: ArtifactStore) -> None:
    manifest = published(store)
    store.pin(manifest, reason="the paper's numbers")
    found = store.pins()
    assert list(found) == [manifest.artifact_id]
    assert found[manifest.artifact_id]["reason"] == "the paper's numbers"
    assert Pointer.model_validate(found[manifest.artifact_id]["pointer"]).manifest == manifest.path
    store.unpin(manifest.artifact_id)
    assert store.pins() == {}
    with pytest.raises(ArtifactNotFoundError, match="not pinned"):
        store.unpin(manifest.artifact_id)


def test_a_swap_needs_what_is_expected(store: ArtifactStore) -> None:
    check_swaps(store.backend)


def check_swaps(backend: StoreBackend) -> None:
    """What every backend promises of `swap` and `remove`."""
    assert not backend.swap("x/file", b"new", expected=b"old")  # there is none
    assert backend.swap("x/file", b"1", expected=None)
    assert not backend.swap("x/file", b"2", expected=None)
    assert not backend.swap("x/file", b"2", expected=b"0")
    assert backend.read("x/file") == b"1"
    assert backend.swap("x/file", b"2", expected=b"1")
    assert backend.swap("x/file", b"2", expected=b"1")  # as after an answer that got lost
    assert backend.read("x/file") == b"2"
    assert backend.remove("x/file", expected=b"1") is None
    assert backend.read("x/file") == b"2"
    assert backend.remove("x/file", expected=b"2") is not None
    assert backend.remove("x/file", expected=b"2") is None
    assert backend.names("x") == []


def check_that_one_swap_wins(backend: StoreBackend) -> None:
    """Of many that saw the same, one changes it; and each of many additions counts."""
    backend.create("counter", b"0")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: backend.swap("counter", b"%d" % n, expected=b"0"), (1, 2, 3)))
    assert won.count(True) == 1
    assert backend.read("counter") == b"%d" % (1 + won.index(True))


def test_of_many_swaps_one_wins(store: ArtifactStore) -> None:
    check_that_one_swap_wins(store.backend)


def test_the_lock_of_a_killed_process_holds_nobody_up(tmp_path: Path) -> None:
    backend = open_backend(str(tmp_path))
    backend.create("x/file", b"1")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_ALL_LOCKS, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with ThreadPoolExecutor(1) as pool:
        swapped = pool.submit(backend.swap, "x/file", b"2", expected=b"1")
        with pytest.raises(TimeoutError):
            swapped.result(0.2)
        holder.kill()
        assert swapped.result(30)
    holder.wait()
    holder.stdout.close()


HOLD_ALL_LOCKS = """
import contextlib, sys, time
from pathlib import Path
import flows.store.backend as backend
backend._LOCKS = 1
# Every file's lock is number 00 here; the parent's are spread, so all numbers are one file.
root = Path(sys.argv[1])
with contextlib.ExitStack() as stack:
    stack.enter_context(backend.locked(root, "x/file"))
    for number in range(64):
        with contextlib.suppress(FileExistsError):
            (root / ".locks" / f"{number:02d}").hardlink_to(root / ".locks" / "00")
    print("held", flush=True)
    time.sleep(60)
"""


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
    product = published(store, "two", **input_from(source))
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
    backend = open_backend("memory://race")
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


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    """A bucket on a server in this process that speaks as much of GCS as the store uses."""
    with FakeGcs() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
        yield server
        fsspec.get_filesystem_class("gs").clear_instance_cache()


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
def test_leases_and_garbage_on_s3(bucket: str) -> None:
    store = ArtifactStore(f"{bucket}/cleaned")
    kept, unused = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/x", kept)
    orphan = prepared(store, "three")
    with hold_lease(
        store, STAGE, kept.cache_key, holder="r", is_done=lambda: False, say=pytest.fail
    ):
        assert list(live_holders(store)) == [(STAGE, kept.cache_key)]
        report = collect_garbage(store, keep_runs=0, grace_hours=0, dry_run=False)
        assert [item.path for item in report.garbage] == [unused.location]
    assert live_holders(store) == {}
    report = collect_garbage(store, keep_runs=0, grace_hours=0, dry_run=False)
    assert [item.path for item in report.garbage] == [orphan.location]
    assert {name.split("/")[2] for name in store.backend.facts("artifacts")} == {kept.artifact_id}
    assert store.lookup(STAGE, kept.cache_key) == kept
    assert store.backend.facts("tombstones") == store.backend.facts("leases") == {}


@pytest.mark.network
def test_swaps_on_s3(bucket: str) -> None:
    check_swaps(open_backend(f"{bucket}/swaps"))


@pytest.mark.network
def test_a_swap_that_comes_late_on_s3_is_refused_by_the_server(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one writes between the reading and the conditional write."""
    backend = open_backend(f"{bucket}/late")
    backend.create("file", b"1")
    pipe = backend.fs.pipe_file

    def write_first(path: str, data: bytes, **options: Any) -> None:
        pipe(path, b"theirs")
        pipe(path, data, **options)

    monkeypatch.setattr(backend.fs, "pipe_file", write_first)
    assert not backend.swap("file", b"mine", expected=b"1")
    assert backend.read("file") == b"theirs"


@pytest.mark.network
def test_swaps_on_gcs(gcs: FakeGcs) -> None:
    backend = open_backend("gs://bucket/swaps")
    check_swaps(backend)
    backend.probe()
    assert gcs.objects == {}


@pytest.mark.network
@pytest.mark.parametrize("change", [b"theirs", None])
def test_a_swap_that_comes_late_on_gcs_is_refused_by_the_server(
    gcs: FakeGcs, change: bytes | None
) -> None:
    backend = open_backend("gs://bucket/late")
    backend.create("file", b"1")
    gcs.before_upload.append(lambda: gcs.put("late/file", change))
    assert not backend.swap("file", b"mine", expected=b"1")
    assert gcs.objects == ({} if change is None else {"late/file": (change, gcs.generation)})


@pytest.mark.network
def test_a_gcs_server_that_ignores_conditions_is_refused(gcs: FakeGcs) -> None:
    backend = open_backend("gs://bucket/probe")
    gcs.ignored = "0"
    with pytest.raises(StoreError, match="created twice"):
        backend.probe()
    gcs.ignored = "others"
    with pytest.raises(StoreError, match="ifGenerationMatch"):
        backend.probe()
    assert gcs.objects == {}


@pytest.mark.network
def test_an_s3_server_that_ignores_if_match_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend(f"{bucket}/probe")
    pipe = backend.fs.pipe_file

    def ignore(path: str, data: bytes, **options: Any) -> None:
        options.pop("IfMatch", None)
        pipe(path, data, **options)

    monkeypatch.setattr(backend.fs, "pipe_file", ignore)
    with pytest.raises(StoreError, match="If-Match"):
        backend.probe()


@pytest.mark.network
def test_on_s3_one_of_many_wins(bucket: str) -> None:
    backend = open_backend(f"{bucket}/race")
    with ThreadPoolExecutor(12) as pool:
        won = list(pool.map(lambda n: backend.create("key", b"%d" % n), range(36)))
    assert won.count(True) == 1
    assert backend.read("key") == b"%d" % won.index(True)


@pytest.mark.network
def test_a_server_that_ignores_conditions_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend(f"{bucket}/probe")
    backend.probe()
    pipe = backend.fs.pipe_file
    monkeypatch.setattr(backend.fs, "pipe_file", lambda path, data, mode=None: pipe(path, data))
    with pytest.raises(StoreError, match="created twice"):
        backend.probe()


@pytest.mark.network
def test_an_answer_that_got_lost_is_no_defeat(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends the request again and finds its own file."""
    backend = open_backend(f"{bucket}/retry")
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
