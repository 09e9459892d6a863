"""Checkpoints of one run: its newest states, to resume after a crash, and its best state if asked.

A folder holds `step-STEP-NUMBER-SUFFIX/` with `NAME.safetensors` files and a `checkpoint.json` (see
`model.training.checkpoint_files` for how a crash at any moment leaves the earlier ones whole).
Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import logging
import math
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
_STEM = re.compile(r"[a-z][a-z0-9_-]*")
_FULL = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Raise the disk quota or free some of it",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f)",
}

Tensors = Mapping[str, Mapping[str, Tensor]]
"""Tensors by file (`model`, `optimizer`), then by name."""


class Saved(NamedTuple):
    """Saved checkpoint."""

    url: str
    """Its folder."""

    step: int
    loss: float | None
    size: int
    """Bytes of its tensors' files."""

    saved: str
    """When: ISO 8601, UTC."""


class LoadedCheckpoint(NamedTuple):
    """A checkpoint that was read and found whole; its tensors are on the CPU."""

    saved: Saved
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


class _Survey(NamedTuple):
    """Contents of the folder."""

    records: dict[str, CheckpointRecord]  # by name of their folder, first saved first
    damaged: dict[str, str]  # why their record cannot be used
    unpublished: list[str]  # what a crash left
    last_number: int


class Checkpoints:
    """The checkpoints of one run.

    One process may write: hold `lock()` for the length of the run. Any number may read meanwhile.
    """

    def __init__(self, folder: str, *, keep_last: int) -> None:
        """`folder` is a local folder or an fsspec URL; nothing is touched yet.

        The newest `keep_last` checkpoints are kept (at least 1). Where checkpoints are saved with
        a loss, the one with the lowest loss is kept as well.

        Raises:
            CheckpointError: the URL's file system is not known.
        """
        if keep_last < 1:
            raise ValueError(f"keep_last: expected 1 or more, found {keep_last}")
        self._files = CheckpointFiles(folder)
        self._keep_last = keep_last
        self._locked = False
        self._found_damaged: set[str] = set()

    @property
    def url(self) -> str:
        return self._files.url()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer until the block ends, or on an object store until another process is.

        Raises:
            CheckpointError: another process holds the local folder; names its pid.
        """
        with self._files.lock():
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    def save(
        self,
        step: int,
        *,
        tensors: Tensors,
        state: Mapping[str, Any],
        loss: float | None = None,
    ) -> Saved:
        """Write a checkpoint; when this returns, it is on disk and survives a power cut.

        Older ones are deleted after that, so room for one more than are kept is needed. Takes the
        lock for itself where it is not held.

        Args:
            step: updates done, from 0.
            tensors: dense ones; equal ones give equal bytes.
            state: plain JSON values; tuples come back as lists.
            loss: held-out loss, to keep this checkpoint for as long as no later one is lower.

        Raises:
            CheckpointError: it cannot be written, e.g. as the disk is full, or lock or content
                forbid it. Nothing is left of it then, and the earlier ones are as they were.
        """
        for stem in tensors:
            if not _STEM.fullmatch(stem):
                raise ValueError(f"expected files named like `model`, found {stem!r}")
        text = _plain(state, loss=loss)
        with contextlib.nullcontext() if self._locked else self.lock():
            self._files.check_lock()
            survey = self._survey()
            for name in survey.unpublished:
                self._delete(name)
            number = survey.last_number + 1
            name = f"step-{step:08d}-{number:04d}-{secrets.token_hex(3)}"
            try:
                entries = [
                    self._files.write_tensors(name, f"{stem}.safetensors", tensors[stem])
                    for stem in sorted(tensors)
                ]
                record = CheckpointRecord(
                    step=step,
                    number=number,
                    loss=loss,
                    saved=datetime.datetime.now(datetime.UTC).isoformat(),
                    files=tuple(entries),
                    state=json.loads(text),
                )
                self._files.check_lock()  # writing the tensors may have taken minutes
                self._files.publish(name, record)
            except BaseException as error:
                self._clear_away(name, error)
                if isinstance(error, OSError):
                    raise self._cannot_write(error, step, tensors, survey) from error
                raise
            self._prune()
            return self._saved(name, record)

    def list(self) -> tuple[Saved, ...]:
        """Return all checkpoints in the order of saving, without reading tensors."""
        return tuple(self._saved(*item) for item in self._survey().records.items())

    def latest(self) -> LoadedCheckpoint | None:
        """Return the newest checkpoint that is not damaged, or None.

        Damaged checkpoints are logged; the next save deletes them.
        """
        survey = self._survey()
        problems = [*survey.damaged.values()]
        loaded: LoadedCheckpoint | None = None
        for name, record in reversed(survey.records.items()):
            try:
                loaded = self._load(name, record)
                break
            except DamagedCheckpointError as error:
                problems.append(str(error))
                self._found_damaged.add(name)
        step = f"resuming from step {loaded.saved.step}" if loaded else "starting from step 0"
        for problem in problems:
            _LOGGER.warning("%s; %s", problem, step)
        return loaded

    def best(self) -> LoadedCheckpoint:
        """Return the checkpoint with the lowest loss.

        Raises:
            CheckpointError: No checkpoint has a loss, or the best one is damaged.
        """
        records = self._survey().records
        name = _best_name(records)
        if name is None:
            raise CheckpointError(
                f"{self.url}: expected a checkpoint with a held-out loss, found none. Restore the "
                "files from a backup, or delete the folder to train again"
            )
        return self._load(name, records[name])

    def at_step(self, step: int) -> LoadedCheckpoint:
        """Return the checkpoint of a step; of several, the last saved.

        Raises:
            CheckpointError: The checkpoint does not exist or is damaged.
        """
        survey = self._survey()
        for name, record in reversed(survey.records.items()):
            if record.step == step:
                return self._load(name, record)
        listed = "".join(f"\n  {problem}" for problem in survey.damaged.values())
        raise CheckpointError(
            f"{self.url}: expected one of step {step}, found none{listed and ':'}{listed}\nRestore "
            "the files from a backup, or delete the folder around this one, to train again"
        )

    def _load(self, name: str, record: CheckpointRecord) -> LoadedCheckpoint:
        tensors = {
            entry.path.removesuffix(".safetensors"): self._files.read_tensors(name, entry)
            for entry in record.files
        }
        return LoadedCheckpoint(self._saved(name, record), tensors, record.state)

    def _survey(self) -> _Survey:
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
        return _Survey(records, damaged, unpublished, max(numbers.values(), default=0))

    def _clear_away(self, name: str, error: BaseException) -> None:
        try:
            self._files.delete(name)
        except OSError as failure:  # the first error matters more; the next save tries again
            error.add_note(f"what was written of it could not be deleted: {failure}")

    def _cannot_write(
        self, error: OSError, step: int, tensors: Tensors, survey: _Survey
    ) -> CheckpointError:
        needed = sum(tensor.nbytes for file in tensors.values() for tensor in file.values())
        free = self._files.free_bytes()
        room = "" if free is None else f", {_megabytes(free)} is free"
        advice = _FULL.get(error.errno or 0, "See that the folder can be written to")
        good = [n for n in survey.records if n not in self._found_damaged]
        last = f"The last good one is {self._files.url(good[-1])}" if good else "There is no other"
        return CheckpointError(
            f"{self.url}: the checkpoint of step {step} cannot be written "
            f"({error.strerror or error}): it needs {_megabytes(needed)}{room}. {advice}, and "
            f"resume. {last}; what was written of this one is deleted, and nothing else"
        )

    def _prune(self) -> None:
        """Delete all checkpoints but the newest and the best; damaged ones count as neither."""
        survey = self._survey()
        sound = {n: r for n, r in survey.records.items() if n not in self._found_damaged}
        kept = {*list(sound)[-self._keep_last :], _best_name(sound)}
        for name in sorted(set(survey.records) | set(survey.damaged)):
            if name not in kept:
                self._delete(name)

    def _delete(self, name: str) -> None:
        try:
            self._files.delete(name)
        except OSError as error:  # it only takes space; the next save tries again
            _LOGGER.warning("%s: cannot be deleted: %s", self._files.url(name), error)

    def _saved(self, name: str, record: CheckpointRecord) -> Saved:
        size = sum(entry.size for entry in record.files)
        return Saved(self._files.url(name), record.step, record.loss, size, record.saved)


def _best_name(records: Mapping[str, CheckpointRecord]) -> str | None:
    """Return the name of the newest record with the lowest loss; None if no record has a loss."""
    losses = [(r.loss, -r.number, name) for name, r in records.items() if r.loss is not None]
    return min(losses)[2] if losses else None


def _plain(state: Mapping[str, Any], *, loss: float | None) -> str:
    """The state as JSON, and both without NaN or infinity, which JSON does not have."""
    if loss is not None and not math.isfinite(loss):
        raise CheckpointError(f"loss: expected a finite number or None, found {loss}")
    try:
        return json.dumps(dict(state), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"state: expected plain JSON values, found: {error}") from error


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
