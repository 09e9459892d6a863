"""Rows of artifacts as Parquet or Arrow streams: a file of each shard, some rows in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from flows.cards.parts import DEFAULT, Part
from flows.export.folders import NewFolder
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry, StageInput

Form = Literal["parquet", "arrow-stream"]
ENDINGS: dict[Form, str] = {"parquet": "parquet", "arrow-stream": "arrow"}

_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 32 << 20
"""A group of rows is written when it has as many of either."""


class _Writer(Protocol):
    def write_table(self, table: pa.Table) -> None: ...


class RowsWritten(NamedTuple):
    """What was written of a split."""

    pattern: str
    """Glob pattern of its files, relative to the folder."""

    size: int
    """Bytes of its files."""

    features: list[dict[str, Any]]
    """Its columns, as the front matter of a card has them."""


def write_part(part: Part, source: StageInput, *, folder: NewFolder, form: Form) -> RowsWritten:
    """Write the rows of a split, in their order.

    Raises:
        ArtifactCorruptError: a shard is not what the manifest says, in its bytes or its rows.
    """
    place = "data" if part.config == DEFAULT else part.config
    size, features = 0, list[dict[str, Any]]()
    count, ending = len(part.entries), ENDINGS[form]
    bar = tqdm(part.entries, desc=f"export {part.split}", unit="shard", disable=None)
    for number, entry in enumerate(bar):
        name = f"{place}/{part.split}-{number:05d}-of-{count:05d}.{ending}"
        shard = InputFile.of(source, entry)
        with open_shard(shard) as reader:
            features = features_of(reader.schema)
            with folder.open(name) as sink, _writer(sink, reader.schema, form=form) as writer:
                rows = sum(_written(group, writer) for group in _groups(reader))
        _check_rows(rows, entry, shard)
        size += folder.size(name)
    return RowsWritten(f"{place}/{part.split}-*.{ending}", size, features)


def _writer(sink: IO[bytes], schema: pa.Schema, *, form: Form) -> Any:
    if form == "parquet":
        return pq.ParquetWriter(sink, schema, compression="zstd")
    return pa.ipc.new_stream(sink, schema)


def _groups(reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.Table]:
    """The rows of a shard, some batches at a time."""
    group, rows, size = list[pa.RecordBatch](), 0, 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        group, rows, size = [*group, batch], rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(group)
            group, rows, size = [], 0, 0
    if group:
        yield pa.Table.from_batches(group)


def _written(group: pa.Table, writer: _Writer) -> int:
    writer.write_table(group.combine_chunks())
    return int(group.num_rows)


def _check_rows(rows: int, entry: FileEntry, shard: InputFile) -> None:
    if rows != entry.rows:
        raise ArtifactCorruptError(
            f"{entry.path} of {shard.artifact}: expected {entry.rows:,} rows, found {rows:,} at "
            f"{shard.url}: run `bertloom verify --rows`"
        )


def features_of(schema: pa.Schema) -> list[dict[str, Any]]:
    """The columns of a table as the front matter of a dataset card has them.

    >>> features_of(pa.schema([("ids", pa.list_(pa.uint16())), ("title", pa.string())]))
    [{'name': 'ids', 'list': 'uint16'}, {'name': 'title', 'dtype': 'string'}]
    """
    return [{"name": field.name, **_feature(field.type)} for field in schema]


def _feature(kind: pa.DataType) -> Mapping[str, Any]:
    if pa.types.is_list(kind):
        return {"list": str(kind.value_type)}
    return {"dtype": _NAMES.get(str(kind), str(kind))}


_NAMES = {"double": "float64", "float": "float32"}
"""datasets' names of types where they are others than Arrow's."""


def splits_written(parts: Sequence[Part]) -> str:
    """What was written, for people: `22,338 train, 297 held_out`."""
    return ", ".join(
        f"{part.rows:,} {part.split if part.config == DEFAULT else part.config}" for part in parts
    )
