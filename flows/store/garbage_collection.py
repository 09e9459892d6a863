"""Garbage collection: delete what nothing retains, in an order that is safe at every moment.

`flows.store.gc_roots` finds what is retained. Unused `work/` folders and work item records, expired
leases, old quarantine records, temporary files of interrupted writes and, on request, records of
older runs are deleted as well.

A run does not write down at once which artifacts it found, and must not lose them. On disk, a
lookup touches the pointer before it trusts it, and everything touched since the oldest active run
started is retained. If a lookup touches a pointer after the scan, the deletion of the pointer
notices: it reads the time of the file after its name is gone, so that each lookup either shows in
this time or finds no pointer. S3 and GCS cannot touch: there, no published artifact is deleted
while a run is active, and the runs are read again after all pointers are gone.

Order of deletion:

1. A tombstone for each published artifact.
2. The pointers, each only if it is what the scan read. From here on, no run finds the artifact,
   while its files are still there for runs that found it before.
3. A second scan. Artifacts that became reachable get their pointer back.
4. Manifest, data, tombstone: no reader sees a manifest with half of its data.

After a crash before step 4, all published artifacts have their inputs. After a crash in step 4, the
next collection continues with the tombstones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from flows.store.artifacts import ArtifactStore
from flows.store.backend import FileInfo, StoreBackend
from flows.store.gc_roots import StoreScan, folders_below, group_by_folder, scan_store
from flows.store.leases import read_lease
from flows.store.pointers import now
from flows.store.records import REMEDIES, parse_record
from flows.store.work_items import blobs_path, finished_item, item_files
from schemas.checksummed import dump_json
from schemas.paths import RelativePath

_TEMPORARY = re.compile(r"(^|/)(\.[^/]+\.[0-9a-f]{32}|[^/]+\.[0-9a-f]{12}\.partial)$")
_UNUSED_SECONDS = 60 * 24 * 3600
"""Age after which a work item record without files is deleted. Longer than between two monthly
rebuilds, which reuse it."""


class Garbage(NamedTuple):
    """File or folder that nothing retains."""

    kind: str
    """`artifact`, `attempt` (never published), `work`, `pieces`, `quarantine`, `lease`, `probe`,
    `leftover` (temporary file, or file of a retried worker) or `run`."""

    path: str
    files: int
    """Number of files."""

    size: int
    """Bytes of the files."""

    freed: int
    """Bytes that deletion frees. Hard-linked files do not count."""

    @classmethod
    def of(cls, kind: str, path: str, files: Mapping[str, FileInfo]) -> Garbage:
        """Return garbage with these files."""
        sizes = [info.size for info in files.values()]
        freed = sum(info.size for info in files.values() if info.links == 1)
        return cls(kind, path, len(sizes), sum(sizes), freed)


class Retained(NamedTuple):
    """Artifact that stays."""

    path: str
    size: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class GarbageReport:
    """Result of a collection. Unless it was a dry run, the garbage is deleted."""

    garbage: tuple[Garbage, ...]
    retained: tuple[Retained, ...]
    restored: tuple[str, ...] = ()
    """Artifacts that came into use in the meantime and stay."""

    notes: tuple[str, ...] = ()
    is_dry_run: bool = True

    @property
    def freed(self) -> int:
        """Total bytes."""
        return sum(item.freed for item in self.garbage)

    def by_kind(self) -> dict[str, tuple[int, int, int]]:
        """Return the number of items, files and freed bytes of each kind."""
        totals: dict[str, tuple[int, int, int]] = {}
        for item in self.garbage:
            items, files, freed = totals.get(item.kind, (0, 0, 0))
            totals[item.kind] = (items + 1, files + item.files, freed + item.freed)
        return totals


def collect_garbage(
    store: ArtifactStore,
    *,
    keep_runs: int,
    grace_hours: float,
    dry_run: bool,
    delete_runs: bool = False,
) -> GarbageReport:
    """Find what nothing retains, and delete it.

    Args:
        store: Store to clean.
        keep_runs: Number of newest runs whose artifacts are retained.
        grace_hours: Age up to which everything is retained. Must be longer than a run takes to
            start, plus the difference between the clocks of the hosts.
        dry_run: Whether to delete nothing.
        delete_runs: Whether to delete the records of older runs as well.

    Raises:
        ArtifactCorruptError: A record that decides what is retained is corrupt. Nothing is deleted.
    """
    collector = _Collector(store, keep_runs=keep_runs, grace_seconds=grace_hours * 3600)
    scan, others = collector.scan, list(_other_garbage(collector, delete_runs=delete_runs))
    restored: set[str] = set()
    if not dry_run:
        restored = collector.delete_artifacts()
        for item in others:
            _delete(store.backend, item)
    deleted = [item for item in collector.artifacts() if item.path not in restored]
    retained = (
        Retained(path, Garbage.of("artifact", path, scan.attempts[path].files).size, reason)
        for path, reason in sorted(scan.reachable.items())
        if path in scan.attempts
    )
    return GarbageReport(
        garbage=(*deleted, *others),
        retained=tuple(retained),
        restored=tuple(sorted(restored)),
        notes=tuple(scan.notes),
        is_dry_run=dry_run,
    )


def _delete(backend: StoreBackend, item: Garbage) -> None:
    if item.kind == "lease":
        stored, holder = read_lease(backend, item.path)
        if stored is not None and holder is None:
            backend.compare_and_delete(item.path, expected=stored)
    elif item.kind in ("work", "run"):
        backend.delete_folder(item.path)
    else:
        backend.delete(item.path)


# Artifacts


class _Tombstone(BaseModel):
    """Record of an artifact that is being deleted."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    location: RelativePath
    started: str
    """ISO 8601, UTC."""

    scanned: float
    """Time of the scan that found the artifact unused, in seconds since the epoch."""

    key: Annotated[RelativePath, Field(pattern="^keys/")]
    """Path of the deleted pointer."""

    pointer: str
    """Content of that pointer."""


class _Collector:
    """First scan of a collection, and the deletion of artifacts."""

    def __init__(self, store: ArtifactStore, *, keep_runs: int, grace_seconds: float) -> None:
        self.store, self.backend = store, store.backend
        self._limits: dict[str, Any] = {"keep_runs": keep_runs, "grace_seconds": grace_seconds}
        self.scan = scan = scan_store(store, **self._limits)
        self.cutoff = scan.time - grace_seconds
        """Seconds since the epoch. Files written later are retained."""

        # An active run can have found what an interrupted collection started to delete.
        tombstones = dict(_tombstones(store))
        _, started = scan.oldest_active
        for location in scan.attempts.keys() & tombstones.keys() - scan.reachable.keys():
            if started < tombstones[location].scanned:
                scan.reachable[location] = "an active run can have found it"
        self.unused = sorted(scan.attempts.keys() - scan.reachable.keys())

    def artifacts(self) -> Iterator[Garbage]:
        """Yield unused artifacts and attempts."""
        for location in self.unused:
            kind = "artifact" if location in self.scan.published else "attempt"
            yield Garbage.of(kind, location, self.scan.attempts[location].files)

    def delete_artifacts(self) -> set[str]:
        """Delete in the order of the module's docstring. Return those that came into use."""
        self._write_tombstones()
        used = self._delete_pointers()
        unused = set(self.unused)
        second = scan_store(self.store, **self._limits, used=used, being_deleted=unused)
        if self.backend.is_remote and set(second.active_runs) - set(self.scan.active_runs):
            used |= unused
        restored = {path for path in self.unused if path in used or path in second.reachable}
        self._restore_pointers(second, restored)
        for location in self.unused:
            if location not in restored:
                self.backend.delete(f"{location}/manifest.json")
                self.backend.delete_folder(location)
                self.backend.delete(_tombstone(location))
        return restored

    def _write_tombstones(self) -> None:
        for location in self.unused:
            key = self.scan.published.get(location)
            if key is not None:  # otherwise never published, or it has a tombstone
                record = _Tombstone(
                    location=location,
                    started=now(),
                    scanned=self.scan.time,
                    key=key.path,
                    pointer=key.stored.decode(),
                )
                self.backend.replace(_tombstone(location), dump_json(record.model_dump()))

    def _delete_pointers(self) -> set[str]:
        """Return the locations whose pointers were used since the scan."""
        used: set[str] = set()
        for location in self.unused:
            if (key := self.scan.published.get(location)) is not None:
                last_used = self.backend.compare_and_delete(key.path, expected=key.stored)
                if last_used is None:  # quarantined or replaced: left to a later collection
                    self.backend.delete(_tombstone(location))
                if last_used is None or last_used > key.used:
                    used.add(location)
        return used

    def _restore_pointers(self, scan: StoreScan, restored: set[str]) -> None:
        """Restore the pointers of what is reachable, also those of an interrupted collection."""
        for location, tombstone in list(_tombstones(self.store)):
            is_deleted = location not in scan.attempts
            if location in restored or location in scan.reachable or is_deleted:
                if not is_deleted:
                    self.backend.put_if_absent(tombstone.key, tombstone.pointer.encode())
                self.backend.delete(_tombstone(location))


def _tombstone(location: str) -> str:
    return f"tombstones/{location.rpartition('/')[2]}.json"


def _tombstones(store: ArtifactStore) -> Iterator[tuple[str, _Tombstone]]:
    for path in store.backend.names("tombstones"):
        if (stored := store.backend.read_if_exists(path)) is not None:
            record = parse_record(_Tombstone, stored, backend=store.backend, path=path)
            yield record.location, record


# Other files


def _other_garbage(collector: _Collector, *, delete_runs: bool) -> Iterator[Garbage]:
    backend, scan, cutoff = collector.backend, collector.scan, collector.cutoff
    yield from _work_folders(collector)
    yield from _work_items(collector)
    for path in backend.names("leases"):
        stored, holder = read_lease(backend, path)
        if stored is not None and holder is None:
            yield Garbage("lease", path, 1, len(stored), len(stored))
    for folder in (*(REMEDIES.keys() - {"artifacts"}), "probe"):
        for path, info in backend.stat(folder).items():
            is_temporary = _TEMPORARY.search(path) is not None
            if info.modified <= cutoff and (is_temporary or folder in ("quarantine", "probe")):
                yield Garbage.of("leftover" if is_temporary else folder, path, {path: info})
    for location, listed in sorted(scan.listed.items()):
        if location in scan.published:  # others can be in the middle of publication
            for path, info in scan.attempts[location].files.items():
                if path not in listed and info.modified <= cutoff:
                    yield Garbage.of("leftover", path, {path: info})
    if delete_runs:
        for folder, files in sorted(group_by_folder(backend.stat("runs"), 1).items()):
            if folder.split("/")[1] not in scan.retained_runs:
                yield Garbage.of("run", folder, files)


def _work_folders(collector: _Collector) -> Iterator[Garbage]:
    for folder, (files, written) in folders_below(collector.backend, "work").items():
        _, stage, cache_key = folder.split("/")
        if written <= collector.cutoff and (stage, cache_key) not in collector.scan.leased:
            yield Garbage.of("work", folder, files)


def _work_items(collector: _Collector) -> Iterator[Garbage]:
    """Yield records whose files are gone, and records of parts of finished items."""
    scan, unused = collector.scan, set(collector.unused)
    retained = (folder for location, folder in scan.attempts.items() if location not in unused)
    existing = {path for folder in retained for path in folder.files}
    records = collector.backend.stat("pieces")
    for path, info in records.items():
        if info.modified > collector.cutoff or not path.endswith(".json"):
            continue
        try:
            artifacts = item_files(collector.backend, path)
        except FileNotFoundError:
            continue
        is_recent = info.modified > collector.cutoff - _UNUSED_SECONDS
        is_usable = any(existing.issuperset(names) and (names or is_recent) for names in artifacts)
        if not is_usable or finished_item(path) in records:
            for name in (path, blobs_path(path)):
                if name in records:
                    yield Garbage.of("pieces", name, {name: records[name]})
