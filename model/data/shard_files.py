"""Local, verified copies of the shards of an instances artifact.

Every start of a training compares all bytes with the manifest, once for all ranks that read the
same files. Remote shards are copied once to `shards/` in the cache folder, named by their sha256,
so that runs and artifacts share them. Delete that folder to free its space.
"""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipelines.io.file_systems import fetch_file, file_system, protocols_of
from pipelines.io.raw_files import parallel_map
from pipelines.io.stage_inputs import InputFile
from pipelines.io.user_cache import cache_folder
from schemas.errors import ArtifactCorruptError, BertloomError, InstanceDataError
from schemas.manifest import FileEntry, StageInput

_LOGGER = logging.getLogger(__name__)

Fingerprint = tuple[str, int, int, int]
"""Expected sha256 of a verified file, then its size, modification time and inode."""

Value = TypeVar("Value")


class Ranks(Protocol):
    """Processes of a distributed training, such as `model.training.distributed.ProcessGroup`."""

    @property
    def rank(self) -> int:
        """Rank of this process, from 0."""

    @property
    def local_rank(self) -> int:
        """Rank of this process on its machine, from 0."""

    def all_gather(self, values: Sequence[Value]) -> list[Value]:
        """Return the values of all processes."""


def local_files(
    data: StageInput, entries: Sequence[FileEntry], *, ranks: Ranks | None = None
) -> list[Path]:
    """Return the local paths of files of an artifact, in order.

    Args:
        data: Artifact.
        entries: Files of the artifact.
        ranks: Ranks that all call this function. Rank 0 verifies the files first, then the first
            rank of each machine, then the others. A rank does not verify a file again if it has
            the fingerprint of one that another rank has verified.

    Raises:
        InstanceDataError: A file is missing or cannot be read or copied.
        ArtifactCorruptError: The size or the digest of a file differs from the manifest.
    """
    files = [InputFile.of(data, entry) for entry in entries]
    return _verify(files, ()) if ranks is None else _verify_in_turns(files, ranks)


def _verify_in_turns(files: Sequence[InputFile], ranks: Ranks) -> list[Path]:
    paths: list[Path] | None = None
    problem: BertloomError | None = None
    verified: set[Fingerprint] = set()
    for is_turn in (ranks.rank == 0, ranks.local_rank == 0, True):
        fingerprints: list[Fingerprint] = []
        if is_turn and paths is None and problem is None:
            try:
                paths = _verify(files, verified)
                fingerprints = [
                    _fingerprint(file, path.stat()) for file, path in zip(files, paths, strict=True)
                ]
            except BertloomError as error:
                problem = error  # raised at the end: the other ranks wait for this one
        verified.update(ranks.all_gather(fingerprints))
    if paths is None:
        assert problem is not None  # noqa: S101  # the last turn is everyone's
        raise problem
    return paths


def _verify(files: Sequence[InputFile], verified: Collection[Fingerprint]) -> list[Path]:
    return parallel_map(functools.partial(_local_file, verified=verified), files)


def _fingerprint(file: InputFile, stat: os.stat_result) -> Fingerprint:
    return file.sha256, stat.st_size, stat.st_mtime_ns, stat.st_ino


def _local_file(file: InputFile, *, verified: Collection[Fingerprint]) -> Path:
    name = f"shard {file.path} of {file.artifact}"
    try:
        fs, path = file_system(file.url)
        if "file" not in protocols_of(fs):
            return _cached_copy(fs, path, file, verified=verified)
        _check(file, Path(path), verified=verified)
        return Path(path)
    except FileNotFoundError as error:
        raise InstanceDataError(
            f"{name}: no such file: {file.url}. Put it back, or rebuild the stage."
        ) from error
    except (OSError, ValueError, ImportError) as error:
        raise InstanceDataError(
            f"{name}: cannot read {file.url}: {error}. A remote store may need its package, such "
            f"as s3fs; copies of its files need space in {cache_folder()} (BERTLOOM_CACHE)."
        ) from error


def _cached_copy(
    fs: Any, remote: str, file: InputFile, *, verified: Collection[Fingerprint]
) -> Path:
    copy = cache_folder() / "shards" / file.sha256[:2] / f"{file.sha256}.arrow"
    if copy.exists():
        try:
            _check(file, copy, verified=verified)
        except ArtifactCorruptError as error:
            _LOGGER.warning("%s: damaged copy, copying again: %s", copy, error)
        else:
            return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    incomplete = copy.with_name(f".{uuid.uuid4().hex}.part")
    try:
        fetch_file(fs, remote, str(incomplete))
        _check(file, incomplete, verified=())
        incomplete.replace(copy)
    finally:
        incomplete.unlink(missing_ok=True)
    return copy


def _check(file: InputFile, path: Path, *, verified: Collection[Fingerprint]) -> None:
    with path.open("rb") as source:
        if _fingerprint(file, os.fstat(source.fileno())) not in verified:
            file.check_stream(source)
