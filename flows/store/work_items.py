"""Records of finished work items, which `pipelines.shard_job.item_cache` writes and reads.

    pieces/STAGE/DIGEST/AA/KEY.json    record: which files hold the item's output

A missing or corrupt record only costs time: the item is computed again.
"""

from __future__ import annotations

from flows.store.backend import StoreBackend
from schemas.json_files import load_json


def item_files(backend: StoreBackend, path: str) -> list[list[str]]:
    """Return the paths of an item's files, one list per artifact. Empty if there is no record."""
    try:
        record = load_json(backend.read_if_exists(path) or b"")
        return [[str(name) for name in names] for names in record["locations"]]
    except (ValueError, KeyError, TypeError):  # corrupt
        return []
