"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pipelines.io.file_systems import file_system, protocols_of
from pipelines.io.local_files import sync_folder
from schemas.errors import ConfigError, UsageError

LAST = "README.md"
"""Written last to an object store, where there is no renaming: who finds it finds all."""


class NewFolder:
    """A folder that is being written, on a disk or at an fsspec URL."""

    def __init__(self, fs: Any, path: str) -> None:
        """See `new_folder`."""
        self._fs, self._path = fs, path
        self.written: list[str] = []

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """A new file, by its name relative to the folder."""
        path = f"{self._path}/{name}"
        if "file" in protocols_of(self._fs):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.written.append(path)
        with self._fs.open(path, "wb") as sink:
            yield sink

    def write(self, name: str, data: bytes) -> None:
        """A new small file."""
        with self.open(name) as sink:
            sink.write(data)

    def size(self, name: str) -> int:
        """Bytes of a file that was written."""
        return int(self._fs.size(f"{self._path}/{name}"))


@contextlib.contextmanager
def new_folder(url: str) -> Iterator[NewFolder]:
    """A folder that is there once the block ends without an error.

    On a disk it is written under a hidden name beside its own and then renamed. On an object store
    files appear as they are written, and go again after an error.

    Args:
        url: a path or fsspec URL at which there is nothing, or an empty folder.

    Raises:
        UsageError: there is something.
        ConfigError: A file in the block could not be read or written.
    """
    try:
        fs, path = file_system(url)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{url}: {error}. Expected a folder or an fsspec URL") from error
    path = path.rstrip("/")
    if fs.isfile(path) or (fs.exists(path) and fs.find(path)):
        raise UsageError(
            f"{url}: there is something already: name a folder that is new or empty, or delete it"
        )
    try:
        if "file" in protocols_of(fs):
            with _renamed(Path(path)) as written:
                yield NewFolder(fs, str(written))
        else:
            with _taken_away(NewFolder(fs, path), fs) as folder:
                yield folder
    except OSError as error:
        raise ConfigError(
            f"{url}: not written, because a file could not be read or written: {error}"
        ) from error


@contextlib.contextmanager
def _renamed(target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
    try:
        written.mkdir()
        yield written
        written.replace(target)  # also in the place of an empty folder
        sync_folder(target.parent)
    finally:
        shutil.rmtree(written, ignore_errors=True)


@contextlib.contextmanager
def _taken_away(folder: NewFolder, fs: Any) -> Iterator[NewFolder]:
    try:
        yield folder
    except BaseException:
        for path in folder.written:
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(path)
        raise
