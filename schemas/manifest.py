"""Manifests: the contents of an artifact, how it was built and from which inputs.

A stage returns a `StageOutput`. `flows` adds identity, lineage and environment and publishes a
`Manifest`. Later stages get a `StageInput`. `Manifest.model_json_schema()` is the JSON Schema.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MANIFEST_VERSION = 1
_NUMBER = re.compile(r"([0-9]+)")

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


def path_order(path: str) -> tuple[list[str | int], str]:
    """Return the sort key of a logical name, in which numbers compare as numbers.

    >>> sorted(["part-100000.arrow", "part-99999.arrow"], key=path_order)
    ['part-99999.arrow', 'part-100000.arrow']
    """
    parts = _NUMBER.split(path)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], path


def check_relative_path(path: str) -> str:
    """Return a relative path that stays in its folder.

    Raises:
        ValueError: The path is empty or absolute, or a part of it is `..`.
    """
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"expected a relative path without `..`, got {path!r}")
    return path


RelativePath = Annotated[str, AfterValidator(check_relative_path)]
"""Type of a field that is joined to the path of a folder."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Record):
    """File of an artifact."""

    path: RelativePath
    """Logical name, such as `part-00003.arrow`; unique in the artifact."""

    stored_name: RelativePath
    """Physical name in the folder `data/`, such as `part-00003-<uuid>.arrow`."""

    size_bytes: Count
    sha256: Sha256
    rows: Count | None = None
    """Number of rows of an Arrow table. None: another file."""

    statistics: dict[str, int | float | str] = {}
    """Facts that later stages need without opening the file."""

    excluded_from_digest: bool = False
    """True for files that differ between runs, such as timings. The content digest excludes them.
    """


class RawInput(_Record):
    """File that a stage read by its path: from outside the store, or of an artifact."""

    name: str
    """Name within the source."""

    uri: str
    size_bytes: Count
    """Size as stored."""

    sha256: Sha256
    """Digest of the bytes as stored."""

    checksum: str = ""
    """Published checksum that was verified, `sha1:...` or `md5:...`. "": none."""

    key_digest: str = ""
    """Digest for the cache key. "": `sha256`."""

    input_name: str = ""
    """Name of the input whose file this is. "": the file is not part of an artifact."""


class Reuse(_Record):
    """Work items of a stage that were restored from earlier artifacts."""

    items: Count
    """Number of work items (splits, shards, passes over shards)."""

    items_reused: Count
    weight: Count
    """Total weight of the items, about bytes of input."""

    weight_reused: Count


class StageOutput(_Record):
    """Return value of a stage function."""

    files: tuple[FileEntry, ...]
    """Files of the artifact. Readers ignore all other files in the folder."""

    records: tuple[FileEntry, ...] = ()
    """Small files for reports, such as samples of text. They are not part of the content."""

    counters: dict[str, int] = {}
    """Counts by kebab-case name: `RECORDS-in`, `RECORDS-kept`, `RECORDS-dropped-REASON`, ..."""

    statistics: dict[str, Any] = {}
    """Plain JSON values, the same for the same inputs and configuration. They are part of the cache
    keys of later stages, which can depend on them."""

    table_name: str = ""
    """Name of the shards' Arrow table (`schemas.arrow`). "": no table."""

    notes: tuple[str, ...] = ()
    """Notes for the reader, for example that a dump was truncated."""

    raw_inputs: tuple[RawInput, ...] = ()
    """Files that were read by their paths."""

    reuse: Reuse | None = None
    """Restored work items. None: the stage does not support reuse."""


class StageInput(_Record):
    """Input artifact of a stage function."""

    name: str
    """Name of the input: `documents`, `vocabulary`, `tokens`."""

    artifact_id: str
    data: str
    """URL of the folder with the files, under their stored names."""

    files: tuple[FileEntry, ...]
    counters: dict[str, int] = {}
    """Counts for messages and estimates. They are not in cache keys: no output can depend on them.
    """

    statistics: dict[str, Any] = {}
    """Statistics of the earlier stage. They are part of the cache key."""


class InputRef(_Record):
    """Artifact that another one was built from."""

    name: str
    stage: str
    artifact_id: str
    cache_key: str
    content_digest: str
    manifest: RelativePath
    """Path of the manifest, relative to the root of the store."""

    store: str = ""
    """Path or URL of the other store that holds the artifact. "": the same store."""


class ProducedBy(_Record):
    """Run that built an artifact."""

    run_id: str
    git_commit: str = ""
    """Commit of the code's checkout. "": not a checkout."""

    git_dirty: bool | None = None
    """True if the checkout had uncommitted changes. None: not a checkout."""

    runner: str

    worker_code_digest: str = ""
    """`sha256:...` of the sources that the workers ran. "": the stage has no jobs."""

    platform: str
    """Operating system and processor, such as `Linux x86_64`."""

    started_at: str
    """ISO 8601, UTC."""

    ended_at: str
    """ISO 8601, UTC."""

    duration_seconds: float = Field(ge=0)
    reuse: Reuse | None = None
    """Restored work items. None: the stage does not support reuse."""


class Environment(_Record):
    """Software that an artifact was built with."""

    python: str
    platform: str
    packages: dict[str, str]
    """Version of every installed distribution by normalized name."""


class Manifest(_Record):
    """Description of an artifact."""

    manifest_version: int = MANIFEST_VERSION
    artifact_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    """Unique id in the store."""

    stage: str
    """Name of the stage, such as `build-instances`."""

    stage_version: int
    cache_key: Sha256
    """sha256 of the canonical JSON of `cache_key_inputs`."""

    cache_key_inputs: dict[str, Any]
    """Inputs of the cache key, which explain why a key differs."""

    content_digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    """Digest of the logical names, sizes and sha256 of all files."""

    artifact_path: RelativePath
    """Folder of the artifact, relative to the root of the store."""

    files: tuple[FileEntry, ...]
    counters: dict[str, int]
    statistics: dict[str, Any]
    table_name: str
    notes: tuple[str, ...]
    raw_inputs: tuple[RawInput, ...]
    inputs: tuple[InputRef, ...]
    produced_by: ProducedBy
    environment: Environment
    config: dict[str, Any]
    """Whole configuration of the stage, with redacted URLs."""

    @property
    def data_path(self) -> str:
        """Folder of the files, relative to the root of the store."""
        return f"{self.artifact_path}/data"

    @property
    def manifest_path(self) -> str:
        """Path of the manifest, relative to the root of the store."""
        return f"{self.artifact_path}/manifest.json"

    @property
    def shards(self) -> tuple[FileEntry, ...]:
        """Files of the artifact's table, in order."""
        return tuple(entry for entry in self.files if entry.path.startswith("part-"))

    @property
    def size_bytes(self) -> int:
        """Total size of the files in bytes."""
        return sum(entry.size_bytes for entry in self.files)

    def input(self, name: str) -> InputRef | None:
        """Return the input of this name, or None."""
        return next((ref for ref in self.inputs if ref.name == name), None)

    def file(self, path: str) -> FileEntry | None:
        """Return the file of this logical name, or None."""
        return next((entry for entry in self.files if entry.path == path), None)
