"""Checkpoints of one run: the newest states, to resume after a crash.

Each checkpoint is a folder `step-STEP-NUMBER-SUFFIX/` with `NAME.safetensors` files, in a local
folder or at an fsspec URL. Readers ignore it until it has a `checkpoint.json`, which is written
after all other files are on disk, and deleted first. No file is unpickled.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import logging
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from model.training.folder_lock import LOCK_FILE, folder_lock
from pipelines.io.file_systems import file_system, protocols_of
from pipelines.io.local_files import fsync_dir, write_atomic
from schemas.errors import CheckpointError

RECORD_FILE = "checkpoint.json"

_LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r"step-\d+-\d+-[0-9a-f]{6}")
_SUFFIX = ".safetensors"

Tensors = Mapping[str, Mapping[str, Tensor]]
"""Tensors by file (`model`, `optimizer`), then by name."""

_Problems = list[str]  # `Checkpoints.list` hides the builtin in annotations


class DamagedCheckpointError(CheckpointError):
    """File of a checkpoint that is missing or damaged; an earlier checkpoint may be usable."""


class CheckpointInfo(NamedTuple):
    """Saved checkpoint: its folder, its number of finished steps, and when it was saved (UTC)."""

    url: str
    step: int
    saved: str


@dataclass(frozen=True)
class LoadedCheckpoint:
    """Verified checkpoint.

    Attributes:
        info: Its folder and step.
        files: Content of each safetensors file by its name without the suffix.
        state: JSON values of the caller.
    """

    info: CheckpointInfo
    files: dict[str, bytes]
    state: dict[str, Any]

    @property
    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """New tensors on the CPU, by file and name."""
        return {stem: load_tensors(data) for stem, data in self.files.items()}


class CheckpointRecord(BaseModel):
    """`checkpoint.json`: everything about a checkpoint except its tensors.

    Attributes:
        name: Folder of the checkpoint.
        step: Number of finished steps.
        saved: Time, ISO 8601, UTC.
        files: Hex sha256 of each safetensors file by its name without the suffix.
        state: JSON values of the caller.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    step: int = Field(ge=0)
    saved: str
    files: dict[str, str]
    state: dict[str, Any]

    def to_bytes(self) -> bytes:
        """Return the content of the file: the record and its sha256."""
        record = self.model_dump(mode="json")
        return json.dumps({"checkpoint": record, "sha256": _digest_json(record)}).encode()

    @classmethod
    def parse(cls, data: bytes, *, name: str, url: str) -> CheckpointRecord:
        """Return the record in the content of a file.

        Raises:
            DamagedCheckpointError: The file is damaged, or a copy of another checkpoint's record.
        """
        try:
            content = json.loads(data)
            record = cls.model_validate(content["checkpoint"])
            is_sound = content["sha256"] == _digest_json(content["checkpoint"])
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise DamagedCheckpointError(
                f"{url}: expected the record of a checkpoint, got: {error!r}"
            ) from error
        if not is_sound:
            raise DamagedCheckpointError(
                f"{url}: the sha256 of its content differs from the stored one"
            )
        if record.name != name:
            raise DamagedCheckpointError(
                f"{url}: expected the record of {name}, got the record of {record.name}"
            )
        return record


class Checkpoints:
    """Checkpoints of one run.

    One process may write: hold `lock()` during the run. Any number of processes may read.

    Args:
        folder: Local folder or fsspec URL.
        keep_last: Number of the newest checkpoints to keep, at least 1.

    Raises:
        CheckpointError: The file system of the URL is unknown.
    """

    def __init__(self, folder: str, *, keep_last: int) -> None:
        try:
            self._fs, root = file_system(folder)
        except (ValueError, ImportError) as error:
            raise CheckpointError(
                f"checkpoints in {folder}: {error}. Expected a folder or an fsspec URL (s3:// "
                "needs the package s3fs, gs:// needs gcsfs)"
            ) from error
        self._is_local = "file" in protocols_of(self._fs)
        self._root = str(root).rstrip("/") or "/"
        self._keep_last = keep_last
        self._is_locked = False
        self._token = b""
        self._damaged: set[str] = set()
        """Names of checkpoints whose tensors were found damaged."""

    @property
    def url(self) -> str:
        return self._url()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer until the block ends; on an object store the last caller is.

        Raises:
            CheckpointError: Another process holds the local folder; the message has its id.
        """
        with folder_lock(Path(self._root)) if self._is_local else contextlib.nullcontext():
            if not self._is_local:
                self._token = secrets.token_bytes(16)
                self._fs.pipe_file(self._path(LOCK_FILE), self._token)
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def save(self, step: int, *, tensors: Tensors, state: Mapping[str, Any]) -> CheckpointInfo:
        """Write a checkpoint to disk, then delete older ones. It survives a power failure.

        The disk needs space for one checkpoint more than are kept. Without `lock()`, the lock is
        held during the call.

        Args:
            step: Number of finished steps.
            tensors: Dense tensors; equal ones give equal bytes.
            state: JSON values; tuples are loaded as lists.

        Raises:
            CheckpointError: The checkpoint cannot be written, for example because the disk is full.
                It is deleted, and the earlier ones are unchanged.
        """
        values = _to_json_values(state)
        with contextlib.nullcontext() if self._is_locked else self.lock():
            self._check_token()
            for name in self._names():
                if not self._exists(name):  # a crash left it incomplete
                    self._delete(name)
            number = max(map(_number, self._names()), default=0) + 1
            name = f"step-{step:08d}-{number:04d}-{secrets.token_hex(3)}"
            try:
                record = self._write(name, step, tensors, values)
            except BaseException as error:
                self._delete(name)
                if isinstance(error, OSError):
                    raise self._cannot_write(error, step) from error
                raise
            self._delete_old()
            return self._info(record)

    def list(self) -> tuple[CheckpointInfo, ...]:
        """Return all checkpoints in the order of saving, without reading tensors."""
        return tuple(self._info(record) for record in self._records([]))

    def latest(self) -> LoadedCheckpoint | None:
        """Return the newest checkpoint that is not damaged, or None.

        Damaged checkpoints are logged; the next save deletes them.
        """
        problems: list[str] = []
        loaded: LoadedCheckpoint | None = None
        for record in reversed(self._records(problems)):
            try:
                loaded = self._load(record)
                break
            except DamagedCheckpointError as error:
                problems.append(str(error))
                self._damaged.add(record.name)
        step = f"resuming from step {loaded.info.step}" if loaded else "starting from step 0"
        for problem in problems:
            _LOGGER.warning("%s; %s", problem, step)
        return loaded

    def at_step(self, step: int) -> LoadedCheckpoint:
        """Return the checkpoint of a step; of several, the last saved.

        Raises:
            CheckpointError: The checkpoint does not exist or is damaged.
        """
        problems: list[str] = []
        for record in reversed(self._records(problems)):
            if record.step == step:
                return self._load(record)
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise CheckpointError(
            f"{self.url}: expected one of step {step}, got none{listed and ':'}{listed}\nRestore "
            "the files from a backup, or delete the parent folder to train again."
        )

    def _write(
        self, name: str, step: int, tensors: Tensors, state: dict[str, Any]
    ) -> CheckpointRecord:
        """Write the files of a checkpoint, its record last."""
        if self._is_local:
            Path(self._path(name)).mkdir()
            fsync_dir(Path(self._root))  # a power failure must not lose the folder
        digests = {}
        for stem in sorted(tensors):
            contiguous = {key: t.detach().contiguous() for key, t in tensors[stem].items()}
            data = save_tensors(contiguous, metadata={"format": "pt"})
            self._write_file(name, stem + _SUFFIX, data)
            digests[stem] = hashlib.sha256(data).hexdigest()
        saved = datetime.datetime.now(datetime.UTC).isoformat()
        record = CheckpointRecord(name=name, step=step, saved=saved, files=digests, state=state)
        self._check_token()  # writing the tensors may have taken minutes
        self._write_file(name, RECORD_FILE, record.to_bytes())
        return record

    def _write_file(self, name: str, file: str, data: bytes) -> None:
        path = self._path(name, file)
        if self._is_local:
            write_atomic(Path(path), data)
        else:
            self._fs.pipe_file(path, data)

    def _read_file(self, name: str, file: str) -> bytes:
        try:
            return bytes(self._fs.cat_file(self._path(name, file)))
        except FileNotFoundError as error:
            raise DamagedCheckpointError(
                f"{self._url(name, file)}: expected a file, found none"
            ) from error
        except OSError as error:
            # Not damage: another try may read the file, and a damaged checkpoint is deleted.
            raise CheckpointError(
                f"{self._url(name, file)}: cannot be read: {error}. Run again; if the error "
                "persists, delete the folder of this checkpoint to resume from an earlier one"
            ) from error

    def _load(self, record: CheckpointRecord) -> LoadedCheckpoint:
        files = {}
        for stem, expected in record.files.items():
            file = stem + _SUFFIX
            files[stem] = self._read_file(record.name, file)
            digest = hashlib.sha256(files[stem]).hexdigest()
            if digest != expected:
                raise DamagedCheckpointError(
                    f"{self._url(record.name, file)}: expected sha256 {expected}, got {digest}"
                )
        return LoadedCheckpoint(self._info(record), files, record.state)

    def _names(self) -> tuple[str, ...]:
        """Return the names of all checkpoints, complete or not, in the order of saving."""
        try:
            entries = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return ()
        folders = (str(e["name"]).rstrip("/") for e in entries if e["type"] == "directory")
        names = (folder.rpartition("/")[2] for folder in folders)
        return tuple(sorted(filter(_NAME.fullmatch, names), key=lambda name: (_number(name), name)))

    def _exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name, RECORD_FILE)))

    def _records(self, problems: _Problems) -> tuple[CheckpointRecord, ...]:
        """Return the records of complete checkpoints; add the problems of damaged ones."""
        records = []
        for name in self._names():
            if not self._exists(name):
                continue
            try:
                data = self._read_file(name, RECORD_FILE)
                url = self._url(name, RECORD_FILE)
                records.append(CheckpointRecord.parse(data, name=name, url=url))
            except DamagedCheckpointError as error:
                problems.append(str(error))
        return tuple(records)

    def _check_token(self) -> None:
        """Raise CheckpointError if another process became the writer on an object store."""
        path = self._path(LOCK_FILE)
        if self._is_local or (self._fs.exists(path) and self._fs.cat_file(path) == self._token):
            return
        raise CheckpointError(
            f"{self.url}: expected this process to be the only writer, found that another one took "
            "over. This checkpoint is not saved"
        )

    def _cannot_write(self, error: OSError, step: int) -> CheckpointError:
        sound = [record for record in self._records([]) if record.name not in self._damaged]
        last = f"from {self._url(sound[-1].name)}" if sound else "from the start"
        return CheckpointError(
            f"{self.url}: the checkpoint of step {step} cannot be written: "
            f"{error.strerror or error}. Free some space or make the folder writable, then rerun "
            f"to resume {last}. The incomplete checkpoint was deleted."
        )

    def _delete_old(self) -> None:
        """Delete damaged checkpoints, and all but the newest of the others."""
        sound = [r.name for r in self._records([]) if r.name not in self._damaged]
        for name in sorted(set(self._names()) - set(sound[-self._keep_last :])):
            self._delete(name)

    def _delete(self, name: str) -> None:
        """Delete a checkpoint, its record first; the next save tries again if that fails."""
        try:
            if self._exists(name):
                self._fs.rm_file(self._path(name, RECORD_FILE))
            if self._is_local:
                shutil.rmtree(self._path(name), ignore_errors=True)
            elif self._fs.exists(self._path(name)):
                self._fs.rm(self._path(name), recursive=True)
        except OSError as error:
            _LOGGER.warning("%s: cannot be deleted: %s", self._url(name), error)

    def _info(self, record: CheckpointRecord) -> CheckpointInfo:
        return CheckpointInfo(self._url(record.name), record.step, record.saved)

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def _url(self, *parts: str) -> str:
        """Return the absolute local path or the URL of a file."""
        path = self._path(*parts) if parts else self._root
        return path if self._is_local else str(self._fs.unstrip_protocol(path))


def _number(name: str) -> int:
    """Return the position of a checkpoint in the order of saving, from 1."""
    return int(name.split("-")[2])


def _to_json_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state as it is read back from JSON, which has no NaN or infinity."""
    try:
        values: dict[str, Any] = json.loads(json.dumps(dict(state), allow_nan=False))
        return values
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"state: expected plain JSON values, got: {error}") from error


def _digest_json(record: Any) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
