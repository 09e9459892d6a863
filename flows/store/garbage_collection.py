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

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from flows.store.activity import ActiveRun
from flows.store.artifacts import ArtifactStore
from flows.store.backend import FileInfo, StoreBackend
from flows.store.gc_roots import StoreScan, group_by_folder, last_write, scan_store
from flows.store.leases import Lease, acquire_or_holder, read_lease
from flows.store.pointers import tombstone_path
from flows.store.records import REMEDIES
from flows.store.work_items import blobs_path, finished_item, item_files

_TEMPORARY = re.compile(r"(^|/)(\.[^/]+\.[0-9a-f]{32}|[^/]+\.[0-9a-f]{12}\.partial)$")
_UNUSED_SECONDS = 60 * 24 * 3600
"""Age after which a work item record without files is deleted. Longer than between two monthly
rebuilds, which reuse it."""


class Garbage(NamedTuple):
    """File or folder that nothing retains."""

    kind: str
    """`artifact`, `attempt` (never published), `work`, `pieces`, `quarantine`, `lease`, `probe`,
    `leftover` (temporary file) or `run`."""

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
    rescan = functools.partial(
        scan_store, store, keep_runs=keep_runs, grace_seconds=grace_hours * 3600
    )
    scan = rescan()
    unused = {
        location: Garbage.of(
            "artifact" if location in scan.published else "attempt", location, files
        )
        for location, files in scan.attempts.items()
        if location not in scan.reachable
    }
    others = list(_other_garbage(store, scan, unused, delete_runs=delete_runs))
    restored: set[str] = set()
    if not dry_run:
        restored = _delete_artifacts(store, scan, unused.keys(), rescan)
        for item in others:
            _delete(store, item)
    retained = (
        Retained(path, sum(info.size for info in scan.attempts[path].values()), reason)
        for path, reason in sorted(scan.reachable.items())
        if path in scan.attempts
    )
    return GarbageReport(
        garbage=(*(item for path, item in unused.items() if path not in restored), *others),
        retained=tuple(retained),
        restored=tuple(sorted(restored)),
        notes=tuple(scan.notes),
    )


def _delete_artifacts(
    store: ArtifactStore,
    scan: StoreScan,
    unused: Set[str],
    rescan: Callable[..., StoreScan],
) -> set[str]:
    """Delete in the order of the module's docstring. Return those that came into use."""
    backend = store.backend
    published = {location: scan.published[location] for location in unused & scan.published.keys()}
    for pointer, _ in published.values():
        backend.replace(tombstone_path(pointer.artifact_id), pointer.to_json())
    used = set()
    for location, (pointer, used_before) in published.items():
        last_used = store.delete_if_equal(pointer.path, pointer)
        if last_used is None:  # quarantined or replaced: left to a later collection
            backend.delete(tombstone_path(pointer.artifact_id))
        if last_used is None or last_used > used_before:
            used.add(location)
    second = rescan(used=used, being_deleted=unused)
    if backend.is_remote and second.active_runs - scan.active_runs:
        used.update(unused)
    restored = {location for location in unused if location in used | second.reachable.keys()}
    _restore_pointers(backend, second, restored | second.reachable.keys())
    for location in unused - restored:
        backend.delete(f"{location}/manifest.json")
        backend.delete_folder(location)
        backend.delete(tombstone_path(location.rpartition("/")[2]))
    return restored


def _restore_pointers(backend: StoreBackend, scan: StoreScan, retained: Collection[str]) -> None:
    """Restore the pointers of retained artifacts, also those of an interrupted collection."""
    for path, pointer in scan.tombstones.items():
        if pointer.location in scan.attempts:
            if pointer.location not in retained:
                continue
            backend.put_if_absent(pointer.path, pointer.to_json())
        backend.delete(path)


def _delete(store: ArtifactStore, item: Garbage) -> None:
    backend = store.backend
    if item.kind == "lease":
        stored, holder = read_lease(store, item.path)
        if stored is not None and holder is None:
            backend.compare_and_delete(item.path, expected=stored)
    elif item.kind == "work":
        _delete_work(store, item.path)
    elif item.kind == "run":
        backend.delete_folder(item.path)
    else:
        backend.delete(item.path)


def _delete_work(store: ArtifactStore, path: str) -> None:
    """Delete a folder of checkpoints under the lease of its key, unless a run holds the lease."""
    _, stage, cache_key = path.split("/")
    with ActiveRun(store, "gc") as run, acquire_or_holder(run, stage, cache_key) as lease:
        if isinstance(lease, Lease):
            store.clear_work(stage, cache_key)


# Other files


def _other_garbage(
    store: ArtifactStore, scan: StoreScan, unused: Collection[str], *, delete_runs: bool
) -> Iterator[Garbage]:
    backend = store.backend
    for folder, files in group_by_folder(backend.stat("work"), 2).items():
        if last_write(files) <= scan.cutoff and not scan.active_runs:  # a run can resume from it
            yield Garbage.of("work", folder, files)
    yield from _work_items(backend, scan, unused)
    for path in backend.names("leases"):
        stored, holder = read_lease(store, path)
        if stored is not None and holder is None:
            yield Garbage("lease", path, 1, len(stored), len(stored))
    for folder in ("probe", *REMEDIES):
        for path, info in backend.stat(folder).items() if folder != "artifacts" else ():
            is_temporary = _TEMPORARY.search(path) is not None
            if info.modified <= scan.cutoff and (is_temporary or folder in ("quarantine", "probe")):
                yield Garbage.of("leftover" if is_temporary else folder, path, {path: info})
    if delete_runs:
        for folder, files in group_by_folder(backend.stat("runs"), 1).items():
            if folder.split("/")[1] not in scan.retained_runs:
                yield Garbage.of("run", folder, files)


def _work_items(
    backend: StoreBackend, scan: StoreScan, unused: Collection[str]
) -> Iterator[Garbage]:
    """Yield records whose files are gone, and records of parts of finished items."""
    retained = (files for location, files in scan.attempts.items() if location not in unused)
    existing = {path for files in retained for path in files}
    records = backend.stat("pieces")
    for path, info in records.items():
        if info.modified > scan.cutoff or not path.endswith(".json"):
            continue
        is_recent = info.modified > scan.cutoff - _UNUSED_SECONDS
        is_usable = any(
            existing.issuperset(names) and (names or is_recent)
            for names in item_files(backend, path)
        )
        if not is_usable or finished_item(path) in records:
            for name in (path, blobs_path(path)):
                if name in records:
                    yield Garbage.of("pieces", name, {name: records[name]})
