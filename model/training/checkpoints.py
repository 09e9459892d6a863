"""Checkpoints of one run: the newest states, to resume after a crash.

The folder of a checkpoint is `step-STEP-NUMBER-SUFFIX/` with `NAME.safetensors` files and a
`checkpoint.json`. A crash never damages earlier checkpoints (`model.training.checkpoint_files`).
No file is unpickled.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from model.training.checkpoint_files import (
    CheckpointFiles,
    CheckpointRecord,
    DamagedCheckpointError,
)
from schemas.errors import CheckpointError

_LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d+)-(\d+)-[0-9a-f]{6}")
_FULL = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Raise the disk quota or free some of it",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f)",
}

Tensors = Mapping[str, Mapping[str, Tensor]]
"""Tensors by file (`model`, `optimizer`), then by name."""


class CheckpointInfo(NamedTuple):
    """Saved checkpoint.

    Attributes:
        url: Folder.
        step: Number of finished steps.
        size: Bytes of the files of tensors.
        saved: Time, ISO 8601, UTC.
    """

    url: str
    step: int
    size: int
    saved: str


class LoadedCheckpoint(NamedTuple):
    """Verified checkpoint, with its tensors on the CPU."""

    info: CheckpointInfo
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


class _Contents(NamedTuple):
    """Contents of the folder.

    Attributes:
        records: Records by name of the checkpoint, in the order of saving.
        damaged: Problems of damaged records, by name of the checkpoint.
        unpublished: Names of checkpoints that a crash left incomplete.
        last_number: Number of the last checkpoint.
    """

    records: dict[str, CheckpointRecord]
    damaged: dict[str, str]
    unpublished: list[str]
    last_number: int


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
        self._files = CheckpointFiles(folder)
        self._keep_last = keep_last
        self._locked = False
        self._found_damaged: set[str] = set()

    @property
    def url(self) -> str:
        return self._files.url()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer until the block ends; on an object store the last caller is.

        Raises:
            CheckpointError: Another process holds the local folder; the message has its id.
        """
        with self._files.lock():
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

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
        text = _to_json(state)
        with contextlib.nullcontext() if self._locked else self.lock():
            self._files.check_lock()
            contents = self._scan()
            for name in contents.unpublished:
                self._delete(name)
            number = contents.last_number + 1
            name = f"step-{step:08d}-{number:04d}-{secrets.token_hex(3)}"
            try:
                entries = [
                    self._files.write_tensors(name, f"{stem}.safetensors", tensors[stem])
                    for stem in sorted(tensors)
                ]
                record = CheckpointRecord(
                    home=self._files.home(name),
                    step=step,
                    number=number,
                    saved=datetime.datetime.now(datetime.UTC).isoformat(),
                    files=tuple(entries),
                    state=json.loads(text),
                )
                self._files.check_lock()  # writing the tensors may have taken minutes
                self._files.publish(name, record)
            except BaseException as error:
                self._delete_incomplete(name, error)
                if isinstance(error, OSError):
                    raise self._cannot_write(error, step, tensors, contents) from error
                raise
            self._prune()
            return self._info(name, record)

    def list(self) -> tuple[CheckpointInfo, ...]:
        """Return all checkpoints in the order of saving, without reading tensors."""
        return tuple(self._info(*item) for item in self._scan().records.items())

    def latest(self) -> LoadedCheckpoint | None:
        """Return the newest checkpoint that is not damaged, or None.

        Damaged checkpoints are logged; the next save deletes them.
        """
        contents = self._scan()
        problems = [*contents.damaged.values()]
        loaded: LoadedCheckpoint | None = None
        for name, record in reversed(contents.records.items()):
            try:
                loaded = self._load(name, record)
                break
            except DamagedCheckpointError as error:
                problems.append(str(error))
                self._found_damaged.add(name)
        step = f"resuming from step {loaded.info.step}" if loaded else "starting from step 0"
        for problem in problems:
            _LOGGER.warning("%s; %s", problem, step)
        return loaded

    def at_step(self, step: int) -> LoadedCheckpoint:
        """Return the checkpoint of a step; of several, the last saved.

        Raises:
            CheckpointError: The checkpoint does not exist or is damaged.
        """
        contents = self._scan()
        for name, record in reversed(contents.records.items()):
            if record.step == step:
                return self._load(name, record)
        listed = "".join(f"\n  {problem}" for problem in contents.damaged.values())
        raise CheckpointError(
            f"{self.url}: expected one of step {step}, got none{listed and ':'}{listed}\nRestore "
            "the files from a backup, or delete the parent folder to train again."
        )

    def _load(self, name: str, record: CheckpointRecord) -> LoadedCheckpoint:
        tensors = {
            entry.path.removesuffix(".safetensors"): self._files.read_tensors(name, entry)
            for entry in record.files
        }
        return LoadedCheckpoint(self._info(name, record), tensors, record.state)

    def _scan(self) -> _Contents:
        records: dict[str, CheckpointRecord] = {}
        damaged: dict[str, str] = {}
        unpublished: list[str] = []
        numbers = {
            name: int(match[2]) for name in self._files.names() if (match := _NAME.fullmatch(name))
        }
        for name in sorted(numbers, key=lambda name: (numbers[name], name)):
            try:
                record = self._files.read_record(name)
            except DamagedCheckpointError as error:
                damaged[name] = str(error)
                continue
            if record is None:
                unpublished.append(name)
            else:
                records[name] = record
        return _Contents(records, damaged, unpublished, max(numbers.values(), default=0))

    def _delete_incomplete(self, name: str, error: BaseException) -> None:
        try:
            self._files.delete(name)
        except OSError as failure:  # the next save tries again
            error.add_note(f"the incomplete checkpoint cannot be deleted: {failure}")

    def _cannot_write(
        self, error: OSError, step: int, tensors: Tensors, contents: _Contents
    ) -> CheckpointError:
        needed = sum(tensor.nbytes for file in tensors.values() for tensor in file.values())
        free = self._files.free_bytes()
        spare = "" if free is None else f", {_megabytes(free)} is free"
        advice = _FULL.get(error.errno or 0, "Check that the folder is writable")
        good = [n for n in contents.records if n not in self._found_damaged]
        last = f"The last good one is {self._files.url(good[-1])}" if good else "There is no other"
        return CheckpointError(
            f"{self.url}: the checkpoint of step {step} cannot be written "
            f"({error.strerror or error}): it needs {_megabytes(needed)}{spare}. {advice}, then "
            f"rerun to resume. {last}; the incomplete one was deleted."
        )

    def _prune(self) -> None:
        """Delete damaged checkpoints, and all but the newest of the others."""
        contents = self._scan()
        sound = {n: r for n, r in contents.records.items() if n not in self._found_damaged}
        kept = list(sound)[-self._keep_last :]
        for name in sorted(set(contents.records) | set(contents.damaged)):
            if name not in kept:
                self._delete(name)

    def _delete(self, name: str) -> None:
        try:
            self._files.delete(name)
        except OSError as error:  # the next save tries again
            _LOGGER.warning("%s: cannot be deleted: %s", self._files.url(name), error)

    def _info(self, name: str, record: CheckpointRecord) -> CheckpointInfo:
        size = sum(entry.size for entry in record.files)
        return CheckpointInfo(self._files.url(name), record.step, size, record.saved)


def _to_json(state: Mapping[str, Any]) -> str:
    """Return the state as JSON, which has no NaN or infinity."""
    try:
        return json.dumps(dict(state), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"state: expected plain JSON values, got: {error}") from error


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
