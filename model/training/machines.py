"""Training on several machines: torch's elastic agents, one per machine, run one job together.

Which machines there are, and when all are ready, is known to a `MachineGroup`, which
`flows.run.machines` implements.
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

from model.training.workers import stoppable
from schemas.errors import RunnerError, TrainingError

_LOGGER = logging.getLogger(__name__)


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


def current_machines() -> MachineGroup | None:
    """Return the machines of this thread's trainings; None for this machine alone."""
    return _MACHINES.get()


Train = Callable[[Path, Rendezvous, Callable[[], bool]], None]
"""Function that trains the job of a file on this machine. It calls its last argument about twice
per second, and stops if the result is True."""


def train_on_machines(machines: MachineGroup, train: Train, job_file: Path, *, name: str) -> None:
    """Train on all machines.

    If a machine is lost, the training starts again as soon as all machines are ready.

    Args:
        machines: All machines.
        train: Function that trains on this one.
        job_file: File of the job, which all machines can read.
        name: Name of the training in messages.

    Raises:
        MachinesError: A machine did not come.
        BertloomError: As `train` says.
    """
    stopped = threading.Event()
    with stoppable(stopped.set):
        while lost := _train_once(machines, train, job_file, name=name, stopped=stopped):
            _LOGGER.warning(
                "%s: lost %s; resuming from the last checkpoint when all machines are ready",
                name,
                ", ".join(lost),
            )


def _train_once(
    machines: MachineGroup, train: Train, job_file: Path, *, name: str, stopped: threading.Event
) -> list[str]:
    """Train to the end; return the machines that were lost before."""
    with machines.training(job_file, name=name, stopped=stopped) as training:
        try:
            train(job_file, training.rendezvous, training.is_broken)
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

    def __init__(self, train: Train, job_file: str, rendezvous: Rendezvous) -> None:
        """Start to train in a thread."""
        self.id = rendezvous.id
        self._stopped = threading.Event()
        executor = ThreadPoolExecutor(1)
        self._result = executor.submit(train, Path(job_file), rendezvous, self._stopped.is_set)
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
