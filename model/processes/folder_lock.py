"""One process at a time may write a local folder.

An `flock` on a hidden file, which the kernel releases when its holder ends, however that ends.
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
    # A forked child shares the lock: if it outlived its parent, the folder would stay locked.
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


os.register_at_fork(after_in_child=_release_in_child)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the folder until the block ends; it is made if it is not there.

    Raises:
        CheckpointError: another process, or another place in this one, holds it; names its pid.
            Or the folder cannot be made or locked.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: expected a folder that can be written to, found: {error.strerror}"
        ) from error
    try:
        _take(handle, folder)
    except BaseException:
        os.close(handle)
        raise
    _HELD.add(handle)
    try:
        yield
    finally:
        if handle in _HELD:  # not so in a child that was forked in the block
            _HELD.discard(handle)
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _take(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise CheckpointError(
            f"{folder}: process {holder} writes its checkpoints here, and only one may. Wait for "
            "it, end it, or give this run another folder"
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{folder}: the file system refuses locks ({error.strerror}). Put checkpoints on "
            "another disk, or on s3:// or gs://"
        ) from error
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode("ascii"), 0)
    except OSError as error:
        # On a full disk the lock holds all the same; only others cannot be told by whom.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
