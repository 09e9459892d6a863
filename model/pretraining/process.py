"""Processes of a pretraining job: a worker, or several that torchrun starts below it.

`python -m model.pretraining.process JOB.json` is one of several. It writes an error to the folder
of its job file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from model.pretraining.job import TrainingJob
from model.training.stopping import StopRequest
from model.training.worker_process import set_up_logging
from model.training.workers import (
    LAUNCHER_VARIABLE,
    STOP_SECONDS,
    end_process,
    exit_error,
    start_module,
)
from schemas.error_serialization import deserialize_error, serialize_error
from schemas.errors import BertloomError, TrainingError

FAILURE_FILE = "failure.json"

_LOGGER = logging.getLogger("model.pretraining.process")  # __name__ is __main__ in a rank
_POLL_SECONDS = 0.5
_KILL_SECONDS = STOP_SECONDS - 10
"""Time after which torchrun kills its processes, before it is killed itself."""


def train_on_all_gpus(job: TrainingJob, *, stop: StopRequest) -> dict[str, Any]:
    """Train in this process, or let torchrun start several; return an empty result."""
    num_processes = _count_processes(job)
    if num_processes == 1 and job.rendezvous is None:
        from model.pretraining.loop import train  # lazy: loads torch

        train(job, stop=stop)
    else:
        with TemporaryDirectory() as folder:
            _run_torchrun(job, Path(folder), num_processes=num_processes, stop=stop)
    return {}


def _count_processes(job: TrainingJob) -> int:
    """Return the number of processes on this machine; with `auto`, one per GPU."""
    if job.config.num_processes != "auto":
        return job.config.num_processes
    if job.config.device == "cpu":
        return 1
    import torch  # lazy

    return max(1, torch.cuda.device_count())


def _run_torchrun(job: TrainingJob, folder: Path, *, num_processes: int, stop: StopRequest) -> None:
    """Train in several processes, which write the first error to a folder."""
    with start_module(
        torchrun_command(job, job.write(folder), num_processes=num_processes),
        added={
            # By default torchrun kills after 30 s, maybe while a large checkpoint is written, and
            # sets one thread per process.
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(_KILL_SECONDS)),
            "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // num_processes)),
        },
    ) as process:
        code = _wait(process, stop=stop)
    failure = folder / FAILURE_FILE
    if failure.exists():
        raise deserialize_error(json.loads(failure.read_text(encoding="utf-8")), name=job.name)
    if code and stop.reason:
        raise TrainingError(f"{job.name}: stopped before its first step ({stop.reason})")
    if code:
        raise exit_error(job.name, code)


def torchrun_command(job: TrainingJob, job_file: Path, *, num_processes: int) -> list[str]:
    """Return the module and the arguments that train in several processes of this machine."""
    machines = ["--standalone"] if job.rendezvous is None else job.rendezvous.torchrun_options()
    processes = f"--nproc-per-node={num_processes}"
    program = ["-m", "model.pretraining.process", str(job_file)]
    return ["torch.distributed.run", *machines, processes, *program]


def _wait(process: subprocess.Popen[bytes], *, stop: StopRequest) -> int:
    """Wait for the end of a process, which gets a SIGTERM after a stop request."""
    while not stop.reason:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_SECONDS)
    process.terminate()
    return end_process(process, seconds=STOP_SECONDS)


def main(file: str) -> int:
    """Train as one of several processes; return the exit code."""
    job_file = Path(file)
    set_up_logging()
    from model.pretraining.loop import train  # lazy: loads torch

    launcher = os.environ.get(LAUNCHER_VARIABLE)
    try:
        with StopRequest(launcher=int(launcher) if launcher else None) as stop:
            train(TrainingJob.model_validate_json(job_file.read_text(encoding="utf-8")), stop=stop)
    except BaseException as error:
        write_failure(job_file.parent, error)
        if isinstance(error, BertloomError):
            return 1
        raise
    return 0


def write_failure(folder: Path, error: BaseException) -> None:
    """Write an error for the worker. The first error of several processes is kept."""
    facts = serialize_error(error)
    temporary = folder / f".{FAILURE_FILE}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps(facts), encoding="utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, folder / FAILURE_FILE)
    except OSError as problem:  # for example a full disk, which may be the error itself
        _LOGGER.error("%s: %s", facts["class"], facts["message"])
        _LOGGER.error("%s: cannot write the error above: %s", folder, problem)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
