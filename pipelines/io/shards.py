"""Shards: one Arrow IPC file each, written once (`pipelines.io.files`), read by memory map."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from pipelines.io.file_systems import fetch_file, file_system, protocols_of
from pipelines.io.files import FileWriter, Statistics
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import check_schema
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry

if sys.byteorder != "little":  # pragma: no cover - no supported machine is
    raise ImportError("bertloom's shards are defined on little-endian machines only")


class ShardWriter:
    """Writes record batches of one schema to one shard.

    Use as a context manager: `write` batches; afterwards `entry()` describes the file.
    """

    def __init__(
        self, path: str, *, schema: pa.Schema, output: str, compression: str | None = None
    ) -> None:
        """Prepare a shard. `compression` is `zstd`, `lz4`, or None for memory-mapped shards."""
        self.schema = schema
        self.rows = 0
        self._writer = FileWriter(path, output=output)
        self._options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=False)
        self._arrow: Any = None

    def __enter__(self) -> Self:
        file = self._writer.__enter__().file
        self._arrow = pa.ipc.new_file(file, self.schema, options=self._options)  # writes nothing
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._arrow.write_batch(batch)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            try:
                self._arrow.close()
            except BaseException:
                self._writer.__exit__(*sys.exc_info())
                raise
        self._writer.__exit__(kind, error, trace)

    def entry(self, *, statistics: Statistics | None = None) -> FileEntry:
        return self._writer.entry(rows=self.rows, statistics=statistics)


@contextlib.contextmanager
def open_shard(
    shard: str | InputFile,
    *,
    expected: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Open a memory-mapped shard.

    A remote shard is first copied to a temporary file, which is deleted after the block.

    Args:
        shard: URL of a shard; or a shard of an artifact, whose digest is verified first.
        expected: Schema of the shard.
        columns: Columns to read; None for all.

    Raises:
        ArtifactCorruptError: It is not an Arrow file, or has another schema or digest.
    """
    url = shard.url if isinstance(shard, InputFile) else shard
    with _local_copy(shard) as path, pa.memory_map(str(path)) as mapped:
        try:
            reader = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid as error:
            raise ArtifactCorruptError(
                f"{url}: expected an Arrow IPC file ({error}). `bertloom verify` lists the damaged "
                "files of an artifact."
            ) from error
        if expected is not None:
            check_schema(reader.schema, expected, where=url)
        if columns is not None:
            fields = [reader.schema.get_field_index(name) for name in columns]
            only = pa.ipc.IpcReadOptions(included_fields=fields)
            reader = pa.ipc.open_file(mapped, options=only)
        yield reader


@contextlib.contextmanager
def _local_copy(shard: str | InputFile) -> Iterator[Path]:
    file, url = (shard, shard.url) if isinstance(shard, InputFile) else (None, shard)
    fs, path = file_system(url)
    with contextlib.ExitStack() as stack:
        local = Path(path)
        if "file" not in protocols_of(fs):
            folder = stack.enter_context(TemporaryDirectory(prefix="bertloom-shard-"))
            local = Path(folder) / "shard.arrow"
            try:
                fetch_file(fs, path, str(local))
            except FileNotFoundError as error:
                raise (file.missing() if file else error) from error
        if file:
            file.check_copy(local)
        yield local
