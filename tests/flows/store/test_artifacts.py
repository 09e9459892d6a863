"""Artifacts are published once, checked when used, and named by refs."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.store_builder import (
    STAGE,
    damage,
    describe,
    file_of,
    input_from,
    prepared,
    publish_shard,
    published,
)
from support.store_races import FILES, REPEATS, check_swaps, check_that_one_swap_wins, race

import bertloom
from flows.store.artifacts import ArtifactStore
from flows.store.backend import open_backend
from flows.store.pointers import Ref, key_path, pointer_to, ref_path
from model.training.artifact_files import write_file
from pipelines.io import local_files
from pipelines.io.files import write_text_file
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    DeterminismError,
    RefConflictError,
    StoreError,
)
from schemas.json_files import dump_json


@pytest.fixture
def store(any_store: ArtifactStore) -> ArtifactStore:
    return any_store


# Publishing and lookup


def test_committed_artifact_is_found(store: ArtifactStore) -> None:
    manifest = prepared(store)
    write_text_file("vocab.txt", "of a retried worker", output=store.url(manifest.data_path))
    assert store.lookup(STAGE, manifest.cache_key) is None
    assert store.commit(manifest).created
    assert list(store.backend.sizes(manifest.data_path)) == [manifest.files[0].stored_name]
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


def test_second_commit_of_other_content_is_refused_and_stays_for_comparison(
    store: ArtifactStore,
) -> None:
    first, second = prepared(store, "one"), prepared(store, "two")
    store.commit(first)
    with pytest.raises(DeterminismError) as caught:
        store.commit(second)
    for text in ("vocab.txt", first.artifact_id, second.artifact_id):
        assert text in str(caught.value)
    assert store.lookup(STAGE, first.cache_key) == first
    assert store.read_manifest(second.manifest_path) == second


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


def test_failing_server_or_replaced_pointer_quarantines_nothing(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = published(store)

    def fail(folder: str) -> dict[str, int]:
        raise ConnectionError(f"{folder}: no answer")

    monkeypatch.setattr(store.backend, "sizes", fail)
    with pytest.raises(ConnectionError):
        store.lookup(STAGE, manifest.cache_key)
    monkeypatch.undo()
    path = key_path(STAGE, manifest.cache_key)
    store.quarantine(path, expected=b"replaced since", reason="a test")
    assert store.lookup(STAGE, manifest.cache_key) == manifest


# Refs


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
    store.backend.replace(ref_path("fake/build-tokens.a"), b"{")
    store.set_ref("fake/build-tokens.a", second)
    assert store.ref("fake/build-tokens.a") is not None


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


def test_ref_with_fields_in_another_order_is_moved_and_deleted(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    one, two = pointer_to(first), pointer_to(second)
    ref = Ref(name="corpus/latest", pointer=one).model_dump(exclude_defaults=True)
    reordered = dump_json(dict(reversed(ref.items())))
    store.backend.replace(ref_path("corpus/latest"), reordered)
    store.swap_ref("corpus/latest", two, expected=one)
    assert store.ref("corpus/latest") == two
    store.backend.replace(ref_path("corpus/latest"), reordered)
    store.delete_ref("corpus/latest", expected=one)
    assert store.ref("corpus/latest") is None


@pytest.mark.parametrize("name", ["../keys/x", "a/../b", "/etc/x", "a//b", ".hidden", "a/.b", ""])
def test_ref_outside_of_its_folder_is_refused(store: ArtifactStore, name: str) -> None:
    with pytest.raises(ConfigError):
        store.set_ref(name, published(store))


# Opening a store


def test_store_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFoundError):
        ArtifactStore(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=f"{tmp_path}/file/store"):
        ArtifactStore(str(tmp_path / "file" / "store"))


# Files are compared with their digests before their first use


def test_artifact_opens_its_files_and_inputs(any_store: ArtifactStore) -> None:
    manifest = published(any_store, "one")
    artifact = any_store.artifact(manifest)
    with artifact.open("vocab.txt") as file:
        assert file.read() == b"one"
    assert artifact.files == ("vocab.txt",)
    with pytest.raises(ArtifactNotFoundError):
        artifact.open("other.txt")
    product = any_store.artifact(published(any_store, "two", **input_from(manifest)))
    assert product.upstream()["documents"].manifest == manifest
    assert product.input("vocabulary") is None


@pytest.mark.parametrize("is_missing", [False, True])
def test_corrupt_file_is_an_error_also_after_its_first_use(
    any_store: ArtifactStore, is_missing: bool
) -> None:
    manifest = published(any_store, "one")
    artifact = any_store.artifact(manifest)
    artifact.url("vocab.txt")
    if is_missing:
        any_store.backend.delete(file_of(any_store, manifest))
    else:
        damage(any_store, manifest, b"onf")
    for use in (artifact.open, artifact.url, lambda _: artifact.folder()):
        with pytest.raises(ArtifactCorruptError, match=manifest.files[0].stored_name):
            use("vocab.txt")
    assert artifact.folder(exclude=("vocab.txt",)) == any_store.url(manifest.data_path)


# Commands


def test_no_rows_of_corrupt_shard_are_shown(root: str, cli: Cli) -> None:
    store = ArtifactStore(root)
    manifest = publish_shard(store)
    [entry] = manifest.files
    damage(store, manifest, b"x" * entry.size_bytes)
    for command in (("head", STAGE), ("trace", f"{STAGE}:0")):
        result = cli(*command, "--store", store.root)
        assert (result.code, entry.stored_name in result.err) == (1, True), result
    artifact = bertloom.open_store(store.root).artifact(STAGE)
    for read in (artifact.dataset, artifact.path, lambda: artifact.file(entry.path)):
        with pytest.raises(ArtifactCorruptError, match=entry.stored_name):
            read()


@pytest.mark.parametrize(
    "arguments",
    [
        ("fill", "a [MASK]", "--model", "MODEL"),
        ("predict", "MODEL", "a"),
        ("finetune", "sst-2", "--data-dir", "x", "--checkpoint", "MODEL"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_command_uses_no_corrupt_model(root: str, cli: Cli, arguments: tuple[str, ...]) -> None:
    store = ArtifactStore(root)
    attempt = store.begin("pretrain")
    names = ("config.json", "model.safetensors", "optimizer.safetensors")
    files = [write_file(name, [b"{}"], output=attempt.output) for name in names]
    manifest = store.commit(describe(attempt, files, stage="pretrain")).manifest
    weights = Path(attempt.output, "model.safetensors")
    weights.write_bytes(b"[]")
    for model in (attempt.output, manifest.artifact_id):
        command = [model if argument == "MODEL" else argument for argument in arguments]
        result = cli(*command, "--store", store.root)
        assert (result.code, str(weights) in result.err) == (1, True), result


# Backends


def test_swap_succeeds_once_and_requires_expected_content(store: ArtifactStore) -> None:
    check_swaps(store.backend)
    check_that_one_swap_wins(store.backend)


def test_one_of_concurrent_processes_creates_each_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    results, start = context.Queue(), context.Barrier(12)
    names = [f"{number:02d}" for number in range(12)]
    processes = [
        context.Process(target=race, args=(str(tmp_path), name, start, results)) for name in names
    ]
    for process in processes:
        process.start()
    created = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    for number in range(FILES):
        [winner] = [name for name in names if created[name][number]]
        assert (tmp_path / "keys" / f"{number}.json").read_text() == winner * REPEATS
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".")] == []


@pytest.mark.parametrize("url", ["https://example.org/store", "nosuch://x"])
def test_url_of_unsupported_protocol_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match=url):
        open_backend(url)


def test_error_names_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def file_system(url: str) -> None:
        raise ImportError("Install s3fs")

    monkeypatch.setattr("flows.store.backend.file_system", file_system)
    with pytest.raises(StoreError) as error:
        open_backend("s3://bucket/store")
    assert "s3://bucket/store" in str(error.value)
    assert "bertloom[s3]" in str(error.value)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "a/.."])
def test_path_outside_of_store_is_refused(store: ArtifactStore, path: str) -> None:
    backend = store.backend
    for read in (backend.read, backend.delete, backend.delete_folder, backend.sizes, backend.url):
        with pytest.raises(StoreError):
            read(path)
    for write in (backend.put_if_absent, backend.replace):
        with pytest.raises(StoreError):
            write(path, b"")


def test_link_that_nfs_reports_as_existing_is_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, link = ArtifactStore(str(tmp_path / "store")), os.link

    def link_and_lose_answer(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "File exists", str(target))

    manifest = prepared(store, "one")
    monkeypatch.setattr(os, "link", link_and_lose_answer)
    assert store.commit(manifest).created
    monkeypatch.undo()
    assert store.lookup(manifest.stage, manifest.cache_key) == manifest
    assert not store.backend.put_if_absent(key_path(manifest.stage, manifest.cache_key), b"{}")


class FailingLink:
    """Replacement of `os.link` that fails some times, before or after it has made the link."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int, *, fails: int, links: bool):
        self.code, self.fails, self.links, self.calls = code, fails, links, 0
        self._link = os.link
        monkeypatch.setattr(os, "link", self)
        monkeypatch.setattr(local_files, "_LINK_DELAYS", (0.0, 0.0, 0.0), raising=False)

    def __call__(self, source: Path, target: Path) -> None:
        self.calls += 1
        if self.calls > self.fails:
            self._link(source, target)
            return
        if self.links and self.calls == 1:
            self._link(source, target)
        raise OSError(self.code, os.strerror(self.code), str(target))


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("fails", [1, 3])
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_link_is_repeated_after_passing_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fails: int, links: bool
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    link = FailingLink(monkeypatch, code, fails=fails, links=links)
    assert store.backend.put_if_absent("leases/x", b"mine")
    assert link.calls == fails + 1
    assert not store.backend.put_if_absent("leases/x", b"other")
    assert store.backend.read("leases/x") == b"mine"
    assert list(store.backend.stat("leases")) == ["leases/x"]


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        (errno.EIO, 4),
        (errno.ESTALE, 4),
        (errno.ENOSPC, 1),
        (errno.EDQUOT, 1),
        (errno.EACCES, 1),
        (errno.EROFS, 1),
    ],
)
def test_error_of_disk_is_not_called_missing_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, calls: int
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    link = FailingLink(monkeypatch, code, fails=99, links=False)
    with pytest.raises(OSError, match=os.strerror(code)) as error:
        store.backend.put_if_absent("keys/x", b"")
    assert (error.value.errno, link.calls) == (code, calls)
    assert not isinstance(error.value, local_files.HardLinkError)
    assert list(store.backend.stat("keys")) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_disk_without_hard_links_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    FailingLink(monkeypatch, code, fails=99, links=False)
    with pytest.raises(StoreError, match="hard links"):
        store.backend.put_if_absent("keys/x", b"")


def test_commit_keeps_own_artifact_when_store_denies_its_success(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, put = prepared(store, "one"), store.backend.put_if_absent

    def put_and_deny(path: str, data: bytes) -> bool:
        put(path, data)
        return False

    monkeypatch.setattr(store.backend, "put_if_absent", put_and_deny)
    assert store.commit(manifest).created
    assert store.lookup(manifest.stage, manifest.cache_key) == manifest


def test_misplaced_pointer_is_not_used(store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    source, target = (key_path(made.stage, made.cache_key) for made in (first, second))
    store.backend.replace(target, store.backend.read(source))
    assert store.lookup(second.stage, second.cache_key) is None
    assert store.lookup(first.stage, first.cache_key) == first
