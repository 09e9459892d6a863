"""Garbage collection deletes what nothing retains; stopped early, it leaves a complete store."""

from __future__ import annotations

import contextlib
import os
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
    write_run,
)

from flows.store import garbage_collection
from flows.store.activity import ActiveRun
from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import GarbageReport, collect_garbage
from flows.store.gc_roots import StoreScan
from flows.store.leases import acquire_or_holder
from flows.store.pointers import key_path, pointer_to
from flows.store.verification import verify
from pipelines.io.files import write_text_file
from schemas.checksummed import dump_json
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.manifest import Manifest

LONG_AGO = "2020-01-01T00:00:00+00:00"
RUN = "20260101t000000-aa"
DAY = 24 * 3600.0


@pytest.fixture
def store(any_store: ArtifactStore) -> ArtifactStore:
    return any_store


def collect(store: ArtifactStore, **options: Any) -> GarbageReport:
    defaults: dict[str, Any] = {"keep_runs": 10, "grace_hours": 0, "dry_run": False}
    return collect_garbage(store, **{**defaults, **options})


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
    assert store.backend.names("tombstones") == []


def test_artifacts_of_grace_period_are_retained_with_inputs(store: ArtifactStore) -> None:
    old = published(store)
    set_times(store, 0.0)
    new = published(store, "two", **input_from(old))
    assert paths(collect(store, grace_hours=24)) == set()
    set_times(store, 0.0)
    assert store.lookup(STAGE, old.cache_key) is not None  # in use again
    assert paths(collect(store, grace_hours=24), "artifact") == {new.artifact_path}


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


def test_active_run_retains_attempts_work_and_what_it_found(store: ArtifactStore) -> None:
    first, second = publish_several(store, 2, is_old=True)
    write_run_of(store, RUN, state="running")
    assert store.lookup(STAGE, first.cache_key) is not None
    attempt = store.begin(STAGE)
    write_text_file("vocab.txt", "x", output=attempt.output)
    work = f"work/{STAGE}/{'ab' * 32}"
    store.backend.put_if_absent(f"{work}/step-1", b"x")
    report = collect(store, keep_runs=0)
    assert paths(report) == {second.artifact_path}
    assert all(RUN in item.reason for item in report.retained)
    write_run_of(store, RUN, state="running", pid=MISSING_PID)
    assert paths(collect(store, keep_runs=0)) == {first.artifact_path, attempt.location, work}


def test_run_retains_every_artifact_on_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a run that starts while artifacts are being deleted."""
    store = ArtifactStore(f"memory://{tmp_path.name}/remote")
    [manifest] = publish_several(store, 1, is_old=True)
    monkeypatch.setattr(type(store.backend), "is_remote", True)
    elsewhere = {"host": "elsewhere", "pid": 1}
    write_run_of(store, RUN, state="running", **elsewhere)
    assert paths(collect(store, keep_runs=0)) == set()
    write_run_of(store, RUN, **elsewhere)
    delete = store.backend.compare_and_delete

    def start_run_and_delete(path: str, *, expected: bytes) -> float | None:
        write_run_of(store, "20260102t000000-aa", state="running", **elsewhere)
        return None if delete(path, expected=expected) is None else 0.0

    monkeypatch.setattr(store.backend, "compare_and_delete", start_run_and_delete)
    assert collect(store, keep_runs=0).restored == (manifest.artifact_path,)
    assert store.lookup(STAGE, manifest.cache_key) == manifest


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
        "both.part-00000": [[existing]],
        "unfinished.part-00000": [[existing]],
    }.items():
        store.backend.replace(f"{folder}/{name}.json", dump_json({"locations": locations}))
        store.backend.replace(f"{folder}/{name}.blobs", b"x")
    others = {
        f"{folder}/damaged.json",
        f"{folder}/x.json.0123456789ab.partial",
        "probe/1234",
        "quarantine/build-tokens/1.json",
        "leases/build-tokens/1.json",
        f"keys/{STAGE}/aa/.1.json.{'0' * 32}",
    }
    for path in others:
        store.backend.replace(path, b"{")
    set_times(store, time.time() - 35 * DAY)  # items without files are kept for two months
    assert f"{folder}/words.json" not in paths(collect(store, grace_hours=24, dry_run=True))
    set_times(store, 0.0)
    report = collect(store, grace_hours=24)
    stale = ("part", "none", "words", "both.part-00000")
    items = {f"{folder}/{name}.{suffix}" for name in stale for suffix in ("json", "blobs")}
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


@pytest.mark.parametrize("stage", ["..", "../..", "x/../../.."])
def test_tombstone_restores_no_file_outside_of_store(tmp_path: Path, stage: str) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    [manifest] = publish_several(store, 1)
    store.set_ref("x", manifest)
    pointer = pointer_to(manifest).model_copy(update={"stage": stage})
    store.backend.replace("tombstones/x.json", pointer.to_json())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError):
        collect(store)
    assert sorted(tmp_path.rglob("*")) == before


# Runs that start, and collections that stop, in the middle


@pytest.mark.parametrize("event", ["found", "named", "quarantined"])
def test_artifact_that_comes_into_use_is_restored(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """Another run uses or quarantines it after the scan, before its pointer is deleted."""
    first = published(store)
    second = published(store, "two", **input_from(first))
    unused = published(store, "three", spec={"seed": 3})
    set_times(store, 0.0)
    path = key_path(STAGE, second.cache_key)
    stored, delete = store.backend.read(path), store.backend.compare_and_delete

    def use_and_delete(deleted: str, *, expected: bytes) -> float | None:
        monkeypatch.undo()
        if event == "found":
            assert store.lookup(STAGE, second.cache_key) is not None
        elif event == "named":
            store.set_ref("fake/x", second)
        else:
            delete(path, expected=stored)
        return delete(deleted, expected=expected)

    monkeypatch.setattr(store.backend, "compare_and_delete", use_and_delete)
    report = collect(store)
    assert set(report.restored) == {first.artifact_path, second.artifact_path}
    assert paths(report, "artifact") == {unused.artifact_path}
    assert store.backend.names("tombstones") == []
    assert exists(store, first)
    assert event == "quarantined" or exists(store, second)
    assert verify(store, [pointer_to(first), pointer_to(second)])[1].is_ok


class Killed(BaseException):
    pass


def kill_after(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Raise `Killed` instead of change number `count`."""
    remaining, is_nested = [count], [False]
    for name in ("put_if_absent", "replace", "compare_and_delete", "delete", "delete_folder"):
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
        collect(store)
        assert [pointer.artifact_id for pointer in store.pointers()] == [retained.artifact_id]
        assert store.backend.names("tombstones") == []
        artifacts = {path.split("/")[2] for path in store.backend.stat("artifacts")}
        assert artifacts == {retained.artifact_id}
    assert count > 10


@pytest.mark.parametrize("is_named", [True, False])
def test_pointer_deleted_by_killed_collection_is_restored_when_in_use(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    [manifest] = publish_several(store, 1, is_old=True)
    kill_after(store, monkeypatch, 2)  # the tombstone is written, the pointer deleted
    with pytest.raises(Killed):
        collect(store)
    monkeypatch.undo()
    assert store.lookup(STAGE, manifest.cache_key) is None
    if is_named:
        store.set_ref("fake/x", manifest)
    else:
        write_run_of(store, RUN, state="running")  # it can have found the artifact
    collect(store)
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    assert store.backend.names("tombstones") == []


def test_checkpoints_of_training_that_starts_meanwhile_stay(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "ab" * 32
    work = f"work/{STAGE}/{key}"
    store.backend.put_if_absent(f"{work}/step-1", b"x")
    set_times(store, 0.0)
    scan = garbage_collection.scan_store

    with contextlib.ExitStack() as training:

        def scan_and_start_training(*args: Any, **options: Any) -> StoreScan:
            scanned = scan(*args, **options)
            run = training.enter_context(ActiveRun(store, "training"))
            training.enter_context(acquire_or_holder(run, STAGE, key))
            return scanned

        monkeypatch.setattr(garbage_collection, "scan_store", scan_and_start_training)
        collect(store)
        assert store.backend.sizes(work) == {"step-1": 1}
    monkeypatch.undo()
    collect(store)
    assert store.backend.sizes(work) == {}
