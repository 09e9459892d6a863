"""Checks of the rows of shards against the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import pyarrow as pa

from pipelines.io.row_digest import MODULUS, rows_digest
from schemas import arrow
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry, Manifest


class ShardRows(NamedTuple):
    """Schema and rows of an Arrow file."""

    schema: Any
    """None if it is not an Arrow file."""

    num_rows: int
    digest: str
    """Hex digest of the rows (`pipelines.io.row_digest`)."""

    read_error: str = ""

    def errors(self, entry: FileEntry, manifest: Manifest) -> list[str]:
        """Return what differs from the manifest, one text each."""
        if self.read_error:
            return [self.read_error]
        errors = []
        if self.num_rows != entry.rows:
            errors.append(f"expected {entry.rows:,} rows, got {self.num_rows:,}")
        if entry.rows_digest and self.digest != entry.rows_digest:
            errors.append(f"expected rows with the digest {entry.rows_digest}, got {self.digest}")
        return [*errors, *_check_table(self.schema, entry, manifest=manifest)]


def read_rows(source: IO[bytes]) -> ShardRows:
    """Read an Arrow IPC file, one batch in memory at a time."""
    num_rows = digest = 0
    try:
        with pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                num_rows += batch.num_rows
                digest += rows_digest(batch)
            return ShardRows(reader.schema, num_rows, f"{digest % MODULUS:032x}")
    except (pa.ArrowException, ValueError) as error:
        return ShardRows(None, 0, "", f"expected an Arrow IPC file: {error}")


def _check_table(schema: Any, entry: FileEntry, *, manifest: Manifest) -> list[str]:
    name = _table_name(schema)
    if manifest.table_name and entry.path.startswith("part-") and name != manifest.table_name:
        return [f"expected table {manifest.table_name!r}, got {name!r}"]
    tables = [table for table in _tables() if _table_name(table) == name]
    if not tables or any(schema.equals(table, check_metadata=False) for table in tables):
        return []
    try:
        arrow.check_schema(schema, tables[0], where=entry.stored_name)
    except ArtifactCorruptError as error:
        return [str(error)]
    return []


def _table_name(schema: Any) -> str:
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return metadata.get(arrow.TABLE_KEY, b"").decode()


def _tables() -> list[Any]:
    """Return the schema of every table, for two-byte and four-byte ids."""
    return [
        *(item for item in vars(arrow).values() if isinstance(item, pa.Schema)),
        *(
            schema(size)
            for schema in (arrow.tokens_schema, arrow.instances_schema)
            for size in _SIZES
        ),
    ]


_SIZES = (1 << 16, (1 << 16) + 1)
"""Largest vocabulary with two-byte ids, smallest with four-byte ids."""
