"""Records of finished pieces in a store (`pipelines.beam.reuse`), to withdraw and to check.

pieces/STAGE/DIGEST/AA/KEY.json     the record, with its own digest
pieces/STAGE/DIGEST/AA/KEY.blobs    beside it, with the digest that the record names
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from flows.store.backend import StoreBackend
from schemas.sealed import read_sealed


def blobs_of(path: str) -> str:
    """Where the file beside a record would be."""
    return f"{path.removesuffix('.json')}.blobs"


def delete_record(backend: StoreBackend, path: str) -> None:
    """Take a record and what is beside it away: the piece is built again where it is needed."""
    backend.delete(path)
    backend.delete(blobs_of(path))


def withdraw_records(
    backend: StoreBackend, stage: str, location: str, *, objects: Collection[str] | None = None
) -> int:
    """Take away the records that an artifact came from, so that no later job takes them over.

    Args:
        backend: the store's files.
        stage: of the artifact.
        location: of the artifact, `artifacts/STAGE/ID`.
        objects: physical names of its files: only the records that name one go. None: every record
            that names any file of it, and those of the stage that name none, such as word counts,
            which do not say what they served for.

    Returns:
        how many there were.
    """
    count = 0
    for path in backend.names(f"pieces/{stage}"):
        if not path.endswith(".json"):
            continue
        try:
            is_of = _is_of(read_sealed(backend.read(path)).value, f"{location}/data/", objects)
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            is_of = True  # damaged: as good as none
        if is_of:
            delete_record(backend, path)
            count += 1
    return count


def _is_of(record: dict[str, Any], data: str, objects: Collection[str] | None) -> bool:
    files = [str(name) for place in record["places"] for name in place]
    here = {name.removeprefix(data) for name in files if name.startswith(data)}
    return (bool(here) or not files) if objects is None else not here.isdisjoint(objects)


def check_blobs(backend: StoreBackend, path: str, record: dict[str, Any]) -> str:
    """What is wrong with the file beside a record; "" for nothing."""
    expected = record.get("keepsake")
    if not expected:
        return ""
    try:
        found = hashlib.sha256(backend.read(blobs_of(path))).hexdigest()
    except FileNotFoundError:
        return f"{blobs_of(path)} is missing"
    return "" if found == expected else f"{blobs_of(path)} has sha256 {found}, expected {expected}"
