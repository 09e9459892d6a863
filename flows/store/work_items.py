"""Records of finished work items, which `pipelines.beam.reuse` writes and reads.

    pieces/STAGE/DIGEST/AA/KEY.json              record: which files hold the item's output
    pieces/STAGE/DIGEST/AA/KEY.blobs             data next to it, with a digest in the record
    pieces/STAGE/DIGEST/AA/KEY.part-00000.json   files of an unfinished item

A missing or corrupt record only costs time: the item is computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from flows.store.backend import StoreBackend
from schemas.checksummed import load_json


def blobs_path(path: str) -> str:
    """Return the path of the data next to a record."""
    return f"{path.removesuffix('.json')}.blobs"


def finished_item(path: str) -> str:
    """Return the path of the record that replaces the record of a part. "" for other records."""
    folder, _, name = path.rpartition("/")
    key, _, part = name.partition(".part-")
    return f"{folder}/{key}.json" if part else ""


def delete_item(backend: StoreBackend, path: str) -> None:
    """Delete a record and the data next to it."""
    backend.delete(path)
    backend.delete(blobs_path(path))


def item_files(backend: StoreBackend, path: str) -> list[list[str]]:
    """Return the paths of an item's files, one list per artifact. Empty for a corrupt record.

    Raises:
        FileNotFoundError: There is no such record.
    """
    try:
        record = load_json(backend.read(path))
        return [[str(name) for name in names] for names in record["places"]]
    except (ValueError, KeyError, TypeError):
        return []


def delete_items(
    backend: StoreBackend, stage: str, location: str, *, objects: Collection[str] | None = None
) -> None:
    """Delete the records of the items of an artifact, so that no later job reuses them.

    Args:
        backend: Backend of the store.
        stage: Stage of the artifact.
        location: Folder of the artifact.
        objects: Names of the corrupt files: records of other files stay. None: every record of
            the artifact, and those of the stage without files, which do not name their artifact.
    """
    data = f"{location}/data/"
    for path in backend.names(f"pieces/{stage}"):
        if not path.endswith(".json"):
            continue
        try:
            artifacts = item_files(backend, path)
        except FileNotFoundError:
            continue
        names = {name for artifact in artifacts for name in artifact}
        here = {name.removeprefix(data) for name in names if name.startswith(data)}
        is_affected = (here or not names) if objects is None else not here.isdisjoint(objects)
        if is_affected or not artifacts:
            delete_item(backend, path)


def check_blobs(backend: StoreBackend, path: str, record: dict[str, Any]) -> str:
    """Return the error of the data next to a record, "" for none."""
    expected = record.get("keepsake")
    if not expected:
        return ""
    stored = backend.read_if_exists(blobs_path(path))
    if stored is None:
        return f"{blobs_path(path)} is missing"
    digest = hashlib.sha256(stored).hexdigest()
    return (
        ""
        if digest == expected
        else f"{blobs_path(path)}: expected sha256 {expected}, got {digest}"
    )
