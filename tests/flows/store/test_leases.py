from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.fake_stages import FakeStages
from support.store_builder import STAGE, held_by_another

from flows.running import run_recipe
from flows.store import process_identity
from flows.store.artifacts import ArtifactStore
from flows.store.leases import (
    Lease,
    LeaseHolder,
    acquire_or_holder,
    lease_path,
    live_holders,
)
from flows.store.process_identity import this_process
from flows.store.runs import run_ids
from pipelines import build_vocabulary
from pipelines.io.file_systems import file_system
from pipelines.io.files import write_text_file
from schemas.checksummed import dump_json
from schemas.errors import LeaseLostError
from schemas.manifest import StageOutput

KEY = "ab" * 32


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "local":
        return ArtifactStore(str(tmp_path / "store"))
    return ArtifactStore(f"memory://{tmp_path.name}/leases")


def acquire(
    store: ArtifactStore, key: str = KEY, *, holder: str = "mine", ttl_seconds: float = 60
) -> AbstractContextManager[Lease | LeaseHolder]:
    return acquire_or_holder(store, STAGE, key, holder=holder, ttl_seconds=ttl_seconds)


def find_holder(store: ArtifactStore, key: str = KEY) -> LeaseHolder | None:
    return live_holders(store).get((STAGE, key))


def write_lease(store: ArtifactStore, **changes: object) -> None:
    """Write a lease of another run."""
    lease = {
        **this_process().model_dump(),
        "holder": "theirs",
        "expires_at": time.time() + 3600,
        "token": "0",
    }
    store.backend.replace(lease_path(STAGE, KEY), dump_json({**lease, **changes}))


def test_a_lease_is_held_for_the_length_of_a_block(store: ArtifactStore) -> None:
    assert find_holder(store) is None
    with acquire(store) as other:
        assert isinstance(other, Lease)
        found = find_holder(store)
        assert found is not None
        assert found.holder == "mine"
        assert live_holders(store) == {(STAGE, KEY): found}
        assert find_holder(store, "cd" * 32) is None
    assert find_holder(store) is None
    assert store.backend.names("leases") == []


def test_a_lease_says_which_job_builds_its_key(store: ArtifactStore) -> None:
    with acquire_or_holder(store, STAGE, KEY, holder="mine") as lease:
        assert isinstance(lease, Lease)
        before = find_holder(store)
        lease.name_job("7f", "http://flink:8081/#/job/7f/overview")
        found = find_holder(store)
        assert before is not None
        assert found is not None
        assert (before.job_id, found.job_id, found.token) == ("", "7f", before.token)
        assert str(found).endswith("; job 7f http://flink:8081/#/job/7f/overview)")
        with acquire_or_holder(store, STAGE, KEY, holder="yours") as other:
            assert other == found
    assert store.backend.names("leases") == []


def test_a_lease_is_let_go_by_a_block_that_raises(store: ArtifactStore) -> None:
    lease = acquire(store)
    with pytest.raises(ValueError, match="of the stage"), lease:
        raise ValueError("of the stage")
    assert find_holder(store) is None


def test_a_lease_can_be_tried_without_waiting(store: ArtifactStore) -> None:
    with acquire(store) as other:
        assert isinstance(other, Lease)
        with acquire(store, holder="yours") as mine:
            assert isinstance(mine, LeaseHolder)
            assert mine.holder == "mine"
        assert find_holder(store) == mine  # who did not get it frees nothing
        with acquire(store, "cd" * 32, holder="yours") as another:
            assert isinstance(another, Lease)
    assert store.backend.names("leases") == []


def test_a_lease_is_renewed(store: ArtifactStore) -> None:
    with acquire(store, ttl_seconds=0.6):
        first = find_holder(store)
        time.sleep(1.5)
        second = find_holder(store)
        assert first is not None
        assert second is not None
        assert second.expires_at > first.expires_at
        assert second.token == first.token


@pytest.mark.parametrize(
    "left",
    [
        {"expires_at": 1.0, "host": "elsewhere"},
        {"pid": 2**22 + 1},  # above the largest number that there can be
        {"process_start": 1.0},  # the number was given out again
    ],
    ids=["expired", "gone", "number-reused"],
)
def test_a_lease_that_nobody_has_is_taken(store: ArtifactStore, left: dict[str, object]) -> None:
    write_lease(store, **left)
    assert find_holder(store) is None
    with acquire(store) as other:
        assert isinstance(other, Lease)


@pytest.mark.parametrize("left", [{"host": "elsewhere"}, {"system": "another container"}])
def test_of_another_machine_only_the_time_counts(
    store: ArtifactStore, left: dict[str, object]
) -> None:
    write_lease(store, pid=2**22 + 1, **left)
    assert find_holder(store) is not None


def test_a_lease_that_is_none_blocks_nobody(store: ArtifactStore) -> None:
    store.backend.replace(lease_path(STAGE, KEY), b"{half")
    assert live_holders(store) == {}
    with acquire(store) as other:
        assert isinstance(other, Lease)


def test_a_lease_that_another_took_is_left_to_it(
    store: ArtifactStore, caplog: pytest.LogCaptureFixture
) -> None:
    with acquire(store, ttl_seconds=0.3):
        write_lease(store)
        while "another run took the lease" not in caplog.text:
            time.sleep(0.02)
    found = find_holder(store)
    assert found is not None
    assert found.holder == "theirs"


def test_lost_lease_calls_on_lost_until_block_ends(store: ArtifactStore) -> None:
    calls = threading.Semaphore(0)
    with acquire_or_holder(store, STAGE, KEY, holder="mine", ttl_seconds=0.3) as lease:
        assert isinstance(lease, Lease)
        lease.on_lost = calls.release
        assert lease.renew()
        assert not calls.acquire(blocking=False)
        write_lease(store)
        assert calls.acquire(timeout=30)
        assert calls.acquire(timeout=30)
        assert not lease.renew()
        assert lease.new_holder().startswith("theirs ")


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a new store."""
    if request.param == "disk":
        return str(tmp_path / "store")
    return f"{request.getfixturevalue('bucket')}/store"


class TakenOver:
    """A stage that keeps a checkpoint. Another run takes its lease over while it runs first."""

    def __init__(self, place: str) -> None:
        self.store = ArtifactStore(place)
        self.checkpoints: list[bytes] = []
        self.lease = ""

    def __call__(self, config: object, *, output: str, work: str, **_: object) -> StageOutput:
        fs, folder = file_system(work)
        if not self.lease:
            [self.lease] = self.store.backend.names("leases")
            theirs = {
                **this_process().model_dump(),
                "holder": "theirs",
                "expires_at": time.time() + 99,
                "token": "",
            }
            self.store.backend.replace(self.lease, dump_json(theirs))
            fs.pipe_file(f"{folder}/step", b"theirs")
        self.checkpoints.append(fs.cat_file(f"{folder}/step"))
        return StageOutput(files=(write_text_file("vocab.txt", "a", output=output),))


@pytest.fixture
def taken_over(fakes: FakeStages, place: str, monkeypatch: pytest.MonkeyPatch) -> TakenOver:
    """Replace the stage that learns a vocabulary."""
    stage = TakenOver(place)
    replaced = dataclasses.replace(build_vocabulary.STAGE, run=stage, supports_resume=True)
    monkeypatch.setattr(build_vocabulary, "STAGE", replaced)
    return stage


def test_run_that_lost_its_lease_leaves_checkpoints_to_new_holder(
    fakes: FakeStages, taken_over: TakenOver, place: str
) -> None:
    store, recipe = taken_over.store, fakes.recipe(place)
    with pytest.raises(LeaseLostError) as caught:
        run_recipe(recipe, engine="local", until="build-vocabulary", log=lambda _: None)
    error = caught.value
    assert (error.step, error.holder.split()[0]) == ("build-vocabulary", "theirs")
    assert error.run in run_ids(store)
    assert list(store.pointers("build-vocabulary")) == []
    assert store.backend.names("leases") == [taken_over.lease]
    # The new holder resumes from its own checkpoint and publishes.
    store.backend.delete(taken_over.lease)
    run_recipe(recipe, engine="local", until="build-vocabulary", log=lambda _: None)
    assert taken_over.checkpoints == [b"theirs", b"theirs"]
    assert len(list(store.pointers("build-vocabulary"))) == 1
    assert store.backend.names("work") == []


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_command_names_new_holder_when_lease_is_lost(
    fakes: FakeStages, taken_over: TakenOver, place: str, cli: Cli, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.json"
    recipe.write_text(fakes.recipe(place).model_dump_json(exclude={"store", "execution"}))
    said = cli("run", str(recipe), "--store", place, "--engine", "local")
    assert said.code == 1
    assert "build-vocabulary  FAILED" in said.err
    assert "theirs (process" in said.err


def test_a_disk_that_fails_ends_no_work(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(*_: object, **__: object) -> bool:
        failed.set()
        raise ConnectionError("no answer")

    with acquire(store, ttl_seconds=0.3):
        monkeypatch.setattr(store.backend, "compare_and_swap", fail)
        assert failed.wait(30)
        monkeypatch.undo()


def test_after_a_kill_nobody_waits(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    with held_by_another(store.root, STAGE, KEY) as process:
        found = find_holder(store)
        assert found is not None
        assert found.pid == process.pid
        process.kill()  # its parent has not waited for it, so that the system still lists it
        while find_holder(store) is not None:
            time.sleep(0.01)
        with acquire(store) as other:
            assert isinstance(other, Lease)


def test_a_killed_process_that_nobody_waited_for_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    start = process_identity.start_of(process.pid)
    assert start
    process.kill()
    while process_identity.start_of(process.pid) is not None:
        time.sleep(0.01)
    process.wait()
    assert process_identity.start_of(process.pid) is None


def test_of_many_one_at_a_time_builds(store: ArtifactStore) -> None:
    inside: list[int] = []
    most: list[int] = []

    def build(number: int) -> None:
        is_built = False
        while not is_built:
            with acquire(store, holder=str(number)) as other:
                if isinstance(other, Lease):
                    inside.append(number)
                    most.append(len(inside))
                    time.sleep(0.02)
                    inside.remove(number)
                    is_built = True
            time.sleep(0.01)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 5
