"""Checking tables row by row: that they are the table, and hold the rows, that a manifest says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

import pyarrow as pa

from pipelines.io.row_digest import MODULUS, rows_digest
from schemas import arrow
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry, Manifest


class RowsFound(NamedTuple):
    """What a table turned out to hold."""

    schema: Any
    """Of the Arrow file; None where it is no such file."""

    rows: int
    logical: str
    """Hex digest of the rows (`pipelines.io.row_digest`)."""

    problem: str = ""
    """Why the rows could not be read."""


def read_rows(source: IO[bytes]) -> RowsFound:
    """Read a whole Arrow IPC file, one batch in memory at a time."""
    rows = total = 0
    try:
        with pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                rows += batch.num_rows
                total += rows_digest(batch)
            return RowsFound(reader.schema, rows, f"{total % MODULUS:032x}")
    except (pa.ArrowException, ValueError) as error:
        return RowsFound(None, 0, "", f"expected an Arrow IPC file: {error}")


def check_rows(found: RowsFound, entry: FileEntry, *, manifest: Manifest) -> list[str]:
    """What of a table is not as its manifest says, one text each."""
    if found.problem:
        return [found.problem]
    problems = []
    if found.rows != entry.rows:
        problems.append(f"expected {entry.rows:,} rows, found {found.rows:,}")
    if entry.logical and found.logical != entry.logical:
        problems.append(f"expected rows with the digest {entry.logical}, found {found.logical}")
    return [*problems, *_check_table(found.schema, entry, manifest=manifest)]


def _check_table(schema: Any, entry: FileEntry, *, manifest: Manifest) -> list[str]:
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    name = metadata.get(arrow.TABLE_KEY, b"").decode()
    version = metadata.get(arrow.VERSION_KEY, b"").decode()
    if manifest.table and entry.path.startswith("part-") and name != manifest.table:
        return [f"expected the table {manifest.table!r}, found {name!r}"]
    known = [item for item in _tables() if _name_of(item) == (name, version)]
    # A table of another version of bertloom can be sound, and this one does not know its columns.
    if not known or any(schema.equals(item, check_metadata=False) for item in known):
        return []
    try:
        arrow.check_schema(schema, known[0], where=entry.object)
    except ArtifactCorruptError as error:
        return [str(error)]
    return []


def _name_of(schema: Any) -> tuple[str, str]:
    metadata = schema.metadata
    return metadata[arrow.TABLE_KEY].decode(), metadata[arrow.VERSION_KEY].decode()


def _tables() -> Sequence[Any]:
    """Every table that this version writes; those of ids once for each width."""
    fixed = [item for item in vars(arrow).values() if isinstance(item, pa.Schema)]
    widths = (1 << 16, (1 << 16) + 1)
    return [
        *fixed,
        *(arrow.tokens_schema(size) for size in widths),
        *(arrow.instances_schema(size) for size in widths),
    ]
