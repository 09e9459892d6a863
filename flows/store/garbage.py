"""Collecting garbage: finding what nothing needs any more, and deleting it in a safe order.

What is kept: what refs, pins, the last runs and runs that are going on lead to; what was made or
found within the grace period; what any of these were made from, to the first; attempts that are
being written; `work/` folders with a live lease or fresh files. Records of runs are small and tell
what was done when, so that they are kept unless they are asked for.

A run that finds an artifact writes that down nowhere until it ends, so that it must not be deleted
under its hands. On a disk a lookup touches the pointer, and only then believes it. Whatever was
touched since the oldest run that is going on began is kept. A pointer that is touched after the
survey is noticed as it is removed: its time is read from the file after its name is gone, so that
a lookup either was before, and shows, or finds no pointer and builds anew. S3 and GCS have no
touching; there no published artifact is deleted while a run is going on, and the runs are looked
at again once all pointers are away.

The order of deletion:

1. a tombstone for each artifact, which says what is being deleted;
2. the pointers, each only if it still is what the survey read: from here on no run finds the
   artifact, while all its bytes are there for who found it before;
3. a second survey: artifacts that a ref, a pin, a run or another artifact's inputs lead to by now
   get their pointer back;
4. manifest, then data, then tombstone. Who follows a path to it finds no manifest, never half of
   the data.

Killed before 4, everything that is published still has its inputs. Killed in 4, what is left has a
tombstone and no pointer, and the next collection goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flows.store.artifacts import ArtifactStore, now, to_json
from flows.store.backend import FileFacts
from flows.store.garbage_leftovers import leftovers
from flows.store.garbage_survey import Survey, survey
from schemas.errors import ArtifactCorruptError
from schemas.sealed import read_sealed


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


class Kept(NamedTuple):
    """An artifact that stays."""

    path: str
    size: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class GarbageReport:
    """What a collection found, and, unless it was dry, deleted."""

    garbage: tuple[Garbage, ...]
    kept: tuple[Kept, ...]
    revived: tuple[str, ...] = ()
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
    grace = grace_hours * 3600
    found = survey(store, keep_runs=keep_runs, grace_seconds=grace)
    dead = _dead(store, found)
    cutoff = found.moment - grace
    rest = list(leftovers(store, found, dead=dead, cutoff=cutoff, delete_runs=delete_runs))
    revived: set[str] = set()
    if not dry_run:
        revived = _delete_artifacts(store, found, dead, keep_runs=keep_runs, grace_seconds=grace)
        for item in rest:
            item.delete(store.backend)
    garbage = [_artifact(found, location) for location in dead if location not in revived]
    garbage += [Garbage(item.kind, item.path, *_amount(item.facts)) for item in rest]
    kept = [
        Kept(location, _amount(found.attempts[location])[1], reason)
        for location, reason in sorted(found.keepers.items())
        if location in found.attempts
    ]
    return GarbageReport(
        garbage=tuple(garbage),
        kept=tuple(kept),
        revived=tuple(sorted(revived)),
        notes=tuple(found.notes),
        is_dry_run=dry_run,
    )


def _dead(store: ArtifactStore, found: Survey) -> list[str]:
    waiting = dict(_tombstones(store))
    dead = []
    for location in sorted(found.attempts):
        if location in found.keepers:
            continue
        if (record := waiting.get(location)) and _met(found, record):
            found.keepers[location] = "a run that is going on may have found it"
        else:
            dead.append(location)
    return dead


def _met(found: Survey, tombstone: Mapping[str, Any]) -> bool:
    """Whether a run could have found an artifact before the last collection was cut off."""
    return any(began < tombstone["moment"] for began in found.live_runs.values())


def _tombstones(store: ArtifactStore) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in store.backend.names("tombstones"):
        try:
            record = read_sealed(store.backend.read(path)).value
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise ArtifactCorruptError(
                f"{store.url(path)}: expected the record of a deletion that was cut off: {error}. "
                "Look at the artifact that the file is named for, then delete the file"
            ) from error
        yield record["location"], record


def _tombstone(location: str) -> str:
    return f"tombstones/{location.rpartition('/')[2]}.json"


def _artifact(found: Survey, location: str) -> Garbage:
    kind = "artifact" if location in found.published else "attempt"
    return Garbage(kind, location, *_amount(found.attempts[location]))


def _amount(facts: Mapping[str, FileFacts]) -> tuple[int, int, int]:
    """Files, bytes, and bytes that come free with them."""
    files = facts.values()
    freed = sum(item.size for item in files if item.links == 1)
    return len(files), sum(item.size for item in files), freed


def _delete_artifacts(
    store: ArtifactStore,
    found: Survey,
    dead: list[str],
    *,
    keep_runs: int,
    grace_seconds: float,
) -> set[str]:
    """Delete in the order that the module describes; the ones that came into use meanwhile."""
    backend = store.backend
    earlier = dict(_tombstones(store))
    for location in dead:
        item = found.published.get(location)
        if item is None and location in earlier:
            continue  # it knows the pointer that it took away
        record = {
            "location": location,
            "begun": now(),
            "moment": found.moment,
            "key": item.path if item else "",
            "pointer": item.stored.decode() if item else "",
        }
        backend.replace(_tombstone(location), to_json(record))
    used: set[str] = set()
    for location in dead:
        if (item := found.published.get(location)) is not None:
            removed = backend.remove(item.path, expected=item.stored)
            if removed is None:  # withdrawn or replaced meanwhile: left to a later collection
                backend.delete(_tombstone(location))
            if removed is None or removed > item.used:
                used.add(location)
    again = survey(
        store, keep_runs=keep_runs, grace_seconds=grace_seconds, also=used, dying=set(dead)
    )
    if backend.is_remote and set(again.live_runs) - set(found.live_runs):
        used |= set(dead)
    revived = {location for location in dead if location in used or location in again.keepers}
    _settle_tombstones(store, again, revived)
    for location in dead:
        if location not in revived:
            backend.delete(f"{location}/manifest.json")
            backend.delete_folder(location)
            backend.delete(_tombstone(location))
    return revived


def _settle_tombstones(store: ArtifactStore, again: Survey, revived: set[str]) -> None:
    """Give back the pointers of what is kept after all; also what an earlier collection took."""
    for location, record in list(_tombstones(store)):
        is_gone = location not in again.attempts
        if location not in revived and location not in again.keepers and not is_gone:
            continue
        if not is_gone and record["key"]:
            store.backend.create(record["key"], record["pointer"].encode())
        store.backend.delete(_tombstone(location))
