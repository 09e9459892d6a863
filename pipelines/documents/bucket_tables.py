"""Arrow tables that workers compute per bucket.

A small table is part of the bucket's report. A larger one is a file in the output folder, which is
deleted after the tables of all buckets are merged.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.counters import Counters
from pipelines.io.file_systems import file_system
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.shard_job.work import Blob, WorkResult

_BATCH_ROWS = 1 << 18


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as bytes for a shuffle or a report."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """Return the table of `to_bytes`."""
    return pa.ipc.open_stream(data).read_all()


def bucket_blobs(table: pa.Table, buckets: npt.NDArray[np.integer[Any]]) -> Iterator[Blob]:
    """Yield the rows of each bucket, in their order, given the bucket of each row."""
    order = np.argsort(buckets, kind="stable")
    rows = table.take(pa.array(order))
    groups = np.unique(buckets[order], return_index=True, return_counts=True)
    for bucket, start, count in zip(*(values.tolist() for values in groups), strict=True):
        # Not compressed: that takes far more time than the few rows are worth.
        yield Blob(bucket, to_bytes(rows.slice(start, count)))


def bucket_report(
    bucket: int,
    table: pa.Table,
    *,
    file: str,
    output: str,
    max_bytes: int,
    counters: Counters | None = None,
) -> WorkResult:
    """Return the report of a bucket with its table, inline up to `max_bytes` or as a file."""
    counters = Counters() if counters is None else counters
    if table.nbytes <= max_bytes:
        data = base64.b64encode(to_bytes(table)).decode()
        return WorkResult(bucket, counters=counters, statistics=data)
    with ShardWriter(file, schema=table.schema, output=output) as shard:
        for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
            shard.write(batch)
    return WorkResult(bucket, [shard.entry()], counters)


def bucket_tables(
    reports: Iterable[WorkResult], schema: pa.Schema, *, output: str
) -> Iterator[pa.Table]:
    """Yield the table of each bucket that has one. Files are memory-mapped."""
    for report in reports:
        if report.statistics:
            yield from_bytes(base64.b64decode(report.statistics))
        for entry in report.files:
            with open_shard(f"{output}/{entry.stored_name}", expected=schema) as reader:
                yield reader.read_all()


def remove_bucket_files(reports: Iterable[WorkResult], *, output: str) -> None:
    """Delete the files of the buckets."""
    fs, folder = file_system(output)
    for report in reports:
        for entry in report.files:
            fs.rm_file(f"{folder}/{entry.stored_name}")
