"""One process of a training job: `python -m model.pretraining.process JOB.json [OPTION ...]`.

It trains, or replaces itself by torchrun for several processes, on one machine or, with options of
torchrun's rendezvous, on several machines that share the job's folders.
"""

from __future__ import annotations

import os
import sys

from model.pretraining.job import PROGRAM, TrainingJob
from model.training.stopping import StopRequest
from model.training.worker_process import run_job_file
from model.training.workers import torchrun
from schemas.errors import TrainingError


def main(arguments: list[str]) -> int:
    """Train; the exit code: 0 at the end of the budget, 1 for an error, which is left in a file."""
    return run_job_file(f"{PROGRAM}:train_on_all_gpus", arguments[0])


def train_on_all_gpus(job: TrainingJob, *, stop: StopRequest) -> None:
    """Train; for several processes or machines, replace this process by torchrun."""
    from model.pretraining.loop import (
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
