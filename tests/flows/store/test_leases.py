"""A lease has one holder at a time, and ends with its block or with the life of its run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import FakeStages
from support.store_builder import MISSING_PID, STAGE, write_heartbeat

from flows.running import run_recipe
from flows.store import activity
from flows.store.activity import ActiveRun, Heartbeat
from flows.store.artifacts import ArtifactStore
from flows.store.leases import (
    Lease,
    LeaseRecord,
    acquire_or_holder,
    lease_path,
    live_holders,
)
from flows.store.runs import run_ids
from pipelines.io.file_systems import file_system
from pipelines.io.files import write_text_file
from schemas.errors import LeaseLostError
from schemas.manifest import StageOutput

KEY, OTHER_KEY = "ab" * 32, "cd" * 32


@pytest.fixture
def store(any_store: ArtifactStore) -> ArtifactStore:
    return any_store


@contextmanager
def acquire(
    store: ArtifactStore, key: str = KEY, *, run_id: str = "mine"
) -> Iterator[Lease | Heartbeat]:
    with ActiveRun(store, run_id) as run, acquire_or_holder(run, STAGE, key) as lease:
        yield lease


def find_holder(store: ArtifactStore, key: str = KEY) -> Heartbeat | None:
    return live_holders(store).get((STAGE, key))


def is_free(store: ArtifactStore) -> bool:
    with acquire(store) as lease:
        return isinstance(lease, Lease)


def take_lease(store: ArtifactStore, path: str = "", **heartbeat: object) -> None:
    """Write a lease of another run, and its heartbeat."""
    lease = LeaseRecord(run_id="theirs", token="0")
    store.backend.replace(path or lease_path(STAGE, KEY), lease.to_json())
    write_heartbeat(store, "theirs", **heartbeat)  # type: ignore[arg-type]


def test_lease_is_held_until_end_of_block(store: ArtifactStore) -> None:
    with acquire(store) as lease:
        assert isinstance(lease, Lease)
        holder = find_holder(store)
        assert holder is not None
        assert holder.name == lease.run_id == "mine"
        with acquire(store, run_id="yours") as other:
            assert other == holder
        assert live_holders(store) == {(STAGE, KEY): holder}
        with acquire(store, OTHER_KEY, run_id="yours") as another:
            assert isinstance(another, Lease)
        assert lease.is_held()
    assert store.backend.names("leases") == store.backend.names("active") == []


def test_run_beats_until_its_end_also_after_a_failure(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, written = threading.Event(), threading.Semaphore(0)
    replace = store.backend.replace

    def fail_once(path: str, data: bytes) -> None:
        if not failed.is_set():
            failed.set()
            raise ConnectionError("no answer")
        replace(path, data)
        written.release()

    monkeypatch.setattr(activity, "HEARTBEAT_SECONDS", 0.01)
    with ActiveRun(store, "mine"):
        monkeypatch.setattr(store.backend, "replace", fail_once)
        first = activity.read_heartbeats(store)["mine"]
        assert written.acquire(timeout=300)
        assert written.acquire(timeout=300)
        assert failed.is_set()
        assert activity.read_heartbeats(store)["mine"].beat_at > first.beat_at
    assert activity.read_heartbeats(store) == {}


@pytest.mark.parametrize(
    "heartbeat",
    [
        {"age": 61.0, "host": "elsewhere"},
        {"age": 61.0, "system": "another container"},
        {"pid": MISSING_PID},
        {"process_start": 1.0},  # another process has the number now
    ],
    ids=["silent", "silent-container", "gone", "number-reused"],
)
def test_lease_of_ended_run_is_free(store: ArtifactStore, heartbeat: dict[str, object]) -> None:
    take_lease(store, **heartbeat)
    assert find_holder(store) is None
    assert is_free(store)


@pytest.mark.parametrize(
    "heartbeat",
    [
        {"pid": MISSING_PID, "host": "elsewhere"},
        {"pid": MISSING_PID, "system": "another container", "age": 40.0},
        {"age": 3600.0},  # suspended
    ],
    ids=["elsewhere", "another-container", "suspended"],
)
def test_lease_of_live_run_is_not_free(store: ArtifactStore, heartbeat: dict[str, object]) -> None:
    take_lease(store, **heartbeat)
    assert not is_free(store)


@pytest.mark.parametrize("path", [lease_path(STAGE, KEY), activity.heartbeat_path("theirs")])
def test_lease_with_corrupt_record_is_free(store: ArtifactStore, path: str) -> None:
    take_lease(store)
    store.backend.replace(path, b"{half")
    assert is_free(store)


def test_lost_lease_calls_on_lost_until_block_ends(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "HEARTBEAT_SECONDS", 0.05)
    calls = threading.Semaphore(0)
    with acquire(store) as lease:
        assert isinstance(lease, Lease)
        lease.on_lost = calls.release
        assert lease.is_held()
        assert not calls.acquire(blocking=False)
        take_lease(store)
        assert calls.acquire(timeout=300)
        assert calls.acquire(timeout=300)
        assert not lease.is_held()
        assert lease.new_holder().startswith("theirs ")
    holder = find_holder(store)
    assert holder is not None
    assert holder.name == "theirs"


# Runs that lose a lease


@pytest.fixture(params=["disk", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_local = request.param == "disk"
    return f"{tmp_path if is_local else request.getfixturevalue('bucket')}/store"


class LosingStage:
    """A stage that keeps a checkpoint. Another run takes its lease while it runs first."""

    def __init__(self, root: str) -> None:
        self.store = ArtifactStore(root)
        self.checkpoints: list[bytes] = []
        self.lease = ""

    def __call__(self, config: object, *, output: str, work: str, **_: object) -> StageOutput:
        fs, folder = file_system(work)
        if not self.lease:
            [self.lease] = self.store.backend.names("leases")
            take_lease(self.store, self.lease)
            fs.pipe_file(f"{folder}/step", b"theirs")
        self.checkpoints.append(fs.cat_file(f"{folder}/step"))
        return StageOutput(files=(write_text_file("vocab.txt", "a", output=output),))


@pytest.fixture
def losing_stage(fakes: FakeStages, root: str) -> LosingStage:
    """Replace the stage that learns a vocabulary."""
    stage = LosingStage(root)
    fakes.replace("build-vocabulary", stage)
    return stage


def test_run_that_lost_its_lease_leaves_checkpoints_to_new_holder(
    fakes: FakeStages, losing_stage: LosingStage, root: str
) -> None:
    store, recipe = losing_stage.store, fakes.recipe(root)
    with pytest.raises(LeaseLostError) as caught:
        run_recipe(recipe, engine="local", until="build-vocabulary", log=lambda _: None)
    error = caught.value
    assert (error.step, error.holder.split()[0]) == ("build-vocabulary", "theirs")
    assert error.run in run_ids(store)
    assert store.pointers("build-vocabulary") == []
    assert store.backend.names("leases") == [losing_stage.lease]
    # The new holder resumes from its own checkpoint and publishes.
    store.backend.delete(losing_stage.lease)
    run_recipe(recipe, engine="local", until="build-vocabulary", log=lambda _: None)
    assert losing_stage.checkpoints == [b"theirs", b"theirs"]
    assert len(store.pointers("build-vocabulary")) == 1
    assert store.backend.names("work") == []


def test_run_waits_for_run_of_another_machine_and_takes_over_when_it_is_silent(
    fakes: FakeStages, root: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"engine": "local", "until": "build-documents"}
    [built] = run_recipe(fakes.recipe(str(tmp_path / "other")), log=lambda _: None, **options)
    store = ArtifactStore(root)
    take_lease(store, lease_path("build-documents", built.manifest.cache_key), host="elsewhere")
    waited = list[str]()

    def silence(line: str) -> None:
        if "waiting for theirs" in line:
            waited.append(line)
            write_heartbeat(store, "theirs", host="elsewhere", age=61.0)

    [result] = run_recipe(fakes.recipe(root), log=silence, **options)
    assert len(waited) == 1
    assert "on elsewhere" in waited[0]
    assert not result.was_cached
    assert store.backend.names("leases") == []
