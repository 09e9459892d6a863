"""Shards by name, and single rows of them, read without the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flows.lineage.kept import kept_now
from flows.lineage.resolve import artifact_of_file, resolve
from flows.store.artifact import Artifact
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import file_system, is_local, open_stream
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.arrow import TABLE_KEY
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import FileEntry, Manifest

LINES = (".txt", ".tsv", ".csv", ".jsonl", ".json", ".md")
"""Ends of the names of files that are shown line by line."""

LABELS = {0: "B follows A", 1: "B is random", -1: "no B"}
"""What `next_sentence_label` means."""

_TABLES_FILE = "tables.txt"
_SHOWN_FILES = 6


class Shard(NamedTuple):
    """File of an artifact, or a file outside of a store."""

    path: str
    """Logical name, or the name of the file itself."""

    artifact: Artifact | None
    entry: FileEntry | None
    location: str = ""
    """Path or URL of a file outside of a store."""

    is_any: bool = False
    """Whether the user named the artifact without one of its shards."""

    @property
    def url(self) -> str:
        """Path or URL to read from.

        Raises:
            ArtifactCorruptError: The file is missing or not what was written.
        """
        return self.artifact.url(self.path) if self.artifact else self.location


def find_shard(text: str, *, open_store: Callable[[], ArtifactStore]) -> Shard:
    """The shard that a path, a URL or `ARTIFACT[:part]` names.

    Args:
        text: as the user gave it; a part is a file's name, or a number among the shards. Without
            one, an artifact's first shard.
        open_store: gives the store to look artifacts up in.

    Raises:
        ArtifactNotFoundError: there is none.
    """
    if (match := artifact_of_file(text)) is not None:
        return Shard(match[1].path, *match)
    has_colon = ":" in text.replace("://", "")
    if text.endswith((".arrow", ".txt")) and not has_colon:
        return Shard(text.rpartition("/")[2], None, None, location=text)
    store = open_store()
    name, _, part = text.rpartition(":") if has_colon else (text, "", "")
    artifact = store.artifact(resolve(name, store=store))
    entry = _part(artifact.manifest, part)
    return Shard(entry.path, artifact, entry, is_any=not part)


def at_row(shard: Shard, row: int) -> tuple[Shard, int]:
    """The shard that holds a row, and the row's number in it.

    Args:
        shard: of `find_shard`. Where an artifact was asked for, its shards follow each other.
        row: from 0.

    Raises:
        ArtifactNotFoundError: the artifact has fewer rows.
    """
    if not shard.is_any or shard.artifact is None:
        return shard, row
    first, shards = 0, shard.artifact.manifest.shards
    for entry in shards:
        if row < first + (entry.rows or 0):
            return Shard(entry.path, shard.artifact, entry), row - first
        first += entry.rows or 0
    if not first:  # no shards with rows, but a file of another kind
        return shard, row
    raise ArtifactNotFoundError(
        f"artifact {shard.artifact.manifest.artifact_id} has no row {row:,}: its {len(shards):,} "
        f"shards have {first:,}, counted from 0"
    )


def _part(manifest: Manifest, part: str) -> FileEntry:
    """A part by its name, or its number among the shards; "" for the first."""
    files, shards = manifest.files, manifest.shards
    if not part:
        best = [entry for entry in shards if entry.rows != 0] + list(shards)
        # Of an artifact without shards, the file that says most of it.
        best += [entry for entry in files if entry.path in (VOCAB_FILE, _TABLES_FILE)]
        best += [entry for entry in files if entry.path.endswith((".arrow", *LINES))]
        return (best or files)[0]
    # A file in a folder of its own, such as held-out shards, is known by its name alone too.
    named = [entry for entry in files if f"/{entry.path}".endswith(f"/{part}")]
    parts = shards or files
    if part.isdigit() and int(part) < len(parts):
        named.append(parts[int(part)])
    if named:
        return named[0]
    shown = ", ".join(entry.path for entry in files[:_SHOWN_FILES])
    raise ArtifactNotFoundError(
        f"artifact {manifest.artifact_id} has no part {part!r}: expected a number below "
        f"{len(parts)}, or one of {shown}{' ...' if len(files) > _SHOWN_FILES else ''}"
    )


# Rows


def _open_remote(url: str) -> Any:
    """A remote file to read from: out of memory where it is kept there."""
    fs, path = file_system(url)
    data = kept_now().small_file(url)
    return pa.BufferReader(data) if data is not None else open_stream(fs, path)


@contextlib.contextmanager
def open_columns(
    url: str, *, columns: Sequence[str] = ()
) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """A shard with some of its columns, () for all: the others are not read.

    A local one is mapped, a remote one read by ranges.
    """
    with pa.memory_map(file_system(url)[1]) if is_local(url) else _open_remote(url) as source:
        try:
            reader = pa.ipc.open_file(source)
        except pa.ArrowInvalid as error:
            raise ArtifactCorruptError(
                f"{url}: expected an Arrow IPC file, found something else ({error}). "
                "`bertloom verify` tells which files of an artifact are damaged."
            ) from error
        if columns:
            fields = [reader.schema.get_field_index(name) for name in columns]
            reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
        yield reader


def table_of(reader: pa.ipc.RecordBatchFileReader) -> str:
    """Name of the table that a shard is of; "" for a file of others."""
    name: bytes = (reader.schema.metadata or {}).get(TABLE_KEY, b"")
    return name.decode(errors="replace")


def read_rows(url: str, *, start: int, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a shard with their numbers; of a compressed one, only their batches are unpacked."""
    end = 0
    with open_columns(url) as reader:
        for number, rows in enumerate(_batches(url, reader)):
            first, end = end, end + rows
            low, high = max(start - first, 0), min(start + count - first, rows)
            if low < high:
                found = _sound_batch(url, reader, number).slice(low, high - low).to_pylist()
                yield from enumerate(found, start=first + low)


def _sound_batch(url: str, reader: pa.ipc.RecordBatchFileReader, number: int) -> pa.RecordBatch:
    """Return a record batch.

    Raises:
        ArtifactCorruptError: Its bytes are not what its columns' types allow.
    """
    try:
        batch = reader.get_batch(number)
        batch.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        # Arrow's own OSErrors, of what cannot be unpacked, have no number. Others are the disk's
        # or the network's.
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise
        raise ArtifactCorruptError(
            f"{url}: record batch {number}: expected sound rows, got {error}. "
            "`bertloom verify` tells which files of an artifact are damaged."
        ) from error
    return batch


def _batches(url: str, reader: pa.ipc.RecordBatchFileReader) -> list[int]:
    """How many rows each record batch of a shard has, of which one column is read."""
    with open_columns(url, columns=reader.schema.names[:1]) as narrow:
        return [narrow.get_batch(number).num_rows for number in range(narrow.num_record_batches)]


def read_row(url: str, row: int) -> dict[str, Any]:
    """A row of a shard.

    Raises:
        ArtifactNotFoundError: there is no such row.
    """
    for _, found in read_rows(url, start=row, count=1):
        return found
    with open_columns(url) as reader:
        rows = sum(_batches(url, reader))
    raise ArtifactNotFoundError(f"{url}: no row {row:,}: it has {rows:,}, counted from 0")


def rows_with(url: str, column: str, value: str) -> list[int]:
    """The rows of a shard that have a text in a column, ascending."""
    with open_columns(url, columns=[column]) as reader:
        values = reader.read_all().column(0)
        found: list[int] = pc.indices_nonzero(pc.equal(values, value)).to_pylist()
        return found
