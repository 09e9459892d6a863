"""Manifests: what an artifact is made of, how it was made, and what it was made from.

A stage returns a `StageOutput`; `flows` adds identity, lineage and environment and publishes a
`Manifest`, of which later stages are handed a `StageInput`. `Manifest.model_json_schema()` is the
JSON Schema of the file.

Every stage imports this module, so that it is part of their code's fingerprint: it holds data only.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from schemas.paths import RelativePath

MANIFEST_VERSION = 1
_NUMBER = re.compile(r"([0-9]+)")


def path_order(path: str) -> tuple[list[str | int], str]:
    """Return the sort key of a logical name: numbers in it compare as numbers.

    >>> sorted(["part-100000.arrow", "part-99999.arrow"], key=path_order)
    ['part-99999.arrow', 'part-100000.arrow']
    """
    parts = _NUMBER.split(path)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], path


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FileEntry(_Record):
    """One file of an artifact."""

    path: RelativePath
    """Logical name, such as `part-00003.arrow` or `vocab.txt`; unique in the artifact."""

    object: RelativePath
    """Physical name below the attempt's `data/`, such as `part-00003-<uuid>.arrow`."""

    size: int = Field(ge=0)
    """Bytes."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Hex digest of the bytes."""

    rows: int | None = Field(default=None, ge=0)
    """Rows of an Arrow table; None for other files."""

    logical: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    """Hex digest of the rows, whatever their order (`pipelines.io.row_digest`); "" for other
    files."""

    statistics: dict[str, int | float | str] = {}
    """What later stages may want to know of this file without opening it."""

    is_record: bool = False
    """A record of how the work went, such as timings, that differs from one run to the next: no
    part of what the artifact holds, and so left out of its content digest."""


class RawInput(_Record):
    """A file from outside the store that a stage read."""

    name: str
    """Its name within the source."""

    uri: str
    """Where it was."""

    size: int = Field(ge=0)
    """Bytes, as stored."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Hex digest of the bytes, as stored."""

    checksum: str = ""
    """The published checksum it was verified against, `sha1:...` or `md5:...`; "" if none."""

    believed: str = ""
    """The list whose word was taken for `sha256`, as the recipe allows; "" where it was read."""

    identity: str = ""
    """What of it decides the stage's bytes, for the cache key; "" stands for its sha256."""


class Reuse(_Record):
    """How much of a stage's work was restored from earlier artifacts, piece by piece."""

    pieces: int = Field(ge=0)
    """Planned pieces of work (splits, shards, passes over shards)."""

    pieces_reused: int = Field(ge=0)

    work: int = Field(ge=0)
    """Sum of the pieces' weights, about bytes of input."""

    work_reused: int = Field(ge=0)


class StageOutput(_Record):
    """What a stage function returns."""

    files: tuple[FileEntry, ...]
    """Every file that is part of the artifact. Others in the folder do not exist for readers."""

    records: tuple[FileEntry, ...] = ()
    """Small files for reports, such as samples of text. They are not part of the content."""

    counters: dict[str, int] = {}
    """Counts by kebab-case name: `THINGS-in`, `THINGS-kept`, `THINGS-dropped-REASON`, ..."""

    statistics: dict[str, Any] = {}
    """Plain JSON values. Later stages may act on them, so they are part of those stages' keys and
    must be the same whenever the stage's inputs and configuration are."""

    table: str = ""
    """Name of the Arrow table the shards hold (`schemas.arrow`); "" if none."""

    notes: tuple[str, ...] = ()
    """What a reader must know, e.g. that a dump was truncated and how much of it was kept."""

    raw_inputs: tuple[RawInput, ...] = ()
    """Files from outside the store that were read."""

    reuse: Reuse | None = None
    """None where the stage does not work piece by piece."""


class StageInput(_Record):
    """What a stage function is given for each artifact it reads."""

    name: str
    """What the stage calls it: `documents`, `vocabulary`, `tokens`."""

    artifact_id: str
    data: str
    """URL of the folder that holds the files' `object`s."""

    files: tuple[FileEntry, ...]
    counters: dict[str, int] = {}
    """For messages and estimates only: they are in no cache key, so no byte may depend on them."""

    statistics: dict[str, Any] = {}
    """As the stage before gave them; these are in the cache key."""


class InputRef(_Record):
    """An artifact that another was made from."""

    name: str
    stage: str
    artifact_id: str
    cache_key: str
    content: str
    manifest: RelativePath
    """Path of its manifest, relative to the root of the store."""


class ProducedBy(_Record):
    """The run that made an artifact."""

    run_id: str
    git_commit: str = ""
    """Commit of the checkout that the code ran from; "" where it is not one."""

    git_dirty: bool | None = None
    """Whether the checkout had changes that are not committed; None where it is no checkout."""

    runner: str

    worker_code: str = ""
    """`sha256:...` of the sources that its jobs' workers ran, which refuse to work with others; ""
    where a stage has no jobs."""

    host_kind: str
    """Operating system and processor, such as `Linux x86_64`."""

    started: str
    """ISO 8601, UTC."""

    ended: str
    """ISO 8601, UTC."""

    seconds: float = Field(ge=0)

    reuse: Reuse | None = None
    """How much was restored; None where the stage keeps no pieces."""


class Environment(_Record):
    """The software an artifact was made with."""

    python: str
    platform: str
    packages: dict[str, str]
    """Version of every installed distribution by its normalised name."""


class Manifest(_Record):
    """Everything that is known about an artifact."""

    manifest_version: int = MANIFEST_VERSION
    artifact_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    """Names this attempt, and is unique in the store."""

    stage: str
    """Name of the stage, such as `build-instances`."""

    stage_version: int
    """The stage's version when it ran."""

    cache_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    """sha256 of the canonical JSON of `key_spec`."""

    key_spec: dict[str, Any]
    """What the cache key is made of, so that a key can be explained."""

    content: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    """Digest of the logical names, sizes and sha256 of all files."""

    logical_content: str
    """`ROWS:DIGEST` of all rows, whatever their order and shards; "" where no file is a table."""

    location: RelativePath
    """Folder of the artifact, relative to the root of the store; its files are in `data/`."""

    files: tuple[FileEntry, ...]
    counters: dict[str, int]
    statistics: dict[str, Any]
    table: str
    notes: tuple[str, ...]
    raw_inputs: tuple[RawInput, ...]
    inputs: tuple[InputRef, ...]
    produced_by: ProducedBy
    environment: Environment
    config: dict[str, Any]
    """The stage's whole configuration, also what is in no key; credentials in URLs are cut."""

    @property
    def data(self) -> str:
        """Folder of the files, relative to the root of the store."""
        return f"{self.location}/data"

    @property
    def path(self) -> str:
        """Path of the manifest itself, relative to the root of the store."""
        return f"{self.location}/manifest.json"

    @property
    def shards(self) -> tuple[FileEntry, ...]:
        """The files that hold the artifact's own table, in order."""
        return tuple(entry for entry in self.files if entry.path.startswith("part-"))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def input(self, name: str) -> InputRef | None:
        """The input of that name, or None."""
        return next((ref for ref in self.inputs if ref.name == name), None)

    def file(self, path: str) -> FileEntry | None:
        """The file of that logical name, or None."""
        return next((entry for entry in self.files if entry.path == path), None)
