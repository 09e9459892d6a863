"""Content of a store and what retains it: the first half of garbage collection, which only reads.

Retained is everything upstream of

* refs,
* the last runs and the active runs,
* artifacts built or found within the grace period or since the oldest active run started,
* attempts written within the grace period.

While a run is active, all attempts and `work/` folders are retained. S3 and GCS do not record when
an artifact was found: there, an active run retains every published artifact.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import NamedTuple

from flows.store.artifacts import ArtifactStore
from flows.store.backend import FileInfo
from flows.store.pointers import Pointer
from flows.store.records import load_records
from flows.store.runs import RunRecord, list_runs
from schemas.errors import ArtifactNotFoundError

_MAX_CLOCK_DIFFERENCE = 60.0

Root = tuple[str, str]
"""Retained location with the reason."""

Files = dict[str, FileInfo]
"""Files by path in the store."""


class PublishedArtifact(NamedTuple):
    """Artifact with a pointer."""

    pointer: Pointer
    used: float
    """When it was published or last found, in seconds since the epoch."""


@dataclass
class StoreScan:
    """State of a store. Locations are `artifacts/STAGE/ID`."""

    cutoff: float
    """Seconds since the epoch. What was written or used later is retained."""

    tombstones: dict[str, Pointer]
    """Deleted pointers of artifacts that are being deleted, by path of the tombstone."""

    attempts: dict[str, Files] = field(default_factory=dict)
    """Files of every artifact and attempt, by location."""

    published: dict[str, PublishedArtifact] = field(default_factory=dict)
    """Artifacts with a pointer, by location."""

    reachable: dict[str, str] = field(default_factory=dict)
    """Reason why a location is retained. Other locations are garbage."""

    active_runs: set[str] = field(default_factory=set)
    retained_runs: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """Information for the user."""


def scan_store(
    store: ArtifactStore,
    *,
    keep_runs: int,
    grace_seconds: float,
    used: Iterable[str] = (),
    being_deleted: Collection[str] = (),
) -> StoreScan:
    """Read the state of a store and what is retained.

    Args:
        store: Store to scan.
        keep_runs: Number of newest runs whose artifacts are retained.
        grace_seconds: Age up to which everything is retained.
        used: Locations to retain with everything upstream.
        being_deleted: Locations whose pointers were just removed.

    Raises:
        ArtifactCorruptError: A reachable manifest, a ref or a tombstone is corrupt.
    """
    tombstones = load_records(store.backend, Pointer, "tombstones")
    scan = StoreScan(time.time() - grace_seconds, tombstones)
    roots = [(location, "found by a run just now") for location in used]
    roots += [*_named(store), *_used_by_runs(store, scan, keep_runs=keep_runs)]
    scan.attempts = group_by_folder(store.backend.stat("artifacts"), 2)
    scan.published = _published(store)
    roots += _recently_used(scan, is_remote=store.backend.is_remote, being_deleted=being_deleted)
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
        if record.state == "running":
            started = datetime.fromisoformat(record.started).timestamp()
            scan.cutoff = min(scan.cutoff, started - _MAX_CLOCK_DIFFERENCE)
            scan.active_runs.add(run_id)
            scan.retained_runs.add(run_id)
            scan.notes.append(
                f"run {run_id} on {record.host} is active and retains its artifacts, on S3 and GCS "
                "every published one. If it has ended, run `bertloom runs --mark-crashed`"
            )
        for step in record.steps if run_id in scan.retained_runs else ():
            yield _location(step.manifest), f"run {run_id}"


def _published(store: ArtifactStore) -> dict[str, PublishedArtifact]:
    files, published = store.backend.stat("keys"), {}
    for pointer in store.pointers():
        info = files.get(pointer.path)  # None: written since the listing
        published[pointer.location] = PublishedArtifact(pointer, info.modified if info else inf)
    return published


def _recently_used(
    scan: StoreScan, *, is_remote: bool, being_deleted: Collection[str]
) -> Iterator[Root]:
    run_id = min(scan.active_runs, default="")  # the oldest: ids start with the time
    since = "within the grace period" + (f" or since run {run_id} started" if run_id else "")
    for location, files in scan.attempts.items():
        artifact = scan.published.get(location)
        if artifact is not None and artifact.used > scan.cutoff:
            yield location, f"built or found {since}"
        elif artifact is None and location in being_deleted:
            continue
        elif artifact is None and last_write(files) > scan.cutoff:
            yield location, f"written {since}"
        elif run_id and (artifact is None or is_remote):
            # It may write the attempt, or have found an artifact before an interrupted collection.
            yield location, f"run {run_id} is active"


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
        elif path in scan.attempts[location]:  # otherwise it is being written
            try:
                manifest = store.read_manifest(path)
            except ArtifactNotFoundError:  # quarantined or deleted since the listing
                continue
            upstream = f"input of {location} ({reason})"
            inputs = [ref.manifest for ref in manifest.inputs if not ref.store]
            queue += [(_location(path), upstream) for path in inputs]
