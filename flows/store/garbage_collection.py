"""Collecting garbage: deleting what nothing needs, in an order that is safe at every moment.

What is kept, and why, is found by `flows.store.gc_roots`. Besides artifacts, these go: `work/`
folders and records of pieces that nothing needs any more, expired leases, old records of
quarantine, what a write that was cut off left behind, and, if asked for, records of older runs.

A run that finds an artifact writes that down nowhere until it ends, so that it must not be deleted
under its hands. On a disk a lookup touches the pointer, and only then believes it. Whatever was
touched since the oldest run that is going on began is kept. A pointer that is touched after the
scan is noticed as it is removed: its time is read from the file after its name is gone, so that
a lookup either was before, and shows, or finds no pointer and builds anew. S3 and GCS have no
touching; there no published artifact is deleted while a run is going on, and the runs are looked
at again once all pointers are away.

The order of deletion:

1. a tombstone for each published artifact, which says what is being deleted;
2. the pointers, each only if it still is what the scan read: from here on no run finds the
   artifact, while all its bytes are there for who found it before;
3. a second scan: artifacts that a ref, a pin, a run or another artifact's inputs lead to by now
   get their pointer back;
4. manifest, then data, then tombstone. Who follows a path to it finds no manifest, never half of
   the data.

Killed before 4, everything that is published still has its inputs. Killed in 4, what is left has a
tombstone and no pointer, and the next collection goes on with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from flows.store.artifacts import ArtifactStore
from flows.store.backend import FileInfo, StoreBackend
from flows.store.gc_roots import StoreScan, by_folder, folders_of, scan_store
from flows.store.leases import read_lease
from flows.store.pointers import now
from flows.store.records import KINDS, parse_record
from flows.store.work_items import blobs_of, finished_piece, piece_files
from schemas.paths import RelativePath
from schemas.sealed import sealed_json

# What a write that was cut off leaves, here and where pieces are recorded.
_CUT_OFF = re.compile(r"(^|/)(\.[^/]+\.[0-9a-f]{32}|[^/]+\.[0-9a-f]{12}\.partial)$")
_UNUSED_SECONDS = 60 * 24 * 3600
"""A record of counts alone has no file to be missing: it goes when nothing has used it for longer
than a monthly rebuild leaves it alone."""


class Garbage(NamedTuple):
    """Something that nothing needs."""

    kind: str
    """`artifact`, `attempt` (never published), `work`, `pieces`, `quarantine`, `lease`, `probe`,
    `leftover` (of a write that was cut off, or of a worker that was repeated), `run`."""

    path: str
    """A file or folder, relative to the root of the store."""

    files: int
    size: int
    """Bytes of the files."""

    freed: int
    """Bytes that come free: a file that has another name elsewhere does not count."""


class Retained(NamedTuple):
    """An artifact that stays."""

    path: str
    size: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class GarbageReport:
    """What a collection found, and, unless it was dry, deleted."""

    garbage: tuple[Garbage, ...]
    kept: tuple[Retained, ...]
    restored: tuple[str, ...] = ()
    """Artifacts that came into use meanwhile, and were left as they were."""

    notes: tuple[str, ...] = ()
    is_dry_run: bool = True

    @property
    def freed(self) -> int:
        """Bytes in all."""
        return sum(item.freed for item in self.garbage)

    def by_kind(self) -> dict[str, tuple[int, int, int]]:
        """Things, files and bytes that come free, by kind."""
        found: dict[str, tuple[int, int, int]] = {}
        for item in self.garbage:
            things, files, freed = found.get(item.kind, (0, 0, 0))
            found[item.kind] = (things + 1, files + item.files, freed + item.freed)
        return found


def collect_garbage(
    store: ArtifactStore,
    *,
    keep_runs: int,
    grace_hours: float,
    dry_run: bool,
    delete_runs: bool = False,
) -> GarbageReport:
    """Find what nothing needs, and delete it unless `dry_run`.

    Args:
        store: what to clean.
        keep_runs: how many of the newest runs keep what they made or found.
        grace_hours: how long everything is kept after it was made or found. It has to be longer
            than any run of another machine whose clock differs takes to start.
        dry_run: only say what would be deleted.
        delete_runs: also delete the records of older runs.

    Raises:
        ArtifactCorruptError: something that is kept cannot be read. Nothing is deleted then.
    """
    sweep = _Collector(store, keep_runs=keep_runs, grace_seconds=grace_hours * 3600)
    found = sweep.found
    rest = list(_leftovers(sweep, delete_runs=delete_runs))
    restored: set[str] = set()
    if not dry_run:
        restored = sweep.delete_artifacts()
        for item in rest:
            _delete(store.backend, item)
    gone = [item for item in sweep.artifacts() if item.path not in restored]
    kept = (
        Retained(
            location, sum(facts.size for facts in found.attempts[location].files.values()), reason
        )
        for location, reason in sorted(found.reachable.items())
        if location in found.attempts
    )
    return GarbageReport(
        garbage=(*gone, *rest),
        kept=tuple(kept),
        restored=tuple(sorted(restored)),
        notes=tuple(found.notes),
        is_dry_run=dry_run,
    )


def _garbage(kind: str, path: str, files: Mapping[str, FileInfo]) -> Garbage:
    sizes = [facts.size for facts in files.values()]
    freed = sum(facts.size for facts in files.values() if facts.links == 1)
    return Garbage(kind, path, len(sizes), sum(sizes), freed)


def _delete(backend: StoreBackend, item: Garbage) -> None:
    """Take away what is no artifact; it may be gone already, or a lease be held again."""
    if item.kind == "lease":
        stored, holder = read_lease(backend, item.path)
        if stored is not None and holder is None:
            backend.remove(item.path, expected=stored)
    elif item.kind in ("work", "run"):
        backend.delete_folder(item.path)
    else:
        backend.delete(item.path)


# Artifacts


class _Tombstone(BaseModel):
    """Record of an artifact that is being deleted."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    location: RelativePath
    begun: str
    """ISO 8601, UTC."""

    moment: float
    """Time of the scan_store that found the artifact unused; seconds since the epoch."""

    key: Annotated[RelativePath, Field(pattern="^keys/")]
    """Path of the pointer that was removed."""

    pointer: str
    """Content of that pointer."""


class _Collector:
    """One collection: what was found first, and the deletion of artifacts."""

    def __init__(self, store: ArtifactStore, *, keep_runs: int, grace_seconds: float) -> None:
        self.store, self.backend = store, store.backend
        self._kept: dict[str, Any] = {"keep_runs": keep_runs, "grace_seconds": grace_seconds}
        self.found = found = scan_store(store, **self._kept)
        self.cutoff = found.moment - grace_seconds
        """What was written later, in seconds since the epoch, is kept."""

        # What an earlier collection that was cut off began to delete: a run that was going on
        # then, and still is, may have found it.
        self._begun = dict(_tombstones(store))
        first = min(found.live_runs.values(), default=float("inf"))
        for location in found.attempts.keys() & self._begun.keys() - found.reachable.keys():
            if first < self._begun[location].moment:
                found.reachable[location] = "a run that is going on may have found it"
        self.dead = sorted(found.attempts.keys() - found.reachable.keys())

    def artifacts(self) -> Iterator[Garbage]:
        """What is deleted of artifacts and attempts."""
        for location in self.dead:
            kind = "artifact" if location in self.found.published else "attempt"
            yield _garbage(kind, location, self.found.attempts[location].files)

    def delete_artifacts(self) -> set[str]:
        """Delete in the order that the module describes; those that came into use meanwhile."""
        self._write_tombstones()
        used = self._remove_pointers()
        again = scan_store(self.store, **self._kept, also=used, being_deleted=set(self.dead))
        if self.backend.is_remote and set(again.live_runs) - set(self.found.live_runs):
            used |= set(self.dead)
        restored = {path for path in self.dead if path in used or path in again.reachable}
        self._restore_pointers(again, restored)
        for location in self.dead:
            if location not in restored:
                self.backend.delete(f"{location}/manifest.json")
                self.backend.delete_folder(location)
                self.backend.delete(_tombstone(location))
        return restored

    def _write_tombstones(self) -> None:
        for location in self.dead:
            if (item := self.found.published.get(location)) is None:
                continue  # never published; or an earlier tombstone knows the pointer it had
            record = _Tombstone(
                location=location,
                begun=now(),
                moment=self.found.moment,
                key=item.path,
                pointer=item.stored.decode(),
            )
            self.backend.replace(_tombstone(location), sealed_json(record.model_dump()))

    def _remove_pointers(self) -> set[str]:
        """Locations whose pointers were used since the scan_store."""
        used: set[str] = set()
        for location in self.dead:
            if (item := self.found.published.get(location)) is not None:
                removed = self.backend.remove(item.path, expected=item.stored)
                if removed is None:  # withdrawn or replaced meanwhile: left to a later collection
                    self.backend.delete(_tombstone(location))
                if removed is None or removed > item.used:
                    used.add(location)
        return used

    def _restore_pointers(self, again: StoreScan, restored: set[str]) -> None:
        """Put back the pointers of what is kept after all; also what an earlier collection took."""
        for location, record in list(_tombstones(self.store)):
            is_gone = location not in again.attempts
            if location not in restored and location not in again.reachable and not is_gone:
                continue
            if not is_gone:
                self.backend.put_if_absent(record.key, record.pointer.encode())
            self.backend.delete(_tombstone(location))


def _tombstone(location: str) -> str:
    return f"tombstones/{location.rpartition('/')[2]}.json"


def _tombstones(store: ArtifactStore) -> Iterator[tuple[str, _Tombstone]]:
    for path in store.backend.names("tombstones"):
        if (stored := store.backend.read_if_exists(path)) is not None:
            url = store.backend.url(path)
            record = parse_record(_Tombstone, stored, url, kind="tombstones")
            yield record.location, record


# Everything else


def _leftovers(sweep: _Collector, *, delete_runs: bool) -> Iterator[Garbage]:
    """Everything to delete that is no artifact; runs that are not kept only if asked for."""
    backend, cutoff = sweep.backend, sweep.cutoff
    yield from _old_work(sweep)
    yield from _old_pieces(sweep)
    yield from _free_leases(backend)
    for folder in ("quarantine", "probe"):
        for path, facts in backend.stat(folder).items():
            if facts.modified <= cutoff and not _CUT_OFF.search(path):
                yield _garbage(folder, path, {path: facts})
    for folder in (name for name in KINDS if name != "artifacts"):
        for path, facts in backend.stat(folder).items():
            if facts.modified <= cutoff and _CUT_OFF.search(path):
                yield _garbage("leftover", path, {path: facts})
    yield from _unlisted(sweep)
    if delete_runs:
        for folder, files in sorted(by_folder(backend.stat("runs"), 1).items()):
            if folder.split("/")[1] not in sweep.found.kept_runs:
                yield _garbage("run", folder, files)


def _old_work(sweep: _Collector) -> Iterator[Garbage]:
    for folder, (files, written) in folders_of(sweep.backend, "work").items():
        _, stage, cache_key = folder.split("/")
        if written <= sweep.cutoff and (stage, cache_key) not in sweep.found.leased:
            yield _garbage("work", folder, files)


def _old_pieces(sweep: _Collector) -> Iterator[Garbage]:
    """Records of pieces none of whose files are left, and of parts of pieces that are finished."""
    found, dead = sweep.found, set(sweep.dead)
    left = (folder for name, folder in found.attempts.items() if name not in dead)
    there = {path for folder in left for path in folder.files}
    listed = sweep.backend.stat("pieces")
    for path, facts in listed.items():
        if facts.modified > sweep.cutoff or not path.endswith(".json"):
            continue
        try:
            artifacts = piece_files(sweep.backend, path)
        except FileNotFoundError:
            continue
        is_used = facts.modified > sweep.cutoff - _UNUSED_SECONDS
        is_left = any(there.issuperset(names) and (names or is_used) for names in artifacts)
        if not is_left or finished_piece(path) in listed:
            for name in (path, blobs_of(path)):
                if name in listed:
                    yield _garbage("pieces", name, {name: listed[name]})


def _free_leases(backend: StoreBackend) -> Iterator[Garbage]:
    for path in backend.names("leases"):
        stored, holder = read_lease(backend, path)
        if stored is not None and holder is None:
            yield Garbage("lease", path, 1, len(stored), len(stored))


def _unlisted(sweep: _Collector) -> Iterator[Garbage]:
    """Files beside those of an artifact, such as a repeated worker leaves."""
    found = sweep.found
    for location, listed in sorted(found.listed.items()):
        if location not in found.published:
            continue  # perhaps it is just being published
        for path, facts in found.attempts[location].files.items():
            if path not in listed and facts.modified <= sweep.cutoff:
                yield _garbage("leftover", path, {path: facts})
