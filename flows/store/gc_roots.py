"""Content of a store and what retains it: the first half of garbage collection, which only reads.

Retained is everything upstream of

* refs,
* the last runs,
* artifacts and attempts written within the grace period.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flows.store.activity import live_runs
from flows.store.artifacts import ArtifactStore
from flows.store.backend import FileInfo
from flows.store.runs import RunRecord, list_runs
from schemas.errors import ArtifactNotFoundError

Root = tuple[str, str]
"""Retained location with the reason."""

Files = dict[str, FileInfo]
"""Files by path in the store."""


@dataclass
class StoreScan:
    """State of a store. Locations are `artifacts/STAGE/ID`."""

    cutoff: float
    """Seconds since the epoch. What was written later is retained."""

    attempts: dict[str, Files] = field(default_factory=dict)
    """Files of every artifact and attempt, by location."""

    published: set[str] = field(default_factory=set)
    """Locations of artifacts with a pointer."""

    reachable: dict[str, str] = field(default_factory=dict)
    """Reason why a location is retained. Other locations are garbage."""

    retained_runs: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """Information for the user."""


def scan_store(store: ArtifactStore, *, keep_runs: int, grace_seconds: float) -> StoreScan:
    """Read the state of a store and what is retained.

    Args:
        store: Store to scan.
        keep_runs: Number of newest runs whose artifacts are retained.
        grace_seconds: Age up to which everything is retained.

    Raises:
        ArtifactCorruptError: A reachable manifest, a ref or a heartbeat is corrupt.
    """
    scan = StoreScan(time.time() - grace_seconds)
    scan.notes += [f"{run} is active: --delete refuses until it ends" for run in live_runs(store)]
    roots = [*_named(store), *_used_by_runs(store, scan, keep_runs=keep_runs)]
    scan.attempts = group_by_folder(store.backend.stat("artifacts"), 2)
    scan.published = {pointer.location for pointer in store.pointers()}
    for location, files in scan.attempts.items():
        if last_write(files) > scan.cutoff:
            roots.append((location, "written within the grace period"))
    _mark_reachable(store, scan, roots)
    return scan


def group_by_folder(files: Mapping[str, FileInfo], depth: int) -> dict[str, Files]:
    """Group files by their folder at a depth below the root, sorted."""
    grouped: dict[str, Files] = defaultdict(dict)
    for path, info in sorted(files.items()):
        grouped["/".join(path.split("/")[: depth + 1])][path] = info
    return grouped


def last_write(files: Files) -> float:
    """Return when the last of some files was written, in seconds since the epoch."""
    return max(info.modified for info in files.values())


def _location(manifest: str) -> str:
    return manifest.rpartition("/")[0]


def _named(store: ArtifactStore) -> Iterator[Root]:
    for name, pointer in store.ref_pointers().items():
        for path in pointer.manifests:
            yield _location(path), f"ref {name}"


def _used_by_runs(store: ArtifactStore, scan: StoreScan, *, keep_runs: int) -> Iterator[Root]:
    records = list_runs(store)  # newest first
    scan.retained_runs = set(list(records)[:keep_runs])
    for run_id, record in records.items():
        if not isinstance(record, RunRecord):
            scan.notes.append(str(record))
            continue
        for step in record.steps if run_id in scan.retained_runs else ():
            yield _location(step.manifest), f"run {run_id}"


def _mark_reachable(store: ArtifactStore, scan: StoreScan, roots: Iterable[Root]) -> None:
    queue = deque(roots)
    while queue:
        location, reason = queue.popleft()
        if location in scan.reachable:
            continue
        scan.reachable[location] = reason
        path = f"{location}/manifest.json"
        if location not in scan.attempts:
            scan.notes.append(f"{reason}: points to {store.url(location)}, which does not exist")
        elif path in scan.attempts[location]:  # otherwise it is an attempt
            try:
                manifest = store.read_manifest(path)
            except ArtifactNotFoundError:  # deleted since the listing
                continue
            upstream = f"input of {location} ({reason})"
            inputs = [ref.manifest for ref in manifest.inputs if not ref.store]
            queue += [(_location(path), upstream) for path in inputs]
