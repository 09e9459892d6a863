"""GLUE, SQuAD and SWAG from their official addresses, with pinned checksums (`sources.yaml`).

Each set is written to the folder that `bertloom finetune --data` and recipes read, under the
official names. What came out of an archive stands in `.fetched.json` beside it, so that a set that
is there and right is not fetched again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flows.fetch.archives import unpack
from flows.fetch.client import Say, Web, shown_url
from flows.fetch.downloads import Fetched, Wanted, fetch_files, publish
from flows.fetch.folders import (
    digest_of,
    drop_partial,
    local_folder,
    locked_folder,
    partial_of,
)
from flows.fetch.sources import LabelledSet, SetFile, Sources
from pipelines.io.local_files import sync_folder, write_whole
from schemas.errors import ConfigError, FetchError

RECORD = ".fetched.json"
"""The sha256 of the files that came out of each archive, by that of the archive."""

_Record = dict[str, dict[str, str]]


class FetchedSet(NamedTuple):
    """A labelled set that is there, verified."""

    name: str
    folder: str
    files: tuple[str, ...]
    """Local paths."""
    bytes_downloaded: int
    files_reused: int
    """How many of `files` were there already, and right."""
    unpinned: tuple[tuple[str, str, int], ...]
    """Address, sha256 and size of what was taken on trust."""


def fetch_sets(
    names: Sequence[str],
    *,
    sources: Sources,
    folder: str,
    say: Say,
    trust_first: bool = False,
    connections: int = 2,
) -> list[FetchedSet]:
    """Fetch labelled sets; what is there already and right is kept.

    Args:
        names: of `sources.sets`.
        sources: what there is, and where.
        folder: local; each set is written to the folder below it that `sources` says.
        say: prints a line.
        trust_first: take files that have no pinned sha256, and return what theirs is.
        connections: at once.

    Raises:
        ConfigError: a set is unknown, or an argument is not what it should be.
        FetchError: something could not be fetched or has no pinned sha256; running again goes on.
        ChecksumError: a file is not the pinned one; nothing of it is kept.
    """
    root = local_folder(folder)
    if unknown := [name for name in names if name not in sources.sets]:
        raise ConfigError(
            f"expected sets among {', '.join(sources.sets)}, found {', '.join(unknown)}"
        )
    for name in names:
        if not trust_first:
            _refuse_unpinned(name, sources.sets[name])
    with contextlib.closing(Web(say=say)) as web:
        return [
            _fetch_set(name, sources.sets[name], root, web=web, connections=connections)
            for name in names
        ]


def _refuse_unpinned(name: str, found: LabelledSet) -> None:
    if unpinned := [shown_url(file.url) for file in found.files if file.sha256 is None]:
        raise FetchError(
            f"{name}: no sha256 is pinned of {', '.join(unpinned)}, so nobody could tell whether "
            "the right file came. Run with --trust-first to accept what comes and see its digest; "
            "then pin that in a file for --sources"
        )


def _fetch_set(
    name: str, found: LabelledSet, root: Path, *, web: Web, connections: int
) -> FetchedSet:
    folder = root / found.folder
    with locked_folder(folder, say=web.say):
        record = _read_record(folder)
        there = [file for file in found.files if _is_unpacked(file, folder, record)]
        rest = [file for file in found.files if file not in there]
        wanted = [Wanted(f.url, f.stored_as, f.size, "sha256", f.sha256) for f in rest]
        fetched: list[Fetched] = []
        if wanted:
            fetched = fetch_files(name, wanted, folder, web=web, connections=connections)
        pairs = list(zip(rest, fetched, strict=True))
        _finish(pairs, folder, record)
    reused = [*there, *(file for file, item in pairs if item.was_there and not file.unpack)]
    return FetchedSet(
        name,
        str(folder),
        tuple(str(folder / target) for file in found.files for target in file.targets),
        sum(item.bytes_downloaded for item in fetched),
        sum(len(file.targets) for file in reused),
        tuple((file.url, item.digest, item.size) for file, item in pairs if not file.sha256),
    )


def _finish(pairs: Sequence[tuple[SetFile, Fetched]], folder: Path, record: _Record) -> None:
    """Unpack archives, then give all files of the set their names."""
    archives = [(file, item) for file, item in pairs if file.unpack]
    for file, item in archives:
        archive = folder / file.stored_as
        stored = archive if item.was_there else partial_of(archive)
        record[item.digest] = unpack(stored, file.unpack, folder, where=shown_url(file.url))
    if archives:
        # Before the names: a record of files that are not there yet is only not believed.
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        write_whole(folder / RECORD, text.encode())
    publish([item for file, item in pairs if not file.unpack], folder)
    for file, item in archives:
        for target in file.unpack.values():
            partial_of(folder / target).replace(folder / target)
        if not item.was_there:
            drop_partial(folder / file.stored_as)
    sync_folder(folder)


def _read_record(folder: Path) -> _Record:
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_unpacked(file: SetFile, folder: Path, record: _Record) -> bool:
    """Whether all files of an archive are there, as they came out of it."""
    known: Any = record.get(file.sha256 or "")
    if not file.unpack or not isinstance(known, dict):
        return False
    return all(
        (folder / name).is_file() and digest_of(folder / name, "sha256") == known.get(name)
        for name in file.unpack.values()
    )
