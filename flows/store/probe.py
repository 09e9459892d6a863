"""Trying out what a store needs of its disk or server."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from schemas.errors import StoreError

if TYPE_CHECKING:
    from flows.store.backend import StoreBackend


def probe(backend: StoreBackend) -> None:
    """See `StoreBackend.probe`."""
    path = f"probe/{uuid.uuid4().hex}"
    try:
        if not backend.create(path, b"first") or backend.create(path, b"second"):
            raise StoreError(
                f"store {backend.root}: the server lets a file be created twice, so two runs "
                "could publish under one key. Use a server that honours If-None-Match (S3) or "
                "ifGenerationMatch (GCS)"
            )
        swapped = backend.swap(path, b"third", expected=b"first")
        refused = not backend.swap(path, b"fourth", expected=b"first")
        ignored = backend.ignores_conditions(path)
    finally:
        backend.delete(path)
    if not (swapped and refused) or ignored:
        raise StoreError(
            f"store {backend.root}: a file can be changed though it is not what the request says "
            "it should be, so two runs could overwrite each other's refs. Use a server that "
            "honours If-Match (S3) or ifGenerationMatch (GCS)"
        )


def probe_delete(backend: StoreBackend) -> bool:
    """See `StoreBackend.ignores_conditions_on_delete`."""
    path = f"probe/{uuid.uuid4().hex}"
    try:
        backend.create(path, b"first")
        if backend.deletes_stale(path):
            return True
        backend.replace(path, b"second")
        # Where the answer got lost and the client asked again, it is gone all the same.
        if backend.remove(path, expected=b"second") is None and backend.read_many([path]):
            raise StoreError(
                f"store {backend.root}: a file is not deleted though it is what the request says, "
                "so leases stay until they expire. Use a server that deletes under If-Match (S3) "
                "or ifGenerationMatch (GCS)"
            )
        return False
    finally:
        backend.delete(path)
