"""The stand-in of GCS, by gcsfs: what it answers is what GCS would."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import pytest
from gcsfs.retry import HttpError
from support.fake_gcs import QUANTUM, FakeGcs, use_gcs

from benchmarks.object_store import Proxy

pytestmark = pytest.mark.network


@pytest.fixture
def fs(gcs: FakeGcs) -> Any:
    return fsspec.filesystem("gs", use_listings_cache=False)


@pytest.fixture
def proxy(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with Proxy(gcs.url) as started:
        use_gcs(started.url, monkeypatch)
        yield started


def test_ranges(fs: Any) -> None:
    data = bytes(range(256)) * 64
    fs.pipe_file("bucket/a b/ü?#%", data)
    assert fs.cat_file("bucket/a b/ü?#%") == data
    assert fs.cat_file("bucket/a b/ü?#%", start=5, end=300) == data[5:300]
    assert fs.cat_file("bucket/a b/ü?#%", start=16_000) == data[16_000:]
    with fs.open("bucket/a b/ü?#%", block_size=1000) as source:
        source.seek(700)
        assert source.read(4000) == data[700:4700]
        source.seek(-3, 2)
        assert source.read() == data[-3:]
    fs.pipe_file("bucket/empty", b"")
    assert fs.cat_file("bucket/empty") == b""
    with pytest.raises(FileNotFoundError):
        fs.cat_file("bucket/none")
    with pytest.raises(FileNotFoundError):
        fs.cat_file("another/file")


def test_listings_come_in_pages(gcs: FakeGcs, fs: Any) -> None:
    gcs.page = 2
    names = ["a/1", "a/2", "a/b/1", "a/b/2", "a/c/1", "a-1", "a.1", "b"]
    for name in names:
        gcs.put(name, b"x")
    below = [f"bucket/a/{name}" for name in ("1", "2", "b", "c")]
    assert sorted(fs.ls("bucket/a")) == below
    assert [item["type"] for item in fs.ls("bucket/a", detail=True)] == [
        "file", "file", "directory", "directory"
    ]  # fmt: skip
    assert fs.find("bucket/a") == [f"bucket/{name}" for name in names[:5]]
    assert sorted(fs.find("bucket")) == sorted(f"bucket/{name}" for name in names)
    assert fs.find("bucket", prefix="a/") == [f"bucket/{name}" for name in names[:5]]
    assert fs.find("bucket/none") == fs.find("bucket", prefix="none/") == []
    assert fs.isdir("bucket/a/b")
    assert not fs.isfile("bucket/a/b")
    assert fs.isfile("bucket/b")
    assert not fs.exists("bucket/c")
    assert fs.glob("bucket/a/*/1") == ["bucket/a/b/1", "bucket/a/c/1"]


def test_conditions(gcs: FakeGcs, fs: Any) -> None:
    fs.pipe_file("bucket/key", b"first", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file("bucket/key", b"second", mode="create")
    place = ("DELETE", "b/{}/o/{}", "bucket", "key")
    with pytest.raises(FileExistsError):
        fs.call(*place, ifGenerationMatch=gcs.generation + 1)
    was = gcs.generation
    fs.pipe_file("bucket/key", b"third")
    with pytest.raises(FileNotFoundError):
        fs.call("GET", "b/{}/o/{}", "bucket", "key", generation=was)
    fs.call(*place, ifGenerationMatch=gcs.generation)
    assert gcs.objects == {}
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: _creates(fs, b"%d" % number), range(16)))
    assert won.count(True) == 1
    assert gcs.objects == {"race": b"%d" % won.index(True)}


def _creates(fs: Any, data: bytes) -> bool:
    try:
        fs.pipe_file("bucket/race", data, mode="create")
    except FileExistsError:
        return False
    return True


@pytest.mark.parametrize("kept", [None, QUANTUM, 3 * QUANTUM])
def test_an_upload_in_chunks_goes_on_after_what_was_kept(
    kept: int | None, gcs: FakeGcs, fs: Any
) -> None:
    gcs.chunk = kept
    data = bytes(range(251)) * 5000  # 4.8 times that many bytes
    with fs.open("bucket/large", "wb", block_size=2 * QUANTUM) as sink:
        for begin in range(0, len(data), 300_000):
            sink.write(data[begin : begin + 300_000])
            assert gcs.objects == {}
    assert gcs.objects == {"large": data}
    fs.cp_file("bucket/large", "bucket/copy")
    assert gcs.objects["copy"] == data


# Begun; one chunk; the second, and again; the last. An answer without a body cannot be cut.
@pytest.mark.parametrize("fault", ["503", "reset", "torn", "lost"])
def test_an_upload_in_chunks_goes_on_where_it_was_cut(
    fault: str, gcs: FakeGcs, proxy: Proxy, fs: Any
) -> None:
    data = bytes(range(251)) * 5000
    proxy.next = ["", "", fault, "", fault]
    with fs.open("bucket/large", "wb", block_size=2 * QUANTUM) as sink:
        for begin in range(0, len(data), 2 * QUANTUM):
            sink.write(data[begin : begin + 2 * QUANTUM])
    assert gcs.objects == {"large": data}
    assert proxy.harmed[fault] == 2


def test_an_upload_that_is_given_up_leaves_nothing(gcs: FakeGcs, fs: Any) -> None:
    sink = fs.open("bucket/large", "wb", block_size=QUANTUM)
    sink.write(bytes(3 * QUANTUM))
    assert len(gcs.uploads) == 1
    sink.discard()
    assert gcs.uploads == gcs.objects == {}


def test_deletes_in_batches(gcs: FakeGcs, fs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(fs), "on_google", True)  # elsewhere gcsfs takes a request for each
    for number in range(7):
        gcs.put(f"x/{number} ü", b"")
    gcs.batch_faults = [0, 503, 0]
    fs.rm("bucket/x", recursive=True)
    assert gcs.objects == {}
    with pytest.raises(FileNotFoundError):
        fs.rm("bucket/x", recursive=True)


def test_what_is_not_known_is_named(gcs: FakeGcs, fs: Any) -> None:
    with pytest.raises(HttpError, match="o/both/compose: the request not known"):
        fs.merge("bucket/both", ["bucket/one", "bucket/two"])
    with pytest.raises(HttpError, match=r"parameters \['versions'\] not known"):
        fs.ls("bucket", versions=True)
    with pytest.raises(HttpError, match=r"fields \['metadata'\] not known"):
        fs.pipe_file("bucket/file", b"", metadata={"a": "b"})
    assert len(gcs.unknown) == 3
    gcs.unknown.clear()
