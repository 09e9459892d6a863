"""Shards by name, and their rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flows.lineage.resolve import resolve
from flows.store.artifact import StoredArtifact
from flows.store.artifact_paths import artifact_of_path
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import file_system, is_local
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.arrow import TABLE_KEY
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

LINES = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".md")
"""Suffixes of files that are shown line by line."""


class Shard(NamedTuple):
    """File of an artifact, or a file outside of a store.

    Attributes:
        path: Logical name. "": the user named the artifact without one of its shards.
        location: Path or URL of a file outside of a store.
    """

    path: str
    artifact: StoredArtifact | None
    location: str = ""

    @property
    def url(self) -> str:
        """Path or URL to read from.

        Raises:
            ArtifactCorruptError: The file is missing or not what was written.
        """
        return self.artifact.url(self.path) if self.artifact else self.location

    def table(self) -> ds.Dataset:
        """Return the rows as a PyArrow dataset.

        Raises:
            ArtifactCorruptError: It is not an Arrow file, or not what was written.
        """
        if self.artifact:
            return self.artifact.table([self.path])
        import pyarrow.dataset as ds  # lazy: it loads pandas

        fs, path = file_system(self.location)
        filesystem = None if is_local(self.location) else fs
        try:
            return ds.dataset(path, format="ipc", filesystem=filesystem)
        except pa.ArrowInvalid as error:
            raise ArtifactCorruptError(
                f"{self.location}: expected an Arrow file: {error}"
            ) from error


def find_shard(text: str, *, open_store: Callable[[], ArtifactStore]) -> Shard:
    """Return the shard with a path, a URL or a name `ARTIFACT[:PART]`.

    Args:
        text: Name. PART is a file name, or a number among the shards.
        open_store: Function that returns the store to search.

    Raises:
        ArtifactNotFoundError: Nothing has the name.
    """
    if (in_artifact := artifact_of_path(text)) is not None:
        return _shard_at(text, in_artifact)
    has_colon = ":" in text.replace("://", "")
    if text.endswith((".arrow", ".txt")) and not has_colon:
        return Shard(text.rpartition("/")[2], None, location=text)
    store = open_store()
    name, _, part = text.rpartition(":") if has_colon else (text, "", "")
    artifact = store.artifact(resolve(name, store=store))
    return Shard(_find_part(artifact, part) if part else "", artifact)


def _shard_at(path: str, artifact: StoredArtifact) -> Shard:
    """Return the shard with a path in an artifact's folder; without a name for the folder."""
    for entry in artifact.manifest.files:
        if f"/{path}".endswith(f"/{entry.stored_name}"):
            return Shard(entry.path, artifact)
    if Path(path).is_file():
        raise ArtifactNotFoundError(
            f"{path}: expected a file of {artifact}, got one that its manifest does not list: a "
            "retried worker left it behind"
        )
    return Shard("", artifact)


def _find_part(artifact: StoredArtifact, part: str) -> str:
    # The file name is enough for a file in a folder, such as a held-out shard.
    matches = [path for path in artifact.files if f"/{path}".endswith(f"/{part}")]
    parts = artifact.manifest.shards or artifact.manifest.files
    if part.isdigit() and int(part) < len(parts):
        matches.append(parts[int(part)].path)
    return matches[0] if matches else artifact.entry(part).path


def at_row(shard: Shard, row: int) -> tuple[Shard, int]:
    """Return the shard that contains a row, and the row's number in it.

    Args:
        shard: Shard. If the user named only the artifact, rows are counted across its shards.
        row: Row number from 0.

    Raises:
        ArtifactNotFoundError: The artifact has fewer rows.
    """
    artifact = shard.artifact
    if shard.path or artifact is None:
        return shard, row
    first = 0
    for entry in artifact.manifest.shards:
        if row < first + (entry.rows or 0):
            return Shard(entry.path, artifact), row - first
        first += entry.rows or 0
    if artifact.manifest.shards:
        raise ArtifactNotFoundError(f"{artifact}: expected a row below {first:,}, got {row:,}")
    readable = [path for path in artifact.files if path in (VOCAB_FILE, "tables.md")]
    readable += [path for path in artifact.files if path.endswith((".arrow", *LINES))]
    return Shard((readable or artifact.files)[0], artifact), row


# Rows


def table_name(table: ds.Dataset) -> str:
    """Return the name of the table in a shard, "" for an Arrow file of another program."""
    name: bytes = (table.schema.metadata or {}).get(TABLE_KEY, b"")
    return name.decode(errors="replace")


def read_rows(table: ds.Dataset, *, start: int, count: int) -> list[dict[str, Any]]:
    """Return up to `count` rows of a shard.

    Raises:
        ArtifactCorruptError: The rows are not valid.
    """
    try:
        rows = table.take(range(start, min(start + count, table.count_rows())))
        rows.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        # Only Arrow raises a plain OSError without errno, for data that it cannot decompress.
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise
        raise ArtifactCorruptError(
            f"{', '.join(table.files)}: rows from {start:,}: expected valid rows, got {error}"
        ) from error
    listed: list[dict[str, Any]] = rows.to_pylist()
    return listed


def read_row(table: ds.Dataset, row: int) -> dict[str, Any]:
    """Return a row of a shard.

    Raises:
        ArtifactNotFoundError: There is no such row.
        ArtifactCorruptError: The row is not valid.
    """
    for values in read_rows(table, start=row, count=1):
        return values
    raise ArtifactNotFoundError(f"{', '.join(table.files)}: no row {row:,}, counted from 0")


def rows_with(table: ds.Dataset, column: str, value: str) -> list[int]:
    """Return the numbers of the rows that have a value in a column, ascending."""
    is_equal = pc.equal(table.to_table(columns=[column]).column(0), value)
    numbers: list[int] = pc.indices_nonzero(is_equal).to_pylist()
    return numbers
