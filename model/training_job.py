"""A training job: what a run hands to the processes that train, and starting them.

Training runs in processes of its own, one or several under torchrun: signals reach their main
thread, torch's process-wide settings stay theirs, and a crash takes no flow with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
from pydantic import BaseModel, ConfigDict

import schemas.errors as errors
from pipelines.inputs import cache_folder
from schemas.errors import BertloomError, ConfigError, RunnerError, TrainingError
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

_LOGGER = logging.getLogger(__name__)

LAUNCHER_VARIABLE = "BERTLOOM_LAUNCHER"
"""Environment variable with the id of the process whose end also ends the training."""

_JOB_FILE = "job.json"
_FAILURE_FILE = "failure.json"
_STOP_SECONDS = 300.0
_RUNNING: set[subprocess.Popen[bytes]] = set()

# A step frees and takes the same large buffers again; by default glibc gives each back to the
# system, and half of a step's time can go into getting its pages zeroed anew.
_KEEP_MEMORY = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.mmap_max=0",
        "glibc.malloc.trim_threshold=17179869184",
        "glibc.malloc.top_pad=268435456",
    )
)


class TrainingJob(BaseModel):
    """Everything that training needs to know; a file of it can be handed to torchrun by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """What people see, such as `pretrain length-128`."""

    config: PretrainConfig
    instances: StageInput
    vocabulary: StageInput
    checkpoint: StageInput | None = None
    """The artifact of the phase before, if the configuration starts from one."""

    work: str
    """URL of the folder for checkpoints; training goes on from the newest one there."""

    def folder(self) -> Path:
        """Local folder for curves and this job's own files: `work` itself where that is local."""
        fs, path = fsspec.core.url_to_fs(self.work)
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        if "file" in protocols:
            return Path(path)
        digest = hashlib.sha256(self.work.encode()).hexdigest()[:16]
        return cache_folder() / "work" / digest


def run_job(job: TrainingJob) -> None:
    """Train in processes of their own, to the end of the budget.

    Raises:
        BertloomError: as the training says.
        ConfigError: its data is in memory, which its processes do not share.
        RunnerError: its process was killed; run again, it goes on from its last checkpoint.
    """
    for url in (job.work, job.instances.data, job.vocabulary.data):
        if url.startswith("memory:"):
            raise ConfigError(
                f"{job.name}: {url} is in this process's memory, and training runs in processes of "
                "its own: choose a store in a folder or on s3:// or gs://"
            )
    folder = job.folder()
    folder.mkdir(parents=True, exist_ok=True)
    failure = folder / _FAILURE_FILE
    failure.unlink(missing_ok=True)
    job_file = folder / _JOB_FILE
    job_file.touch(mode=0o600)  # URLs in it may hold credentials
    job_file.write_text(job.model_dump_json(indent=2), encoding="utf-8")
    # A session of its own: Ctrl-C reaches this process alone, which passes one signal on. Two of
    # them make torchrun leave its workers alone before they have said how they ended.
    with subprocess.Popen(  # noqa: S603 - our own module, no shell
        _command(job.config.processes, job_file),
        env=_environment(job.config.processes),
        start_new_session=True,
    ) as process:
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
    module = ["-m", "model.training_process", str(job_file)]
    if processes == 1:
        return [sys.executable, *module]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *launcher, *module]


def _environment(processes: int) -> dict[str, str]:
    # The code that started the job is the code that runs it; a folder named `model` where the
    # user happens to be is not looked at.
    root = str(Path(__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    added = {
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _KEEP_MEMORY),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        LAUNCHER_VARIABLE: str(os.getpid()),
        # As long as `_stop` waits: torchrun would kill after 30 s, amid a large checkpoint.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": os.environ.get(
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(_STOP_SECONDS))
        ),
    }
    if processes > 1 and "OMP_NUM_THREADS" not in os.environ:
        # torchrun would give each process one thread.
        added["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // processes))
    return {**os.environ, **added}


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let the training write a checkpoint and end; kill it if it does not."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def write_failure(job_file: Path, error: BaseException) -> None:
    """Leave an error for the process that started the job."""
    record = {
        "kind": type(error).__name__,
        "message": str(error),
        "notes": list(getattr(error, "__notes__", ())),
    }
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
        kind = getattr(errors, record["kind"], None)
        if isinstance(kind, type) and issubclass(kind, BertloomError):
            try:
                error = kind(record["message"])
            except TypeError:  # a class that wants more than a message
                error = TrainingError(record["message"])
        else:
            error = RunnerError(f"{job.name}: {record['kind']}: {record['message']}")
        for note in record["notes"]:
            error.add_note(note)
        return error
    if code < 0:
        ended = f"was ended by {signal.Signals(-code).name}"
    else:
        ended = f"ended with exit code {code}"
    return RunnerError(
        f"{job.name}: the training process {ended} and left no message (for SIGKILL: perhaps out "
        "of memory; lower batch.micro_batch_tokens). Run again: it goes on from its last checkpoint"
    )
