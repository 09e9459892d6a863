"""What a store holds, and what keeps it: the first half of collecting garbage, which only reads.

Retained is what can be reached from these roots, with everything that it was made from:

* refs and pins;
* the last runs, and runs that are going on (`flows.store.runs`);
* artifacts made or found, and attempts written to, within the grace period or since a run that is
  going on began; on S3 and GCS, which cannot say what was found when, every published artifact
  while a run is going on;
* keys with a live lease, and attempts of a stage that is being built.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from flows.formatting import format_duration
from flows.store.artifacts import CARD, ArtifactStore
from flows.store.backend import FileInfo, StoreBackend
from flows.store.leases import live_holders
from flows.store.pointers import Pointer, parse_pointer
from flows.store.records import damaged, read_record
from flows.store.runs import check_liveness, last_heartbeats, run_ids, stored_records
from schemas.errors import ArtifactCorruptError

# Between a run's record and its first look at the store, by clocks of two machines.
_CLOCKS_DIFFER = 60.0

Roots = Iterator[tuple[str, str]]
"""Locations that are kept, and why."""


class Folder(NamedTuple):
    """A folder of the store that one step writes, and that goes as a whole."""

    files: dict[str, FileInfo]
    """By their paths from the root."""

    written: float
    """When something was last written to it; seconds since the epoch."""


class Published(NamedTuple):
    """A pointer under a cache key."""

    path: str
    stored: bytes
    pointer: Pointer
    used: float
    """When it was written or its artifact was last found; seconds since the epoch."""


@dataclass
class StoreScan:
    """The state of a store at one moment. Locations are `artifacts/STAGE/ATTEMPT`."""

    moment: float
    leased: set[tuple[str, str]]
    """Stage and key of each live lease."""

    attempts: dict[str, Folder] = field(default_factory=dict)
    """Every attempt, whatever leads to it."""

    published: dict[str, Published] = field(default_factory=dict)
    """By location."""

    reachable: dict[str, str] = field(default_factory=dict)
    """Why a location is kept; the ones that are not in it are garbage."""

    listed: dict[str, set[str]] = field(default_factory=dict)
    """The files that count of each kept location with a manifest, by path from the root."""

    live_runs: dict[str, float] = field(default_factory=dict)
    """When each run that is going on began."""

    kept_runs: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """What a person should look at."""


def scan_store(
    store: ArtifactStore,
    *,
    keep_runs: int,
    grace_seconds: float,
    also: Iterable[str] = (),
    being_deleted: Collection[str] = (),
) -> StoreScan:
    """Look at everything, and find what is kept.

    Args:
        store: what to look at.
        keep_runs, grace_seconds: as for `collect_garbage`.
        also: more locations to keep, with what they were made from.
        being_deleted: locations whose pointers were just removed: nobody is writing them.

    Raises:
        ArtifactCorruptError: a manifest that is kept, a ref or a pin cannot be read, so that
            what it leads to is not known.
    """
    found = StoreScan(time.time(), set(live_holders(store)))
    roots = dict.fromkeys(also, "found by a run just now")

    def add(more: Roots) -> None:
        for location, reason in more:
            roots.setdefault(location, reason)

    add(_named(store))
    add(_of_runs(store, found, keep_runs=keep_runs))
    found.attempts = folders_of(store.backend, "artifacts")
    _list_published(store, found)
    cutoff = found.moment - grace_seconds
    add(_recently_used(found, cutoff, is_remote=store.backend.is_remote))
    add(_recently_written(found, cutoff, being_deleted))
    _mark(store, found, roots)
    return found


def location_of(manifest: str) -> str:
    """The attempt that a manifest's path is in."""
    return manifest.rpartition("/")[0]


def _named(store: ArtifactStore) -> Roots:
    for name in store.refs():
        if (pointer := store.ref(name)) is not None:
            for path in (pointer.manifest, *pointer.parts.values()):
                yield location_of(path), f"ref {name}"
    for artifact_id, record in store.pins().items():
        path = record["pointer"]["manifest"]
        yield location_of(path), f"pin {artifact_id}: {record['reason']}"


def _of_runs(store: ArtifactStore, found: StoreScan, *, keep_runs: int) -> Roots:
    signs, ids = last_heartbeats(store), run_ids(store)
    found.kept_runs = set(ids[max(len(ids) - keep_runs, 0) :])
    for run_id, record in stored_records(store, ids).items():
        if isinstance(record, ArtifactCorruptError):
            found.notes.append(str(record))
            continue
        # One that has just begun is not listed yet.
        _note_if_live(found, run_id, record, last_sign=signs.get(run_id, found.moment))
        for step in record.get("steps", ()) if run_id in found.kept_runs else ():
            if isinstance(step, dict) and isinstance(step.get("manifest"), str):
                yield location_of(step["manifest"]), f"run {run_id}"


def _note_if_live(
    found: StoreScan, run_id: str, record: Mapping[str, Any], *, last_sign: float
) -> None:
    """Count a run among those that are going on, and say what it holds back."""
    try:
        began = datetime.fromisoformat(record["started"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return
    if (
        record.get("state") != "running"
        or check_liveness(record, silence=found.moment - last_sign).is_over
    ):
        return
    found.live_runs[run_id] = began
    found.kept_runs.add(run_id)
    host = record.get("host") or "a machine that is not known"
    ago = format_duration(max(found.moment - last_sign, 0.0))
    found.notes.append(
        f"run {run_id} of {host} is going on, with a sign of life {ago} ago: what it may have "
        "found is kept, on S3 and GCS everything that is published. If it is over: "
        "bertloom runs --settle"
    )


def by_folder(facts: Mapping[str, FileInfo], depth: int) -> dict[str, dict[str, FileInfo]]:
    """Files grouped by the folders at a depth below their top."""
    grouped: dict[str, dict[str, FileInfo]] = defaultdict(dict)
    for path, item in facts.items():
        grouped["/".join(path.split("/")[: depth + 1])][path] = item
    return grouped


def folders_of(backend: StoreBackend, top: str) -> dict[str, Folder]:
    """Each folder `TOP/STAGE/NAME`; on disks also those without a file."""
    grouped = by_folder(backend.stat(top), 2)
    made = {
        folder: modified
        for stage in backend.folders(top)
        for folder, modified in backend.folders(stage).items()
    }
    found = {}
    for folder in sorted({*grouped, *made}):
        files = grouped.get(folder, {})
        times = [made.get(folder, 0.0), *(facts.modified for facts in files.values())]
        found[folder] = Folder(files, max(times))
    return found


def _list_published(store: ArtifactStore, found: StoreScan) -> None:
    listed = store.backend.stat("keys")
    for path, stored in store.backend.read_many(listed).items():
        if (pointer := parse_pointer(stored)) is not None:
            committed = datetime.fromisoformat(pointer.committed).timestamp()
            used = max(committed, listed[path].modified)
            found.published[location_of(pointer.manifest)] = Published(path, stored, pointer, used)


def _oldest_live(found: StoreScan) -> tuple[str, float]:
    """The run that has been going on for longest, and when it began; none began in the future."""
    return min(found.live_runs.items(), key=lambda item: item[1], default=("", float("inf")))


def _recently_used(found: StoreScan, cutoff: float, *, is_remote: bool) -> Roots:
    run_id, began = _oldest_live(found)
    for location, item in found.published.items():
        if item.used > cutoff:
            yield location, "made or found within the grace period"
        elif run_id and is_remote:
            yield location, f"run {run_id} is going on"
        elif item.used > began - _CLOCKS_DIFFER:
            yield location, f"made or found since run {run_id} began"
        elif (item.pointer.stage, item.pointer.cache_key) in found.leased:
            yield location, "its key is being worked on"


def _recently_written(found: StoreScan, cutoff: float, being_deleted: Collection[str]) -> Roots:
    run_id, began = _oldest_live(found)
    building = {stage for stage, _ in found.leased}
    for location, (_, written) in found.attempts.items():
        if location in found.published or location in being_deleted:
            continue
        if written > cutoff:
            yield location, "written to within the grace period"
        elif location.split("/")[1] in building:
            yield location, "its stage is being built"
        elif written > began - _CLOCKS_DIFFER:
            yield location, f"written to since run {run_id} began"


def _mark(store: ArtifactStore, found: StoreScan, roots: Mapping[str, str]) -> None:
    waiting = deque(roots.items())
    while waiting:
        location, reason = waiting.popleft()
        if location in found.reachable or not location.startswith("artifacts/"):
            continue
        found.reachable[location] = reason
        path = f"{location}/manifest.json"
        if location not in found.attempts or path not in found.attempts[location].files:
            if location not in found.attempts:
                found.notes.append(f"{reason}: leads to {store.url(location)}, which is gone")
            continue  # else one that is being written
        files, inputs = _files_and_inputs(store, path)
        beside = {path, f"{location}/{CARD}"}
        found.listed[location] = beside | {f"{location}/data/{name}" for name in files}
        waiting += [(location_of(item), f"input of {location} ({reason})") for item in inputs]


def _files_and_inputs(store: ArtifactStore, path: str) -> tuple[list[str], list[str]]:
    """Physical names of the files of a manifest of any version, and paths of its inputs'."""
    try:
        manifest = read_record(store.backend, path)
        files, inputs = manifest["files"], manifest["inputs"]
        return [entry["object"] for entry in files], [ref["manifest"] for ref in inputs]
    except FileNotFoundError:
        return [], []  # withdrawn since it was listed
    except (KeyError, TypeError) as error:
        raise damaged(store.url(path), "artifacts", error) from error
