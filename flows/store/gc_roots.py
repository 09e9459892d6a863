"""Content of a store and what retains it: the first half of garbage collection, which only reads.

Retained is everything upstream of

* refs and pins,
* the last runs and the active runs,
* artifacts built or found, and attempts written, within the grace period or since the oldest active
  run started. S3 and GCS do not record when an artifact was found: there, an active run retains
  every published artifact,
* cache keys with a live lease, and attempts of their stages.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from flows.formatting import format_duration
from flows.store.artifacts import CARD, ArtifactStore
from flows.store.backend import FileInfo, StoreBackend
from flows.store.leases import live_holders
from flows.store.pointers import Pointer, parse_pointer
from flows.store.runs import RunRecord, check_liveness, last_heartbeats, read_runs, run_ids
from schemas.errors import ArtifactNotFoundError

_MAX_CLOCK_DIFFERENCE = 60.0

Roots = Iterator[tuple[str, str]]
"""Retained locations with the reason."""


class Folder(NamedTuple):
    """Folder that one step writes and that is deleted as a whole."""

    files: dict[str, FileInfo]
    """Files by path in the store."""

    written: float
    """Last write in seconds since the epoch."""


class PublishedKey(NamedTuple):
    """Pointer of a cache key."""

    path: str
    stored: bytes
    pointer: Pointer
    used: float
    """When it was written or its artifact was last found, in seconds since the epoch."""


@dataclass
class StoreScan:
    """State of a store. Locations are `artifacts/STAGE/ID`."""

    time: float
    """Seconds since the epoch."""

    leased: set[tuple[str, str]]
    """Stage and cache key of each live lease."""

    attempts: dict[str, Folder] = field(default_factory=dict)
    """Every artifact and attempt, by location."""

    published: dict[str, PublishedKey] = field(default_factory=dict)
    """Pointers by location."""

    reachable: dict[str, str] = field(default_factory=dict)
    """Reason why a location is retained. Other locations are garbage."""

    listed: dict[str, set[str]] = field(default_factory=dict)
    """Paths of the files of each reachable artifact."""

    active_runs: dict[str, float] = field(default_factory=dict)
    """Start of each active run, by id."""

    retained_runs: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """Information for the user."""

    @property
    def oldest_active(self) -> tuple[str, float]:
        """Id and start of the oldest active run; "" and infinity for none."""
        runs = self.active_runs.items()
        return min(runs, key=lambda item: item[1], default=("", float("inf")))


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
        ArtifactCorruptError: A reachable manifest, a ref or a pin is corrupt.
    """
    scan = StoreScan(time.time(), set(live_holders(store)))
    roots = dict.fromkeys(used, "found by a run just now")
    cutoff = scan.time - grace_seconds

    def add(more: Roots) -> None:
        for location, reason in more:
            roots.setdefault(location, reason)

    add(_named(store))
    add(_used_by_runs(store, scan, keep_runs=keep_runs))
    scan.attempts = folders_below(store.backend, "artifacts")
    scan.published = _published(store)
    add(_recently_used(scan, cutoff, is_remote=store.backend.is_remote))
    add(_recently_written(scan, cutoff, being_deleted))
    _mark(store, scan, roots)
    return scan


def group_by_folder(files: Mapping[str, FileInfo], depth: int) -> dict[str, dict[str, FileInfo]]:
    """Group files by their folder at a depth below the root."""
    grouped: dict[str, dict[str, FileInfo]] = defaultdict(dict)
    for path, info in files.items():
        grouped["/".join(path.split("/")[: depth + 1])][path] = info
    return grouped


def folders_below(backend: StoreBackend, top: str) -> dict[str, Folder]:
    """Return each folder `TOP/STAGE/NAME`, on disk also empty ones."""
    grouped = group_by_folder(backend.stat(top), 2)
    times = {
        folder: modified
        for stage in backend.folders(top)
        for folder, modified in backend.folders(stage).items()
    }
    folders = {}
    for name in sorted({*grouped, *times}):
        files = grouped.get(name, {})
        written = max(times.get(name, 0.0), *(info.modified for info in files.values()), 0.0)
        folders[name] = Folder(files, written)
    return folders


def _location(manifest: str) -> str:
    return manifest.rpartition("/")[0]


def _named(store: ArtifactStore) -> Roots:
    for name in store.refs():
        if (pointer := store.ref(name)) is not None:
            for path in pointer.manifests:
                yield _location(path), f"ref {name}"
    for artifact_id, pin in store.pins().items():
        yield _location(pin.pointer.manifest), f"pin {artifact_id}: {pin.reason}"


def _used_by_runs(store: ArtifactStore, scan: StoreScan, *, keep_runs: int) -> Roots:
    heartbeats, ids = last_heartbeats(store), run_ids(store)
    scan.retained_runs = set(ids[max(len(ids) - keep_runs, 0) :])
    for run_id, record in read_runs(store, ids).items():
        if not isinstance(record, RunRecord):
            scan.notes.append(str(record))
            continue
        # A run that has just started is not listed yet.
        silence = max(scan.time - heartbeats.get(run_id, scan.time), 0.0)
        if record.state == "running" and not check_liveness(record, silence=silence).is_over:
            scan.active_runs[run_id] = datetime.fromisoformat(record.started).timestamp()
            scan.retained_runs.add(run_id)
            scan.notes.append(
                f"run {run_id} on {record.host} is active (last heartbeat "
                f"{format_duration(silence)} ago) and retains its artifacts, on S3 and GCS every "
                "published one. If it has ended, run `bertloom runs --mark-crashed`"
            )
        for step in record.steps if run_id in scan.retained_runs else ():
            yield _location(step.manifest), f"run {run_id}"


def _published(store: ArtifactStore) -> dict[str, PublishedKey]:
    published, files = {}, store.backend.stat("keys")
    for path, stored in store.backend.read_many(files).items():
        if (pointer := parse_pointer(stored)) is not None:
            committed = datetime.fromisoformat(pointer.committed).timestamp()
            used = max(committed, files[path].modified)
            published[_location(pointer.manifest)] = PublishedKey(path, stored, pointer, used)
    return published


def _recently_used(scan: StoreScan, cutoff: float, *, is_remote: bool) -> Roots:
    run_id, started = scan.oldest_active
    for location, key in scan.published.items():
        if key.used > cutoff:
            yield location, "built or found within the grace period"
        elif run_id and is_remote:
            yield location, f"run {run_id} is active"
        elif key.used > started - _MAX_CLOCK_DIFFERENCE:
            yield location, f"built or found since run {run_id} started"
        elif (key.pointer.stage, key.pointer.cache_key) in scan.leased:
            yield location, "its cache key is leased"


def _recently_written(scan: StoreScan, cutoff: float, being_deleted: Collection[str]) -> Roots:
    run_id, started = scan.oldest_active
    leased_stages = {stage for stage, _ in scan.leased}
    for location, (_, written) in scan.attempts.items():
        if location in scan.published or location in being_deleted:
            continue
        if written > cutoff:
            yield location, "written within the grace period"
        elif location.split("/")[1] in leased_stages:
            yield location, "its stage is being built"
        elif written > started - _MAX_CLOCK_DIFFERENCE:
            yield location, f"written since run {run_id} started"


def _mark(store: ArtifactStore, scan: StoreScan, roots: Mapping[str, str]) -> None:
    queue = deque(roots.items())
    while queue:
        location, reason = queue.popleft()
        if location in scan.reachable or not location.startswith("artifacts/"):
            continue
        scan.reachable[location] = reason
        path = f"{location}/manifest.json"
        if location not in scan.attempts:
            scan.notes.append(f"{reason}: points to {store.url(location)}, which does not exist")
        elif path in scan.attempts[location].files:  # otherwise it is being written
            try:
                manifest = store.read_manifest(path)
            except ArtifactNotFoundError:  # quarantined or deleted since the listing
                continue
            scan.listed[location] = {path, f"{location}/{CARD}"} | {
                f"{manifest.data_path}/{entry.stored_name}" for entry in manifest.files
            }
            upstream = f"input of {location} ({reason})"
            queue += [(_location(ref.manifest), upstream) for ref in manifest.inputs]
