"""Single rows of shards, read without the rest of the shard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.io.file_systems import file_system
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError


def read_row(url: str, row: int) -> dict[str, Any]:
    """A row of a shard; of a compressed one, only its record batch is unpacked.

    Raises:
        ArtifactNotFoundError: there is no such row.
    """
    first = 0
    with open_columns(url) as reader, open_columns(url, columns=reader.schema.names[:1]) as narrow:
        for number in range(reader.num_record_batches):
            rows = narrow.get_batch(number).num_rows
            if row < first + rows:
                found: dict[str, Any] = (
                    reader.get_batch(number).slice(row - first, 1).to_pylist()[0]
                )
                return found
            first += rows
    raise ArtifactNotFoundError(f"{url}: no row {row:,}: it has {first:,}, counted from 0")


def rows_with(url: str, column: str, value: str) -> list[int]:
    """The rows of a shard that have a text in a column, ascending."""
    found: list[int] = []
    first = 0
    with open_columns(url, columns=[column]) as reader:
        for number in range(reader.num_record_batches):
            values = reader.get_batch(number).column(0)
            matching = pc.indices_nonzero(pc.equal(values, pa.scalar(value, values.type)))
            found += [first + index for index in matching.to_pylist()]
            first += len(values)
    return found


@contextlib.contextmanager
def open_columns(
    url: str, *, columns: Sequence[str] = ()
) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """A shard with some of its columns, "" for all: the others are not read.

    A local one is mapped, a remote one read by ranges.
    """
    fs, path = file_system(url)
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    with pa.memory_map(path) if "file" in protocols else fs.open(path, "rb") as source:
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
