"""Garbage collection deletes what nothing retains while no run is alive."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.store_builder import (
    MISSING_PID,
    STAGE,
    file_of,
    input_from,
    published,
    write_heartbeat,
    write_run,
)

from flows.store import activity, garbage_collection
from flows.store.activity import ActiveRun, CollectionLock
from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import GarbageReport, collect_garbage, find_garbage
from flows.store.gc_roots import StoreScan
from flows.store.pointers import pointer_to
from flows.store.verification import verify
from pipelines.io.files import write_text_file
from schemas.errors import ArtifactCorruptError, StoreBusyError
from schemas.json_files import dump_json
from schemas.manifest import Manifest

RUN = "20260101t000000-aa"
DAY = 24 * 3600.0


@pytest.fixture
def store(any_store: ArtifactStore) -> ArtifactStore:
    return any_store


DEFAULTS = {"keep_runs": 10, "grace_hours": 0}


def collect(store: ArtifactStore, **options: Any) -> GarbageReport:
    return collect_garbage(store, **{**DEFAULTS, **options}, lock=CollectionLock(store))


def find(store: ArtifactStore, **options: Any) -> GarbageReport:
    return find_garbage(store, **{**DEFAULTS, **options})


def paths(report: GarbageReport, *kinds: str) -> set[str]:
    return {item.path for item in report.garbage if not kinds or item.kind in kinds}


def exists(store: ArtifactStore, manifest: Manifest) -> bool:
    is_published = store.lookup(STAGE, manifest.cache_key) is not None
    assert is_published == bool(store.backend.sizes(manifest.artifact_path))
    return is_published


def publish_several(store: ArtifactStore, count: int, *, is_old: bool = False) -> list[Manifest]:
    manifests = [published(store, f"text {n}", spec={"seed": n}) for n in range(count)]
    if is_old:
        set_times(store, 0.0)
    return manifests


def set_times(store: ArtifactStore, time: float) -> None:
    """Set the modification times of all files."""
    for path in store.backend.stat(""):
        if store.backend.is_local:
            os.utime(store.url(path), (time, time))
        else:
            file = store.backend.fs.store[store.backend._full(path)]
            file.modified = datetime.fromtimestamp(time, UTC)


def write_run_of(store: ArtifactStore, run_id: str, *manifests: Manifest, **fields: Any) -> None:
    steps = [
        {"label": "x", "manifest": manifest.manifest_path, "was_cached": False, "seconds": 1.0}
        for manifest in manifests
    ]
    write_run(store, run_id, **{"steps": steps, **fields})


# What is retained


def test_artifact_without_ref_or_run_is_deleted(store: ArtifactStore) -> None:
    unused, named, of_user, of_run, of_part, missing = publish_several(store, 6)
    store.set_ref("fake/build-tokens", named)
    store.set_ref("table-2", of_user)
    write_run_of(store, RUN, of_run)
    parts = pointer_to(named).model_copy(update={"parts": {"x": of_part.manifest_path}})
    store.swap_ref("corpus/latest", parts, expected=None)
    store.set_ref("fake/gone", missing)
    store.backend.delete_folder(missing.artifact_path)
    report = collect(store)
    assert "ref fake/gone" in report.notes[0]
    assert paths(report, "artifact") == {unused.artifact_path}
    assert report.freed >= unused.size_bytes
    assert report.by_kind()["artifact"][0] == 1
    assert not exists(store, unused)
    assert all(exists(store, manifest) for manifest in (named, of_user, of_run, of_part))
    assert {item.path: item.reason for item in report.retained} == {
        named.artifact_path: "ref corpus/latest",
        of_user.artifact_path: "ref table-2",
        of_run.artifact_path: f"run {RUN}",
        of_part.artifact_path: "ref corpus/latest",
    }
    assert store.backend.names("active") == []


def test_artifacts_of_grace_period_are_retained_with_inputs(store: ArtifactStore) -> None:
    old = published(store)
    set_times(store, 0.0)
    new = published(store, "two", **input_from(old))
    assert paths(collect(store, grace_hours=24)) == set()
    set_times(store, 0.0)
    collected = paths(collect(store, grace_hours=24), "artifact")
    assert collected == {old.artifact_path, new.artifact_path}


def test_artifacts_of_last_runs_are_retained(store: ArtifactStore) -> None:
    manifests = publish_several(store, 3)
    for number, manifest in enumerate(manifests):
        write_run_of(store, f"2026010{number}t000000-aa", manifest)
    assert paths(collect(store, keep_runs=2)) == {manifests[0].artifact_path}
    assert len(store.backend.names("runs")) == 3
    assert paths(collect(store, keep_runs=4, delete_runs=True)) == set()
    report = collect(store, keep_runs=1, delete_runs=True)
    assert paths(report, "artifact") == {manifests[1].artifact_path}
    assert paths(report, "run") == {"runs/20260100t000000-aa", "runs/20260101t000000-aa"}
    assert store.backend.names("runs") == ["runs/20260102t000000-aa/run.json"]


# Other files


def test_stale_records_and_temporary_files_are_deleted(store: ArtifactStore) -> None:
    [manifest] = publish_several(store, 1)
    store.set_ref("fake/x", manifest)
    existing, missing = file_of(store, manifest), "artifacts/build-tokens/aa/data/part"
    folder = f"pieces/{STAGE}/{'0' * 64}/ab"
    for name, locations in {
        "both": [[missing], [existing]],
        "part": [[missing, existing]],
        "none": [[missing]],
        "words": [[]],
    }.items():
        store.backend.replace(f"{folder}/{name}.json", dump_json({"locations": locations}))
    others = {
        f"{folder}/damaged.json",
        f"{folder}/x.json.0123456789ab.partial",
        "probe/1234",
        "machines/node-0-29500/1.json",
        "quarantine/build-tokens/1.json",
        "leases/build-tokens/1.json",
        activity.heartbeat_path("crashed"),
        f"keys/{STAGE}/aa/.1.json.{'0' * 32}",
    }
    for path in others:
        store.backend.replace(path, b"{")
    write_heartbeat(store, "crashed", pid=MISSING_PID)
    set_times(store, time.time() - 35 * DAY)  # items without files are kept for two months
    assert f"{folder}/words.json" not in paths(find(store, grace_hours=24))
    set_times(store, 0.0)
    report = collect(store, grace_hours=24)
    items = {f"{folder}/{name}.json" for name in ("part", "none", "words")}
    assert paths(report) == items | others
    assert not paths(report) & set(store.backend.stat(""))
    assert exists(store, manifest)


# Errors


def test_corrupt_manifest_stops_collection(store: ArtifactStore) -> None:
    retained, _ = publish_several(store, 2)
    store.set_ref("fake/x", retained)
    store.backend.replace(retained.manifest_path, b"{")
    before = set(store.backend.stat(""))
    with pytest.raises(ArtifactCorruptError, match=retained.manifest_path):
        collect(store)
    assert set(store.backend.stat("")) == before


# Runs and collections


@pytest.mark.parametrize(
    "heartbeat", [{}, {"age": 3600.0}, {"host": "elsewhere", "age": 50.0}], ids=str
)
def test_collection_refuses_while_run_is_alive(
    store: ArtifactStore, heartbeat: dict[str, Any]
) -> None:
    publish_several(store, 2)
    write_heartbeat(store, RUN, **heartbeat)
    before = set(store.backend.stat(""))
    with pytest.raises(StoreBusyError, match=RUN):
        collect(store)
    assert set(store.backend.stat("")) == before
    assert any(RUN in note for note in find(store).notes)


@pytest.mark.parametrize(
    "heartbeat", [{"pid": MISSING_PID}, {"host": "elsewhere", "age": 70.0}], ids=str
)
def test_attempts_and_checkpoints_of_crashed_run_are_deleted(
    store: ArtifactStore, heartbeat: dict[str, Any]
) -> None:
    write_run(store, RUN, state="running")
    write_heartbeat(store, RUN, **heartbeat)
    attempt = store.begin(STAGE)
    write_text_file("vocab.txt", "x", output=attempt.output)
    work = f"work/{STAGE}/{'ab' * 32}"
    store.backend.put_if_absent(f"{work}/step-1", b"x")
    assert not paths(collect(store, grace_hours=24), "attempt", "work")  # a rerun resumes
    write_heartbeat(store, RUN, **heartbeat)
    deleted = paths(collect(store))
    assert deleted == {attempt.location, work, activity.heartbeat_path(RUN)}
    assert not deleted & set(store.backend.stat(""))


def test_corrupt_heartbeat_stops_collection(store: ArtifactStore) -> None:
    publish_several(store, 1)
    store.backend.replace(activity.heartbeat_path(RUN), b"{")
    before = set(store.backend.stat(""))
    with pytest.raises(ArtifactCorruptError, match=RUN):
        collect(store)
    assert set(store.backend.stat("")) == before


def test_second_collection_is_refused(store: ArtifactStore) -> None:
    with CollectionLock(store), pytest.raises(StoreBusyError), CollectionLock(store):
        pass
    with CollectionLock(store):
        assert store.backend.names("active") == [activity.heartbeat_path("gc")]
    assert store.backend.names("active") == []


@pytest.mark.parametrize(
    "heartbeat", [{"pid": MISSING_PID}, {"host": "elsewhere", "age": 70.0}], ids=str
)
def test_lock_of_crashed_collection_is_free(
    store: ArtifactStore, heartbeat: dict[str, Any]
) -> None:
    write_heartbeat(store, "gc", **heartbeat)
    with ActiveRun(store, RUN):
        assert activity.live_runs(store) != []
    with CollectionLock(store):
        pass
    assert store.backend.names("active") == []


def test_run_waits_for_collection(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "_POLL_SECONDS", 0.01)
    waiting, started = threading.Event(), threading.Event()

    def start_run() -> None:
        with ActiveRun(store, RUN, log=lambda _: waiting.set()):
            started.set()

    thread = threading.Thread(target=start_run)
    with CollectionLock(store):
        thread.start()
        assert waiting.wait(300)
        assert not started.is_set()
        assert activity.live_runs(store) == []
    thread.join(300)
    assert started.is_set()


def test_patient_collection_waits_for_run(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "_POLL_SECONDS", 0.01)
    waiting = threading.Event()
    lock = CollectionLock(store, is_patient=True, log=lambda _: waiting.set())
    [unused] = publish_several(store, 1)
    reports: list[GarbageReport] = []
    thread = threading.Thread(
        target=lambda: reports.append(collect_garbage(store, **DEFAULTS, lock=lock))
    )
    with ActiveRun(store, RUN):
        thread.start()
        assert waiting.wait(300)
        with ActiveRun(store, "another"):  # it does not wait for a collection that waits
            assert exists(store, unused)
    thread.join(300)
    assert [paths(report) for report in reports] == [{unused.artifact_path}]


def test_run_and_collection_that_start_together_are_never_both_active(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One starts after each request to the store that the other makes at its start."""
    monkeypatch.setattr(activity, "_POLL_SECONDS", 0.0)
    for first in ("run", "collection"):
        position, outcomes = 0, []
        while True:
            outcome = _start_both(store, first=first, position=position)
            if outcome is None:
                break
            outcomes.append(outcome)
            position += 1
        assert len(outcomes) >= 3, first
        assert not any(outcomes), (first, outcomes)


def _start_both(store: ArtifactStore, *, first: str, position: int) -> bool | None:
    """Start the second one in the middle of the start of the first; return if both were active.

    None: the first one makes fewer requests than `position`.
    """
    backend, requests, active = store.backend, [0], set[str]()

    def start(name: str) -> None:
        lock: ActiveRun | CollectionLock = CollectionLock(store)
        if name == "run":
            lock = ActiveRun(store, RUN, log=_raise_busy)
        with contextlib.suppress(StoreBusyError):
            stack.enter_context(lock)
            active.add(name)

    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for name in ("read_if_exists", "read_many", "replace", "compare_and_swap"):
            method: Callable[..., Any] = getattr(backend, name)

            def request(*args: Any, method: Callable[..., Any] = method, **options: Any) -> Any:
                requests[0] += 1
                if requests[0] == position + 1:
                    start("collection" if first == "run" else "run")
                return method(*args, **options)

            patch.setattr(backend, name, request)
        start(first)
        if requests[0] <= position:
            return None
        return len(active) == 2


def _raise_busy(text: str) -> None:
    raise StoreBusyError(text)


def test_collection_that_lost_its_lock_deletes_nothing_more(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended, and a collection of another machine took the lock."""
    publish_several(store, 2)
    scan = garbage_collection.scan_store

    def scan_and_lose_lock(*args: Any, **options: Any) -> StoreScan:
        scanned = scan(*args, **options)
        write_heartbeat(store, "gc", host="elsewhere")
        monkeypatch.setattr(activity, "HEARTBEAT_SECONDS", -1.0)  # the last heartbeat is old
        return scanned

    monkeypatch.setattr(garbage_collection, "scan_store", scan_and_lose_lock)
    before = {pointer.artifact_id for pointer in store.pointers()}
    with pytest.raises(StoreBusyError):
        collect(store)
    assert {pointer.artifact_id for pointer in store.pointers()} == before
    assert store.backend.names("active") == [activity.heartbeat_path("gc")]


class Killed(BaseException):
    pass


def kill_after(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Raise `Killed` instead of change number `count`."""
    remaining, is_nested = [count], [False]
    for name in ("put_if_absent", "replace", "compare_and_swap", "delete", "delete_folder"):
        method: Callable[..., Any] = getattr(store.backend, name)

        def change(*args: Any, method: Callable[..., Any] = method, **options: Any) -> Any:
            if is_nested[0]:  # part of another change
                return method(*args, **options)
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Killed
            is_nested[0] = True
            try:
                return method(*args, **options)
            finally:
                is_nested[0] = False

        monkeypatch.setattr(store.backend, name, change)


def test_killed_collection_leaves_complete_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_killed, count = True, 0
    while was_killed:
        store = ArtifactStore(f"memory://{tmp_path.name}/killed-{count}")
        retained = published(store)
        store.set_ref("fake/x", retained)
        first = published(store, "two", **input_from(retained))
        published(store, "three", **input_from(first))
        write_text_file("vocab.txt", "x", output=store.begin(STAGE).output)
        kill_after(store, monkeypatch, count)
        try:
            collect(store)
            was_killed = False
        except Killed:
            count += 1
        monkeypatch.undo()
        for result in verify(store, store.pointers()):
            assert result.is_ok, (count, result)
        if store.backend.names("active"):  # the killed process is this one
            write_heartbeat(store, "gc", pid=MISSING_PID)
        collect(store)
        assert [pointer.artifact_id for pointer in store.pointers()] == [retained.artifact_id]
        artifacts = {path.split("/")[2] for path in store.backend.stat("artifacts")}
        assert artifacts == {retained.artifact_id}
    assert count > 8
