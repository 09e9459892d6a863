"""A phase of pretraining, and the worker process and machines that train it. Loads no torch.

On several machines, torch's elastic agents, one per machine, run one job together. Which machines
there are, and when all are ready, is known to a `MachineGroup`, which `flows.run.machines`
implements.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from model.training.checkpoints import Checkpoints
from model.training.progress import forward_progress
from model.training.workers import call_in_new_worker, local_folder, stoppable
from schemas.errors import RunnerError, TrainingError
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

_LOGGER = logging.getLogger(__name__)

JOB_FILE = "job.json"
TRAIN = "model.pretraining.process:train_on_all_gpus"
"""Function that a worker calls with a job."""


class Rendezvous(NamedTuple):
    """Rendezvous of the elastic agents for one training."""

    endpoint: str
    """HOST:PORT, on the machine with rank 0."""

    nnodes: int
    """Number of machines."""

    node_rank: int
    """Rank of this machine, from 0."""

    id: str
    """Id of the training, new each time that it starts."""

    def torchrun_options(self) -> list[str]:
        """Return the options of torchrun. `static` gives the ranks of processes by `node_rank`."""
        return [
            f"--nnodes={self.nnodes}",
            f"--node-rank={self.node_rank}",
            "--rdzv-backend=static",
            f"--rdzv-endpoint={self.endpoint}",
            f"--rdzv-id={self.id}",
        ]


class GroupTraining(Protocol):
    """One start of a training on all machines, as the machine with rank 0 sees it."""

    @property
    def rendezvous(self) -> Rendezvous:
        """Rendezvous of this machine."""

    def is_broken(self) -> bool:
        """Return whether another machine was lost, or its processes failed."""

    def find_lost(self) -> list[str]:
        """Wait until it is known which machines were lost during the training; return them."""

    def failures(self) -> list[str]:
        """Return how the processes of other machines failed."""


class MachineGroup(Protocol):
    """Machines that train together, as the machine with rank 0 sees them."""

    def training(
        self, job_file: Path, *, name: str, stopped: threading.Event
    ) -> AbstractContextManager[GroupTraining]:
        """Wait until all machines are ready, and let them train a job while the block runs.

        Raises:
            MachinesError: A machine did not come.
            TrainingError: `stopped` was set.
        """


_MACHINES: contextvars.ContextVar[MachineGroup | None] = contextvars.ContextVar(
    "_MACHINES", default=None
)


@contextlib.contextmanager
def machines_scope(machines: MachineGroup | None) -> Iterator[None]:
    """Let the trainings that this thread starts in the block use these machines."""
    token = _MACHINES.set(machines)
    try:
        yield
    finally:
        _MACHINES.reset(token)


class TrainingJob(BaseModel):
    """Everything that training needs to know, on one machine or several."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name in messages, such as `pretrain.phase-1`."""

    config: PretrainConfig
    instances: StageInput
    vocabulary: StageInput
    checkpoint: StageInput | None = None
    """The artifact of the phase before, if the configuration starts from one."""

    work: str
    """URL of the folder for checkpoints; training resumes from its newest one."""

    rendezvous: Rendezvous | None = None
    """Rendezvous of several machines. None: this machine alone."""

    def folder(self) -> Path:
        """Local folder for curves and this job's own files: `work` itself where that is local."""
        return local_folder(self.work)

    def checkpoints(self) -> Checkpoints:
        """Newest states of the training, to resume from."""
        keep_last = self.config.checkpoints.save_total_limit
        return Checkpoints(f"{self.work}/checkpoints", keep_last=keep_last)

    def snapshots(self) -> Checkpoints:
        """Models of the steps in `config.kept_steps`, with what was measured then."""
        return Checkpoints(f"{self.work}/snapshots", keep_last=len(self.config.kept_steps) or 1)

    def run(self) -> None:
        """Train in other processes to the end of the budget.

        Raises:
            BertloomError: as the training says.
            ConfigError: its data is in memory, which its processes do not share.
            RunnerError: A process was killed; a rerun resumes from the last checkpoint.
            MachinesError: A machine did not come.
        """
        machines = _MACHINES.get()
        with forward_progress(self.folder()):
            if machines is None:
                call_in_new_worker(TRAIN, self)
            else:
                train_on_machines(machines, self.write(self.folder()), name=self.name)

    def write(self, folder: Path) -> Path:
        """Write the job to a folder, for other processes, and return the path of the file."""
        folder.mkdir(parents=True, exist_ok=True)
        job_file = folder / JOB_FILE
        job_file.touch(mode=0o600)  # URLs in it may hold credentials
        job_file.write_text(self.model_dump_json(indent=2), encoding="utf-8")
        return job_file


def train_job_file(job_file: Path, rendezvous: Rendezvous, should_stop: Callable[[], bool]) -> None:
    """Train the job of a file in the processes of this machine, one of several.

    `should_stop` is called about twice per second; True stops the training.
    """
    job = TrainingJob.model_validate_json(job_file.read_bytes())
    job = job.model_copy(update={"rendezvous": rendezvous})
    call_in_new_worker(TRAIN, job, should_stop=should_stop)


def train_on_machines(machines: MachineGroup, job_file: Path, *, name: str) -> None:
    """Train the job of a file on all machines.

    If a machine is lost, the training starts again as soon as all machines are ready.

    Args:
        machines: All machines.
        job_file: File that all machines can read.
        name: Name of the training in messages.

    Raises:
        MachinesError: A machine did not come.
        BertloomError: As the training says.
    """
    stopped = threading.Event()
    with stoppable(stopped.set):
        while lost := _train_once(machines, job_file, name=name, stopped=stopped):
            _LOGGER.warning(
                "%s: lost %s; resuming from the last checkpoint when all machines are ready",
                name,
                ", ".join(lost),
            )


def _train_once(
    machines: MachineGroup, job_file: Path, *, name: str, stopped: threading.Event
) -> list[str]:
    """Train to the end; return the machines that were lost before."""
    with machines.training(job_file, name=name, stopped=stopped) as training:
        try:
            train_job_file(job_file, training.rendezvous, training.is_broken)
        except (RunnerError, TrainingError) as error:
            if not stopped.is_set() and (lost := training.find_lost()):
                return lost
            if isinstance(error, RunnerError) or type(error) is TrainingError:
                # It only says that other processes are gone, or that a stop was requested.
                for failure in training.failures():
                    error.add_note(failure)
            raise
    return []


class JoinedTraining:
    """This machine's part of a training that the machine with rank 0 started."""

    def __init__(self, job_file: str, rendezvous: Rendezvous) -> None:
        """Start to train in a thread."""
        self.id = rendezvous.id
        self._stopped = threading.Event()
        executor = ThreadPoolExecutor(1)
        should_stop = self._stopped.is_set
        self._result = executor.submit(train_job_file, Path(job_file), rendezvous, should_stop)
        executor.shutdown(wait=False)

    def failure(self) -> str | None:
        """Return why the training failed, "" if it did not; None while it runs."""
        return self._wait() if self._result.done() else None

    def stop(self) -> str:
        """Ask the processes to stop, wait for their end, and return why they failed."""
        self._stopped.set()
        return self._wait()

    def _wait(self) -> str:
        error = self._result.exception()
        return "" if error is None else str(error) or repr(error)
