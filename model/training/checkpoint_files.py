"""The files below a folder of checkpoints, local or on any fsspec file system.

Each checkpoint is a sub-folder, and exists for readers only once it has its `checkpoint.json`. That
is written last, after everything else is on disk, and goes first when a checkpoint is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor

from model.launch.folder_lock import LOCK_FILE, folder_lock
from pipelines.io.file_systems import fetch_file, file_system
from pipelines.io.temporary_folders import temporary_folder
from schemas.errors import CheckpointError
from schemas.manifest import RelativePath

RECORD_FILE = "checkpoint.json"
FORMAT = 1


class DamagedCheckpointError(CheckpointError):
    """A file of a checkpoint that is missing or not what was written; an earlier one may do."""


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        serialize_by_alias=True,
    )


class TensorFileEntry(_Part):
    """One file of tensors."""

    path: RelativePath
    """Its name in the checkpoint's folder."""

    size: int = Field(ge=0)
    """Bytes."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class CheckpointRecord(_Part):
    """`checkpoint.json`: all that is known of a checkpoint without opening its tensors."""

    format: int = FORMAT
    step: int = Field(ge=0)
    """Updates of the weights done."""

    number: int = Field(ge=1)
    """Position in the order in which this folder's checkpoints were saved."""

    loss: float | None = Field(alias="score")
    """On held-out documents; None where it was not measured."""

    saved: str
    """ISO 8601, UTC."""

    files: tuple[TensorFileEntry, ...]
    state: dict[str, Any]
    """Plain JSON values of the caller's."""

    def to_bytes(self) -> bytes:
        """The file: the record and its own sha256."""
        record = self.model_dump(mode="json")
        return json.dumps({"checkpoint": record, "sha256": _digest(record)}, indent=1).encode()

    @classmethod
    def parse(cls, data: bytes, *, url: str) -> CheckpointRecord:
        """Read a file back.

        Raises:
            DamagedCheckpointError: it is not what was written.
            CheckpointError: a later version wrote it.
        """
        try:
            whole = json.loads(data)
            record, expected = whole["checkpoint"], whole["sha256"]
            version = record["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpointError(
                f"{url}: not a record of a checkpoint ({error!r})"
            ) from error
        if _digest(record) != expected:
            raise DamagedCheckpointError(f"{url}: its content does not fit its own sha256")
        if version != FORMAT:
            raise CheckpointError(
                f"{url}: expected a checkpoint of format {FORMAT}, found {version}: another "
                "version of bertloom wrote it. Use that one, or start in another folder"
            )
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            raise DamagedCheckpointError(
                f"{url}: not a record of a checkpoint ({error})"
            ) from error


class CheckpointFiles:
    """Writes, publishes, reads and deletes checkpoints; which of them are kept others decide."""

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
        path = self._path(*parts) if parts else self._root
        return path if self.is_local else str(self._fs.unstrip_protocol(path))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make this process the only writer until the block ends.

        A local folder is locked. On an object store the last process to call this is the writer:
        see `check_lock`.
        """
        if self.is_local:
            with folder_lock(Path(self._root)):
                yield
            return
        self._token = secrets.token_bytes(16)
        self._fs.pipe_file(self._path(LOCK_FILE), self._token)
        yield

    def check_lock(self) -> None:
        """Raise CheckpointError if another process became the writer on an object store."""
        if self.is_local:
            return
        try:
            token = bytes(self._fs.cat_file(self._path(LOCK_FILE)))
        except FileNotFoundError:
            token = b""
        if token != self._token:
            raise CheckpointError(
                f"{self.url()}: expected this process to be the only writer, found that another "
                "one took over. This checkpoint is not saved"
            )

    def names(self) -> list[str]:
        """Names of the folders in this one, sorted."""
        try:
            found = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        folders = (str(e["name"]) for e in found if e["type"] == "directory")
        return sorted(name.rstrip("/").rpartition("/")[2] for name in folders)

    def read_record(self, name: str) -> CheckpointRecord | None:
        """Return a checkpoint's record, or None.

        Raises:
            CheckpointError: as `CheckpointRecord.parse`, or it cannot be read.
        """
        url = self.url(name, RECORD_FILE)
        try:
            data = bytes(self._fs.cat_file(self._path(name, RECORD_FILE)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(url, error) from error
        return CheckpointRecord.parse(data, url=url)

    def write_tensors(self, name: str, file: str, tensors: Mapping[str, Tensor]) -> TensorFileEntry:
        """Write one file of an unpublished checkpoint; equal tensors give equal bytes.

        Raises:
            OSError: For example the disk is full. The caller deletes the checkpoint.
        """
        path = self._path(name, file)
        if self.is_local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        contiguous = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
        data = save_tensors(contiguous, metadata={"format": "pt"})
        if self.is_local:
            with Path(path).open("wb") as sink:
                sink.write(data)
                sink.flush()
                os.fsync(sink.fileno())
        else:
            self._fs.pipe_file(path, data)
        digest = hashlib.sha256(data).hexdigest()
        return TensorFileEntry(path=file, size=len(data), sha256=digest)

    def publish(self, name: str, record: CheckpointRecord) -> None:
        """Make a checkpoint visible after its other files are on disk."""
        path, data = self._path(name, RECORD_FILE), record.to_bytes()
        if not self.is_local:
            self._fs.pipe_file(path, data)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        # The names of the files, and of their folder, must not be lost where the record is not.
        _sync(target.parent)
        _sync(target.parent.parent)
        partial = target.with_name(f".{target.name}.partial")
        try:
            with partial.open("xb") as sink:
                sink.write(data)
                sink.flush()
                os.fsync(sink.fileno())
            partial.replace(target)
        finally:  # remove the partial file, so that a retry on a full disk has space
            partial.unlink(missing_ok=True)
        _sync(target.parent)

    def delete(self, name: str) -> None:
        """Take a checkpoint, or what there is of it, away. Killed at any point, none is halved."""
        if self.is_local:
            folder = Path(self._path(name))
            if (folder / RECORD_FILE).exists():
                (folder / RECORD_FILE).unlink()
                _sync(folder)
            if folder.exists():
                shutil.rmtree(folder)
            return
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name, RECORD_FILE))
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(name), recursive=True)

    def read_tensors(self, name: str, entry: TensorFileEntry) -> dict[str, Tensor]:
        """The tensors of a file, on the CPU, once its bytes were found to be those written.

        Raises:
            DamagedCheckpointError: they are not, or the file is missing or cannot be read.
        """
        url = self.url(name, entry.path)
        with contextlib.ExitStack() as stack:
            try:
                path = Path(self._path(name, entry.path))
                if not self.is_local:
                    folder = temporary_folder("checkpoint")
                    path = Path(stack.enter_context(folder), entry.path)
                    fetch_file(self._fs, self._path(name, entry.path), str(path))
                found = path.stat().st_size
                if found != entry.size:
                    raise DamagedCheckpointError(
                        f"{url}: expected {entry.size:,} bytes, found {found:,}"
                    )
                digest = _file_digest(path)
            except FileNotFoundError as error:
                raise DamagedCheckpointError(f"{url}: the file is missing") from error
            except OSError as error:
                raise _unreadable(url, error) from error
            if digest != entry.sha256:
                raise DamagedCheckpointError(
                    f"{url}: its bytes are not those that were written: expected sha256 "
                    f"{entry.sha256}, found {digest}"
                )
            try:
                return load_file(path)
            except SafetensorError as error:
                raise DamagedCheckpointError(f"{url}: not a safetensors file: {error}") from error

    def free_bytes(self) -> int | None:
        """Return the free disk space in bytes; None if unknown."""
        return shutil.disk_usage(self._root).free if self.is_local else None

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))


def _file_digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _digest(record: Any) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _unreadable(url: str, error: OSError) -> CheckpointError:
    # Bad sectors are damage; anything else, such as rights or a connection, may pass.
    kind = DamagedCheckpointError if error.errno == errno.EIO else CheckpointError
    return kind(f"{url}: cannot be read: {error}")


def _sync(path: Path) -> None:
    """Have a file's bytes, or a folder's names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
