"""Lock of a local folder: only one process writes to it.

The lock is an `flock` on a hidden file, which the kernel releases when its process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import CheckpointError

LOCK_FILE = ".lock"
_HELD: set[int] = set()


def _release_in_child() -> None:
    # A forked child that outlives its parent would keep the folder locked.
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


os.register_at_fork(after_in_child=_release_in_child)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created if missing, until the block ends.

    Raises:
        CheckpointError: The lock is held (the message has the process id), or the folder cannot be
            created or locked.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: expected a writable folder, got: {error.strerror}."
        ) from error
    try:
        _acquire(handle, folder)
    except BaseException:
        os.close(handle)
        raise
    _HELD.add(handle)
    try:
        yield
    finally:
        if handle in _HELD:  # not in a forked child
            _HELD.discard(handle)
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def lock_holder(lock_file: Path) -> str:
    """Return the number of the process that holds a lock, "" if none does."""
    try:
        with lock_file.open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(lock_file)
    except OSError:  # no such file, or no locks: `folder_lock` reports it
        return ""
    return ""


def _read_holder(lock_file: Path) -> str:
    return lock_file.read_text("ascii", "replace").strip() or "unknown"


def _acquire(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _read_holder(folder / LOCK_FILE)
        raise CheckpointError(
            f"{folder}: process {holder} writes its checkpoints to this folder. Wait for it, end "
            "it, or use another folder."
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{folder}: the file system does not support locks ({error.strerror}). Put checkpoints "
            "on another disk, or on s3:// or gs://."
        ) from error
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode("ascii"), 0)
    except OSError as error:
        # The lock also works on a full disk, only without the process id.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
