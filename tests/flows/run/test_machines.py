"""Machines that train together: options, joining, losses and errors, without any training."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.tiny_recipe import write_tiny

from flows.recipes.loader import load_recipe
from flows.run import machines
from flows.run.events import RunFinished, RunStarted
from flows.run.graph import StepGraph
from flows.run.machines import (
    Beacon,
    Coordinator,
    Follower,
    Machine,
    MachineOptions,
    Peers,
    check_port,
    check_store,
    parse_machine_options,
)
from flows.run.run import Run
from flows.store.artifacts import ArtifactStore
from model.pretraining import job
from model.pretraining.job import GroupTraining, Rendezvous, train_on_machines
from schemas.errors import (
    ConfigError,
    DivergenceError,
    MachinesError,
    RunnerError,
    TrainingError,
    UsageError,
)
from schemas.recipe import Recipe

ENDPOINT = "node-0:29500"


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ((None, None, None), {}, None),
        ((None, None, None), {"SLURM_NODEID": "1"}, None),
        ((1, None, None), {}, None),
        ((1, 0, ENDPOINT), {}, None),
        ((4, 3, ENDPOINT), {}, 3),
        ((4, None, ENDPOINT), {"SLURM_NODEID": "2"}, 2),
        ((4, None, ENDPOINT), {"GROUP_RANK": "1"}, 1),
        ((4, 0, ENDPOINT), {"SLURM_NODEID": "2"}, 0),
        ((2, 1, "[fe80::1]:29500"), {}, 1),
    ],
)
def test_rank_comes_from_option_or_launcher(
    arguments: tuple[Any, Any, Any], environ: dict[str, str], expected: int | None
) -> None:
    options = parse_machine_options(*arguments, environ=environ)
    assert (None if options is None else options.node_rank) == expected


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        ((4, 0, None), {}),  # no endpoint
        ((None, 0, ENDPOINT), {}),  # no number of machines
        ((None, 1, None), {}),
        ((1, 1, ENDPOINT), {}),
        ((4, None, ENDPOINT), {}),  # no rank
        ((4, None, ENDPOINT), {"SLURM_NODEID": "first"}),
        ((4, 4, ENDPOINT), {}),
        ((4, None, ENDPOINT), {"SLURM_NODEID": "4"}),
        ((4, 0, "node-0"), {}),
        ((4, 0, "node-0:0"), {}),
        ((4, 0, "node-0:99999"), {}),
        ((4, 0, "http://node-0:29500"), {}),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: tuple[Any, Any, Any], environ: dict[str, str]
) -> None:
    with pytest.raises(UsageError):
        parse_machine_options(*arguments, environ=environ)


def test_bucket_and_used_port_are_refused() -> None:
    with pytest.raises(ConfigError):
        check_store(ArtifactStore("memory://machines"))
    with closing(socket.create_server(("127.0.0.1", 0))) as server, pytest.raises(ConfigError):
        check_port(f"node-0:{server.getsockname()[1]}")


class World:
    """Machines of one store, and their time, which passes only when one of them sleeps."""

    def __init__(self, folder: Path) -> None:
        write_tiny(folder)
        self.folder = folder
        self.recipe: Recipe = load_recipe(str(folder / "tiny.yaml"))
        self.store = ArtifactStore(f"memory:/{folder}")  # without waiting for a disk
        self.now = 0.0
        self.alive: list[Beacon] = []
        self.script: Iterator[object] = iter(())
        self.lines: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass: do the next step of the script, and write all files of machines."""
        self.now += seconds
        next(self.script, None)
        for beacon in self.alive:
            beacon.update()

    def options(self, rank: int, nnodes: int = 2) -> MachineOptions:
        return MachineOptions(nnodes, rank, ENDPOINT, join_timeout=40.0)

    def beacon(self, rank: int, nnodes: int = 2, **fields: Any) -> Beacon:
        """Start a machine that only writes its file."""
        fields = {"recipe": self.recipe.name, **fields}
        self.alive.append(Beacon(self.store, self.options(rank, nnodes), **fields))
        return self.alive[-1]

    def coordinator(self, nnodes: int = 2) -> Coordinator:
        coordinator = Coordinator(self.store, self.options(0, nnodes), recipe=self.recipe)
        self.alive.append(coordinator.beacon)
        return coordinator

    def follower(self, rank: int = 1) -> Follower:
        follower = Follower(
            self.store, self.options(rank), recipe=self.recipe, log=self.lines.append
        )
        self.alive.append(follower.beacon)
        return follower

    def stopped(self) -> threading.Event:
        """Return an event whose `wait` lets time pass."""
        event = threading.Event()

        def wait(seconds: float | None = None) -> bool:
            self.sleep(seconds or 0.0)
            return event.is_set()

        event.wait = wait  # type: ignore[method-assign]
        return event

    def look(self, rank: int) -> Machine:
        """Return the file of a machine."""
        peers = Peers(self.store, self.options(rank))
        peers.read()
        return peers.last[rank]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.setattr(machines, "time", world)
    monkeypatch.setattr(machines, "LOST_SECONDS", 10.0)
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return world


class FakeTraining:
    """Processes of a follower; a test sets how they end."""

    started: list[FakeTraining]

    def __init__(self, job_file: str, rendezvous: Rendezvous) -> None:
        self.id, self.job_file, self.rendezvous = rendezvous.id, job_file, rendezvous
        self.end: str | None = None
        self.was_stopped = False
        self.started.append(self)

    def failure(self) -> str | None:
        return self.end

    def stop(self) -> str:
        self.was_stopped = True
        return "stopped" if self.end is None else self.end


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[FakeTraining]:
    FakeTraining.started = []
    monkeypatch.setattr(machines, "JoinedTraining", FakeTraining)
    return FakeTraining.started


# Machine 0


def _train(
    world: World, coordinator: Coordinator, run: Callable[[GroupTraining], None]
) -> list[dict[int, str]]:
    """Train as machine 0; `run` stands for the processes. Return the members of each start."""
    members: list[dict[int, str]] = []

    class Group:
        def training(self, job_file: Path, *, name: str, stopped: threading.Event) -> Any:
            return coordinator.training(job_file, name=name, stopped=world.stopped())

    def train(_file: Path, _rendezvous: Rendezvous, should_stop: Any) -> None:
        members.append(dict(coordinator.beacon.machine.members))
        run(should_stop.__self__)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "train_job_file", train)
        train_on_machines(Group(), world.folder / "job.json", name="phase")
    return members


def test_training_starts_when_late_machine_has_joined(world: World) -> None:
    coordinator = world.coordinator(nnodes=3)
    first, late = world.beacon(1, 3), Beacon(world.store, world.options(2, 3), recipe="tiny")

    def script() -> Iterator[object]:
        for _ in range(60):
            yield
        assert not coordinator.beacon.machine.training
        world.alive.append(late)

    world.script = script()
    [members] = _train(world, coordinator, lambda _: None)
    assert members == {1: first.machine.token, 2: late.machine.token}


@pytest.mark.parametrize("other", ["dead", "busy", "left", "nobody"])
def test_machine_that_does_not_come_is_named(world: World, other: str) -> None:
    coordinator = world.coordinator(nnodes=4)
    world.beacon(1, 4)
    if other != "nobody":
        beacon = world.beacon(3, 4)
        beacon.update(state={"busy": "training"}.get(other, "waiting"))
        if other == "left":
            beacon.update(state="left")
        if other != "busy":
            world.alive.remove(beacon)
    with pytest.raises(MachinesError) as caught:
        _train(world, coordinator, lambda _: None)
    assert [list(caught.value.present), list(caught.value.missing)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("way", ["restarted", "silent", "left"])
def test_training_starts_again_after_machine_was_lost(world: World, way: str) -> None:
    coordinator, first = world.coordinator(), world.beacon(1)
    starts: list[str] = []

    def run(training: GroupTraining) -> None:
        starts.append(training.rendezvous.id)
        if len(starts) == 2:
            return
        assert not training.is_broken()
        if way == "left":
            first.update(state="left")
        world.alive.remove(first)
        if way == "restarted":
            world.beacon(1)
        else:
            world.script = (world.beacon(1) if step == 60 else None for step in range(90))
        raise RunnerError("connection closed by peer")

    before, after = _train(world, coordinator, run)
    assert before == {1: first.machine.token}
    assert after == {1: world.alive[-1].machine.token} != before
    assert len(set(starts)) == 2


@pytest.mark.parametrize(
    ("error", "has_note"),
    [
        (RunnerError("connection closed"), True),
        (TrainingError("stopped"), True),
        (DivergenceError("nan"), False),
    ],
)
def test_failed_processes_of_other_machine_end_training(
    world: World, error: Exception, has_note: bool
) -> None:
    coordinator, peer = world.coordinator(), world.beacon(1)

    def run(training: GroupTraining) -> None:
        id = coordinator.beacon.machine.training
        peer.update(state="training", training=id)
        assert not training.is_broken()
        peer.update(state="failed", training=id, failure="out of memory")
        assert training.is_broken()
        raise error

    with pytest.raises(type(error)) as caught:
        _train(world, coordinator, run)
    notes = "".join(getattr(caught.value, "__notes__", ()))
    assert ("machine 1" in notes and "out of memory" in notes) == has_note
    assert not coordinator.beacon.machine.training


@pytest.mark.parametrize("fields", [{"recipe": "other"}, {"bertloom": "0.0"}, {"nnodes": 3}])
def test_machine_with_other_command_is_refused(world: World, fields: dict[str, Any]) -> None:
    coordinator, peer = world.coordinator(), world.beacon(1)
    peer.update(**fields)
    with pytest.raises(ConfigError):
        _train(world, coordinator, lambda _: None)


def test_second_process_with_same_rank_replaces_first(world: World) -> None:
    coordinator, first = world.coordinator(), world.beacon(1)
    second = world.beacon(1)
    world.sleep(1)
    first.update()
    with pytest.raises(RunnerError):
        first.check()
    second.check()
    [members] = _train(world, coordinator, lambda _: None)
    assert members == {1: second.machine.token}


def test_run_tells_other_machines_how_it_ended(world: World) -> None:
    coordinator = world.coordinator()
    run = Run(world.recipe, StepGraph())
    coordinator.on_event(RunStarted(run))
    assert (world.look(0).run_id, world.look(0).outcome) == (run.run_id, "")
    coordinator.on_event(RunFinished(run, "failed", {"pretrain.first": DivergenceError("nan")}))
    assert world.look(0).outcome == "failed"
    assert "nan" in world.look(0).failure


# Other machines


def _start(leader: Beacon, training: str, *members: Beacon) -> None:
    tokens = {beacon.machine.rank: beacon.machine.token for beacon in members}
    leader.update(training=training, name="phase", job="/store/job.json", members=tokens)


def test_follower_joins_each_training_and_ends_with_run(
    world: World, trainings: list[FakeTraining]
) -> None:
    leader, follower = world.beacon(0, run_id="run"), world.follower()

    def script() -> Iterator[object]:
        for id in ("first", "second"):
            yield from range(5)
            _start(leader, id, follower.beacon)
            yield from range(5)
            assert follower.beacon.machine.state == "training"
            trainings[-1].end = ""
            yield from range(2)
            assert follower.beacon.machine.state == "waiting"
            leader.update(training="", members={})
        yield from range(5)
        leader.update(outcome="completed")

    world.script = script()
    assert follower.run().run_id == "run"
    assert [training.rendezvous for training in trainings] == [
        Rendezvous(ENDPOINT, 2, 1, id) for id in ("first", "second")
    ]
    assert world.look(1).state == "left"


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_follower_fails_with_run_and_stops_its_processes(
    world: World, trainings: list[FakeTraining], outcome: str
) -> None:
    leader, follower = world.beacon(0, run_id="run"), world.follower()

    def script() -> Iterator[object]:
        yield from range(5)
        _start(leader, "first", follower.beacon)
        yield from range(5)
        leader.update(outcome=outcome, failure="nan")

    world.script = script()
    with pytest.raises(RunnerError):
        follower.run()
    assert [training.was_stopped for training in trainings] == [True]


@pytest.mark.parametrize("is_quick", [False, True])
def test_follower_waits_for_restarted_machine_0(
    world: World, trainings: list[FakeTraining], is_quick: bool
) -> None:
    killed, follower = world.beacon(0, run_id="killed"), world.follower()

    def script() -> Iterator[object]:
        yield from range(5)
        _start(killed, "first", follower.beacon)
        yield from range(5)
        world.alive.remove(killed)
        yield from range(0 if is_quick else 60)
        assert is_quick or trainings[0].was_stopped
        leader = world.beacon(0, run_id="restarted")
        yield from range(5)
        assert trainings[0].was_stopped
        _start(leader, "again", follower.beacon)
        yield from range(5)
        trainings[1].end = ""
        leader.update(outcome="completed")

    world.script = script()
    assert follower.run().run_id == "restarted"
    assert [training.id for training in trainings] == ["first", "again"]


def test_follower_does_not_join_training_without_it(
    world: World, trainings: list[FakeTraining]
) -> None:
    leader, follower = world.beacon(0, run_id="run"), world.follower()
    earlier = Beacon(world.store, world.options(1), recipe="tiny")  # before it was restarted

    def script() -> Iterator[object]:
        _start(leader, "first", earlier)
        yield from range(20)
        leader.update(outcome="completed")

    world.script = script()
    follower.run()
    assert trainings == []


@pytest.mark.parametrize("has_old_file", [False, True])
def test_follower_names_machine_0_that_does_not_come(world: World, has_old_file: bool) -> None:
    if has_old_file:
        world.beacon(0, run_id="old").update(outcome="completed")
        world.alive.clear()
    with pytest.raises(MachinesError) as caught:
        world.follower().run()
    assert list(caught.value.missing) == [0]


def test_follower_ends_when_run_of_its_slurm_job_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    world.beacon(0, run_id="run").update(outcome="completed")
    world.alive.clear()
    assert world.follower().run().run_id == "run"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with pytest.raises(MachinesError):
        world.follower().run()


def test_interrupted_follower_leaves(world: World, trainings: list[FakeTraining]) -> None:
    leader, follower = world.beacon(0, run_id="run"), world.follower()

    def script() -> Iterator[object]:
        yield from range(5)
        _start(leader, "first", follower.beacon)
        yield from range(5)
        raise KeyboardInterrupt

    world.script = script()
    with pytest.raises(KeyboardInterrupt):
        follower.run()
    assert trainings[0].was_stopped
    assert world.look(1).state == "left"
