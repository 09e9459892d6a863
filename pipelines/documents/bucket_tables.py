"""What the buckets of a grouping found: Arrow tables, from the workers that made them.

A small table goes along in the bucket's report, a larger one as a file in the output folder, which
goes when the tables of all buckets have become one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

import pyarrow as pa

from pipelines.beam.shard_work import WorkResult
from pipelines.counters import Counters
from pipelines.io.file_systems import file_system
from pipelines.io.shards import ShardWriter, open_shard

_BATCH_ROWS = 1 << 18


def to_bytes(table: pa.Table) -> bytes:
    """A table as bytes for a shuffle or a report."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """The table of `to_bytes`."""
    return pa.ipc.open_stream(data).read_all()


def bucket_report(
    bucket: int,
    table: pa.Table,
    *,
    file: str,
    output: str,
    most_bytes: int,
    counters: Counters | None = None,
) -> WorkResult:
    """The report of a bucket, with its table or the table's file.

    Args:
        bucket: its number.
        table: what it found.
        file: logical name of the file, if it gets one.
        output: URL of the folder for the file.
        most_bytes: what a report still takes along.
        counters: of the report.
    """
    counters = Counters() if counters is None else counters
    if table.nbytes <= most_bytes:
        data = base64.b64encode(to_bytes(table)).decode()
        return WorkResult(bucket, counters=counters, details=[data])
    with ShardWriter(file, schema=table.schema, output=output) as shard:
        for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
            shard.write(batch)
    return WorkResult(bucket, [shard.entry()], counters)


def bucket_tables(
    reports: Iterable[WorkResult], schema: pa.Schema, *, output: str
) -> Iterator[pa.Table]:
    """The table of each bucket that has one; a file's is mapped, not read."""
    for report in reports:
        yield from (from_bytes(base64.b64decode(text)) for text in report.details)
        for entry in report.files:
            with open_shard(f"{output}/{entry.stored_name}", expected=schema) as reader:
                yield reader.read_all()


def remove_bucket_files(reports: Iterable[WorkResult], *, output: str) -> None:
    """Delete the files of the buckets."""
    fs, folder = file_system(output)
    for report in reports:
        for entry in report.files:
            fs.rm_file(f"{folder}/{entry.stored_name}")
