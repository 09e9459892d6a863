"""Several machines that train together, each started with the same command.

    machines/HOST-PORT/RANK.json     Machine, written by this machine every two seconds

Machine 0 runs the recipe (`Coordinator`). For each training it waits until all machines are ready,
then names the job and its members in its file. The other machines (`Follower`) read that, start
torch's elastic agent, and end with the run.

The clocks of the machines are not compared: a machine is alive as long as its file changes. A
machine that starts again has a new token, and joins the next training.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field

from flows.formatting import format_duration
from flows.run.events import Event, RunFinished, RunMessage, RunStarted
from flows.run.run import Run
from flows.run.run_recorder import failure_text
from flows.store.activity import HeartbeatThread
from flows.store.artifacts import ArtifactStore
from flows.store.records import Record
from flows.store.runs import RunState
from model.pretraining.job import JoinedTraining, Rendezvous
from schemas.errors import ConfigError, MachinesError, RunnerError, TrainingError, UsageError
from schemas.recipe import Recipe

JOIN_TIMEOUT = 900.0
"""Seconds to wait for a machine."""

BEAT_SECONDS = 2.0
LOST_SECONDS = 60.0
"""Seconds after which a machine whose file does not change is lost. NFS can show a file late."""

_POLL_SECONDS = 0.5
_ENDPOINT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")
_RANK_VARIABLES = ("SLURM_NODEID", "GROUP_RANK")
_LAUNCH_VARIABLES = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT")


class MachineOptions(NamedTuple):
    """Machines of a run, and which of them this one is."""

    nnodes: int
    node_rank: int
    endpoint: str
    """HOST:PORT of the rendezvous, on the machine with rank 0."""

    join_timeout: float = JOIN_TIMEOUT
    """Seconds to wait for a machine."""

    @property
    def folder(self) -> str:
        """Folder of the machines' files in the store."""
        return f"machines/{re.sub(r'[^0-9A-Za-z.]+', '-', self.endpoint).strip('-')}"


def parse_machine_options(
    nnodes: int | None,
    node_rank: int | None,
    endpoint: str | None,
    join_timeout: float = JOIN_TIMEOUT,
    *,
    environ: Mapping[str, str] = os.environ,
) -> MachineOptions | None:
    """Return the machines of a run; None for this machine alone.

    Args:
        nnodes: Number of machines. None: one.
        node_rank: Rank of this machine. None: `SLURM_NODEID` or `GROUP_RANK`.
        endpoint: HOST:PORT of the rendezvous.
        join_timeout: Seconds to wait for a machine.
        environ: Environment variables.

    Raises:
        UsageError: The options do not fit each other.
    """
    if nnodes is None or nnodes == 1:
        if node_rank or (nnodes is None and endpoint is not None):
            raise UsageError("--node-rank and --rdzv-endpoint require --nnodes of at least 2")
        return None
    if endpoint is None:
        raise UsageError("--nnodes requires --rdzv-endpoint HOST:PORT of the machine with rank 0")
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match["port"]) < 65_536:
        raise UsageError(f"--rdzv-endpoint: expected HOST:PORT, got {endpoint!r}")
    source = "--node-rank"
    if node_rank is None:
        source = next((name for name in _RANK_VARIABLES if environ.get(name)), "")
        if not environ.get(source, "").isdecimal():
            names = " or ".join(_RANK_VARIABLES)
            raise UsageError(f"--nnodes requires --node-rank, or the variable {names}")
        node_rank = int(environ[source])
    if not 0 <= node_rank < nnodes:
        raise UsageError(
            f"{source}: expected 0 to {nnodes - 1} (--nnodes {nnodes}), got {node_rank}"
        )
    return MachineOptions(nnodes, node_rank, endpoint, join_timeout)


class Machine(Record):
    """File of a machine."""

    rank: int
    host: str
    """Name of the machine."""

    token: str
    """Random, new with each start of the command."""

    beat: int = 0
    """Number of times that the file was written."""

    recipe: str
    """Name of the recipe."""

    nnodes: int
    bertloom: str
    """Version of bertloom."""

    launch: str = ""
    """Id of the Slurm job that started the command; "" for none."""

    state: Literal["waiting", "training", "failed", "left"] = "waiting"
    training: str = ""
    """Id of the training: on machine 0 the current one, on others the last one that it joined."""

    failure: str = ""
    """Why `state` is `failed`, or why the run failed."""

    run_id: str = ""
    """Machine 0: id of its run."""

    outcome: Literal["", RunState] = ""
    """Machine 0: how its run ended; "" while it runs."""

    name: str = ""
    """Machine 0: name of the training, such as `pretrain.phase-1`."""

    job: str = ""
    """Machine 0: path of the training's job file."""

    members: dict[int, str] = Field(default_factory=dict)
    """Machine 0: token of each other machine in the training, by rank."""

    def __str__(self) -> str:
        return f"machine {self.rank} ({self.host})"


def check_store(store: ArtifactStore) -> None:
    """Raise ConfigError if other machines cannot share the store's work folders."""
    if not store.backend.is_local:
        raise ConfigError(
            f"store {store.root}: expected a folder that all machines share, got a bucket. "
            "Training on several machines writes its job and checkpoints there: use a network disk"
        )


def check_port(endpoint: str) -> None:
    """Raise ConfigError if the port of the rendezvous is in use on this machine."""
    port = int(endpoint.rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                f"--rdzv-endpoint: port {port} cannot be used on this machine: {error.strerror}. "
                "Choose another port for all machines"
            ) from error


class Beacon:
    """File of this machine, written every `BEAT_SECONDS` until the block ends."""

    def __init__(
        self, store: ArtifactStore, options: MachineOptions, *, recipe: str, **fields: Any
    ) -> None:
        self.machine = Machine(
            rank=options.node_rank,
            host=socket.gethostname(),
            token=uuid.uuid4().hex,
            recipe=recipe,
            nnodes=options.nnodes,
            bertloom=version("bertloom"),
            launch=".".join(filter(None, map(os.environ.get, _LAUNCH_VARIABLES))),
            **fields,
        )
        self.problem = ""
        """Sentence about another process that took this rank, which ends this one; "" for none."""

        self._backend, self._path = store.backend, f"{options.folder}/{options.node_rank}.json"
        self._lock = threading.Lock()
        self._thread = HeartbeatThread(self._write, seconds=BEAT_SECONDS)

    def __enter__(self) -> Self:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(state="left")

    def end(self, **changes: Any) -> None:
        """Write the file for the last time."""
        self._thread.stop()
        self.update(**changes)

    def update(self, **changes: Any) -> None:
        """Change fields and write the file now."""
        with self._lock:
            self.machine = self.machine.model_copy(update=changes)
        # A failing disk or network: the next beat tries again.
        with contextlib.suppress(OSError):
            self._write()

    def check(self) -> None:
        """Raise RunnerError if another process took this machine's rank."""
        if self.problem:
            raise RunnerError(self.problem)

    def _write(self) -> None:
        with self._lock:
            other = Machine.from_json(self._backend.read_if_exists(self._path))
            if self.machine.beat and other is not None and other.token != self.machine.token:
                self.problem = (
                    f"another process was started as {other}: expected one per machine, each with "
                    "its own --node-rank. This one ends"
                )
            if not self.problem:
                self.machine = self.machine.model_copy(update={"beat": self.machine.beat + 1})
                self._backend.replace(self._path, self.machine.to_json())


class Peers:
    """Machines of a run, as this machine sees them."""

    def __init__(self, store: ArtifactStore, options: MachineOptions) -> None:
        self._backend = store.backend
        self._paths = {f"{options.folder}/{rank}.json": rank for rank in range(options.nnodes)}
        self.last: dict[int, Machine] = {}
        """Last content of each file, also of machines that are not alive."""

        self._changed_at: dict[int, float] = {}

    def read(self) -> dict[int, Machine]:
        """Return the machines that are alive, by rank.

        A file that is read for the first time proves nothing: an earlier run can have written it.
        """
        moment, contents = time.monotonic(), dict[str, bytes]()
        with contextlib.suppress(OSError):  # a failing disk or network: the next look tries again
            contents = self._backend.read_many(self._paths)
        for path, stored in contents.items():
            rank, machine = self._paths[path], Machine.from_json(stored)
            if machine is None:
                continue
            if rank in self.last and machine != self.last[rank]:
                self._changed_at[rank] = moment
            self.last[rank] = machine
        return {
            rank: self.last[rank]
            for rank, changed_at in self._changed_at.items()
            if moment - changed_at <= LOST_SECONDS and self.last[rank].state != "left"
        }

    def name(self, rank: int) -> str:
        """Return the name of a machine in messages, with its host if it is known."""
        return str(self.last[rank]) if rank in self.last else f"machine {rank}"


class Coordinator:
    """The machine with rank 0: lets the others take part in the trainings of a run.

    It is a `MachineGroup`, and a listener of the run.
    """

    def __init__(self, store: ArtifactStore, options: MachineOptions, *, recipe: Recipe) -> None:
        self._store, self._options = store, options
        self.beacon = Beacon(store, options, recipe=recipe.name)
        self._run: Run | None = None
        self._turn = threading.Lock()
        """One training at a time: all use the port of the rendezvous."""

    def on_event(self, event: Event) -> None:
        """Tell the other machines that the run has started or ended."""
        match event:
            case RunStarted(run):
                self._run = run
                self.beacon.update(run_id=run.run_id)
                self.beacon.__enter__()
            case RunFinished(_, state, failures):
                text = "; ".join(failure_text(error) for error in failures.values())
                self.beacon.end(outcome=state, failure=text)

    @contextlib.contextmanager
    def training(
        self, job_file: Path, *, name: str, stopped: threading.Event
    ) -> Iterator[CoordinatedTraining]:
        """See `MachineGroup.training`."""
        with self._turn:
            peers = Peers(self._store, self._options)
            members = self._wait_for_all(peers, name=name, stopped=stopped)
            training = CoordinatedTraining(self._options, self.beacon, peers, members)
            self.beacon.update(
                training=training.rendezvous.id, name=name, job=str(job_file), members=members
            )
            try:
                yield training
            finally:
                training.end()

    def _wait_for_all(self, peers: Peers, *, name: str, stopped: threading.Event) -> dict[int, str]:
        """Return the tokens of the other machines when all are ready, by rank."""
        deadline, announced = time.monotonic() + self._options.join_timeout, list[int]()
        while True:
            self.beacon.check()
            machines = peers.read()
            ready = {
                rank: check_peer(machine, self.beacon.machine).token
                for rank, machine in machines.items()
                if rank and machine.state != "training"
            }
            missing = [rank for rank in range(1, self._options.nnodes) if rank not in ready]
            if not missing:
                return ready
            if time.monotonic() > deadline:
                raise self._missing_error(peers, missing, name=name)
            is_settled = time.monotonic() > deadline - self._options.join_timeout + 2 * BEAT_SECONDS
            if is_settled and missing != announced:
                announced = missing
                if self._run is not None:
                    text = f"{name}  waiting for {', '.join(map(peers.name, missing))}"
                    self._run.emit(RunMessage(self._run, text))
            if stopped.wait(_POLL_SECONDS):
                raise TrainingError(f"{name}: stopped while waiting for machines")

    def _missing_error(self, peers: Peers, missing: list[int], *, name: str) -> MachinesError:
        nnodes = self._options.nnodes
        present = [rank for rank in range(nnodes) if rank not in missing]
        names = [str(self.beacon.machine), *map(peers.name, present[1:])]
        timeout = format_duration(self._options.join_timeout)
        return MachinesError(
            f"{name}: expected {nnodes} machines, got {len(present)}: {', '.join(names)}. Not "
            f"ready within {timeout}: {', '.join(map(peers.name, missing))}. Start the same "
            "command there, with the same store folder",
            present=tuple(present),
            missing=tuple(missing),
        )


class CoordinatedTraining:
    """One start of a training; see `GroupTraining`."""

    def __init__(
        self, options: MachineOptions, beacon: Beacon, peers: Peers, members: dict[int, str]
    ) -> None:
        self.rendezvous = Rendezvous(options.endpoint, options.nnodes, 0, uuid.uuid4().hex)
        self._beacon, self._peers, self._members = beacon, peers, members
        self._lost: dict[int, str] = {}
        self._failures: dict[int, str] = {}

    def is_broken(self) -> bool:
        """Return whether another machine was lost, or its processes failed."""
        self._look()
        return bool(self._lost or self._failures or self._beacon.problem)

    def find_lost(self) -> list[str]:
        """Wait until it is known which machines were lost during the training; return them."""
        self.end()
        deadline = time.monotonic() + LOST_SECONDS + 2 * BEAT_SECONDS
        while self._look() and not self._lost and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return list(self._lost.values())

    def failures(self) -> list[str]:
        """Return how the processes of other machines failed."""
        return [*self._failures.values(), *filter(None, [self._beacon.problem])]

    def end(self) -> None:
        """Let the other machines stop their processes of this training."""
        self._beacon.update(training="", name="", job="", members={})

    def _look(self) -> bool:
        """Look at the other machines; return whether one of them still trains."""
        machines, is_training = self._peers.read(), False
        for rank, token in self._members.items():
            machine = machines.get(rank)
            if machine is None or machine.token != token:
                self._lost.setdefault(rank, self._peers.name(rank))
            elif machine.training != self.rendezvous.id or machine.state == "training":
                is_training = True
            elif machine.state == "failed":
                self._failures.setdefault(rank, f"{machine}: {machine.failure}")
        return is_training


class Follower:
    """A machine with another rank: takes part in the trainings of the run on machine 0."""

    def __init__(
        self,
        store: ArtifactStore,
        options: MachineOptions,
        *,
        recipe: Recipe,
        log: Callable[[str], None],
    ) -> None:
        self._options, self._log = options, log
        self.beacon = Beacon(store, options, recipe=recipe.name)
        self._peers = Peers(store, options)
        self._leader = ""
        """Token of machine 0; "" while it is not alive."""

        self._heard_at = time.monotonic()
        self._training: JoinedTraining | None = None

    def run(self) -> Machine:
        """Take part until the run on machine 0 has ended; return the last content of its file.

        Raises:
            MachinesError: Machine 0 did not come.
            RunnerError: The run failed, or another process has the same rank.
        """
        self._log(f"{self.beacon.machine} of {self._options.nnodes}: waiting for machine 0")
        with self.beacon, contextlib.ExitStack() as stack:
            stack.callback(self._stop)
            while (leader := self._find_ended()) is None:
                self.beacon.check()
                time.sleep(_POLL_SECONDS)
        if leader.outcome != "completed":
            raise RunnerError(
                f"run {leader.run_id} on {leader}: {leader.outcome}. {leader.failure}".rstrip()
            )
        return leader

    def _find_ended(self) -> Machine | None:
        """Follow machine 0 once; return its file if its run has ended."""
        leader = self._peers.read().get(0)
        if leader is None:
            last = self._peers.last.get(0)
            # Everything may have been in the store, and the run over before this machine started.
            if last and last.outcome and last.launch and last.launch == self.beacon.machine.launch:
                return last
            self._wait_for_leader()
            return None
        self._heard_at = time.monotonic()
        if leader.outcome:
            return leader
        if leader.token != self._leader:
            check_peer(leader, self.beacon.machine)
            self._leader = leader.token
            self._log(f"joined run {leader.run_id} on {leader}: waiting for a training")
        self._follow_training(leader)
        return None

    def _wait_for_leader(self) -> None:
        """Stop the training of a machine 0 that was lost, and check how long it is away."""
        if self._leader:
            self._log(f"{self._peers.name(0)} was lost: waiting for it")
            self._leader = ""
            self._stop()
        if time.monotonic() - self._heard_at > self._options.join_timeout:
            last = self._peers.last.get(0)
            ended = f" Its last run, {last.run_id}, ended: {last.outcome}." if last else ""
            raise MachinesError(
                f"{self._peers.name(0)}: expected a running command, got none within "
                f"{format_duration(self._options.join_timeout)}.{ended} Start the same command "
                "there, with the same store folder",
                present=(self._options.node_rank,),
                missing=(0,),
            )

    def _follow_training(self, leader: Machine) -> None:
        """Start, watch or stop this machine's processes as machine 0 says."""
        is_member = leader.members.get(self._options.node_rank) == self.beacon.machine.token
        current = leader.training if is_member else ""
        if self._training is not None:
            failure = self._training.failure()
            if failure is None and current != self._training.id:
                failure = self._training.stop()
            if failure is not None:
                self._report_end(failure)
        elif current and current != self.beacon.machine.training:
            self._log(f"{leader.name}: training")
            rendezvous = Rendezvous(
                self._options.endpoint, self._options.nnodes, self._options.node_rank, current
            )
            self.beacon.update(state="training", training=current, failure="")
            self._training = JoinedTraining(leader.job, rendezvous)

    def _report_end(self, failure: str) -> None:
        self._training = None
        self.beacon.update(state="failed" if failure else "waiting", failure=failure)
        self._log(f"training ended{f': {failure}' if failure else ''}; waiting")

    def _stop(self) -> None:
        if self._training is not None:
            self._report_end(self._training.stop())


def check_peer(peer: Machine, own: Machine) -> Machine:
    """Return a machine that was started with the same command as this one.

    Raises:
        ConfigError: Its recipe, number of machines or version of bertloom is another one.
    """
    for field in ("recipe", "nnodes", "bertloom"):
        theirs, ours = getattr(peer, field), getattr(own, field)
        if theirs != ours:
            raise ConfigError(
                f"{field}: expected the same on all machines, got {ours!r} on {own} and "
                f"{theirs!r} on {peer}. Start the same command on all machines"
            )
    return peer
