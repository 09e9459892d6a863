"""What processes that train have in common: their environment, and how their errors come back."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import schemas.errors as errors
from pipelines.io.file_systems import file_system
from pipelines.io.raw_files import cache_folder
from schemas.errors import BertloomError, ConfigError, RunnerError, TrainingError

LAUNCHER_VARIABLE = "BERTLOOM_LAUNCHER"
"""Environment variable with the id of the process whose end also ends the training."""

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


def child_environment() -> dict[str, str]:
    """Environment variables of a process that trains for this one."""
    # The code that started the job is the code that runs it; a folder named `model` where the
    # user happens to be is not looked at.
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _KEEP_MEMORY),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        LAUNCHER_VARIABLE: str(os.getpid()),
    }


def check_not_in_memory(urls: Iterable[str], *, name: str) -> None:
    """Refuse data that other processes cannot see.

    Raises:
        ConfigError: a URL is of `memory://`.
    """
    for url in urls:
        if url.startswith("memory:"):
            raise ConfigError(
                f"{name}: {url} is in this process's memory, and training runs in processes of "
                "its own: choose a store in a folder or on s3:// or gs://"
            )


def local_folder(work: str) -> Path:
    """Local folder for what belongs to a folder of work: that itself where it is local."""
    fs, path = file_system(work)
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    if "file" in protocols:
        return Path(path)
    digest = hashlib.sha256(work.encode()).hexdigest()[:16]
    return cache_folder() / "work" / digest


def error_record(error: BaseException) -> dict[str, Any]:
    """An error as plain JSON values, for the process that asked for the work."""
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "notes": list(getattr(error, "__notes__", ())),
    }


def error_of(record: dict[str, Any], *, name: str) -> BertloomError:
    """The error of a record: of its own class where that is one of ours, else a RunnerError.

    `name` is what people call the work.
    """
    kind = getattr(errors, record["kind"], None)
    error: BertloomError
    if isinstance(kind, type) and issubclass(kind, BertloomError):
        try:
            error = kind(record["message"])
        except TypeError:  # a class that wants more than a message
            error = TrainingError(record["message"])
    else:
        error = RunnerError(f"{name}: {record['kind']}: {record['message']}")
    for note in record["notes"]:
        error.add_note(note)
    return error


def how_it_ended(code: int) -> str:
    """A process's exit code in words."""
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
