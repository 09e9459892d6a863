"""Local, verified copies of the shards of an instances artifact.

A shard is used only if its size and sha256 equal those of the manifest; every start of a training
reads all of them. Remote shards are copied once to `shards/` in the cache folder, named by their
sha256, so that runs and artifacts share them. Delete that folder to free its space.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.io.file_systems import fetch_file, file_system, protocols_of
from pipelines.io.raw_files import parallel_map
from pipelines.io.user_cache import cache_folder
from schemas.errors import ArtifactCorruptError, InstanceDataError
from schemas.manifest import FileEntry, StageInput

_LOGGER = logging.getLogger(__name__)


def local_files(
    data: StageInput, entries: Sequence[FileEntry], *, verify: bool = True
) -> list[Path]:
    """Return the local paths of files of an artifact, in order.

    Args:
        data: Artifact.
        entries: Files of the artifact.
        verify: Read every file. Otherwise only the sizes of local files and copies are compared.

    Raises:
        InstanceDataError: A file is missing or cannot be read or copied.
        ArtifactCorruptError: The size or the digest of a file differs from the manifest.
    """
    return parallel_map(partial(_local_file, data=data, verify=verify), entries)


def _local_file(entry: FileEntry, *, data: StageInput, verify: bool) -> Path:
    name = f"shard {entry.path} of the instances {data.artifact_id}"
    url = f"{data.data}/{entry.stored_name}"
    try:
        fs, path = file_system(url)
        if "file" in protocols_of(fs):
            _check(Path(path), entry, name=name, verify=verify)
            return Path(path)
        return _cached_copy(fs, path, entry, name=name, verify=verify)
    except FileNotFoundError as error:
        raise InstanceDataError(
            f"{name}: no such file: {url}. Put it back, or rebuild the stage."
        ) from error
    except (OSError, ValueError, ImportError) as error:
        raise InstanceDataError(
            f"{name}: cannot read {url}: {error}. A remote store may need its package, such as "
            f"s3fs or gcsfs; copies of its files need space in {cache_folder()} (BERTLOOM_CACHE)."
        ) from error


def _cached_copy(fs: Any, remote: str, entry: FileEntry, *, name: str, verify: bool) -> Path:
    copy = cache_folder() / "shards" / entry.sha256[:2] / f"{entry.sha256}.arrow"
    if copy.exists():
        try:
            _check(copy, entry, name=name, verify=verify)
        except ArtifactCorruptError as error:
            _LOGGER.warning("%s The copy is damaged; copying again", error)
        else:
            return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    partial_copy = copy.with_name(f".{uuid.uuid4().hex}.part")
    try:
        fetch_file(fs, remote, str(partial_copy))
        _check(partial_copy, entry, name=name, verify=True)
        partial_copy.replace(copy)
    finally:
        partial_copy.unlink(missing_ok=True)
    return copy


def _check(path: Path, entry: FileEntry, *, name: str, verify: bool) -> None:
    """Compare a file with its entry in the manifest."""
    size = path.stat().st_size
    if size != entry.size_bytes:
        problem = "is cut short" if size < entry.size_bytes else "is too long"
        difference = f"{entry.size_bytes:,} bytes, got {size:,}"
    elif verify and (digest := _digest(path)) != entry.sha256:
        problem, difference = "is damaged", f"sha256 {entry.sha256}, got {digest}"
    else:
        return
    raise ArtifactCorruptError(
        f"{name} {problem}: expected {difference} in {path}. Put the right file back, or rebuild "
        "the stage."
    )


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
