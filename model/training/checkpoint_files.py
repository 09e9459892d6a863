"""Files of checkpoints, in a local folder or on any fsspec file system.

Each checkpoint is a folder. Readers ignore it until it has a `checkpoint.json`, which is written
after all other files are on disk, and deleted first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor

from model.training.folder_lock import LOCK_FILE, folder_lock
from pipelines.io.file_systems import fetch_file, file_system
from pipelines.io.local_files import fsync_dir, write_atomic
from schemas.errors import CheckpointError
from schemas.manifest import RelativePath

RECORD_FILE = "checkpoint.json"


class DamagedCheckpointError(CheckpointError):
    """File of a checkpoint that is missing or damaged; an earlier checkpoint may be usable."""


class _Model(BaseModel):
    # Checkpoints of other versions, which may have further fields, are not damaged.
    model_config = ConfigDict(frozen=True, extra="ignore")


class TensorFileEntry(_Model):
    """File of tensors; `path` is its name in the folder of the checkpoint, `size` is in bytes."""

    path: RelativePath
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class CheckpointRecord(_Model):
    """`checkpoint.json`: everything about a checkpoint except its tensors.

    Attributes:
        home: Checkpoint that it belongs to, see `CheckpointFiles.home`.
        step: Number of finished steps.
        number: Position in the order of saving, from 1.
        saved: Time, ISO 8601, UTC.
        state: JSON values of the caller.
    """

    home: str
    step: int = Field(ge=0)
    number: int = Field(ge=1)
    saved: str
    files: tuple[TensorFileEntry, ...]
    state: dict[str, Any]

    def to_bytes(self) -> bytes:
        """Return the content of the file: the record and its sha256."""
        record = self.model_dump(mode="json")
        return json.dumps({"checkpoint": record, "sha256": _digest(record)}, indent=1).encode()

    @classmethod
    def parse(cls, data: bytes, *, url: str, home: str) -> CheckpointRecord:
        """Return the record in the content of a file.

        Raises:
            DamagedCheckpointError: The file is damaged, or a copy of another checkpoint's record.
        """
        try:
            whole = json.loads(data)
            record, expected = whole["checkpoint"], whole["sha256"]
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpointError(
                f"{url}: expected the record of a checkpoint, got: {error!r}"
            ) from error
        if _digest(record) != expected:
            raise DamagedCheckpointError(
                f"{url}: the sha256 of its content differs from the stored one"
            )
        try:
            parsed = cls.model_validate(record)
        except ValidationError as error:
            raise DamagedCheckpointError(
                f"{url}: expected the record of a checkpoint, got: {error}"
            ) from error
        if parsed.home != home:
            raise DamagedCheckpointError(
                f"{url}: expected the record of {home}, got the record of {parsed.home}"
            )
        return parsed


class CheckpointFiles:
    """Writes, publishes, reads and deletes checkpoints in a local folder or at an fsspec URL."""

    def __init__(self, folder: str) -> None:
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
        """Return the absolute local path or the URL of a file."""
        path = self._path(*parts) if parts else self._root
        return path if self.is_local else str(self._fs.unstrip_protocol(path))

    def home(self, name: str) -> str:
        """Return what a record calls its checkpoint: `STAGE/CACHE_KEY/FOLDER/NAME` in a store.

        A store keeps these names when it is moved.
        """
        return "/".join((*PurePosixPath(self._root).parts[-3:], name))

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
        """Return the names of all checkpoints, published or not, sorted."""
        try:
            entries = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        folders = (str(e["name"]) for e in entries if e["type"] == "directory")
        return sorted(name.rstrip("/").rpartition("/")[2] for name in folders)

    def read_record(self, name: str) -> CheckpointRecord | None:
        """Return the record of a checkpoint. None: it is not published.

        Raises:
            CheckpointError: See `CheckpointRecord.parse`; or the file cannot be read.
        """
        url = self.url(name, RECORD_FILE)
        try:
            data = bytes(self._fs.cat_file(self._path(name, RECORD_FILE)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(url, error) from error
        return CheckpointRecord.parse(data, url=url, home=self.home(name))

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
        # A power failure must not keep the record and lose the names of the other files.
        fsync_dir(target.parent)
        fsync_dir(target.parent.parent)
        write_atomic(target, data)

    def delete(self, name: str) -> None:
        """Delete a checkpoint, published or not; its record first."""
        if self.is_local:
            folder = Path(self._path(name))
            if (folder / RECORD_FILE).exists():
                (folder / RECORD_FILE).unlink()
                fsync_dir(folder)
            if folder.exists():
                shutil.rmtree(folder)
            return
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name, RECORD_FILE))
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(name), recursive=True)

    def read_tensors(self, name: str, entry: TensorFileEntry) -> dict[str, Tensor]:
        """Return the tensors of a file on the CPU, after verifying its bytes.

        Raises:
            DamagedCheckpointError: The file is missing or damaged.
            CheckpointError: The file cannot be read.
        """
        path, url = self._path(name, entry.path), self.url(name, entry.path)
        with contextlib.ExitStack() as stack:
            try:
                if not self.is_local:
                    folder = stack.enter_context(TemporaryDirectory(prefix="bertloom-checkpoint-"))
                    remote, path = path, f"{folder}/{entry.path}"
                    fetch_file(self._fs, remote, path)
                with Path(path).open("rb") as source:
                    digest = hashlib.file_digest(source, "sha256").hexdigest()
            except FileNotFoundError as error:
                raise DamagedCheckpointError(f"{url}: the file is missing") from error
            except OSError as error:
                raise _unreadable(url, error) from error
            if digest != entry.sha256:
                raise DamagedCheckpointError(
                    f"{url}: the file is damaged: expected sha256 {entry.sha256}, got {digest}"
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


def _digest(record: Any) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _unreadable(url: str, error: OSError) -> CheckpointError:
    # Not damage: another try may read the file, and a damaged checkpoint would be deleted.
    return CheckpointError(
        f"{url}: cannot be read: {error}. Run again; if the error persists, delete the folder of "
        "this checkpoint to resume from an earlier one"
    )
