"""GLUE, SQuAD and SWAG from their official addresses, with pinned checksums (`sources.yaml`).

Each set comes to the folder that `bertloom finetune --data` and recipes read, under the official
names. What came out of an archive stands in `.fetched.json` beside it, so that a set that is there
and right is not fetched again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flows.fetch.archives import unpack
from flows.fetch.arrivals import Arrivals
from flows.fetch.downloads import bytes_there, fetch_files, publish
from flows.fetch.local_files import (
    digest_of,
    locked_folder,
    notes_of,
    partial_of,
    sync_folder,
    write_text,
)
from flows.fetch.one_download import Fetched, Wanted
from flows.fetch.set_sources import LabelledSet, SetFile, Sources
from flows.fetch.web import Web, shown_url
from schemas.errors import ConfigError, FetchError

RECORD = ".fetched.json"


class FetchedSet(NamedTuple):
    """A labelled set that is there, verified."""

    name: str
    folder: str
    files: tuple[str, ...]
    """Local paths."""
    bytes_downloaded: int
    files_reused: int
    """Of `files`: those that were there already, and right."""
    unpinned: tuple[tuple[str, str, int], ...]
    """Address, sha256 and size of what was taken on trust."""


def fetch_sets(
    names: Sequence[str],
    *,
    sources: Sources,
    folder: str,
    say: Callable[[str], None],
    trust_first: bool = False,
    connections: int = 2,
    sleep: Callable[[float], object] | None = None,
    tries: int = 6,
) -> list[FetchedSet]:
    """Fetch labelled sets; what is there already and right is kept.

    Args:
        names: of `sources.sets`.
        folder: local; each set comes to the folder below it that `sources` says.
        trust_first: take files that have no pinned sha256, and tell what theirs is.
        connections, sleep, tries: as for `flows.fetch.wikipedia.fetch_wikipedia`.

    Raises:
        ConfigError: a set is unknown, or an argument is not what it should be.
        FetchError: something could not be fetched or has no pinned sha256; running again goes on.
        ChecksumError: a file is not the pinned one; nothing of it is kept.
    """
    if "://" in folder or not folder:
        raise ConfigError(f"--folder: expected a folder of this machine, found {folder!r}")
    unknown = [name for name in names if name not in sources.sets]
    if unknown:
        raise ConfigError(
            f"expected sets among {', '.join(sources.sets)}, found {', '.join(unknown)}"
        )
    for name in names:
        _refuse_unpinned(name, sources.sets[name], trust_first=trust_first)
    fetched = []
    with Web(say=say, sleep=sleep, tries=tries) as web:
        for name in names:
            task = _Fetch(name, sources.sets[name], Path(folder).absolute(), web=web, say=say)
            fetched.append(task.run(connections))
    return fetched


def _refuse_unpinned(name: str, found: LabelledSet, *, trust_first: bool) -> None:
    unpinned = [shown_url(file.url) for file in found.files if file.sha256 is None]
    if unpinned and not trust_first:
        raise FetchError(
            f"{name}: no sha256 is pinned of {', '.join(unpinned)}, so nobody could tell whether "
            "the right file came. Run with --trust-first to take what comes and be told its "
            "digest; then pin that in a file for --sources"
        )


class _Fetch:
    """The fetching of one set."""

    def __init__(
        self,
        name: str,
        found: LabelledSet,
        root: Path,
        *,
        web: Web,
        say: Callable[[str], None],
    ) -> None:
        self._name, self._set, self._web, self._say = name, found, web, say
        self._folder = root / found.folder

    def run(self, connections: int) -> FetchedSet:
        with locked_folder(self._folder, say=self._say):
            record = self._read_record()
            there = [file for file in self._set.files if self._is_unpacked(file, record)]
            rest = [file for file in self._set.files if file not in there]
            pairs = list(zip(rest, self._download(rest, connections), strict=True))
            self._land(pairs, record)
        reused = [*there, *(file for file, item in pairs if item.was_there and not file.unpack)]
        return FetchedSet(
            self._name,
            str(self._folder),
            tuple(str(self._folder / name) for file in self._set.files for name in file.targets),
            sum(item.bytes_downloaded for _, item in pairs),
            sum(len(file.targets) for file in reused),
            tuple((file.url, item.digest, item.size) for file, item in pairs if not file.sha256),
        )

    def _download(self, files: Sequence[SetFile], connections: int) -> list[Fetched]:
        if not files:
            return []
        wanted = [
            Wanted(file.url, file.stored_as, file.size, "sha256", file.sha256) for file in files
        ]
        total = sum(item.size or 0 for item in wanted)
        there = sum(bytes_there(item, self._folder) for item in wanted)
        with Arrivals(self._name, total=total, there=there, say=self._say) as arrivals:
            return fetch_files(
                wanted,
                self._folder,
                web=self._web,
                connections=connections,
                say=self._say,
                arrived=arrivals.arrived,
            )

    def _land(self, pairs: Sequence[tuple[SetFile, Fetched]], record: dict[str, Any]) -> None:
        """Unpack archives, then give all files of the set their names."""
        unpacked: dict[str, dict[str, str]] = {}
        for file, item in pairs:
            if file.unpack:
                archive = self._folder / file.stored_as
                stored = archive if item.was_there else partial_of(archive)
                unpacked[item.digest] = unpack(
                    stored, file.unpack, self._folder, where=shown_url(file.url)
                )
        if unpacked:
            # Before the names: a record of files that are not there yet is only not believed.
            text = json.dumps(record | unpacked, indent=2, sort_keys=True) + "\n"
            write_text(self._folder / RECORD, text)
        publish([item for file, item in pairs if not file.unpack], self._folder)
        for file, item in pairs:
            for target in file.unpack.values():
                partial_of(self._folder / target).replace(self._folder / target)
            if file.unpack and not item.was_there:
                partial_of(self._folder / file.stored_as).unlink()
                notes_of(self._folder / file.stored_as).unlink(missing_ok=True)
        sync_folder(self._folder)

    def _read_record(self) -> dict[str, Any]:
        try:
            record = json.loads((self._folder / RECORD).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _is_unpacked(self, file: SetFile, record: Mapping[str, Any]) -> bool:
        known = record.get(file.sha256 or "")
        return (
            bool(file.unpack)
            and isinstance(known, dict)
            and all(self._is_right(name, known.get(name)) for name in file.unpack.values())
        )

    def _is_right(self, name: str, sha256: Any) -> bool:
        path = self._folder / name
        return path.is_file() and digest_of(path, "sha256") == sha256
