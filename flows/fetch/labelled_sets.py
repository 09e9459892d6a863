"""GLUE, SQuAD and SWAG from their official addresses, with pinned checksums (`sources.yaml`).

Each set is written to the folder that `bertloom finetune --data` and recipes read, under the
official names. What came out of an archive stands in `.fetched.json` beside it, so that a set that
is there and right is not fetched again.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from flows.fetch.archives import unpack
from flows.fetch.client import Say, Web, shown_url
from flows.fetch.downloads import (
    FILE_NAME,
    Fetched,
    Wanted,
    digest_of,
    drop_partial,
    fetch_files,
    local_folder,
    locked_folder,
    partial_of,
    publish,
)
from flows.recipes.safe_yaml import YamlDocument, parse_yaml, read_yaml
from pipelines.io.local_files import sync_folder, write_whole
from schemas.configs import Config, SourceName
from schemas.errors import ConfigError, FetchError

RECORD = ".fetched.json"
"""The sha256 of the files that came out of each archive, by that of the archive."""

_Record = dict[str, dict[str, str]]

# What there is: `sources.yaml`, or a file of one's own of the same form

FileName = Annotated[str, Field(pattern=rf"^{FILE_NAME.pattern}$")]


class SetFile(Config):
    """A file to download."""

    url: str = Field(pattern=r"^https?://[^\s/@]+/\S+$")
    size: int | None = Field(default=None, ge=0)
    """Bytes; None where nobody has said."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """None: it is refused unless it is taken on trust."""
    save_as: FileName | None = None
    """Its name in the set's folder; else the last part of its URL."""
    unpack: dict[str, FileName] = Field(default={})
    """Path in a zip archive to the name in the set's folder. The archive is not kept."""

    @property
    def stored_as(self) -> str:
        """The name under which it is downloaded."""
        return self.save_as or self.url.partition("?")[0].rpartition("/")[2]

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the files that it becomes."""
        return tuple(self.unpack.values()) or (self.stored_as,)

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if not FILE_NAME.fullmatch(self.stored_as):
            raise ValueError(f"expected save_as, since {self.url} ends in no name of a file")
        return self


class LabelledSet(Config):
    """A set of examples."""

    title: str
    benchmark: str = Field(pattern=r"^[a-z0-9-]+$")
    """The command that fetches it: glue, squad, swag."""
    folder: str
    """Below the folder that is given; where recipes and `--data` find it."""
    licence: str
    homepage: str
    files: tuple[SetFile, ...] = Field(min_length=1)

    @field_validator("folder")
    @classmethod
    def _is_below(cls, folder: str) -> str:
        if not all(FILE_NAME.fullmatch(part) for part in folder.split("/")):
            raise ValueError(f"expected a folder below the one given, found {folder!r}")
        return folder

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [name for file in self.files for name in {file.stored_as, *file.targets}]
        if len(set(names)) != len(names):
            raise ValueError("two of its files would have one name")
        return self

    @property
    def size(self) -> int | None:
        """Bytes to download; None where nobody has said."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def is_pinned(self) -> bool:
        """Whether every file has a sha256."""
        return all(file.sha256 for file in self.files)


class Elsewhere(Config):
    """A set that is not fetched, and where a person gets it."""

    title: str
    licence: str
    how: str


class Sources(Config):
    """All of the file."""

    sets: dict[SourceName, LabelledSet] = Field(default={})
    elsewhere: dict[SourceName, Elsewhere] = Field(default={})

    def of(self, benchmark: str) -> list[str]:
        """The names of a benchmark's sets."""
        return [name for name, found in self.sets.items() if found.benchmark == benchmark]


def load_sources(own: str | None = None) -> Sources:
    """The packaged sources, and over them those of a file of one's own.

    Raises:
        ConfigError: the file cannot be read or is not of this form.
    """
    text = (files("flows.fetch") / "sources.yaml").read_text(encoding="utf-8")
    packaged = _parsed(parse_yaml(text, where="sources.yaml"))
    if own is None:
        return packaged
    mine = _parsed(read_yaml(own, where=f"--sources {own}"))
    return Sources(sets=packaged.sets | mine.sets, elsewhere=packaged.elsewhere | mine.elsewhere)


@functools.cache
def urls_by_digest() -> dict[str, str]:
    """Where the packaged sources have files and archives from, by their sha256."""
    known = [file for one in load_sources().sets.values() for file in one.files]
    return {file.sha256: file.url for file in known if file.sha256 is not None}


def _parsed(document: YamlDocument) -> Sources:
    try:
        return Sources.model_validate(document.value or {})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{document.where}: {path}: {first['msg']}, found {first['input']!r:.80}"
        ) from error


# Fetching it


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
