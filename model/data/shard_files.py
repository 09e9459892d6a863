"""Local, verified copies of the shards of an instances artifact.

A shard is used only if its size and sha256 equal those of the manifest; every start of a training
reads all of them. Remote shards are copied once to `shards/` in the cache folder, named by their
sha256, so that runs and artifacts share them. Delete that folder to free its space.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from pipelines.io.file_systems import file_system, open_stream
from pipelines.io.raw_files import parallel_map
from pipelines.io.user_cache import cache_folder
from schemas.errors import ArtifactCorruptError, InstanceDataError
from schemas.manifest import FileEntry, StageInput

_CHUNK = 4 << 20
_log = logging.getLogger(__name__)


def local_files(
    data: StageInput, entries: Sequence[FileEntry], *, verify: bool = True
) -> list[Path]:
    """Return the local paths of files of an artifact, in order.

    Args:
        data: Artifact.
        entries: Files of the artifact.
        verify: Read every file. Otherwise only the sizes of local files and copies are compared.

    Raises:
        InstanceDataError: A file is missing or cannot be read.
        ArtifactCorruptError: The size or the digest of a file differs from the manifest.
    """
    return parallel_map(partial(_local_file, data=data, verify=verify), entries)


def _local_file(entry: FileEntry, *, data: StageInput, verify: bool) -> Path:
    url = f"{data.data}/{entry.stored_name}"
    try:
        fs, path = file_system(url)
    except (ValueError, ImportError) as error:
        raise InstanceDataError(
            f"{_name(entry, data)}: {url} cannot be reached: {error}. A remote store may need its "
            "package, e.g. s3fs or gcsfs"
        ) from error
    if not isinstance(fs, LocalFileSystem):
        return _cached_copy(fs, path, entry=entry, data=data, verify=verify)
    _check_file(Path(path), entry=entry, data=data, verify=verify)
    return Path(path)


def _check_file(path: Path, *, entry: FileEntry, data: StageInput, verify: bool) -> None:
    try:
        size = path.stat().st_size
        _check_size(size, entry=entry, data=data, where=str(path))
        found = _digest(path) if verify else entry.sha256
    except FileNotFoundError as error:
        raise _missing(entry, data, where=str(path)) from error
    except OSError as error:
        raise InstanceDataError(f"{_name(entry, data)}: cannot be read: {error}") from error
    _check_digest(found, entry=entry, data=data, where=str(path))


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _cached_copy(fs: Any, remote: str, *, entry: FileEntry, data: StageInput, verify: bool) -> Path:
    kept = cache_folder() / "shards" / entry.sha256[:2] / f"{entry.sha256}.arrow"
    if kept.exists():
        try:
            _check_file(kept, entry=entry, data=data, verify=verify)
        except ArtifactCorruptError as error:
            _log.warning("%s The copy is damaged; copying again", error)
        else:
            return kept
    _fetch(fs, remote, kept, entry=entry, data=data)
    return kept


def _fetch(fs: Any, remote: str, kept: Path, *, entry: FileEntry, data: StageInput) -> None:
    """Copy a remote file atomically."""
    part = None
    where = str(fs.unstrip_protocol(remote))
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=kept.parent, suffix=".part")
        digest, size = hashlib.sha256(), 0
        with os.fdopen(handle, "wb") as target, open_stream(fs, remote) as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += target.write(chunk)
        _check_size(size, entry=entry, data=data, where=where)
        _check_digest(digest.hexdigest(), entry=entry, data=data, where=where)
        Path(part).replace(kept)
    except FileNotFoundError as error:
        raise _missing(entry, data, where=where) from error
    except OSError as error:
        raise InstanceDataError(
            f"{_name(entry, data)}: {where} cannot be copied to {kept.parent}: {error}. Free space "
            "there, or set another cache folder in BERTLOOM_CACHE"
        ) from error
    finally:
        if part is not None:
            Path(part).unlink(missing_ok=True)


def _name(entry: FileEntry, data: StageInput) -> str:
    return f"shard {entry.path} of the instances {data.artifact_id}"


def _missing(entry: FileEntry, data: StageInput, *, where: str) -> InstanceDataError:
    return InstanceDataError(
        f"{_name(entry, data)}: expected it at {where}, found no such file. Put it back, or "
        "rebuild the stage"
    )


def _check_size(size: int, *, entry: FileEntry, data: StageInput, where: str) -> None:
    if size != entry.size_bytes:
        what = "is cut short" if size < entry.size_bytes else "is too long"
        raise ArtifactCorruptError(
            f"{_name(entry, data)} {what}: expected {entry.size_bytes:,} bytes, found {size:,} at "
            f"{where}. Put the right file back, or rebuild the stage."
        )


def _check_digest(found: str, *, entry: FileEntry, data: StageInput, where: str) -> None:
    if found != entry.sha256:
        raise ArtifactCorruptError(
            f"{_name(entry, data)} is damaged: expected the sha256 {entry.sha256}, found {found} "
            f"at {where}. Put the right file back, or rebuild the stage."
        )
