"""The corpus on an object store by HTTP: other processes, requests, failing networks."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.fake_gcs import FakeGcs, use_gcs
from support.store_builder import STAGE, damage, file_of, prepared, publish_shard, published
from support.store_races import check_swaps, check_that_one_swap_wins

from benchmarks.local_server import LocalServer
from benchmarks.object_store import READ_SECONDS, Proxy, S3Server, environment
from flows.lineage.resolve import resolve
from flows.lineage.shards import rows_with
from flows.store.activity import ActiveRun, CollectionLock
from flows.store.artifacts import ArtifactStore
from flows.store.backend import StoreBackend, open_backend
from flows.store.garbage_collection import collect_garbage
from flows.store.leases import acquire_or_holder, live_holders
from flows.store.verification import verify
from pipelines.io.file_systems import file_system, read_file
from pipelines.io.files import FileWriter
from pipelines.io.raw_files import expand_paths
from schemas.errors import (
    DeterminismError,
    InputError,
    MissingInputError,
    StoreBusyError,
    StoreError,
)

pytestmark = pytest.mark.network


@pytest.fixture(params=["s3", "gs"])
def remote(request: pytest.FixtureRequest) -> str:
    """URL of an empty bucket on S3 or GCS."""
    if request.param == "gs":
        request.getfixturevalue("gcs")
        return "gs://bucket"
    return str(request.getfixturevalue("bucket"))


# Guarantees of the store


def test_swaps(remote: str) -> None:
    backend = open_backend(f"{remote}/swaps")
    check_swaps(backend)
    check_that_one_swap_wins(backend)
    backend.check_capabilities()
    assert backend.names("probe") == []


def test_browsers_are_told_that_a_page_is_html(remote: str) -> None:
    backend = open_backend(f"{remote}/store")
    backend.replace("reports/a.html", b"<p>")
    backend.replace("refs/no-suffix", b"{}")
    fs, path = file_system(backend.url("reports/a.html"))
    info = fs.info(path)
    assert (info.get("ContentType") or info.get("contentType")) == "text/html"
    assert backend.read("reports/a.html") == b"<p>"
    assert backend.read("refs/no-suffix") == b"{}"


def test_store(remote: str) -> None:
    store = ArtifactStore(f"{remote}/store")
    manifest = prepared(store)
    assert store.commit(manifest).created
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    twin = store.commit(prepared(store))
    assert (twin.created, twin.manifest) == (False, manifest)
    with pytest.raises(DeterminismError):
        store.commit(prepared(store, "two"))
    assert resolve(store.url(manifest.artifact_path), store=store) == manifest
    assert verify(store, store.pointers())[0].is_ok
    damage(store, manifest, b"onf")
    assert not verify(store, store.pointers())[0].is_ok
    store.backend.delete(file_of(store, manifest))
    assert store.lookup(STAGE, manifest.cache_key) is None
    assert store.lookup(STAGE, published(store).cache_key) is not None


def test_leases_and_garbage_collection(remote: str) -> None:
    store = ArtifactStore(f"{remote}/cleaned")
    kept, unused = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/x", kept)
    orphan = prepared(store, "three")
    with ActiveRun(store, "r") as run, acquire_or_holder(run, STAGE, kept.cache_key):
        assert list(live_holders(store)) == [(STAGE, kept.cache_key)]
    assert live_holders(store) == {}
    with ActiveRun(store, "r"), pytest.raises(StoreBusyError):
        collect_garbage(store, keep_runs=0, grace_hours=0, lock=CollectionLock(store))
    report = collect_garbage(store, keep_runs=0, grace_hours=0, lock=CollectionLock(store))
    assert {item.path for item in report.garbage} == {unused.artifact_path, orphan.artifact_path}
    assert {name.split("/")[2] for name in store.backend.stat("artifacts")} == {kept.artifact_id}
    assert store.lookup(STAGE, kept.cache_key) == kept
    assert store.backend.stat("active") == store.backend.stat("leases") == {}


def test_late_swap_on_s3_is_refused_by_server(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one writes between the reading and the conditional write."""
    backend = open_backend(f"{bucket}/late")
    backend.put_if_absent("file", b"1")
    pipe = backend.fs.pipe_file

    def write_first(path: str, data: bytes, **options: Any) -> None:
        pipe(path, b"theirs")
        pipe(path, data, **options)

    monkeypatch.setattr(backend.fs, "pipe_file", write_first)
    assert not backend.compare_and_swap("file", b"mine", expected=b"1")
    assert backend.read("file") == b"theirs"


def test_swaps_work_on_server_that_expects_bare_tags(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imitate Ceph 18's gateway, which matches `If-Match` only without quotes."""
    backend = open_backend(f"{bucket}/quotes")
    pipe, refused = backend.fs.pipe_file, []

    def write(path: str, data: bytes, **options: Any) -> None:
        if '"' in options.get("IfMatch", ""):
            refused.append(path)
            raise OSError(errno.EINVAL, None)
        pipe(path, data, **options)

    monkeypatch.setattr(backend.fs, "pipe_file", write)
    backend.check_capabilities()
    check_swaps(backend)
    assert len(refused) == 1  # once a process, not once a swap


@pytest.mark.parametrize("change", [b"theirs", None])
def test_late_swap_on_gcs_is_refused_by_server(gcs: FakeGcs, change: bytes | None) -> None:
    backend = open_backend("gs://bucket/late")
    backend.put_if_absent("file", b"1")
    gcs.before_upload.append(lambda: gcs.put("late/file", change))
    assert not backend.compare_and_swap("file", b"mine", expected=b"1")
    assert gcs.objects == ({} if change is None else {"late/file": change})


@pytest.mark.parametrize(
    ("option", "guarantee"), [("mode", "put-if-absent"), ("IfMatch", "If-Match")]
)
def test_s3_server_that_ignores_condition_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch, option: str, guarantee: str
) -> None:
    backend = open_backend(f"{bucket}/probe")
    pipe = backend.fs.pipe_file

    def ignore(path: str, data: bytes, **options: Any) -> None:
        options.pop(option, None)
        pipe(path, data, **options)

    monkeypatch.setattr(backend.fs, "pipe_file", ignore)
    with pytest.raises(StoreError, match=guarantee):
        backend.check_capabilities()


def test_gcs_server_that_ignores_conditions_is_refused(gcs: FakeGcs) -> None:
    backend = open_backend("gs://bucket/probe")
    gcs.ignored = "0"
    with pytest.raises(StoreError, match="put-if-absent"):
        backend.check_capabilities()
    gcs.ignored = "others"
    with pytest.raises(StoreError, match="ifGenerationMatch"):
        backend.check_capabilities()
    gcs.ignored = ""
    backend.check_capabilities()
    assert gcs.objects == {}


# Other processes, failing networks


def test_files_of_other_processes_are_visible_immediately(bucket: str) -> None:
    fs, path = file_system(f"{bucket}/folder")
    other = fsspec.filesystem("s3", skip_instance_cache=True)
    other.pipe_file(f"{path}/one", b"1")
    assert len(fs.ls(path)) == 1
    other.pipe_file(f"{path}/two", b"2")
    assert len(fs.ls(path)) == 2
    assert fs.exists(f"{path}/two")
    other.rm_file(f"{path}/one")
    assert not fs.exists(f"{path}/one")
    assert not fs.isfile(f"{path}/one")


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients retry at once, which otherwise wait for seconds."""
    sleep = asyncio.sleep

    async def sleep_shortly(delay: float, result: Any = None) -> Any:
        return await sleep(min(delay, 0.01), result)

    monkeypatch.setattr(asyncio, "sleep", sleep_shortly)


@pytest.fixture
def proxy(
    s3_server: S3Server, bucket: str, quick_retries: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxy]:
    """Proxy of all requests of this process, which disturbs the selected ones."""
    with Proxy(s3_server.url) as started:
        for name, value in environment(started.url, read_seconds=READ_SECONDS).items():
            monkeypatch.setenv(name, value)
        # As fsspec read the environment long ago.
        monkeypatch.setitem(
            fsspec.config.conf, "s3", {"config_kwargs": {"read_timeout": READ_SECONDS}}
        )
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield started
    fsspec.get_filesystem_class("s3").clear_instance_cache()


STALL = pytest.param("stall", marks=pytest.mark.slow)


@pytest.mark.parametrize("fault", ["500", "503", "reset", "cut", STALL])
def test_reads_are_complete_on_failing_network(
    fault: str, bucket: str, proxy: Proxy, tmp_path: Path
) -> None:
    backend = open_backend(f"{bucket}/store")
    data = bytes(range(256)) * 4096
    for name in ("one", "two"):
        backend.replace(f"x/{name}", data)
    proxy.next = [fault, "", fault]
    assert backend.read("x/one") == data
    proxy.next = [fault]
    assert read_file(f"{bucket}/store/x/one") == data
    proxy.next = [fault, fault]
    assert backend.read_many(["x/one", "x/two", "x/none"]) == {"x/one": data, "x/two": data}
    assert list(backend.read_many(["x/two", "x/one"])) == ["x/two", "x/one"]
    proxy.next = [fault, fault]
    assert backend.names("x") == ["x/one", "x/two"]
    fs, path = file_system(f"{bucket}/store/x/one")
    proxy.next = [fault]
    fs.get_file(path, str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == data
    assert proxy.harmed[fault] >= 5


@pytest.mark.parametrize("fault", ["500", "503", "reset", "lost", "cut", STALL])
def test_writes_succeed_once_on_failing_network(fault: str, bucket: str, proxy: Proxy) -> None:
    """Also if the server has written, and its response is lost."""
    _check_writes(open_backend(f"{bucket}/store"), proxy, fault)


def test_writes_succeed_once_on_gcs_when_responses_are_lost(
    gcs: FakeGcs, quick_retries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(gcs.url) as proxy:
        use_gcs(proxy.url, monkeypatch)
        _check_writes(open_backend("gs://bucket/store"), proxy, "lost")
    assert proxy.harmed == {"lost": 4}
    assert gcs.objects == {"store/x/file": b"later"}


def _check_writes(backend: StoreBackend, proxy: Proxy, fault: str) -> None:
    path = "x/file"
    proxy.next = [fault]
    assert backend.put_if_absent(path, b"mine")
    proxy.next = [fault]
    assert not backend.put_if_absent(path, b"another's")
    assert backend.read(path) == b"mine"
    proxy.next = ["", fault]  # looked at, then written
    assert backend.compare_and_swap(path, b"later", expected=b"mine")
    proxy.next = ["", fault]
    assert not backend.compare_and_swap(path, b"too late", expected=b"mine")
    proxy.next = [fault]
    assert backend.compare_and_swap(path, b"later", expected=b"later")
    assert backend.read(path) == b"later"


def test_large_upload_exists_when_last_response_is_lost(
    bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"read_timeout": 120}})
    output = f"{bucket}/store/data"
    with FileWriter("large.bin", output=output) as writer:
        writer.file.write(bytes(51 << 20))  # which is more than one request takes
        writer.file.write(bytes(1))
        assert proxy.counts()["POST"] == 1
        proxy.next = ["", "lost"]  # the last part, and that it was the last
    fs, path = file_system(f"{output}/{writer.stored_name}")
    assert fs.info(path)["size"] == writer.entry().size_bytes == (51 << 20) + 1
    assert proxy.harmed["lost"] == 1


# Requests


def test_rows_of_a_small_shard_are_fetched_once(bucket: str, proxy: Proxy) -> None:
    store = ArtifactStore(f"{bucket}/store")
    artifact = replace(store.artifact(publish_shard(store)), checks_digests=False)
    first = len(proxy.requests)
    for _ in range(3):
        table = artifact.table()
        assert table.count_rows() == 2
        assert table.take([1]).to_pylist()[0]["document_id"] == "b"
        assert rows_with(table, "document_id", "b") == [1]
    kinds = Counter(kind for kind, _ in proxy.requests[first:])
    assert kinds == {"HEAD": 1, "GET": 1}  # the size is compared with the manifest


@pytest.mark.slow
def test_corpus_of_sample_makes_fewer_than_260_requests() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_object_store", "--articles", "100", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["equal"]
    # On a busy machine each further minute of a run adds a heartbeat.
    assert sum(found["first"].values()) < 260
    assert sum(found["again"].values()) < 90


# Access


class _Denying(BaseHTTPRequestHandler):
    """S3 server that refuses every key."""

    def _deny(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        text = (
            b"<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you provided "
            b"does not exist in our records.</Message><AWSAccessKeyId>AKIATEST</AWSAccessKeyId>"
            b"</Error>"
        )
        self.send_response(403)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _deny  # noqa: N815 - the server asks for them


@pytest.mark.parametrize("name", ["s3://no-such-bucket", "gs://none"])
def test_missing_bucket_is_an_error(bucket: str, gcs: FakeGcs, name: str) -> None:
    with pytest.raises(StoreError, match="the bucket exists"):
        ArtifactStore(f"{name}/store")
    for path in ("raw/*.txt", "raw/file.txt"):
        with pytest.raises(MissingInputError, match=name):
            expand_paths([f"{name}/{path}"])


def test_wrong_credentials_are_an_error_without_secrets(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gcs.token = "right"
    for name in ("s3://bucket", "gs://bucket"):
        with LocalServer(_Denying) as server:
            given = {**environment(server.url), "AWS_ACCESS_KEY_ID": "AKIATEST"}
            for key, value in {**given, "AWS_SECRET_ACCESS_KEY": "hidden-thing"}.items():
                monkeypatch.setenv(key, value)
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            with pytest.raises(StoreError, match=r"the bucket exists.* credentials") as one:
                ArtifactStore(f"{name}/store")
            with pytest.raises(InputError, match=r"the credentials") as other:
                expand_paths([f"{name}/raw"])
        for text in (str(one.value), str(other.value), caplog.text):
            assert "AKIATEST" not in text
            assert "hidden-thing" not in text
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_abandoned_file_is_not_uploaded_to_gcs(gcs: FakeGcs) -> None:
    """gcsfs uploads what a file holds when it is collected as garbage, unless it is closed."""
    for size in (10, 6 << 20):
        writer = FileWriter("file.bin", output="gs://bucket/data")
        with contextlib.suppress(KeyError), writer:
            writer.file.write(bytes(size))
            raise KeyError
        sink = writer._sink
        assert sink.closed
        sink.close()
    assert gcs.objects == gcs.uploads == {}
