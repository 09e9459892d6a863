"""Garbage beside artifacts: old work, records of what is gone, and what crashes left behind."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from flows.store.artifacts import ArtifactStore
from flows.store.backend import FileFacts, StoreBackend
from flows.store.garbage_survey import Survey
from flows.store.leases import Holder
from schemas.sealed import read_sealed

# What a write that was cut off leaves, here and where pieces of work are recorded.
_CUT_OFF = re.compile(r"(^|/)(\.[^/]+\.[0-9a-f]{32}|[^/]+\.[0-9a-f]{12}\.partial)$")
_SMALL_FILES = ("keys", "refs", "pins", "leases", "quarantine", "tombstones", "reports", "runs")


class Leftover(NamedTuple):
    """A file or folder that nothing needs, and what it held when that was found."""

    kind: str
    path: str
    facts: dict[str, FileFacts]
    """Of each file by its path from the root; of a file that is not `path`, a folder is meant."""

    expected: bytes | None = None
    """The file is deleted only if it holds this still."""

    def delete(self, backend: StoreBackend) -> None:
        """Take it away; it may be gone already."""
        if self.expected is not None:
            backend.remove(self.path, expected=self.expected)
        elif self.path in self.facts:
            backend.delete(self.path)
        else:
            backend.delete_folder(self.path)


def leftovers(
    store: ArtifactStore,
    found: Survey,
    *,
    dead: Collection[str],
    cutoff: float,
    delete_runs: bool,
) -> Iterator[Leftover]:
    """Everything to delete that is no artifact.

    Args:
        store: what to clean.
        found: what it holds.
        dead: locations of artifacts that are to be deleted.
        cutoff: what was written later than that, in seconds since the epoch, is kept.
        delete_runs: also give the runs that the survey does not keep.
    """
    backend = store.backend
    yield from _old_work(backend, found, cutoff)
    yield from _old_pieces(backend, found, set(dead), cutoff)
    yield from _old_leases(backend)
    for kind, folder in (("quarantine", "quarantine"), ("probe", "probe")):
        for path, facts in backend.facts(folder).items():
            if facts.modified <= cutoff and not _CUT_OFF.search(path):
                yield Leftover(kind, path, {path: facts})
    for folder in (*_SMALL_FILES, "pieces"):
        for path, facts in backend.facts(folder).items():
            if facts.modified <= cutoff and _CUT_OFF.search(path):
                yield Leftover("leftover", path, {path: facts})
    yield from _unlisted(found, cutoff)
    if delete_runs:
        yield from _old_runs(backend, found)


_UNUSED_SECONDS = 60 * 24 * 3600


def _folders_below(backend: StoreBackend, top: str, depth: int) -> dict[str, dict[str, FileFacts]]:
    """Files of each folder at a depth below another; on disks also folders without any."""
    grouped: dict[str, dict[str, FileFacts]] = defaultdict(dict)
    for path, facts in backend.facts(top).items():
        grouped["/".join(path.split("/")[: depth + 1])][path] = facts
    return grouped


def _old_work(backend: StoreBackend, found: Survey, cutoff: float) -> Iterator[Leftover]:
    grouped = _folders_below(backend, "work", 2)
    modified = {
        folder: when
        for stage in backend.folders("work")
        for folder, when in backend.folders(stage).items()
    }
    for folder in sorted({*grouped, *modified}):
        _, stage, cache_key = folder.split("/")
        files = grouped.get(folder, {})
        newest = max([modified.get(folder, 0.0), *(facts.modified for facts in files.values())])
        if newest <= cutoff and (stage, cache_key) not in found.held:
            yield Leftover("work", folder, dict(files))


def _old_pieces(
    backend: StoreBackend, found: Survey, dead: set[str], cutoff: float
) -> Iterator[Leftover]:
    """Records of pieces of work none of whose files are left anywhere."""
    there = {
        path for location, files in found.attempts.items() if location not in dead for path in files
    }
    listed = backend.facts("pieces")
    for path, facts in listed.items():
        if facts.modified > cutoff or not path.endswith(".json"):
            continue
        places = _places(backend, path)
        if places is None:
            continue
        # A record of counts alone has no file to be missing: it goes when nothing has used it for
        # longer than a monthly rebuild leaves it alone.
        is_used = facts.modified > cutoff - _UNUSED_SECONDS
        if not any(there.issuperset(place) and (place or is_used) for place in places):
            blobs = f"{path.removesuffix('.json')}.blobs"
            for name in (path, blobs):
                if name in listed:
                    yield Leftover("pieces", name, {name: listed[name]})


def _places(backend: StoreBackend, path: str) -> list[list[str]] | None:
    """Where the files of a piece are, once in each artifact; None where the record is in use."""
    try:
        record = read_sealed(backend.read(path)).value
        return [[str(name) for name in place] for place in record["places"]]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return []  # a damaged record is as good as none


def _old_leases(backend: StoreBackend) -> Iterator[Leftover]:
    for path in backend.names("leases"):
        try:
            stored = backend.read(path)
        except FileNotFoundError:
            continue
        try:
            is_live = Holder.model_validate(read_sealed(stored).value).is_live
        except ValueError:
            is_live = False
        if not is_live:
            yield Leftover("lease", path, {path: FileFacts(len(stored), 0.0)}, expected=stored)


def _unlisted(found: Survey, cutoff: float) -> Iterator[Leftover]:
    """Files beside those of an artifact, such as a repeated worker leaves."""
    for location, listed in sorted(found.listed.items()):
        if location not in found.published:
            continue  # perhaps it is just being published
        for path, facts in found.attempts[location].items():
            if path not in listed and facts.modified <= cutoff:
                yield Leftover("leftover", path, {path: facts})


def _old_runs(backend: StoreBackend, found: Survey) -> Iterator[Leftover]:
    for folder, files in sorted(_folders_below(backend, "runs", 1).items()):
        if folder.split("/")[1] not in found.kept_runs:
            yield Leftover("run", folder, dict(files))
