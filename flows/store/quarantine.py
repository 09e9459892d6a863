"""Pointers that were taken back, and what came of runs that made different things under one key.

quarantine/STAGE/CACHE_KEY-RANDOM.json         {withdrawn, reason, pointer}
quarantine/conflicts/STAGE/ARTIFACT_ID.json    both artifacts, and which of their files differ
"""

from __future__ import annotations

import uuid
from typing import Any

from flows.store.backend import StoreBackend
from flows.store.pointers import key_path, now, to_json
from schemas.errors import ArtifactCorruptError, DeterminismError
from schemas.manifest import Manifest
from schemas.sealed import read_sealed

CONFLICTS = "quarantine/conflicts"


def take_back(
    backend: StoreBackend, stage: str, cache_key: str, *, stored: bytes, record: dict[str, Any]
) -> None:
    """Remove a key's pointer, if it still is `stored`, and record why."""
    name = f"{cache_key}-{uuid.uuid4().hex[:8]}"
    data = to_json({"withdrawn": now(), **record})
    backend.create(f"quarantine/{stage}/{name}.json", data)
    backend.remove(key_path(stage, cache_key), expected=stored)


def refuse_conflict(backend: StoreBackend, winner: Manifest, loser: Manifest) -> None:
    """Nothing if two artifacts of one key are the same.

    Raises:
        DeterminismError: they are not, which is recorded.
    """
    if winner.content == loser.content:
        return
    other = {entry.path: entry.sha256 for entry in winner.files}
    mine = {entry.path: entry.sha256 for entry in loser.files}
    paths = sorted({*other, *mine})
    differing = [path for path in paths if other.get(path) != mine.get(path)]
    record = f"{CONFLICTS}/{loser.stage}/{loser.artifact_id}.json"
    conflict = {
        "cache_key": loser.cache_key,
        "published": winner.path,
        "other": loser.path,
        "contents": [winner.content, loser.content],
        "differing_files": differing,
    }
    backend.create(record, to_json(conflict))
    rows = "the same rows" if winner.logical_content == loser.logical_content else "other rows"
    shown = ", ".join(differing[:5]) + (" ..." if len(differing) > 5 else "")
    raise DeterminismError(
        f"{loser.stage}: two runs under the cache key {loser.cache_key[:12]} made different "
        f"files with {rows} ({shown}): {winner.artifact_id} is published, {loser.artifact_id} "
        f"is kept beside it for comparison. The stage depends on something that is not in its "
        f"key; see {backend.url(record)}"
    )


def conflicts(backend: StoreBackend) -> list[dict[str, Any]]:
    """Every recorded conflict with its `stage` and the path of its `record`.

    Raises:
        ArtifactCorruptError: a record cannot be read.
    """
    found = []
    for path in backend.names(CONFLICTS):
        try:
            record = read_sealed(backend.read(path)).value
        except ValueError as error:
            raise ArtifactCorruptError(
                f"{backend.url(path)}: expected the record of a conflict: {error}. Delete the file"
            ) from error
        found.append({"stage": path.split("/")[2], "record": path, **record})
    return found
