"""Finished pieces of work (`pipelines.beam.reuse`), as withdrawing, checking and cleaning see them.

    pieces/STAGE/DIGEST/AA/KEY.json     the record: where the piece's files are, with its own digest
    pieces/STAGE/DIGEST/AA/KEY.blobs    beside it, with the digest that the record names
    pieces/STAGE/DIGEST/AA/KEY.part-00000.json, ...   of the files of an unfinished piece

A record that cannot be read is as good as none: the piece is built again where it is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from flows.store.backend import StoreBackend
from schemas.sealed import read_sealed


def blobs_of(path: str) -> str:
    """Path of the file beside a record."""
    return f"{path.removesuffix('.json')}.blobs"


def finished_piece(path: str) -> str:
    """Path of the record that takes the place of that of a part; "" where `path` is of a piece."""
    folder, _, name = path.rpartition("/")
    key, _, part = name.partition(".part-")
    return f"{folder}/{key}.json" if part else ""


def delete_piece(backend: StoreBackend, path: str) -> None:
    """Delete a record and what is beside it."""
    backend.delete(path)
    backend.delete(blobs_of(path))


def piece_files(backend: StoreBackend, path: str) -> list[list[str]]:
    """Paths of the files of a piece from the root of the store, once for each artifact with them.

    None at all for a damaged record.

    Raises:
        FileNotFoundError: there is no such record (any more).
    """
    try:
        record = read_sealed(backend.read(path))
        return [[str(name) for name in names] for names in record["places"]]
    except (ValueError, KeyError, TypeError):
        return []


def withdraw_pieces(
    backend: StoreBackend, stage: str, location: str, *, objects: Collection[str] | None = None
) -> None:
    """Delete the records of the pieces of an artifact, so that no later job uses them.

    These are the records that name one of `objects`, physical names of its files. Where none are
    given: every record that names any file of it, and those of the stage that name none, such as
    word counts, which do not say what they served for.
    """
    data = f"{location}/data/"
    for path in backend.names(f"pieces/{stage}"):
        if not path.endswith(".json"):
            continue
        try:
            found = piece_files(backend, path)
        except FileNotFoundError:
            continue
        names = [name for artifact in found for name in artifact]
        here = {name.removeprefix(data) for name in names if name.startswith(data)}
        is_of = (here or not names) if objects is None else not here.isdisjoint(objects)
        if is_of or not found:
            delete_piece(backend, path)


def check_blobs(backend: StoreBackend, path: str, record: dict[str, Any]) -> str:
    """What is wrong with the file beside a record; "" for nothing."""
    expected = record.get("keepsake")
    if not expected:
        return ""
    stored = backend.read_if_exists(blobs_of(path))
    if stored is None:
        return f"{blobs_of(path)} is missing"
    found = hashlib.sha256(stored).hexdigest()
    return "" if found == expected else f"{blobs_of(path)} has sha256 {found}, expected {expected}"
