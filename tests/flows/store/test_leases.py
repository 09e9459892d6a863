"""A lease has one holder at a time, and ends with its block, its process or its time to live."""

from __future__ import annotations

import dataclasses
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.fake_stages import FakeStages
from support.store_builder import MISSING_PID, STAGE

from flows.running import run_recipe
from flows.store import leases
from flows.store.artifacts import ArtifactStore
from flows.store.leases import Lease, LeaseHolder, acquire_or_holder, lease_path, live_holders
from flows.store.process_identity import this_process
from flows.store.runs import run_ids
from pipelines import build_vocabulary
from pipelines.io.file_systems import file_system
from pipelines.io.files import write_text_file
from schemas.checksummed import dump_json
from schemas.errors import LeaseLostError
from schemas.manifest import StageOutput

KEY, OTHER_KEY = "ab" * 32, "cd" * 32


@pytest.fixture
def store(any_store: ArtifactStore) -> ArtifactStore:
    return any_store


def acquire(
    store: ArtifactStore, key: str = KEY, *, holder: str = "mine"
) -> AbstractContextManager[Lease | LeaseHolder]:
    return acquire_or_holder(store, STAGE, key, holder=holder)


def find_holder(store: ArtifactStore, key: str = KEY) -> LeaseHolder | None:
    return live_holders(store).get((STAGE, key))


def is_free(store: ArtifactStore) -> bool:
    with acquire(store) as lease:
        return isinstance(lease, Lease)


def write_lease(store: ArtifactStore, path: str = "", /, **fields: object) -> None:
    """Write a lease of another run."""
    lease = {
        **this_process().model_dump(),
        "holder": "theirs",
        "expires_at": time.time() + 3600,
        "token": "0",
    }
    path = path or lease_path(STAGE, KEY)
    lease["key"] = path.removeprefix("leases/").removesuffix(".json")
    data = dump_json({**lease, **fields})
    is_written = False
    while not is_written:  # the holder renews it at the same time
        current = store.backend.read_if_exists(path)
        is_written = store.backend.compare_and_swap(path, data, expected=current)


def test_lease_is_held_until_end_of_block(store: ArtifactStore) -> None:
    with acquire(store) as lease:
        assert isinstance(lease, Lease)
        holder = find_holder(store)
        assert holder is not None
        assert holder.holder == lease.run_id == "mine"
        with acquire(store, holder="yours") as other:
            assert other == holder
        assert live_holders(store) == {(STAGE, KEY): holder}
        with acquire(store, OTHER_KEY, holder="yours") as another:
            assert isinstance(another, Lease)
        lease.name_job("7f", "http://flink:8081/#/job/7f/overview")
        assert "job 7f http://flink:8081/#/job/7f/overview" in str(find_holder(store))
    assert store.backend.names("leases") == []


def test_lease_is_renewed_also_after_a_failure(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(*_: object, **__: object) -> bool:
        failed.set()
        raise ConnectionError("no answer")

    monkeypatch.setattr(leases, "TIME_TO_LIVE", 0.6)
    with acquire(store):
        first = find_holder(store)
        with monkeypatch.context() as patch:
            patch.setattr(store.backend, "compare_and_swap", fail)
            assert failed.wait(30)
        time.sleep(1.0)
        second = find_holder(store)
        assert first is not None
        assert second is not None
        assert second.expires_at > first.expires_at
        assert second.token == first.token


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_at": 1.0, "host": "elsewhere"},
        {"pid": MISSING_PID},
        {"process_start": 1.0},  # another process has the number now
    ],
    ids=["expired", "gone", "number-reused"],
)
def test_lease_of_ended_process_is_free(store: ArtifactStore, fields: dict[str, object]) -> None:
    write_lease(store, **fields)
    assert find_holder(store) is None
    assert is_free(store)


def test_lease_of_other_machine_ends_only_by_time(store: ArtifactStore) -> None:
    for fields in ({"host": "elsewhere"}, {"system": "another container"}):
        write_lease(store, pid=MISSING_PID, **fields)
        assert not is_free(store)
    store.backend.replace(lease_path(STAGE, KEY), b"{half")  # corrupt
    assert is_free(store)


def test_lost_lease_calls_on_lost_until_block_ends(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "TIME_TO_LIVE", 0.3)
    calls = threading.Semaphore(0)
    with acquire(store) as lease:
        assert isinstance(lease, Lease)
        lease.on_lost = calls.release
        assert lease.renew()
        assert not calls.acquire(blocking=False)
        write_lease(store)
        assert calls.acquire(timeout=30)
        assert calls.acquire(timeout=30)
        assert not lease.renew()
        assert lease.new_holder().startswith("theirs ")
    holder = find_holder(store)
    assert holder is not None
    assert holder.holder == "theirs"


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
            write_lease(self.store, self.lease)
            fs.pipe_file(f"{folder}/step", b"theirs")
        self.checkpoints.append(fs.cat_file(f"{folder}/step"))
        return StageOutput(files=(write_text_file("vocab.txt", "a", output=output),))


@pytest.fixture
def losing_stage(fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch) -> LosingStage:
    """Replace the stage that learns a vocabulary."""
    stage = LosingStage(root)
    replaced = dataclasses.replace(build_vocabulary.STAGE, run=stage, supports_resume=True)
    monkeypatch.setattr(build_vocabulary, "STAGE", replaced)
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
