"""Write the files of an artifact under unique names, and digest them while writing.

A file has a physical name (`part-00003-<uuid>.arrow`), so that retried and repeated workers do not
overwrite each other. The manifest maps the logical name `part-00003.arrow` to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fsspec.spec import AbstractBufferedFile

from pipelines.io.file_systems import file_system, is_gcs, protocols_of
from schemas.manifest import FileEntry

Statistics = dict[str, int | float | str]

_LOGGER = logging.getLogger(__name__)


class _DigestingFile(io.RawIOBase):
    """A write-only file that hashes and counts what passes through."""

    def __init__(self, sink: Any, *, path: str) -> None:
        super().__init__()
        self._sink, self._path = sink, path
        self.sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        size = memoryview(data).nbytes
        self.size += size
        with add_path_to_errors(self._path):
            self._sink.write(data)
        return size


@contextlib.contextmanager
def add_path_to_errors(path: str) -> Iterator[None]:
    """Add the path to an `OSError` without one, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def physical_name(path: str) -> str:
    """Return a unique name `part-00003-<random>.arrow` for a logical name."""
    stem, dot, suffix = path.rpartition(".")
    return f"{stem}-{uuid.uuid4().hex[:12]}{dot}{suffix}"


def is_physical_name(name: str, path: str) -> bool:
    """Return whether `physical_name` could return `name` for the logical name `path`."""
    stem, dot, suffix = path.rpartition(".")
    random = name.removeprefix(f"{stem}-").removesuffix(f"{dot}{suffix}")
    return (
        name == f"{stem}-{random}{dot}{suffix}" and re.fullmatch("[0-9a-f]{12}", random) is not None
    )


class FileWriter:
    """Writer of one file of an artifact, which becomes visible when it is complete.

    Use it as a context manager; afterwards `entry()` describes the file. If the block raises, the
    file is deleted. A killed process can leave a file ending in `.partial`, which readers ignore
    and `bertloom gc` deletes.
    """

    def __init__(self, path: str, *, output: str, is_only_writer: bool = False) -> None:
        """Prepare to write. No file is created yet.

        Args:
            path: Logical name, e.g. `part-00003.arrow`.
            output: URL of the folder.
            is_only_writer: No other process can write this file. Its physical name is then the
                logical one, as other programs expect it.
        """
        self.path = path
        self.stored_name = path if is_only_writer else physical_name(path)
        self._fs, folder = file_system(output)
        self._target = f"{folder}/{self.stored_name}"
        self._is_local = "file" in protocols_of(self._fs)
        # A folder shows a file while it is being written; an object store does not.
        self._written = f"{self._target}.partial" if self._is_local else self._target
        self._sink: Any = None
        self.file: Any = None

    def __enter__(self) -> Self:
        if self._is_local:
            Path(self._written).parent.mkdir(parents=True, exist_ok=True)
        self._sink = self._fs.open(self._written, "wb")
        self.file = _DigestingFile(self._sink, path=self._target)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._give_up()
            return
        try:
            with add_path_to_errors(self._target):
                self._finish()
        except BaseException:
            self._give_up()
            raise

    def _finish(self) -> None:
        if self._is_local:
            self._sink.flush()
            os.fsync(self._sink.fileno())
        try:
            self._close_sink()
        except OSError:
            # If the response to the last request of a large upload is lost, the client retries and
            # fails because the upload is complete. The name is unique, so the size is enough.
            if self._is_local or not self._is_whole():
                raise
        if self._is_local:
            Path(self._written).replace(self._target)

    def _close_sink(self) -> None:
        if is_gcs(self._fs) and self._sink.offset is None:
            # Nothing was sent yet: one request instead of the two of gcsfs.
            self._fs.pipe_file(self._target, self._sink.buffer.getvalue())
            self._sink.closed = True
        else:
            self._sink.close()

    def _is_whole(self) -> bool:
        try:
            return bool(self._fs.info(self._target)["size"] == self.file.size)
        except FileNotFoundError:
            return False

    def _give_up(self) -> None:
        if self._is_local:
            # On a full disk closing fails as well, because it writes the buffer again.
            with contextlib.suppress(OSError):
                self._sink.close()
            Path(self._written).unlink(missing_ok=True)
            return
        # Abort the upload to an object store instead of completing it with missing bytes.
        try:
            self._sink.discard()
        except Exception as error:  # any client error; the error of the block is raised
            _LOGGER.warning("%s: the upload was not aborted: %s", self._target, error)
        if isinstance(self._sink, AbstractBufferedFile):
            # Otherwise gcsfs uploads its buffer when this object is garbage-collected.
            self._sink.closed = True
        elif self._fs.exists(self._target):  # memory:// shows a file from when it is opened
            self._fs.rm_file(self._target)

    def entry(self, *, rows: int | None = None, statistics: Statistics | None = None) -> FileEntry:
        return FileEntry(
            path=self.path,
            stored_name=self.stored_name,
            size_bytes=self.file.size,
            sha256=self.file.sha256.hexdigest(),
            rows=rows,
            statistics=statistics or {},
        )


def write_text_file(
    path: str, text: str, *, output: str, excluded_from_digest: bool = False
) -> FileEntry:
    """Write a small text file of an artifact (UTF-8).

    A record (`excluded_from_digest`) is not part of the content digest.
    """
    with FileWriter(path, output=output) as writer:
        writer.file.write(text.encode())
    return writer.entry().model_copy(update={"excluded_from_digest": excluded_from_digest})
