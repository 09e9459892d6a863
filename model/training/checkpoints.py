"""Checkpoints of one run: the newest states, to resume after a crash.

A checkpoint is one file `step-STEP-NUMBER-SHA256.safetensors` in a local folder or at an fsspec
URL. A file appears when it is complete, and its name tells whether it is damaged. No file is
unpickled. Torch is loaded only with tensors.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from filelock import FileLock, Timeout

from pipelines.io.file_systems import file_system, protocols_of
from pipelines.io.local_files import write_atomic
from schemas.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

_LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d+)-(\d+)-([0-9a-f]{16})\.safetensors")
_PART = re.compile(r"\.step-\d+-.*")
"""Name of a file that a killed process has not written to its end."""

LOCK_FILE = ".lock"
"""Name of the lock in its folder; it contains the id of the last process that held it."""

Tensors: TypeAlias = "Mapping[str, Mapping[str, Tensor]]"
"""Tensors by part (`model`, `optimizer`), then by name."""


class DamagedCheckpointError(CheckpointError):
    """Damaged checkpoint; an earlier one may be usable."""


class CheckpointInfo(NamedTuple):
    """Saved checkpoint: its number of finished steps, its number at this step, and its URL."""

    step: int
    number: int
    url: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]


class LoadedCheckpoint(NamedTuple):
    """Verified checkpoint.

    Attributes:
        info: Its step and URL.
        data: Content of the file.
    """

    info: CheckpointInfo
    data: bytes

    @property
    def state(self) -> dict[str, Any]:
        """JSON values of the caller."""
        size = int.from_bytes(self.data[:8], "little")
        state: dict[str, Any] = json.loads(
            json.loads(self.data[8 : 8 + size])["__metadata__"]["state"]
        )
        return state

    @property
    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """New tensors on the CPU, by part and name."""
        from safetensors.torch import load  # lazy: loads torch

        parts: dict[str, dict[str, Tensor]] = {}
        for full_name, tensor in load(self.data).items():
            part, _, name = full_name.partition(".")
            parts.setdefault(part, {})[name] = tensor
        return parts


class Checkpoints:
    """Checkpoints of one run.

    One process may write: hold `lock()` during the run. Any number of processes may read.

    Args:
        folder: Local folder or fsspec URL.
        keep_last: Number of the newest checkpoints to keep, at least 1.
    """

    def __init__(self, folder: str, *, keep_last: int) -> None:
        self._fs, root = file_system(folder)
        self._is_local = "file" in protocols_of(self._fs)
        self._root = str(root).rstrip("/")
        self._keep_last = keep_last
        self._damaged: set[CheckpointInfo] = set()

    @property
    def url(self) -> str:
        return self._root if self._is_local else str(self._fs.unstrip_protocol(self._root))

    def lock(self) -> AbstractContextManager[None]:
        """Return a context in which this process alone writes to a local folder.

        The lease of the step protects a folder at a URL.

        Raises:
            CheckpointError: Another process holds the folder; the message has its id.
        """
        return folder_lock(Path(self._root)) if self._is_local else contextlib.nullcontext()

    def save(self, step: int, *, tensors: Tensors, state: Mapping[str, Any]) -> CheckpointInfo:
        """Write a checkpoint to disk, then delete older ones. It survives a power failure.

        The disk needs space for one checkpoint more than are kept.

        Args:
            step: Number of finished steps.
            tensors: Dense tensors; equal ones give equal bytes.
            state: JSON values without NaN and infinity; tuples are loaded as lists.

        Raises:
            CheckpointError: The checkpoint cannot be written, for example because the disk is full.
                The earlier ones are unchanged.
        """
        from safetensors.torch import save  # lazy: loads torch

        named = {
            f"{part}.{name}": tensor.detach().contiguous()
            for part, group in tensors.items()
            for name, tensor in group.items()
        }
        text = json.dumps(dict(state), allow_nan=False)
        number = 1 + max((info.number for info in self.list() if info.step == step), default=0)
        try:
            data = save(named, metadata={"state": text})
            name = f"step-{step:08d}-{number:04d}-{_digest(data)}.safetensors"
            if self._is_local:
                write_atomic(Path(self._root, name), data)
            else:
                self._fs.pipe_file(f"{self._root}/{name}", data)
        except OSError as error:
            raise CheckpointError(
                f"{self.url}: the checkpoint of step {step} cannot be written: "
                f"{error.strerror or error}. Free some space or make the folder writable, then "
                "rerun to resume from the checkpoint before."
            ) from error
        self._delete_old()
        return CheckpointInfo(step, number, f"{self.url}/{name}")

    def list(self) -> tuple[CheckpointInfo, ...]:
        """Return all checkpoints in the order of steps, then of saving, without reading them."""
        matches = filter(None, map(_NAME.fullmatch, self._names()))
        return tuple(
            sorted(CheckpointInfo(int(m[1]), int(m[2]), f"{self.url}/{m[0]}") for m in matches)
        )

    def latest(self) -> LoadedCheckpoint | None:
        """Return the newest checkpoint that is not damaged, or None.

        Damaged checkpoints are logged; the next save deletes them.
        """
        for info in reversed(self.list()):
            try:
                return self._load(info)
            except DamagedCheckpointError as error:
                _LOGGER.warning("%s. This checkpoint is skipped", error)
                self._damaged.add(info)
        return None

    def at_step(self, step: int) -> LoadedCheckpoint:
        """Return the checkpoint of a step; of several, the last saved.

        Raises:
            CheckpointError: The checkpoint does not exist or is damaged.
        """
        for info in reversed(self.list()):
            if info.step == step:
                return self._load(info)
        raise CheckpointError(
            f"{self.url}: expected a checkpoint of step {step}, got none. Restore it from a "
            "backup, or delete the parent folder to train again."
        )

    def _load(self, info: CheckpointInfo) -> LoadedCheckpoint:
        try:
            data = bytes(self._fs.cat_file(f"{self._root}/{info.name}"))
        except OSError as error:
            # Not damage: another try may read the file, and a damaged checkpoint is deleted.
            raise CheckpointError(
                f"{info.url}: cannot be read: {error}. Run again; if the error persists, delete "
                "the file to resume from an earlier checkpoint."
            ) from error
        if _digest(data) not in info.name:
            raise DamagedCheckpointError(
                f"{info.url}: damaged: expected the sha256 in its name, got {_digest(data)}. "
                "Restore it from a backup, or delete it to resume from the checkpoint before"
            )
        return LoadedCheckpoint(info, data)

    def _names(self) -> tuple[str, ...]:
        """Return the names of all files in the folder."""
        try:
            paths = self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            return ()
        return tuple(str(path).rpartition("/")[2] for path in paths)

    def _delete_old(self) -> None:
        """Delete damaged checkpoints, unfinished files, and all but the newest checkpoints."""
        sound = [info for info in self.list() if info not in self._damaged]
        old = {info.name for info in (*sound[: -self._keep_last], *self._damaged)}
        for name in self._names():
            if name in old or _PART.fullmatch(name):
                try:
                    self._fs.rm_file(f"{self._root}/{name}")
                except OSError as error:  # the next save tries again
                    _LOGGER.warning("%s/%s: cannot be deleted: %s", self.url, name, error)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created if missing, until the block ends.

    Raises:
        CheckpointError: The lock is held (the message has the process id), or the folder cannot be
            created or locked.
    """
    path = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _open_lock(path)
        lock.acquire()
    except Timeout as error:
        raise CheckpointError(
            f"{folder}: process {_read_holder(path)} writes its checkpoints to this folder. Wait "
            "for it, end it, or use another folder."
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{folder}: expected a writable folder on a file system with locks, got: "
            f"{error.strerror}. Put checkpoints on another disk, or on s3:// or gs://."
        ) from error
    try:
        # The lock also works on a full disk, only without the process id.
        with contextlib.suppress(OSError):
            path.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        lock.release()


def lock_holder(path: Path) -> str:
    """Return the id of the process that holds a lock, "" if none does."""
    try:
        with _open_lock(path):
            return ""
    except Timeout:
        return _read_holder(path)
    except OSError:  # no locks: `folder_lock` reports it
        return ""


def _open_lock(path: Path) -> FileLock:
    # Never a lock by mere existence of the file, which a killed process would leave behind.
    return FileLock(path, mode=0o644, blocking=False, fallback_to_soft=False)


def _read_holder(path: Path) -> str:
    return path.read_text("ascii", "replace").strip() or "unknown"
