"""Artifacts by the paths and URLs of their folders and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flows.store.artifact import StoredArtifact
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import file_system, protocols_of
from schemas.errors import ArtifactNotFoundError

_ARTIFACTS = "/artifacts/"


class StoredName(NamedTuple):
    """Name in a store, written as a path: `STORE/RECIPE/STEP`."""

    store: ArtifactStore
    name: str


def artifact_of_path(text: str) -> StoredArtifact | None:
    """Return the artifact with a path or URL: of its folder, manifest or file. None for others.

    Links of a local path are followed. A relative path must exist: inside an artifact's folder,
    every other name would be a path of this artifact.

    Raises:
        ArtifactCorruptError: Its manifest is corrupt.
    """
    if not ("://" in text or Path(text).is_absolute() or os.path.lexists(text)):
        return None
    try:
        fs, path = file_system(text)
    except (ValueError, ImportError):
        return None
    paths = [path, os.path.realpath(path)] if _is_local(fs) else [path]
    for candidate in dict.fromkeys(paths):
        root, separator, rest = candidate.rpartition(_ARTIFACTS)
        folder = "/".join(rest.split("/")[:2])
        manifest = f"artifacts/{folder}/manifest.json"
        if separator and fs.isfile(f"{root}/{manifest}") and fs.isfile(f"{root}/FORMAT.json"):
            store = _open_store(fs, root)
            return store.artifact(store.read_manifest(manifest))
    return None


def stored_name(text: str) -> StoredName | None:
    """Return the store and the name of a path `STORE/NAME`; None if it is in no store.

    Raises:
        ArtifactNotFoundError: The address cannot be read.
    """
    try:
        fs, path = file_system(text)
    except (ValueError, ImportError):
        return None
    for root, name in _partitions(path.rstrip("/")):
        try:
            is_store = fs.isfile(f"{root}/FORMAT.json")
        except Exception as error:  # each client has its own exceptions
            raise ArtifactNotFoundError(f"{text}: expected a store in {root}: {error}") from error
        if is_store:
            return StoredName(_open_store(fs, root), name)
    return None


def _partitions(path: str) -> Iterator[tuple[str, str]]:
    """Yield each parent folder of a path, the longest first, and the rest of the path."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        yield "/".join(parts[:length]), "/".join(parts[length:])


def _open_store(fs: Any, root: str) -> ArtifactStore:
    return ArtifactStore(root if _is_local(fs) else str(fs.unstrip_protocol(root)), create=False)


def _is_local(fs: Any) -> bool:
    return "file" in protocols_of(fs)
