"""A phase of pretraining, and the program of its processes.

    python -m model.pretraining.job JOB.json [OPTION ...]

A process trains, or replaces itself by torchrun for several processes, on one machine or, with
options of torchrun's rendezvous, on several machines that share the job's folders. Importing this
module loads no torch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model.training.machines import current_machines, run_job_on_machines
from model.training.progress import forward_progress
from model.training.stopping import StopRequest
from model.training.worker_process import run_job_file
from model.training.workers import local_folder, run_job, torchrun, write_job
from schemas.errors import TrainingError
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

PROGRAM = "model.pretraining.job"
"""Module that runs a job in one process, or starts torchrun for several."""


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

    def folder(self) -> Path:
        """Local folder for curves and this job's own files: `work` itself where that is local."""
        return local_folder(self.work)

    def run(self) -> None:
        """Train in worker processes to the end of the budget.

        Raises:
            BertloomError: as the training says.
            ConfigError: its data is in memory, which its processes do not share.
            RunnerError: A process was killed; a rerun resumes from the last checkpoint.
            MachinesError: A machine did not come.
        """
        folder, machines = self.folder(), current_machines()
        with forward_progress(folder):
            if machines is None:
                job_file = write_job(self, name=self.name, folder=folder)
                run_job(PROGRAM, job_file, name=self.name)
            else:
                run_job_on_machines(machines, PROGRAM, self, name=self.name, folder=folder)


def main(arguments: list[str]) -> int:
    """Train; the exit code: 0 at the end of the budget, 1 for an error, which is left in a file."""
    return run_job_file(f"{PROGRAM}:train_on_all_gpus", arguments[0])


def train_on_all_gpus(job: TrainingJob, *, stop: StopRequest) -> None:
    """Train; for several processes or machines, replace this process by torchrun."""
    from model.pretraining.module import (
        train,  # lazy: torchrun replaces this process before it loads torch
    )

    job_file, *rendezvous = sys.argv[1:]
    is_rank = "WORLD_SIZE" in os.environ
    num_processes = 1 if is_rank else _count_processes(job)
    if is_rank or (num_processes == 1 and not rendezvous):
        train(job, stop=stop)
        return
    if stop.reason:  # torchrun would not know of it
        raise TrainingError(f"{job.name}: stopped before it started ({stop.reason})")
    command, added = torchrun(
        [PROGRAM, job_file], num_processes=num_processes, rendezvous=rendezvous
    )
    os.execve(sys.executable, [sys.executable, "-m", *command], {**added, **os.environ})  # noqa: S606


def _count_processes(job: TrainingJob) -> int:
    """Return the number of processes on this machine; with `auto`, one per GPU."""
    if job.config.num_processes != "auto":
        return job.config.num_processes
    if job.config.device == "cpu":
        return 1
    import torch  # lazy

    return max(1, torch.cuda.device_count())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
