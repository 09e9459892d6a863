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


def test_a_swap_needs_what_is_expected(backend: StoreBackend) -> None:
    check_swaps(backend)


def test_of_many_swaps_one_wins(backend: StoreBackend) -> None:
    check_that_one_swap_wins(backend)


def test_the_lock_of_a_killed_process_holds_nobody_up(tmp_path: Path) -> None:
    backend = open_backend(str(tmp_path))
    backend.put_if_absent("x/file", b"1")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_ALL_LOCKS, str(tmp_path)], stdout=subprocess.PIPE
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


HOLD_ALL_LOCKS = """
import contextlib, sys, time
from pathlib import Path
import flows.store.backend as backend
backend._NUM_LOCKS = 1
# Every file's lock is number 00 here; the parent's are spread, so all numbers are one file.
root = Path(sys.argv[1])
with contextlib.ExitStack() as stack:
    stack.enter_context(backend.open_backend(sys.argv[1])._lock("x/file"))
    for number in range(64):
        with contextlib.suppress(FileExistsError):
            (root / ".locks" / f"{number:02d}").hardlink_to(root / ".locks" / "00")
    print("held", flush=True)
    time.sleep(60)
"""


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
        won = list(pool.map(lambda n: backend.put_if_absent("key", b"%d" % n), range(24)))
    assert won.count(True) == 1
    assert backend.read("key") == b"%d" % won.index(True)


@pytest.mark.parametrize(
    ("root", "package"),
    [
        ("s3://bucket/store", "bertloom[s3]"),
        ("gs://bucket/store", "bertloom[gcs]"),
        ("abfs://bucket/store", "adlfs"),
    ],
)
def test_error_names_the_missing_package(
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
def test_path_outside_of_the_store_is_refused(backend: StoreBackend, path: str) -> None:
    for touch in (backend.read, backend.delete, backend.delete_folder, backend.sizes, backend.url):
        with pytest.raises(StoreError):
            touch(path)
    with pytest.raises(StoreError):
        backend.put_if_absent(path, b"")
    with pytest.raises(StoreError):
        backend.replace(path, b"")
