"""The files below a folder of checkpoints, local or on any fsspec file system.

Each checkpoint is a sub-folder, and exists for readers only once it has its `checkpoint.json`. That
is written last, after everything else is on disk, and goes first when a checkpoint is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from model.processes.folder_lock import folder_lock
from model.training.tensor_files import TensorFile
from pipelines.io.file_systems import file_system
from schemas.errors import CheckpointError

RECORD_FILE = "checkpoint.json"


class DamagedCheckpointError(CheckpointError):
    """A file of a checkpoint that is missing or not what was written; an earlier one may do."""


class CheckpointFolder:
    """Writes, publishes, reads and deletes sub-folders; knows nothing of what is in them."""

    def __init__(self, folder: str) -> None:
        """`folder` is a local folder, made when it is first written to, or an fsspec URL."""
        try:
            self._fs, root = file_system(folder)
        except (ValueError, ImportError) as error:
            raise CheckpointError(
                f"checkpoints in {folder}: {error}. Expected a folder or an fsspec URL (s3:// "
                "needs the package s3fs, gs:// needs gcsfs)"
            ) from error
        protocols = self._fs.protocol
        self.is_local = "file" in ((protocols,) if isinstance(protocols, str) else protocols)
        self._root = str(root).rstrip("/") or "/"

    def url(self, *parts: str) -> str:
        """An absolute local path, or a URL."""
        path = "/".join((self._root.rstrip("/"), *parts)) if parts else self._root
        return path if self.is_local else str(self._fs.unstrip_protocol(path))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing; on file systems that are not local, do nothing."""
        if not self.is_local:
            yield
            return
        with folder_lock(Path(self._root)):
            yield

    def names(self) -> list[str]:
        """Of everything in the folder that is a folder itself, sorted."""
        try:
            found = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        folders = (str(e["name"]) for e in found if e["type"] == "directory")
        return sorted(name.rstrip("/").rpartition("/")[2] for name in folders)

    def read_record(self, name: str) -> bytes | None:
        """Bytes of a checkpoint's `checkpoint.json`; None where there is none."""
        try:
            return bytes(self._fs.cat_file(self._path(name, RECORD_FILE)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(self.url(name, RECORD_FILE), error) from error

    def write(self, name: str, file: str, content: TensorFile) -> str:
        """Write one file of a checkpoint that is not published yet; its sha256.

        Raises:
            OSError: e.g. the disk is full. What was written is the caller's to `delete`.
        """
        path = self._path(name, file)
        if self.is_local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(path).open("xb") as sink:
                sha256 = content.write(sink)
                sink.flush()
                os.fsync(sink.fileno())
            return sha256
        sink = self._fs.open(path, "wb")
        try:
            sha256 = content.write(sink)
        except BaseException:
            sink.discard()  # an upload is given up, not finished with half the bytes
            raise
        sink.close()
        return sha256

    def publish(self, name: str, record: bytes) -> None:
        """Make a checkpoint visible; everything else of it is there and durable."""
        path = self._path(name, RECORD_FILE)
        if not self.is_local:
            self._fs.pipe_file(path, record)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        # The names of the files, and of their folder, must not be lost where the record is not.
        _sync_folder(target.parent)
        _sync_folder(target.parent.parent)
        partial = target.with_name(f".{target.name}.partial")
        try:
            with partial.open("xb") as sink:
                sink.write(record)
                sink.flush()
                os.fsync(sink.fileno())
            partial.replace(target)
        finally:  # on a full disk it would stand in the way of the next try
            partial.unlink(missing_ok=True)
        _sync_folder(target.parent)

    def delete(self, name: str) -> None:
        """Take a checkpoint, or what there is of it, away. Killed at any point, none is halved."""
        if self.is_local:
            folder = Path(self._path(name))
            if (folder / RECORD_FILE).exists():
                (folder / RECORD_FILE).unlink()
                _sync_folder(folder)
            if folder.exists():
                shutil.rmtree(folder)
            return
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name, RECORD_FILE))
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(name), recursive=True)

    @contextlib.contextmanager
    def verified(self, name: str, file: str, *, size: int, sha256: str) -> Iterator[Path]:
        """A local path with a file's bytes, for the block, once they were found to be these.

        Raises:
            DamagedCheckpointError: they are not, or the file is missing or cannot be read.
        """
        url = self.url(name, file)
        with contextlib.ExitStack() as stack:
            try:
                if self.is_local:
                    path = Path(self._path(name, file))
                else:
                    folder = tempfile.TemporaryDirectory(prefix="bertloom-")
                    path = Path(stack.enter_context(folder)) / file
                    self._fs.get_file(self._path(name, file), str(path))
                found = path.stat().st_size
                if found != size:
                    raise DamagedCheckpointError(f"{url}: expected {size:,} bytes, found {found:,}")
                with path.open("rb") as source:
                    digest = hashlib.file_digest(source, "sha256").hexdigest()
            except FileNotFoundError as error:
                raise DamagedCheckpointError(f"{url}: the file is missing") from error
            except OSError as error:
                raise _unreadable(url, error) from error
            if digest != sha256:
                raise DamagedCheckpointError(
                    f"{url}: its bytes are not those that were written: expected sha256 "
                    f"{sha256}, found {digest}"
                )
            yield path

    def free_bytes(self) -> int | None:
        """Room left on the disk; None where that is not known."""
        return shutil.disk_usage(self._root).free if self.is_local else None

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))


def _unreadable(url: str, error: OSError) -> CheckpointError:
    # Bad sectors are damage; anything else, such as rights or a connection, may pass.
    kind = DamagedCheckpointError if error.errno == errno.EIO else CheckpointError
    return kind(f"{url}: cannot be read: {error}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
