"""One process of a training job: `python -m model.pretraining.process JOB.json`, or the same under
torchrun, on as many machines as share the job's folders."""

from __future__ import annotations

import os
import sys

from model.launch.launcher import torchrun
from model.launch.stopping import StopRequest
from model.launch.worker import run_job_file
from model.pretraining.job import TrainingJob


def main(arguments: list[str]) -> int:
    """Train; the exit code: 0 at the end of the budget, 1 for an error, which is left in a file."""
    return run_job_file("model.pretraining.process:train_on_all_gpus", arguments[0])


def train_on_all_gpus(job: TrainingJob, *, stop: StopRequest) -> None:
    """Train; with `num_processes: auto` and several GPUs, replace this process by torchrun."""
    from model.pretraining.loop import train  # lazy: after the wait policy of threads is set

    num_gpus = _count_gpus(job)
    if "WORLD_SIZE" in os.environ or num_gpus < 2:
        train(job, stop=stop)
        return
    command, added = torchrun(["model.pretraining.process", *sys.argv[1:]], num_processes=num_gpus)
    os.execve(sys.executable, [sys.executable, "-m", *command], {**added, **os.environ})  # noqa: S606


def _count_gpus(job: TrainingJob) -> int:
    """Return the number of GPUs for `num_processes: auto`; 0 with another value."""
    import torch  # lazy

    is_auto = job.config.num_processes == "auto" and job.config.device != "cpu"
    return torch.cuda.device_count() if is_auto else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
