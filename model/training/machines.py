"""Training on several machines: torch's elastic agents, one per machine, run one job together.

Which machines there are, and when all are ready, is known to a `MachineGroup`, which
`flows.run.machines` implements.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import BaseModel

from model.training.workers import (
    STOP_SECONDS,
    end_process,
    run_job,
    start_module,
    stoppable,
    write_job,
)
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


def run_job_on_machines(
    machines: MachineGroup, module: str, job: BaseModel, *, name: str, folder: Path
) -> None:
    """Run a module on a job on all machines; see `workers.run_job`.

    If a machine is lost, the job starts again as soon as all machines are ready.

    Raises:
        MachinesError: A machine did not come.
    """
    job_file, stopped = write_job(job, name=name, folder=folder), threading.Event()
    with stoppable(stopped.set):
        while lost := _run_once(machines, module, job_file, name=name, stopped=stopped):
            _LOGGER.warning(
                "%s: lost %s; resuming from the last checkpoint when all machines are ready",
                name,
                ", ".join(lost),
            )


def _run_once(
    machines: MachineGroup, module: str, job_file: Path, *, name: str, stopped: threading.Event
) -> list[str]:
    """Run a job to its end; return the machines that were lost before."""
    with machines.training(job_file, name=name, stopped=stopped) as training:
        try:
            run_job(
                module,
                job_file,
                name=name,
                options=training.rendezvous.torchrun_options(),
                should_stop=training.is_broken,
            )
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
    """This machine's processes of a training that the machine with rank 0 started."""

    def __init__(self, module: str, job_file: str, rendezvous: Rendezvous) -> None:
        """Start the elastic agent."""
        self.id = rendezvous.id
        self._process: subprocess.Popen[bytes] = start_module(
            [module, job_file, *rendezvous.torchrun_options()]
        )

    def exit_code(self) -> int | None:
        """Return the exit code of the agent; None while it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Ask the processes to stop, wait for their end, and return the exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        return end_process(self._process, seconds=STOP_SECONDS)
