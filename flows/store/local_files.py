"""Small files on a disk: created only where there are none, replaced whole, changed under a lock.

A file is written beside its name and flushed to disk. It is `link`ed to its name where there may be
none yet, which fails if there is one, or renamed to it. To compare and swap, both are done under a
lock that the operating system takes back when its holder dies (`flock` on one of a few files in
`.locks/` of the store), so that a `kill -9` blocks nobody. `flock` holds between the machines that
share a disk by NFS 4 as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import StoreError

LOCK_FOLDER = ".locks"
_LOCKS = 64


@contextlib.contextmanager
def locked(root: Path, path: str) -> Iterator[None]:
    """Hold the lock of a file of a local store; other files may share it."""
    folder = root / LOCK_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    number = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % _LOCKS
    handle = os.open(folder / f"{number:02d}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        # Said, and not left to closing: a process forked meanwhile has the file open as well.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def remove_local(target: Path, *, expected: bytes) -> float | None:
    """Take a file away if it holds that; when it was last touched. Call it under its lock.

    The time is read after the name is gone: whoever touched the file before shows in it, whoever
    wants to touch it afterwards finds no file.
    """
    try:
        with target.open("rb") as source:
            if source.read() != expected:
                return None
            target.unlink()
            return os.fstat(source.fileno()).st_mtime
    except FileNotFoundError:
        return None


def create_local(target: Path, data: bytes) -> bool:
    """Write a file if there is none; whether there was none.

    Raises:
        StoreError: the disk has no hard links.
    """
    with _written_beside(target, data) as written:
        try:
            os.link(written, target)
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreError(
                f"{target}: no hard link can be made here ({error}), which the store needs to "
                "publish safely. Put the store on another disk, or on s3:// or gs://"
            ) from error
    _sync_folder(target.parent)
    return True


def replace_local(target: Path, data: bytes) -> None:
    """Write a file whether or not it is there; readers see the old or the new one."""
    with _written_beside(target, data) as written:
        written.replace(target)
    _sync_folder(target.parent)


@contextlib.contextmanager
def _written_beside(target: Path, data: bytes) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with written.open("xb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        yield written
    finally:
        written.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # Without it a name can be lost in a power cut though its file is on disk.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
