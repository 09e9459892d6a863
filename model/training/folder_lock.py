"""Lock of a local folder: only one process writes to it.

The kernel releases the lock when its process ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from schemas.errors import CheckpointError

LOCK_FILE = ".lock"
"""Name of the lock in its folder; it contains the id of the last process that held it."""


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created if missing, until the block ends.

    Raises:
        CheckpointError: The lock is held (the message has the process id), or the folder cannot be
            created or locked.
    """
    path = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _open_lock(path)
        lock.acquire()
    except Timeout as error:
        raise CheckpointError(
            f"{folder}: process {_read_holder(path)} writes its checkpoints to this folder. Wait "
            "for it, end it, or use another folder."
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{folder}: expected a writable folder on a file system with locks, got: "
            f"{error.strerror}. Put checkpoints on another disk, or on s3:// or gs://."
        ) from error
    try:
        # The lock also works on a full disk, only without the process id.
        with contextlib.suppress(OSError):
            path.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        lock.release()


def lock_holder(path: Path) -> str:
    """Return the id of the process that holds a lock, "" if none does."""
    try:
        with _open_lock(path):
            return ""
    except Timeout:
        return _read_holder(path)
    except OSError:  # no locks: `folder_lock` reports it
        return ""


def _open_lock(path: Path) -> FileLock:
    # Never a lock by mere existence of the file, which a killed process would leave behind.
    return FileLock(path, mode=0o644, blocking=False, fallback_to_soft=False)


def _read_holder(path: Path) -> str:
    return path.read_text("ascii", "replace").strip() or "unknown"
