from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.store_builder import (
    STAGE,
    describe,
    file_of,
    input_from,
    prepared,
    published,
    write_run,
)

from flows.lineage.openlineage import send_abort
from flows.store import garbage_collection, runs
from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import GarbageReport, collect_garbage
from flows.store.gc_roots import Tombstone
from flows.store.leases import acquire_or_holder
from flows.store.pointers import key_path, pointer_to, ref_path
from flows.store.runs import Heartbeat, mark_flow_run_ended, read_run, reconcile_runs, run_ids
from flows.store.verification import verify
from pipelines.io.files import write_text_file
from schemas.checksummed import dump_json
from schemas.errors import ArtifactCorruptError, DeterminismError, StoreError
from schemas.manifest import Manifest

AGO = "2020-01-01T00:00:00+00:00"


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "local":
        return ArtifactStore(str(tmp_path / "store"))
    return ArtifactStore(f"memory://{tmp_path.name}/garbage")


def collect(store: ArtifactStore, **changes: Any) -> GarbageReport:
    given: dict[str, Any] = {"keep_runs": 10, "grace_hours": 0, "dry_run": False}
    return collect_garbage(store, **{**given, **changes})


def paths(report: GarbageReport, *kinds: str) -> set[str]:
    return {item.path for item in report.garbage if not kinds or item.kind in kinds}


def is_there(store: ArtifactStore, manifest: Manifest) -> bool:
    found = store.lookup(STAGE, manifest.cache_key)
    assert (found is None) == (store.backend.sizes(manifest.location) == {})
    return found is not None


def several(store: ArtifactStore, count: int) -> list[Manifest]:
    return [published(store, f"text {n}", spec={"seed": n}) for n in range(count)]


def write_run_of(store: ArtifactStore, run_id: str, *made: Manifest, **changes: Any) -> None:
    steps = [
        {"label": "x", "manifest": manifest.path, "was_cached": False, "seconds": 1.0}
        for manifest in made
    ]
    write_run(store, run_id, **{"steps": steps, **changes})


def test_what_nothing_needs_is_deleted(store: ArtifactStore) -> None:
    unused, named, pinned, of_run, of_part = several(store, 5)
    store.set_ref("fake/build-tokens", named)
    store.pin(pinned, reason="for later")
    write_run_of(store, "20260101t000000-aa", of_run)
    parts = pointer_to(named).model_copy(update={"parts": {"x": of_part.path}})
    store.swap_ref("corpus/latest", parts, expected=None)
    report = collect(store)
    assert paths(report, "artifact") == {unused.location}
    assert report.freed >= unused.size
    assert not is_there(store, unused)
    assert all(is_there(store, manifest) for manifest in (named, pinned, of_run, of_part))
    why = {item.path: item.reason for item in report.retained}
    assert why == {
        named.location: "ref corpus/latest",
        pinned.location: f"pin {pinned.artifact_id}: for later",
        of_run.location: "run 20260101t000000-aa",
        of_part.location: "ref corpus/latest",
    }
    assert store.backend.names("tombstones") == []


def test_what_is_kept_keeps_what_it_was_made_from(store: ArtifactStore) -> None:
    first = published(store)
    second = published(store, "two", **input_from(first))
    third = published(store, "three", **input_from(second))
    store.set_ref("fake/x", third)
    assert paths(collect(store)) == set()
    store.backend.delete(ref_path("fake/x"))
    assert len(paths(collect(store), "artifact")) == 3


def test_a_dry_run_changes_nothing(store: ArtifactStore) -> None:
    [unused] = several(store, 1)
    before = store.backend.stat("")
    report = collect(store, dry_run=True)
    assert report.is_dry_run
    assert paths(report) == {unused.location}
    assert store.backend.stat("") == before


def test_what_is_young_is_kept_with_its_inputs(store: ArtifactStore) -> None:
    old = published(store)
    young = published(store, "two", **input_from(old))
    make_old(store, old)
    store.backend.make_folder(f"work/{STAGE}/{young.cache_key}")
    assert paths(collect(store, grace_hours=24)) == set()
    make_old(store, young)
    assert paths(collect(store, grace_hours=24), "artifact") == {old.location, young.location}


def make_old(store: ArtifactStore, manifest: Manifest) -> None:
    """Set the times of an artifact to 2020."""
    path = key_path(STAGE, manifest.cache_key)
    pointer = pointer_to(manifest).model_copy(update={"committed": AGO})
    store.backend.replace(path, pointer.to_json())
    set_times(store, 0.0)


def set_times(store: ArtifactStore, moment: float, top: str = "") -> None:
    """Set the times of all files and folders of a store."""
    if store.backend.is_local:
        for path in Path(store.root, top).rglob("*"):
            os.utime(path, (moment, moment))
        return
    from datetime import UTC, datetime

    for name in store.backend.stat(top):
        store.backend.fs.store[f"{store.backend._root}/{name}"].modified = datetime.fromtimestamp(
            moment, UTC
        )


def test_what_was_found_lately_is_kept(store: ArtifactStore) -> None:
    first, second = several(store, 2)
    make_old(store, first)
    make_old(store, second)
    assert store.lookup(STAGE, first.cache_key) is not None
    assert paths(collect(store, grace_hours=24), "artifact") == {second.location}


def test_only_so_many_runs_keep_what_they_made(store: ArtifactStore) -> None:
    made = several(store, 3)
    for number, manifest in enumerate(made):
        write_run_of(store, f"2026010{number}t000000-aa", manifest)
    assert paths(collect(store, keep_runs=2)) == {made[0].location}
    assert len(store.backend.names("runs")) == 3
    # More than there are keeps all of them.
    assert paths(collect(store, keep_runs=4, delete_runs=True)) == set()
    report = collect(store, keep_runs=1, delete_runs=True)
    assert paths(report, "artifact") == {made[1].location}
    assert paths(report, "run") == {"runs/20260100t000000-aa", "runs/20260101t000000-aa"}
    assert store.backend.names("runs") == ["runs/20260102t000000-aa/run.json"]


def test_a_run_that_is_going_on_keeps_what_it_found(store: ArtifactStore) -> None:
    first, second = several(store, 2)
    make_old(store, first)
    make_old(store, second)
    write_run_of(store, "20260101t000000-aa", state="running")
    assert store.lookup(STAGE, first.cache_key) is not None
    report = collect(store, keep_runs=0)
    assert paths(report, "artifact") == {second.location}
    [kept] = report.retained
    assert "run 20260101t000000-aa" in kept.reason
    # The process of the record is gone: the run died, and keeps nothing.
    write_run_of(store, "20260101t000000-aa", state="running", pid=2**22 + 1)
    assert paths(collect(store, keep_runs=0), "artifact") == {first.location}


def test_attempts_that_were_never_published_are_deleted(store: ArtifactStore) -> None:
    attempt = store.begin(STAGE)
    write_text_file("vocab.txt", "x", output=attempt.output)
    half = prepared(store)
    # Killed before the pointer.
    store.backend.put_if_absent(half.path, dump_json(half.model_dump(mode="json")))
    assert paths(collect(store, grace_hours=24)) == set()
    set_times(store, 0.0)
    report = collect(store, grace_hours=24)
    assert paths(report, "attempt") == {attempt.location, half.location}
    assert store.backend.sizes("artifacts") == {}


def test_work_folder_with_lease_is_retained(store: ArtifactStore) -> None:
    for key in ("ab" * 32, "cd" * 32):
        store.backend.put_if_absent(f"work/{STAGE}/{key}/step-1", b"x")
    with acquire_or_holder(store, STAGE, "ab" * 32, holder="r"):
        assert paths(collect(store)) == {f"work/{STAGE}/{'cd' * 32}"}
    assert paths(collect(store)) == {f"work/{STAGE}/{'ab' * 32}"}
    assert store.backend.sizes("work") == {}


def test_attempt_and_work_of_active_run_are_retained(store: ArtifactStore) -> None:
    write_run_of(store, "20260101t000000-aa", state="running")
    attempt = store.begin(STAGE)
    write_text_file("vocab.txt", "x", output=attempt.output)
    store.backend.put_if_absent(f"work/{STAGE}/{'ab' * 32}/step-1", b"x")
    assert paths(collect(store)) == set()
    write_run_of(store, "20260101t000000-aa", state="failed")
    assert paths(collect(store)) == {attempt.location, f"work/{STAGE}/{'ab' * 32}"}


def test_shared_files_do_not_come_free(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    kept, unused = several(store, 2)
    store.set_ref("fake/x", kept)
    shared = Path(store.url(f"{unused.data}/shared"))
    shared.write_bytes(b"x" * 5000)
    Path(store.url(f"{kept.data}/shared")).hardlink_to(shared)
    report = collect(store, dry_run=True)
    [item] = [item for item in report.garbage if item.kind == "artifact"]
    assert item.size - item.freed == 5000
    [beside] = [item for item in report.garbage if item.kind == "leftover"]
    assert (beside.size, beside.freed) == (5000, 0)


def test_counts_without_files_are_kept_from_one_month_to_the_next(store: ArtifactStore) -> None:
    path = f"pieces/{STAGE}/{'0' * 64}/ab/words.json"
    store.backend.replace(path, dump_json({"places": [[]]}))
    set_times(store, time.time() - 35 * 24 * 3600)
    assert path not in paths(collect(store, grace_hours=24))
    set_times(store, time.time() - 70 * 24 * 3600)
    assert path in paths(collect(store, grace_hours=24))


def test_records_of_what_is_gone_are_deleted(store: ArtifactStore) -> None:
    [manifest] = several(store, 1)
    store.set_ref("fake/x", manifest)
    there, gone = file_of(store, manifest), "artifacts/build-tokens/aa/data/part"
    folder = f"pieces/{STAGE}/{'0' * 64}/ab"
    for name, places in {
        "both": [[gone], [there]],
        "part": [[gone, there]],
        "none": [[gone]],
        "empty": [[]],
        "both.part-00000": [[there]],
        "unfinished.part-00000": [[there]],
    }.items():
        store.backend.replace(f"{folder}/{name}.json", dump_json({"places": places}))
        store.backend.replace(f"{folder}/{name}.blobs", b"x")
    store.backend.replace(f"{folder}/damaged.json", b"{")
    store.backend.replace(f"{folder}/x.json.0123456789ab.partial", b"{")
    store.backend.replace("probe/1234", b"x")
    store.backend.replace("quarantine/build-tokens/1.json", b"{}")
    store.backend.replace("leases/build-tokens/1.json", b"{}")
    store.backend.replace(f"keys/{STAGE}/aa/.1.json.{'0' * 32}", b"half")
    store.backend.replace(f"{manifest.data}/of-a-repeated-worker", b"twice")
    set_times(store, 0.0)
    report = collect(store, grace_hours=24)
    deleted = ("part", "none", "empty", "both.part-00000")
    assert paths(report) == {
        *(f"{folder}/{name}.{end}" for name in deleted for end in ("json", "blobs")),
        f"{folder}/damaged.json",
        f"{folder}/x.json.0123456789ab.partial",
        "probe/1234",
        "quarantine/build-tokens/1.json",
        "leases/build-tokens/1.json",
        f"keys/{STAGE}/aa/.1.json.{'0' * 32}",
        f"{manifest.data}/of-a-repeated-worker",
    }
    assert not paths(report) & set(store.backend.stat(""))
    assert is_there(store, manifest)


def test_a_conflict_goes_with_the_artifact_that_lost(store: ArtifactStore) -> None:
    winner, loser = prepared(store, "one"), prepared(store, "two")
    store.commit(winner)
    store.set_ref("fake/x", winner)
    with pytest.raises(DeterminismError):
        store.commit(loser)
    assert paths(collect(store, grace_hours=24)) == set()
    set_times(store, 0.0)
    report = collect(store, grace_hours=24)
    assert paths(report) == {
        loser.location,
        f"quarantine/conflicts/{STAGE}/{loser.artifact_id}.json",
    }
    assert store.conflicts() == {}


def test_a_damaged_manifest_stops_everything(store: ArtifactStore) -> None:
    kept, _ = several(store, 2)
    store.set_ref("fake/x", kept)
    store.backend.replace(kept.path, b"{")
    before = set(store.backend.stat(""))
    with pytest.raises(ArtifactCorruptError, match=kept.path):
        collect(store)
    assert set(store.backend.stat("")) == before


def test_a_ref_to_what_is_gone_is_noted(store: ArtifactStore) -> None:
    [manifest] = several(store, 1)
    store.set_ref("fake/x", manifest)
    store.backend.delete_folder(manifest.location)
    [note] = collect(store).notes
    assert "ref fake/x" in note
    assert manifest.location in note


@pytest.mark.parametrize("how", ["found", "named", "withdrawn"])
def test_what_comes_into_use_meanwhile_is_left(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another run finds, names or withdraws it after the survey, before its pointer is removed."""
    first = published(store)
    second = published(store, "two", **input_from(first))
    unused = published(store, "three", spec={"seed": 3})
    for manifest in (first, second, unused):
        make_old(store, manifest)
    remove, done = store.backend.compare_and_delete, []

    def meanwhile(path: str, *, expected: bytes) -> float | None:
        if not done:
            done.append(how)
            if how == "found":
                assert store.lookup(STAGE, second.cache_key) is not None
            elif how == "named":
                store.set_ref("fake/x", second)
            else:
                remove(key_path(STAGE, second.cache_key), expected=stored)
        return remove(path, expected=expected)

    stored = store.backend.read(key_path(STAGE, second.cache_key))
    monkeypatch.setattr(store.backend, "compare_and_delete", meanwhile)
    report = collect(store)
    assert set(report.restored) == {first.location, second.location}
    assert paths(report, "artifact") == {unused.location}
    assert store.backend.names("tombstones") == []
    assert is_there(store, first)
    if how != "withdrawn":
        assert is_there(store, second)
    assert verify(store, [pointer_to(first), pointer_to(second)])[1].is_ok


class Killed(BaseException):
    pass


def die_after(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The process ends before the change of that number."""
    left, inside = [count], [False]
    for name in ("put_if_absent", "replace", "compare_and_delete", "delete", "delete_folder"):
        method: Callable[..., Any] = getattr(store.backend, name)

        def step(*given: Any, method: Callable[..., Any] = method, **more: Any) -> Any:
            if inside[0]:  # one change that is made of others
                return method(*given, **more)
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            inside[0] = True
            try:
                return method(*given, **more)
            finally:
                inside[0] = False

        monkeypatch.setattr(store.backend, name, step)


def test_killed_at_any_moment_it_leaves_a_sound_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in range(60):
        store = ArtifactStore(f"memory://{tmp_path.name}/killed-{count}")
        kept = published(store)
        store.set_ref("fake/x", kept)
        first = published(store, "two", **input_from(kept))
        published(store, "three", **input_from(first))
        attempt = store.begin(STAGE)
        write_text_file("vocab.txt", "x", output=attempt.output)
        die_after(store, monkeypatch, count)
        try:
            collect(store)
        except Killed:
            was_killed = True
        else:
            was_killed = False
        monkeypatch.undo()
        for verdict in verify(store, list(store.pointers())):
            assert verdict.is_ok, (count, verdict)
        collect(store)
        assert [pointer.artifact_id for pointer in store.pointers()] == [kept.artifact_id]
        assert store.backend.names("tombstones") == []
        assert {path.split("/")[2] for path in store.backend.stat("artifacts")} == {
            kept.artifact_id
        }
        if not was_killed:
            assert count > 10
            return
    pytest.fail("it took more changes than were tried")


def test_what_a_killed_collection_took_away_comes_back_if_it_is_named(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [manifest] = several(store, 1)
    die_after(store, monkeypatch, 2)  # the tombstone and the pointer are done
    with pytest.raises(Killed):
        collect(store)
    monkeypatch.undo()
    assert store.lookup(STAGE, manifest.cache_key) is None
    store.set_ref("fake/x", manifest)  # by a run that had found it before
    collect(store)
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    assert store.backend.names("tombstones") == []


def test_killed_by_a_signal_it_leaves_a_sound_store(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    several(store, 12)
    process = subprocess.Popen([sys.executable, "-c", COLLECT, store.root], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"deleting\n"
    process.kill()
    process.wait()
    process.stdout.close()
    assert all(verdict.is_ok for verdict in verify(store, list(store.pointers())))
    collect(store)
    assert store.backend.stat("artifacts") == {}
    assert store.backend.stat("tombstones") == {}


COLLECT = """
import sys
from flows.store.artifacts import ArtifactStore
from flows.store.garbage_collection import collect_garbage

store = ArtifactStore(sys.argv[1])
delete = store.backend.delete_folder

def say_and_delete(path):
    print("deleting", flush=True)
    delete(path)

store.backend.delete_folder = say_and_delete
collect_garbage(store, keep_runs=0, grace_hours=0, dry_run=False)
"""


def test_where_nothing_can_be_touched_a_run_keeps_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 and GCS do not record which artifacts a run found."""
    store = ArtifactStore(f"memory://{tmp_path.name}/remote")
    [manifest] = several(store, 1)
    make_old(store, manifest)
    monkeypatch.setattr(type(store.backend), "is_remote", property(lambda self: True))
    monkeypatch.setattr(store.backend, "compare_and_delete", _remove_in_memory(store))
    write_run_of(store, "20260101t000000-aa", state="running", host="elsewhere", pid=1)
    assert paths(collect(store, keep_runs=0)) == set()
    write_run_of(store, "20260101t000000-aa", state="completed", host="elsewhere")
    # Another run begins between the survey and the removal.
    tombstone = garbage_collection._tombstone_path

    def begin_a_run(location: str) -> str:
        write_run_of(store, "20260102t000000-aa", state="running", host="elsewhere")
        return tombstone(location)

    monkeypatch.setattr(garbage_collection, "_tombstone_path", begin_a_run)
    report = collect(store, keep_runs=0)
    assert report.restored == (manifest.location,)
    assert store.lookup(STAGE, manifest.cache_key) == manifest


def _remove_in_memory(store: ArtifactStore) -> Callable[..., float | None]:
    def remove(path: str, *, expected: bytes) -> float | None:
        if store.backend.read(path) != expected:
            return None
        store.backend.delete(path)
        return 0.0

    return remove


def test_a_shard_that_others_link_to_stays_readable(tmp_path: Path) -> None:
    """The old artifact of a rebuilt stage goes; the new one has its files by other names."""
    store = ArtifactStore(str(tmp_path / "store"))
    old = published(store)
    attempt = store.begin(STAGE)
    target = Path(attempt.output, "linked")
    target.hardlink_to(store.url(file_of(store, old)))
    entry = old.files[0].model_copy(update={"object": "linked"})
    new = store.commit(describe(attempt, [entry], spec={"seed": 9})).manifest
    store.set_ref("fake/x", new)
    collect(store)
    assert not is_there(store, old)
    [verdict] = verify(store, [pointer_to(new)])
    assert verdict.is_ok
    with fsspec.open(store.url(file_of(store, new))) as source:
        assert source.read() == b"one"


def test_the_report_is_json(store: ArtifactStore) -> None:
    several(store, 1)
    report = collect(store)
    assert json.loads(json.dumps([item._asdict() for item in report.garbage]))
    assert report.by_kind()["artifact"][0] == 1


def _age(store: ArtifactStore, run_id: str, seconds: float) -> None:
    """Set the time of the last heartbeat of a run."""
    then = time.time() - seconds
    for path in store.backend.names(f"runs/{run_id}"):
        os.utime(store.backend.url(path), (then, then))


def test_a_run_of_another_machine_that_fell_silent_keeps_nothing(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "shared"))
    [manifest] = several(store, 1)
    run_id = "20260101t000000-aa"
    make_old(store, manifest)
    write_run_of(store, run_id, state="running", host="elsewhere", pid=1, started=AGO)
    assert store.lookup(STAGE, manifest.cache_key) is not None
    report = collect(store, keep_runs=0)
    assert paths(report, "artifact") == set()
    [note] = report.notes  # what holds it back, and what to do
    assert run_id in note
    assert "elsewhere" in note
    assert "bertloom runs --mark-crashed" in note
    _age(store, run_id, runs.HEARTBEAT_TIMEOUT + 60)
    report = collect(store, keep_runs=0)
    assert paths(report, "artifact") == {manifest.location}
    assert report.notes == ()


def test_a_heartbeat_is_a_sign_of_life_until_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "HEARTBEAT_SECONDS", 0.02)
    store = ArtifactStore(str(tmp_path / "shared"))
    run_id = "20260101t000000-aa"
    write_run_of(store, run_id, state="running", host="elsewhere", pid=1)
    _age(store, run_id, 7200)
    silent = runs.last_heartbeats(store)[run_id]
    heartbeat = Heartbeat(store, run_id)
    heartbeat.start()
    for _ in range(500):
        if runs.last_heartbeats(store)[run_id] > silent + 3600:
            break
        time.sleep(0.02)
    heartbeat.stop()
    assert runs.last_heartbeats(store)[run_id] > silent + 3600
    _age(store, run_id, 7200)
    time.sleep(0.2)
    assert runs.last_heartbeats(store)[run_id] < silent + 3600


def test_runs_that_are_over_are_settled_and_others_left(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "shared"))
    hour = 3600.0
    started = "2026-01-01T00:00:00+00:00"
    common = {
        "state": "running",
        "updated_at": started,
        "started": started,
        "recipe": {"name": "x"},
    }
    for run_id, changes, silence in (
        ("20260101t000000-beating", {"host": "elsewhere"}, 60.0),
        ("20260102t000000-silent", {"host": "elsewhere"}, hour),
        ("20260105t000000-gone", {"pid": 2**22 + 1}, 1.0),
        ("20260106t000000-here", {}, 48 * hour),
        ("20260107t000000-training", {"host": "elsewhere"}, 48 * hour),
    ):
        write_run_of(store, run_id, **{**common, **changes})
        _age(store, run_id, silence)
    with acquire_or_holder(store, "pretrain", "k", holder="20260107t000000-training"):
        settled = {
            item.run_id.partition("-")[2]: item for item in reconcile_runs(store, close=send_abort)
        }
    assert {name for name, item in settled.items() if item.is_dead} == {
        "silent", "gone",
    }  # fmt: skip
    assert settled["training"].reason == "it holds a lease"
    states = {run_id.partition("-")[2]: read_run(store, run_id).state for run_id in run_ids(store)}
    assert [states[name] for name in ("silent", "here", "beating")] == [
        "crashed", "running", "running",
    ]  # fmt: skip
    # Without its lease, it has ended.
    over = {item.run_id for item in reconcile_runs(store, close=send_abort) if item.is_dead}
    assert over == {"20260107t000000-training"}


def test_the_running_records_of_a_flow_run_say_what_became_of_it(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "shared"))
    common = {"updated_at": AGO, "started": AGO, "recipe": {"name": "x"}, "steps": []}
    for number, (flow_run_id, state) in enumerate(
        [("mine", "completed"), ("mine", "running"), ("another", "running")]
    ):
        changes = {**common, "flow_run_id": flow_run_id, "state": state}
        write_run_of(store, f"2026010{number}t000000-aa", **changes)
    store.backend.replace("runs/20260109t000000-aa/run.json", b"{")  # passed over
    how: dict[str, Any] = {"state": "interrupted", "reason": "cancelled", "close": send_abort}
    assert mark_flow_run_ended(store, "mine", **how) == ["20260101t000000-aa"]
    settled = read_run(store, "20260101t000000-aa")
    assert (settled.state, settled.failures) == ("interrupted", {"": "cancelled"})
    assert read_run(store, "20260102t000000-aa").state == "running"
    assert mark_flow_run_ended(store, "mine", **how) == []


@pytest.mark.parametrize("stage", ["..", "../..", "x/../../.."])
def test_tombstone_restores_no_file_outside_of_store(tmp_path: Path, stage: str) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    [manifest] = several(store, 1)
    store.pin(manifest, reason="a test")
    pointer = pointer_to(manifest).model_copy(update={"stage": stage})
    tombstone = Tombstone(scanned=0.0, pointer=pointer)
    store.backend.replace("tombstones/x.json", tombstone.to_json())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError):
        collect(store)
    assert sorted(tmp_path.rglob("*")) == before
