"""Garbage collection: delete what nothing retains, while no run is alive.

`flows.store.gc_roots` finds which artifacts are retained. Unused `work/` folders and work item
records, leases and heartbeats of ended runs, old quarantine records, temporary files of interrupted
writes and, on request, records of older runs are deleted as well.

The pointers of all artifacts are deleted first, then each manifest before its data: no reader sees
a pointer or a manifest with half of its data. What a crash leaves behind has no pointer, and the
next collection deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flows.store.activity import CollectionLock, heartbeat_path, read_heartbeats
from flows.store.artifacts import ArtifactStore
from flows.store.backend import FileInfo, StoreBackend
from flows.store.gc_roots import StoreScan, group_by_folder, last_write, scan_store
from flows.store.leases import read_lease
from flows.store.work_items import item_files

_FOLDER_KINDS = ("artifact", "attempt", "work", "run")
_OUTDATED = ("quarantine", "probe", "machines")
"""Folders whose records are deleted after the grace period."""

_RECORD_FOLDERS = ("active", "keys", "leases", "pieces", "refs", "reports", "runs")
_TEMPORARY = re.compile(r"(^|/)(\.[^/]+\.[0-9a-f]{32}|[^/]+\.[0-9a-f]{12}\.partial)$")
_PAGE = re.compile(r"^reports/[^/]+/([0-9a-f]{16})\.html$")
_UNUSED_SECONDS = 60 * 24 * 3600
"""Age after which a work item record without files is deleted. Longer than between two monthly
rebuilds, which reuse it."""


class Garbage(NamedTuple):
    """File or folder that nothing retains."""

    kind: str
    """`artifact`, `attempt` (never published), `work`, `pieces`, `quarantine`, `lease`, `active`
    (heartbeat of a run that crashed), `probe`, `machines`, `leftover` (temporary file), `run` or
    `page` (of an artifact in a report)."""

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
    """Result of a collection."""

    garbage: tuple[Garbage, ...]
    retained: tuple[Retained, ...]
    notes: tuple[str, ...]

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


def find_garbage(
    store: ArtifactStore, *, keep_runs: int, grace_hours: float, delete_runs: bool = False
) -> GarbageReport:
    """Find what nothing retains.

    Args:
        store: Store to clean.
        keep_runs: Number of newest runs whose artifacts are retained.
        grace_hours: Age up to which everything is retained.
        delete_runs: Whether the records of older runs are garbage as well.

    Raises:
        ArtifactCorruptError: A record that decides what is retained is corrupt.
    """
    scan = scan_store(store, keep_runs=keep_runs, grace_seconds=grace_hours * 3600)
    unused = [
        Garbage.of("artifact" if location in scan.published else "attempt", location, files)
        for location, files in scan.attempts.items()
        if location not in scan.reachable
    ]
    retained = (
        Retained(path, sum(info.size for info in scan.attempts[path].values()), reason)
        for path, reason in sorted(scan.reachable.items())
        if path in scan.attempts
    )
    return GarbageReport(
        garbage=(*unused, *_other_garbage(store, scan, delete_runs=delete_runs)),
        retained=tuple(retained),
        notes=tuple(scan.notes),
    )


def collect_garbage(
    store: ArtifactStore,
    *,
    keep_runs: int,
    grace_hours: float,
    delete_runs: bool = False,
    lock: CollectionLock,
) -> GarbageReport:
    """Delete what `find_garbage` finds.

    Args:
        store, keep_runs, grace_hours, delete_runs: See `find_garbage`.
        lock: Lock of the store, not held yet.

    Raises:
        StoreBusyError: A run is alive. Nothing is deleted.
        ArtifactCorruptError: A record that decides what is retained is corrupt. Nothing is deleted.
    """
    with lock:
        report = find_garbage(
            store, keep_runs=keep_runs, grace_hours=grace_hours, delete_runs=delete_runs
        )
        _delete(store, report.garbage, lock)
    return report


def _delete(store: ArtifactStore, garbage: Sequence[Garbage], lock: CollectionLock) -> None:
    """Delete in the order of the module's docstring."""
    locations = {item.path for item in garbage if item.kind == "artifact"}
    for pointer in store.pointers():
        if pointer.location in locations:
            lock.check()
            store.backend.delete(pointer.path)
    for item in garbage:
        lock.check()
        if item.path in locations:
            store.backend.delete(f"{item.path}/manifest.json")
        if item.kind in _FOLDER_KINDS:
            store.backend.delete_folder(item.path)
        else:
            store.backend.delete(item.path)


# Other files


def _other_garbage(
    store: ArtifactStore, scan: StoreScan, *, delete_runs: bool
) -> Iterator[Garbage]:
    for folder, files in group_by_folder(store.backend.stat("work"), 2).items():
        if last_write(files) <= scan.cutoff:
            yield Garbage.of("work", folder, files)
    yield from _work_items(store.backend, scan)
    yield from _ended_runs(store)
    yield from _old_files(store.backend, scan)
    if delete_runs:
        for folder, files in group_by_folder(store.backend.stat("runs"), 1).items():
            if folder.split("/")[1] not in scan.retained_runs:
                yield Garbage.of("run", folder, files)
        yield from _pages(store.backend, scan)


def _pages(backend: StoreBackend, scan: StoreScan) -> Iterator[Garbage]:
    """Yield the pages of deleted artifacts, which only reports of deleted runs link to."""
    ids = {location.rpartition("/")[2] for location in scan.reachable}
    for path, info in backend.stat("reports").items():
        if (match := _PAGE.search(path)) and match[1] not in ids and info.modified <= scan.cutoff:
            yield Garbage.of("page", path, {path: info})


def _ended_runs(store: ArtifactStore) -> Iterator[Garbage]:
    """Yield the heartbeats of crashed runs, and leases that are free."""
    for name, heartbeat in read_heartbeats(store).items():
        if not heartbeat.is_live:
            size = len(heartbeat.to_json())
            yield Garbage("active", heartbeat_path(name), 1, size, size)
    for path in store.backend.names("leases"):
        stored, holder = read_lease(store, path)
        if stored is not None and holder is None:
            yield Garbage("lease", path, 1, len(stored), len(stored))


def _old_files(backend: StoreBackend, scan: StoreScan) -> Iterator[Garbage]:
    """Yield temporary files, and files that are only information."""
    for folder in (*_OUTDATED, *_RECORD_FOLDERS):
        for path, info in backend.stat(folder).items():
            is_temporary = _TEMPORARY.search(path) is not None
            if info.modified <= scan.cutoff and (is_temporary or folder in _OUTDATED):
                yield Garbage.of("leftover" if is_temporary else folder, path, {path: info})


def _work_items(backend: StoreBackend, scan: StoreScan) -> Iterator[Garbage]:
    """Yield records whose files are gone."""
    retained = scan.reachable.keys() & scan.attempts.keys()
    existing = {path for location in retained for path in scan.attempts[location]}
    for path, info in backend.stat("pieces").items():
        if info.modified > scan.cutoff or not path.endswith(".json"):
            continue
        is_recent = info.modified > scan.cutoff - _UNUSED_SECONDS
        is_usable = any(
            existing.issuperset(names) and (names or is_recent)
            for names in item_files(backend, path)
        )
        if not is_usable:
            yield Garbage.of("pieces", path, {path: info})
