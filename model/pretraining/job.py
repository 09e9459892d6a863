"""A training job: what a run hands to the processes that train, and starting them.

Training runs in processes of its own, one or several under torchrun: signals reach their main
thread, torch's process-wide settings stay theirs, and a crash takes no flow with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from model.processes.child_processes import (
    check_not_in_memory,
    child_environment,
    error_of,
    error_record,
    how_it_ended,
    local_folder,
)
from pipelines.telling.progress import READING_FILE, following
from schemas.errors import BertloomError, RunnerError
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

_LOGGER = logging.getLogger(__name__)

_JOB_FILE = "job.json"
_FAILURE_FILE = "failure.json"
_STOP_SECONDS = 300.0
_RUNNING: set[subprocess.Popen[bytes]] = set()


class TrainingJob(BaseModel):
    """Everything that training needs to know; a file of it can be handed to torchrun by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """What people see, such as `pretrain.phase-1`."""

    config: PretrainConfig
    instances: StageInput
    vocabulary: StageInput
    checkpoint: StageInput | None = None
    """The artifact of the phase before, if the configuration starts from one."""

    work: str
    """URL of the folder for checkpoints; training goes on from the newest one there."""

    def folder(self) -> Path:
        """Local folder for curves and this job's own files: `work` itself where that is local."""
        return local_folder(self.work)


def run_job(job: TrainingJob) -> None:
    """Train in processes of their own, to the end of the budget.

    Raises:
        BertloomError: as the training says.
        ConfigError: its data is in memory, which its processes do not share.
        RunnerError: its process was killed; run again, it goes on from its last checkpoint.
    """
    check_not_in_memory([job.work, job.instances.data, job.vocabulary.data], name=job.name)
    folder = job.folder()
    folder.mkdir(parents=True, exist_ok=True)
    failure = folder / _FAILURE_FILE
    failure.unlink(missing_ok=True)
    job_file = folder / _JOB_FILE
    job_file.touch(mode=0o600)  # URLs in it may hold credentials
    job_file.write_text(job.model_dump_json(indent=2), encoding="utf-8")
    # A session of its own: Ctrl-C reaches this process alone, which passes one signal on. Two of
    # them make torchrun leave its workers alone before they have said how they ended.
    with (
        following(folder / READING_FILE),
        subprocess.Popen(  # noqa: S603 - our own module, no shell
            _command(job.config.processes, job_file),
            env=_environment(job.config.processes),
            start_new_session=True,
        ) as process,
    ):
        _RUNNING.add(process)
        try:
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        finally:
            _RUNNING.discard(process)
    if code:
        raise _failure(failure, code=code, job=job)


def stop_running_jobs() -> None:
    """Ask all training that other threads of this process wait for to stop.

    Each writes a checkpoint, and its `run_job` raises; this returns at once.
    """
    for process in tuple(_RUNNING):
        process.terminate()


def _command(processes: int, job_file: Path) -> list[str]:
    module = ["-m", "model.pretraining.process", str(job_file)]
    if processes == 1:
        return [sys.executable, *module]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *launcher, *module]


def _environment(processes: int) -> dict[str, str]:
    added = {
        # As long as `_stop` waits: torchrun would kill after 30 s, amid a large checkpoint.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": os.environ.get(
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(_STOP_SECONDS))
        ),
    }
    if processes > 1 and "OMP_NUM_THREADS" not in os.environ:
        # torchrun would give each process one thread.
        added["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // processes))
    return {**child_environment(), **added}


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let the training write a checkpoint and end; kill it if it does not."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def write_failure(job_file: Path, error: BaseException) -> None:
    """Leave an error for the process that started the job."""
    record = error_record(error)
    beside = job_file.with_name(f".{_FAILURE_FILE}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(record), encoding="utf-8")
        with contextlib.suppress(FileExistsError):  # the first of several ranks is the cause
            os.link(beside, job_file.with_name(_FAILURE_FILE))
    except OSError as problem:  # a full disk may be what the error is about: say it all the same
        _LOGGER.error("%s: %s", record["kind"], record["message"])
        _LOGGER.error("%s: the message above cannot be left there: %s", job_file.parent, problem)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _failure(file: Path, *, code: int, job: TrainingJob) -> BertloomError:
    if file.exists():
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return error_of(record, name=job.name)
    return RunnerError(
        f"{job.name}: the training process {how_it_ended(code)} and left no message (for SIGKILL: "
        "perhaps out of memory; lower batch.micro_batch_tokens). Run again: it goes on from its "
        "last checkpoint"
    )
