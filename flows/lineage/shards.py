"""Shards by name, and single rows that are read without the rest of a shard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flows.lineage.resolve import artifact_of_file, resolve
from flows.store.artifact import Artifact
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import file_system, is_local, open_stream
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.arrow import TABLE_KEY
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import FileEntry, Manifest

LINES = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".md")
"""Suffixes of files that are shown line by line."""

LABELS = {0: "B follows A", 1: "B is random", -1: "no B"}
"""Meaning of `next_sentence_label`."""

_MAX_LISTED_FILES = 6


class Shard(NamedTuple):
    """File of an artifact, or a file outside of a store.

    Attributes:
        path: Logical name, or the name of the file itself.
        location: Path or URL of a file outside of a store.
        is_any: True if the user named the artifact without one of its shards.
    """

    path: str
    artifact: Artifact | None
    entry: FileEntry | None
    location: str = ""
    is_any: bool = False

    @property
    def url(self) -> str:
        """Path or URL to read from.

        Raises:
            ArtifactCorruptError: The file is missing or not what was written.
        """
        return self.artifact.url(self.path) if self.artifact else self.location


def find_shard(text: str, *, open_store: Callable[[], ArtifactStore]) -> Shard:
    """Return the shard with a path, a URL or a name `ARTIFACT[:PART]`.

    Args:
        text: Name. PART is a file name, or a number among the shards. Default: the first shard.
        open_store: Function that returns the store to search.

    Raises:
        ArtifactNotFoundError: Nothing has the name.
    """
    if (match := artifact_of_file(text)) is not None:
        return Shard(match[1].path, *match)
    has_colon = ":" in text.replace("://", "")
    if text.endswith((".arrow", ".txt")) and not has_colon:
        return Shard(text.rpartition("/")[2], None, None, location=text)
    store = open_store()
    name, _, part = text.rpartition(":") if has_colon else (text, "", "")
    artifact = store.artifact(resolve(name, store=store))
    entry = _find_part(artifact.manifest, part)
    return Shard(entry.path, artifact, entry, is_any=not part)


def at_row(shard: Shard, row: int) -> tuple[Shard, int]:
    """Return the shard that contains a row, and the row's number in it.

    Args:
        shard: Shard. If the user named only the artifact, rows are counted across its shards.
        row: Row number from 0.

    Raises:
        ArtifactNotFoundError: The artifact has fewer rows.
    """
    if (
        shard.artifact is None
        or not shard.is_any
        or shard.entry not in shard.artifact.manifest.shards
    ):
        return shard, row
    first = 0
    for entry in shard.artifact.manifest.shards:
        if row < first + (entry.rows or 0):
            return Shard(entry.path, shard.artifact, entry), row - first
        first += entry.rows or 0
    raise ArtifactNotFoundError(f"{shard.artifact}: expected a row below {first:,}, got {row:,}")


def _find_part(manifest: Manifest, part: str) -> FileEntry:
    files, parts = manifest.files, manifest.shards or manifest.files
    if not part:
        best = [entry for entry in manifest.shards if entry.rows]
        best += [*manifest.shards, *(e for e in files if e.path in (VOCAB_FILE, "tables.txt"))]
        best += [entry for entry in files if entry.path.endswith((".arrow", *LINES))]
        return (best or files)[0]
    # The file name is enough for a file in a folder, such as a held-out shard.
    matches = [entry for entry in files if f"/{entry.path}".endswith(f"/{part}")]
    if part.isdigit() and int(part) < len(parts):
        matches.append(parts[int(part)])
    if matches:
        return matches[0]
    listed = ", ".join(entry.path for entry in files[:_MAX_LISTED_FILES])
    raise ArtifactNotFoundError(
        f"artifact {manifest.artifact_id}: expected a number below {len(parts)} or one of "
        f"{listed}{' ...' if len(files) > _MAX_LISTED_FILES else ''}, got {part!r}"
    )


# Rows


@contextlib.contextmanager
def open_columns(
    url: str, *, columns: Sequence[str] = ()
) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Open a shard and read only some of its columns; () for all."""
    fs, path = file_system(url)
    with pa.memory_map(path) if is_local(url) else open_stream(fs, path) as source:
        try:
            reader = pa.ipc.open_file(source)
        except pa.ArrowInvalid as error:
            raise ArtifactCorruptError(f"{url}: expected an Arrow IPC file: {error}") from error
        if columns:
            fields = [reader.schema.get_field_index(name) for name in columns]
            reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
        yield reader


def table_of(reader: pa.ipc.RecordBatchFileReader) -> str:
    """Return the name of a shard's table, "" for an Arrow file of another program."""
    name: bytes = (reader.schema.metadata or {}).get(TABLE_KEY, b"")
    return name.decode(errors="replace")


def read_rows(url: str, *, start: int, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rows of a shard with their numbers.

    Raises:
        ArtifactCorruptError: The rows are not valid.
    """
    end = 0
    with open_columns(url) as reader:
        for number in range(reader.num_record_batches):
            batch = _read_batch(url, reader, number)
            first, end = end, end + batch.num_rows
            low, high = max(start, first), min(start + count, end)
            if low < high:
                yield from enumerate(batch.slice(low - first, high - low).to_pylist(), start=low)
            if end >= start + count:
                return


def _read_batch(url: str, reader: pa.ipc.RecordBatchFileReader, number: int) -> pa.RecordBatch:
    try:
        batch = reader.get_batch(number)
        batch.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        # Only Arrow raises a plain OSError without errno, for data that it cannot decompress.
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise
        raise ArtifactCorruptError(
            f"{url}: record batch {number}: expected valid rows, got {error}"
        ) from error
    return batch


def read_row(url: str, row: int) -> dict[str, Any]:
    """Return a row of a shard.

    Raises:
        ArtifactNotFoundError: There is no such row.
        ArtifactCorruptError: The row is not valid.
    """
    for _, values in read_rows(url, start=row, count=1):
        return values
    raise ArtifactNotFoundError(f"{url}: no row {row:,}, counted from 0")


def rows_with(url: str, column: str, value: str) -> list[int]:
    """Return the numbers of the rows that have a value in a column, ascending."""
    with open_columns(url, columns=[column]) as reader:
        is_equal = pc.equal(reader.read_all().column(0), value)
        numbers: list[int] = pc.indices_nonzero(is_equal).to_pylist()
        return numbers
