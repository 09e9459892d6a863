"""Files on this machine: folders, links and special files, atomic writes, locks of processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
"""Errors of `os.link` on a disk without hard links, or for a file that has too many."""

_PASSING = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN})
"""Errors of a network disk that another try does not have to meet."""

_LINK_DELAYS = (0.1, 0.5, 2.0)
"""Seconds before each further try of a link."""


class SpecialFileError(OSError):
    """A named pipe, a device or a socket where a regular file is expected."""


class HardLinkError(OSError):
    """A disk without hard links, such as one with exFAT."""


def is_special(path: str | Path) -> bool:
    """Return whether a path, or its link's target, is a named pipe, a device or a socket.

    Reading one may never end. False if the path does not exist: opening it raises an error.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_regular(path: str | Path) -> None:
    """Raise a SpecialFileError for a named pipe, a device or a socket."""
    if is_special(path):
        reason = "expected a regular file, got a named pipe, device or socket"
        raise SpecialFileError(errno.EINVAL, reason, str(path))


HIDDEN = "hidden file"


def walk_folder(
    folder: str | Path,
    skipped: Counter[str],
    *,
    enters: Callable[[Path], bool] = lambda _: True,
) -> Iterator[str]:
    """Yield the paths of the files in a folder and its subfolders, in a fixed order.

    Args:
        folder: The folder.
        skipped: Counts what is passed over, by reason: hidden files, and `skip_reason`.
        enters: Returns whether to enter a folder. Hidden folders are not entered.
    """
    root = os.path.realpath(folder)

    def count_unreadable(_error: OSError) -> None:
        skipped["folder without permission"] += 1

    for here, folders, names in os.walk(folder, onerror=count_unreadable):
        if not enters(Path(here)):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        visible = sorted(name for name in names if not name.startswith("."))
        skipped[HIDDEN] += len(names) - len(visible)
        for name in (*folders, *visible):
            path = f"{here.rstrip('/')}/{name}"
            if reason := skip_reason(path, root=root):
                skipped[reason] += 1
            elif name not in folders:
                yield path


def skip_reason(path: str | Path, *, root: str) -> str:
    """Return why a file or folder that was found in a folder is not read; "" if it is.

    Folders are entered at their own place only, so that each file has one name and no link leads
    in a circle or out of the folder.

    Args:
        path: A file, a folder or a link.
        root: Folder that the user named, without links.
    """
    if Path(path).is_symlink():
        target = Path(os.path.realpath(path))
        if not target.exists():
            return "broken link"
        if not target.is_relative_to(root):
            return "link out of the folder"
        if target.is_dir():
            return "link to a folder"
    return "named pipe, device or socket" if is_special(path) else ""


@contextlib.contextmanager
def file_lock(path: Path, *, before_waiting: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold the lock of a file until the block ends. The file and its folder are created.

    The operating system releases it when the process ends, also after `kill -9`.
    `flock` holds between the machines that share a disk by NFS 4 as well.

    Args:
        path: The lock file.
        before_waiting: Called if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if before_waiting is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                before_waiting()
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing alone would not release it: a forked process also has the file open.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


@contextlib.contextmanager
def temp_file_beside(target: Path, data: bytes) -> Iterator[Path]:
    """Write data to a hidden file next to `target`, to be linked or renamed to it."""
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


def write_atomic(target: Path, data: bytes) -> None:
    """Write a file so that readers see the old or the new one, also after a power cut."""
    with temp_file_beside(target, data) as written:
        written.replace(target)
    fsync_dir(target.parent)


def create_atomic(target: Path, data: bytes) -> None:
    """Write a file that does not exist yet; it is complete as soon as it is visible.

    Raises:
        FileExistsError: The file exists. It is not changed.
        HardLinkError: The disk has no hard links.
        OSError: The disk is full, failed, or is not writable.
    """
    with temp_file_beside(target, data) as written:
        for delay in (*_LINK_DELAYS, None):
            try:
                _link(written, target)
                break
            except OSError as error:
                if delay is None or error.errno not in _PASSING:
                    raise
                time.sleep(delay)
    fsync_dir(target.parent)


def _link(written: Path, target: Path) -> None:
    try:
        os.link(written, target)
    except FileExistsError:
        # NFS repeats a request whose answer it lost, and reports that the link exists.
        if target.is_symlink() or not written.samefile(target):
            raise
    except OSError as error:
        if error.errno in CANNOT_LINK:
            raise HardLinkError(error.errno, error.strerror, str(target)) from error
        raise


def create_file(target: Path, data: bytes) -> None:
    """Write a file that does not exist yet, with `create_atomic` if the disk has hard links.

    Raises:
        FileExistsError: The file exists. It is not changed.
    """
    try:
        create_atomic(target, data)
    except HardLinkError:
        with target.open("xb") as sink:
            sink.write(data)


def fsync_dir(folder: Path) -> None:
    """Flush the entries of a folder to the disk. Otherwise a power failure can lose them."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
