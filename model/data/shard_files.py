"""Local, verified copies of the shards of an instances artifact.

Every start of a training compares all bytes with the manifest. Remote shards are copied once to
`shards/` in the cache folder, named by their sha256, so that runs and artifacts share them. Delete
that folder to free its space.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.io.file_systems import fetch_file, file_system, protocols_of
from pipelines.io.raw_files import parallel_map
from pipelines.io.stage_inputs import InputFile
from pipelines.io.user_cache import cache_folder
from schemas.errors import ArtifactCorruptError, InstanceDataError
from schemas.manifest import FileEntry, StageInput

_LOGGER = logging.getLogger(__name__)


def local_files(data: StageInput, entries: Sequence[FileEntry]) -> list[Path]:
    """Return the local paths of files of an artifact, in order.

    Raises:
        InstanceDataError: A file is missing or cannot be read or copied.
        ArtifactCorruptError: The size or the digest of a file differs from the manifest.
    """
    return parallel_map(_local_file, [InputFile.of(data, entry) for entry in entries])


def _local_file(file: InputFile) -> Path:
    name = f"shard {file.path} of {file.artifact}"
    try:
        fs, path = file_system(file.url)
        if "file" not in protocols_of(fs):
            return _cached_copy(fs, path, file)
        _check(file, Path(path))
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


def _cached_copy(fs: Any, remote: str, file: InputFile) -> Path:
    copy = cache_folder() / "shards" / file.sha256[:2] / f"{file.sha256}.arrow"
    if copy.exists():
        try:
            _check(file, copy)
        except ArtifactCorruptError as error:
            _LOGGER.warning("%s: damaged copy, copying again: %s", copy, error)
        else:
            return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    incomplete = copy.with_name(f".{uuid.uuid4().hex}.part")
    try:
        fetch_file(fs, remote, str(incomplete))
        _check(file, incomplete)
        incomplete.replace(copy)
    finally:
        incomplete.unlink(missing_ok=True)
    return copy


def _check(file: InputFile, path: Path) -> None:
    with path.open("rb") as source:
        file.check_stream(source)
