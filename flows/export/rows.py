"""Export rows as Parquet or Arrow streams, one file per shard, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from flows.cards.splits import CardSplit, Suffix
from flows.export.atomic_folder import AtomicFolder
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.errors import ArtifactCorruptError
from schemas.manifest import StageInput

_MAX_GROUP_ROWS = 1 << 16
_MAX_GROUP_BYTES = 32 << 20


def write_split(
    split: CardSplit, source: StageInput, *, folder: AtomicFolder, suffix: Suffix
) -> None:
    """Write the rows of a split in their order.

    Raises:
        ArtifactCorruptError: A shard does not match the manifest.
    """
    files = tqdm(split.files, desc=f"export {split.name}", unit="shard", disable=None)
    for number, entry in enumerate(files):
        shard = InputFile.of(source, entry)
        name = f"{split.prefix}-{number:05d}-of-{len(split.files):05d}.{suffix}"
        rows = 0
        with (
            open_shard(shard) as reader,
            folder.open(name) as sink,
            _open_writer(sink, reader.schema, suffix) as writer,
        ):
            for group in _row_groups(reader):
                writer.write_table(group)
                rows += group.num_rows
        if rows != entry.rows:
            raise ArtifactCorruptError(
                f"{shard.url}: expected {entry.rows:,} rows of {entry.path}, got {rows:,}. Run "
                f"`bertloom verify {source.artifact_id}`."
            )


def _open_writer(sink: IO[bytes], schema: pa.Schema, suffix: Suffix) -> Any:
    if suffix == "parquet":
        return pq.ParquetWriter(sink, schema, compression="zstd")
    return pa.ipc.new_stream(sink, schema)


def _row_groups(reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.Table]:
    """Yield the rows of a shard, several batches at a time."""
    batches, rows, size = list[pa.RecordBatch](), 0, 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MAX_GROUP_ROWS or size >= _MAX_GROUP_BYTES:
            yield pa.Table.from_batches(batches).combine_chunks()
            batches, rows, size = [], 0, 0
    if batches:
        yield pa.Table.from_batches(batches).combine_chunks()
