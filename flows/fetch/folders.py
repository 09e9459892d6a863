"""The folder that a fetch writes: held by one fetch at a time, with whole files only."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from flows.formats import byte_text
from pipelines.io.local_files import file_lock
from schemas.errors import ConfigError, FetchError

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""A file in one folder: no slash, no dot at its beginning."""

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

    def say_why() -> None:
        say(f"{folder}: another fetch is writing here; waiting for it")

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / LOCK_FILE, before_waiting=say_why))
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


def digest_of(path: Path, algorithm: str) -> str:
    """The digest of a local file; sha1 is what dumps are published with, and protects nothing."""
    with path.open("rb") as source:
        return hashlib.file_digest(
            source, lambda: hashlib.new(algorithm, usedforsecurity=algorithm != "sha1")
        ).hexdigest()


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
