"""Rows of a shard: that they are the table, and hold the rows, that a manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import pyarrow as pa

from pipelines.io.row_digest import MODULUS, rows_digest
from schemas import arrow
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry, Manifest


class RowsFound(NamedTuple):
    """What an Arrow file holds."""

    schema: Any
    """None where it is no such file."""

    rows: int
    logical: str
    """Hex digest of the rows (`pipelines.io.row_digest`)."""

    problem: str = ""
    """Why the rows could not be read."""

    def problems(self, entry: FileEntry, manifest: Manifest) -> list[str]:
        """What is not as the manifest says, one text each."""
        if self.problem:
            return [self.problem]
        found = []
        if self.rows != entry.rows:
            found.append(f"expected {entry.rows:,} rows, found {self.rows:,}")
        if entry.logical and self.logical != entry.logical:
            found.append(f"expected rows with the digest {entry.logical}, found {self.logical}")
        return [*found, *_check_table(self.schema, entry, manifest=manifest)]


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


def _check_table(schema: Any, entry: FileEntry, *, manifest: Manifest) -> list[str]:
    name, version = _named(schema)
    if manifest.table and entry.path.startswith("part-") and name != manifest.table:
        return [f"expected the table {manifest.table!r}, found {name!r}"]
    known = [item for item in _tables() if _named(item) == (name, version)]
    # A table of another version of bertloom can be sound, and this one does not know its columns.
    if not known or any(schema.equals(item, check_metadata=False) for item in known):
        return []
    try:
        arrow.check_schema(schema, known[0], where=entry.object)
    except ArtifactCorruptError as error:
        return [str(error)]
    return []


def _named(schema: Any) -> tuple[str, str]:
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return (
        metadata.get(arrow.TABLE_KEY, b"").decode(),
        metadata.get(arrow.VERSION_KEY, b"").decode(),
    )


def _tables() -> list[Any]:
    """Every table that this version writes; those of ids once for each width."""
    made = [make(size) for make in (arrow.tokens_schema, arrow.instances_schema) for size in _SIZES]
    return [*(item for item in vars(arrow).values() if isinstance(item, pa.Schema)), *made]


_SIZES = (1 << 16, (1 << 16) + 1)
"""Vocabularies: the largest of two-byte ids, the smallest of four-byte ids."""
