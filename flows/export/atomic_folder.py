"""Folders that appear complete or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pipelines.io.file_systems import file_system, protocols_of
from pipelines.io.local_files import fsync_dir
from schemas.errors import ConfigError, UsageError

_CHUNK_BYTES = 1 << 20


class AtomicFolder:
    """A folder that is being written, on a disk or at an fsspec URL (see `atomic_folder`)."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path
        self.written: list[str] = []

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a new file by its name relative to the folder."""
        path = f"{self._path}/{name}"
        if "file" in protocols_of(self._fs):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.written.append(path)
        with self._fs.open(path, "wb") as sink:
            yield sink

    def write(self, name: str, data: bytes) -> None:
        """Write a new small file."""
        with self.open(name) as sink:
            sink.write(data)

    def copy(self, name: str, source: IO[bytes]) -> tuple[int, str]:
        """Copy a stream to a new file, and return its size in bytes and its sha256."""
        digest, size = hashlib.sha256(), 0
        with self.open(name) as sink:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += sink.write(chunk)
        return size, digest.hexdigest()


@contextlib.contextmanager
def atomic_folder(url: str) -> Iterator[AtomicFolder]:
    """Write a folder that appears when the block ends without an error.

    On a disk, it is written under a hidden name and then renamed. On an object store, files appear
    as they are written and are deleted after an error.

    Args:
        url: Path or fsspec URL of a new or empty folder.

    Raises:
        UsageError: The folder is not empty.
        ConfigError: A file could not be read or written.
    """
    try:
        fs, path = file_system(url)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{url}: expected a folder or an fsspec URL: {error}") from error
    path = path.rstrip("/")
    if fs.isfile(path) or (fs.exists(path) and fs.find(path)):
        raise UsageError(f"{url}: expected a new or empty folder. Choose another, or delete it.")
    try:
        with (_local if "file" in protocols_of(fs) else _remote)(fs, path) as folder:
            yield folder
    except OSError as error:
        raise ConfigError(f"{url}: could not read or write a file: {error}") from error


@contextlib.contextmanager
def _local(fs: Any, path: str) -> Iterator[AtomicFolder]:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
    try:
        hidden.mkdir()
        yield AtomicFolder(fs, str(hidden))
        hidden.replace(target)
        fsync_dir(target.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


@contextlib.contextmanager
def _remote(fs: Any, path: str) -> Iterator[AtomicFolder]:
    folder = AtomicFolder(fs, path)
    try:
        yield folder
    except BaseException:
        for written in folder.written:
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(written)
        raise
