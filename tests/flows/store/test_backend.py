"""Backends create, swap and delete files for one caller at a time, below their root only."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.store_races import FILES, REPEATS, check_swaps, check_that_one_swap_wins, race

from flows.store.artifacts import ArtifactStore
from flows.store.backend import StoreBackend, open_backend
from schemas.errors import StoreError


@pytest.fixture(params=["local", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    is_local = request.param == "local"
    return open_backend(str(tmp_path) if is_local else f"memory://{tmp_path.name}/backend")


def test_swap_requires_expected_content(backend: StoreBackend) -> None:
    check_swaps(backend)


def test_one_of_concurrent_swaps_succeeds(backend: StoreBackend) -> None:
    check_that_one_swap_wins(backend)


def test_one_of_concurrent_threads_creates_file_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend("memory://race")
    exists = backend.fs.exists

    def exists_slowly(path: str) -> bool:
        result = bool(exists(path))
        time.sleep(0.01)
        return result

    monkeypatch.setattr(backend.fs, "exists", exists_slowly)
    with ThreadPoolExecutor(12) as pool:
        created = list(pool.map(lambda n: backend.put_if_absent("key", b"%d" % n), range(24)))
    assert created.count(True) == 1
    assert backend.read("key") == b"%d" % created.index(True)


def test_one_of_concurrent_processes_creates_each_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results, start = context.Queue(), context.Barrier(12)
    names = [f"{number:02d}" for number in range(12)]
    processes = [
        context.Process(target=race, args=(str(tmp_path), name, start, results)) for name in names
    ]
    for process in processes:
        process.start()
    created = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    for number in range(FILES):
        [winner] = [name for name in names if created[name][number]]
        assert (tmp_path / "keys" / f"{number}.json").read_text() == winner * REPEATS
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".")] == []


def test_lock_of_killed_process_is_free(tmp_path: Path) -> None:
    backend = open_backend(str(tmp_path))
    backend.put_if_absent("x/file", b"1")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with ThreadPoolExecutor(1) as pool:
        swapped = pool.submit(backend.compare_and_swap, "x/file", b"2", expected=b"1")
        with pytest.raises(TimeoutError):
            swapped.result(0.2)
        holder.kill()
        assert swapped.result(30)
    holder.wait()
    holder.stdout.close()


HOLD_LOCK = """
import sys, time
from flows.store.backend import open_backend

with open_backend(sys.argv[1])._lock():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("url", ["https://example.org/store", "nosuch://x"])
def test_url_of_unsupported_protocol_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match=url):
        ArtifactStore(url)


@pytest.mark.parametrize(
    ("root", "package"),
    [
        ("s3://bucket/store", "bertloom[s3]"),
        ("gs://bucket/store", "bertloom[gcs]"),
        ("abfs://bucket/store", "adlfs"),
    ],
)
def test_error_names_missing_package(
    root: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file_system(url: str) -> None:
        raise ImportError("Install adlfs")

    monkeypatch.setattr("flows.store.backend.file_system", file_system)
    with pytest.raises(StoreError) as error:
        open_backend(root)
    assert root in str(error.value)
    assert package in str(error.value)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "a/.."])
def test_path_outside_of_store_is_refused(backend: StoreBackend, path: str) -> None:
    for read in (backend.read, backend.delete, backend.delete_folder, backend.sizes, backend.url):
        with pytest.raises(StoreError):
            read(path)
    for write in (backend.put_if_absent, backend.replace):
        with pytest.raises(StoreError):
            write(path, b"")
