"""What a store holds, and what keeps it: the first half of collecting garbage, which only reads."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from flows.formats import time_text
from flows.store.artifacts import ArtifactStore, Pointer
from flows.store.backend import FileFacts
from flows.store.leases import live_holders
from flows.store.pointers import parse_pointer
from flows.store.runs import judge, last_signs, record_path, run_ids
from schemas.errors import ArtifactCorruptError
from schemas.sealed import read_sealed

ELSEWHERE_DAYS = 30
"""For how long a run of another machine that does not say that it ended counts as going on, if it
is of an earlier version and leaves no signs of life."""

# Between a run's record and its first look at the store, by clocks of two machines.
_CLOCKS_DIFFER = 60.0


class Published(NamedTuple):
    """A pointer under a cache key."""

    path: str
    stored: bytes
    pointer: Pointer
    used: float
    """When it was written or its artifact was last found; seconds since the epoch."""


@dataclass
class Survey:
    """The state of a store at one moment. Locations are `artifacts/STAGE/ATTEMPT`."""

    moment: float
    attempts: dict[str, dict[str, FileFacts]] = field(default_factory=dict)
    """Files of each attempt by their path from the root, whatever leads to it."""

    newest: dict[str, float] = field(default_factory=dict)
    """When something was last written to each attempt."""

    published: dict[str, Published] = field(default_factory=dict)
    """By location."""

    keepers: dict[str, str] = field(default_factory=dict)
    """Why a location is kept; the ones that are not in it are garbage."""

    listed: dict[str, set[str]] = field(default_factory=dict)
    """Of each kept location with a manifest: the files that count, by path from the root."""

    live_runs: dict[str, float] = field(default_factory=dict)
    """When each run that is going on began."""

    kept_runs: set[str] = field(default_factory=set)
    held: set[tuple[str, str]] = field(default_factory=set)
    """Stage and key of each live lease."""

    notes: list[str] = field(default_factory=list)
    """What a person should look at."""


def survey(
    store: ArtifactStore,
    *,
    keep_runs: int,
    grace_seconds: float,
    also: Iterable[str] = (),
    dying: Collection[str] = (),
) -> Survey:
    """Look at everything, and find what is kept.

    Args:
        store: what to look at.
        keep_runs: how many of the newest runs keep what they made or found.
        grace_seconds: how long everything is kept after it was made or found.
        also: more locations to keep, with what they were made from.
        dying: locations whose pointers were just removed: no attempts that somebody may be
            writing.

    Raises:
        ArtifactCorruptError: a manifest that is kept, a ref or a pin cannot be read, so that
            what it leads to is not known.
    """
    found = Survey(time.time())
    found.held = set(live_holders(store))
    roots: dict[str, str] = dict.fromkeys(also, "found by a run just now")
    _add_refs(store, roots)
    _add_runs(store, found, roots, keep_runs=keep_runs)
    _list_attempts(store, found)
    _list_pointers(store, found)
    _add_recent(store, found, roots, cutoff=found.moment - grace_seconds, dying=dying)
    _mark(store, found, roots)
    return found


def _add_refs(store: ArtifactStore, roots: dict[str, str]) -> None:
    for name in store.refs():
        pointer = store.ref(name)
        if pointer is not None:
            for path in (pointer.manifest, *pointer.parts.values()):
                roots.setdefault(location_of(path), f"ref {name}")
    for artifact_id, record in store.pins().items():
        path = Pointer.model_validate(record["pointer"]).manifest
        roots.setdefault(location_of(path), f"pin {artifact_id}: {record['reason']}")


def location_of(manifest: str) -> str:
    """The attempt that a manifest's path is in."""
    return manifest.rpartition("/")[0]


def _add_runs(
    store: ArtifactStore, found: Survey, roots: dict[str, str], *, keep_runs: int
) -> None:
    signs = last_signs(store)
    ids = run_ids(store)
    last = set(ids[len(ids) - keep_runs :] if keep_runs else [])
    for run_id in ids:
        record = _raw_record(store, run_id, found.notes)
        last_sign = signs.get(run_id, found.moment)  # one that has just begun is not listed yet
        began = _live_since(record, found.moment, last_sign=last_sign)
        if began is not None:
            found.live_runs[run_id] = began
            found.notes.append(_held_back(run_id, record, silence=found.moment - last_sign))
        if run_id not in last and run_id not in found.live_runs:
            continue
        found.kept_runs.add(run_id)
        # Records of earlier versions have steps as well, if not all the rest.
        for step in record.get("steps", ()):
            if isinstance(step, dict) and isinstance(step.get("manifest"), str):
                roots.setdefault(location_of(step["manifest"]), f"run {run_id}")


def _held_back(run_id: str, record: Mapping[str, Any], *, silence: float) -> str:
    """What a run that is going on keeps, and what to do if it is not."""
    host = record.get("host") or "a machine that is not known"
    return (
        f"run {run_id} of {host} is going on, with a sign of life {time_text(max(silence, 0.0))} "
        "ago: what it may have found is kept, on S3 and GCS everything that is published. If it is "
        "over: bertloom runs --settle"
    )


def _raw_record(store: ArtifactStore, run_id: str, notes: list[str]) -> dict[str, Any]:
    path = record_path(run_id)
    try:
        return read_sealed(store.backend.read(path)).value
    except FileNotFoundError:
        return {}
    except ValueError as error:
        notes.append(f"{store.url(path)}: expected the record of a run: {error}")
        return {}


def _live_since(record: Mapping[str, Any], moment: float, *, last_sign: float) -> float | None:
    """When a run that is going on began, seconds since the epoch; None if it is not.

    `last_sign` is when it last wrote to its folder.
    """
    try:
        began = datetime.fromisoformat(record["started"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
    if record.get("state") != "running":
        return None
    silence = moment - (last_sign if record.get("beats") else began)
    is_over = judge(record, silence=silence, unsigned_seconds=ELSEWHERE_DAYS * 86_400).is_over
    return None if is_over else began


def _list_attempts(store: ArtifactStore, found: Survey) -> None:
    attempts: dict[str, dict[str, FileFacts]] = defaultdict(dict)
    for path, facts in store.backend.facts("artifacts").items():
        attempts["/".join(path.split("/")[:3])][path] = facts
    for stage in store.backend.folders("artifacts"):
        for location, modified in store.backend.folders(stage).items():
            attempts[location]  # one that has no file yet is there all the same
            found.newest[location] = modified
    found.attempts = dict(attempts)
    for location, files in attempts.items():
        times = [facts.modified for facts in files.values()]
        found.newest[location] = max([found.newest.get(location, 0.0), *times])


def _list_pointers(store: ArtifactStore, found: Survey) -> None:
    listed = store.backend.facts("keys")
    for path, stored in store.backend.read_many(listed).items():
        if (pointer := parse_pointer(stored)) is not None:
            committed = datetime.fromisoformat(pointer.committed).timestamp()
            used = max(committed, listed[path].modified)
            found.published[location_of(pointer.manifest)] = Published(path, stored, pointer, used)


def _add_recent(
    store: ArtifactStore,
    found: Survey,
    roots: dict[str, str],
    *,
    cutoff: float,
    dying: Collection[str],
) -> None:
    first = min(found.live_runs.items(), key=lambda item: item[1], default=None)
    for location, item in found.published.items():
        if item.used > cutoff:
            roots.setdefault(location, "made or found within the grace period")
        elif first is not None and store.backend.is_remote:
            # S3 and GCS cannot say what was found when.
            roots.setdefault(location, f"run {first[0]} is going on")
        elif first is not None and item.used > first[1] - _CLOCKS_DIFFER:
            roots.setdefault(location, f"made or found since run {first[0]} began")
        elif (item.pointer.stage, item.pointer.cache_key) in found.held:
            roots.setdefault(location, "its key is being worked on")
    building = {stage for stage, _ in found.held}
    for location, newest in found.newest.items():
        if location in found.published or location in dying:
            continue
        if newest > cutoff:
            roots.setdefault(location, "written to within the grace period")
        elif location.split("/")[1] in building:
            roots.setdefault(location, "its stage is being built")
        elif first is not None and newest > first[1] - _CLOCKS_DIFFER:
            roots.setdefault(location, f"written to since run {first[0]} began")


def _mark(store: ArtifactStore, found: Survey, roots: Mapping[str, str]) -> None:
    waiting = deque(roots.items())
    while waiting:
        location, reason = waiting.popleft()
        if location in found.keepers or not location.startswith("artifacts/"):
            continue
        found.keepers[location] = reason
        path = f"{location}/manifest.json"
        if path not in found.attempts.get(location, {}):
            if location not in found.attempts:
                found.notes.append(f"{reason}: leads to {store.url(location)}, which is gone")
            continue  # else one that is being written
        manifest = _raw_manifest(store, path)
        data = f"{location}/data"
        found.listed[location] = {path, *(f"{data}/{e['object']}" for e in manifest["files"])}
        made_from = [ref["manifest"] for ref in manifest["inputs"]]
        waiting += [(location_of(item), f"input of {location} ({reason})") for item in made_from]


def _raw_manifest(store: ArtifactStore, path: str) -> dict[str, Any]:
    try:
        manifest = read_sealed(store.backend.read(path)).value
        if isinstance(manifest["files"], list) and isinstance(manifest["inputs"], list):
            return dict(manifest)
        problem = "no lists of files and inputs"
    except FileNotFoundError:
        return {"files": [], "inputs": []}  # withdrawn since it was listed
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise ArtifactCorruptError(
        f"{store.url(path)}: expected a manifest, found {problem}. What the artifact was made from "
        "is not known, so nothing can be deleted safely: run `bertloom verify` first, which "
        "withdraws it"
    )
