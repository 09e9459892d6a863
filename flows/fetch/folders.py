"""The folder that a fetch writes: held by one fetch at a time, with whole files only."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flows.formats import byte_text
from schemas.errors import ConfigError, FetchError

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""Of a file in one folder: no slash, no dot at its beginning."""

LOCK_FILE = ".fetch.lock"
_SPARE = 64 << 20
"""Bytes of the disk that a fetch leaves free."""


def local_folder(folder: str) -> Path:
    """The folder's absolute path.

    Raises:
        ConfigError: it is none of this machine.
    """
    if "://" in folder or not folder:
        raise ConfigError(
            f"--folder: expected a folder of this machine, found {folder!r}. Fetch to a local "
            "folder, then copy it to where the recipe reads"
        )
    return Path(folder).absolute()


@contextlib.contextmanager
def locked_folder(folder: Path, *, say: Callable[[str], None]) -> Iterator[None]:
    """Make the folder and hold it until the block ends; wait while another fetch holds it.

    Raises:
        FetchError: it cannot be made, written to or locked.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{folder}: another fetch is writing here; waiting for it")
                fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise FetchError(
                f"{folder}: expected a folder that can be written to and locked, found: "
                f"{error.strerror}. Name another folder"
            ) from error
        yield


def partial_of(path: Path) -> Path:
    """Where a file grows until it is whole and verified."""
    return path.with_name(path.name + ".partial")


def notes_of(path: Path) -> Path:
    """What is known of a partial file."""
    return path.with_name(path.name + ".partial.json")


def drop_partial(path: Path) -> None:
    """Delete what has arrived of a file."""
    partial_of(path).unlink(missing_ok=True)
    notes_of(path).unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file so that it is there as a whole or not at all."""
    partial = partial_of(path)
    try:
        with partial.open("w", encoding="utf-8") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make names that were just given survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hasher(algorithm: str) -> Any:
    """A new hash; sha1 is what the dumps are published with, and stands for nothing else."""
    return hashlib.new(algorithm, usedforsecurity=algorithm != "sha1")


def hash_of(path: Path, algorithm: str) -> Any:
    """The hash of a local file, to which more may be added."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, lambda: hasher(algorithm))


def check_space(folder: Path, needed: int) -> None:
    """See that the disk of a folder has room for so many bytes more.

    Raises:
        FetchError: it has not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE:
        raise FetchError(
            f"{folder}: {byte_text(needed)} are to come, and the disk has {byte_text(free)} left, "
            f"of which {byte_text(_SPARE)} stay free. Make room, or name another folder"
        )
