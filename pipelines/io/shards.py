"""Shards: one Arrow IPC file each, written once, read by memory map.

A shard is written under a physical name of its own (`part-00003-<uuid>.arrow`), so that a worker
that is retried or runs twice disturbs nobody; the manifest alone says which physical file is the
logical `part-00003.arrow`. Its sha256 is computed while it is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from pipelines.io.file_systems import file_system
from pipelines.io.row_digest import MODULUS, rows_digest
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import check_schema
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry

Statistics = dict[str, int | float | str]


class _DigestingFile(io.RawIOBase):
    """A write-only file that hashes and counts what passes through."""

    def __init__(self, sink: Any, *, path: str) -> None:
        super().__init__()
        self._sink, self._path = sink, path
        self.sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        size = memoryview(data).nbytes
        self.size += size
        with naming(self._path):
            self._sink.write(data)
        return size


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Let an error of the system say which file it is about: that of a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def physical_name(path: str) -> str:
    """A name for a logical one, `part-00003-<random>.arrow`, that no other file has."""
    stem, dot, suffix = path.rpartition(".")
    return f"{stem}-{uuid.uuid4().hex[:12]}{dot}{suffix}"


class FileWriter:
    """Writes one file of an artifact; it becomes visible under its physical name when it is whole.

    Use as a context manager; after it ends, `entry()` describes the file. If the block raises, its
    own file is taken away; a process that is killed may leave one ending in `.partial`, which no
    reader looks at and `bertloom gc` deletes.
    """

    def __init__(self, path: str, *, output: str, is_only_writer: bool = False) -> None:
        """Prepare to write; nothing is made yet.

        Args:
            path: the logical name, e.g. `part-00003.arrow`.
            output: the folder's URL.
            is_only_writer: nobody else can be writing this file, so that its physical name may be
                the logical one, as other programs expect it.
        """
        self.path = path
        self.object = path if is_only_writer else physical_name(path)
        self._fs, folder = file_system(output)
        self._target = f"{folder}/{self.object}"
        self._is_local = "file" in protocols_of(self._fs)
        # A folder shows a file while it is being written; an object store does not.
        self._written = f"{self._target}.partial" if self._is_local else self._target
        self._sink: Any = None
        self.file: Any = None

    def __enter__(self) -> Self:
        if self._is_local:
            Path(self._written).parent.mkdir(parents=True, exist_ok=True)
        self._sink = self._fs.open(self._written, "wb")
        self.file = _DigestingFile(self._sink, path=self._target)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._give_up()
            return
        try:
            with naming(self._target):
                self._finish()
        except BaseException:
            self._give_up()
            raise

    def _finish(self) -> None:
        if self._is_local:
            self._sink.flush()
            os.fsync(self._sink.fileno())
        try:
            self._sink.close()
        except OSError:
            # The answer to the last request of a large upload may be lost: the client asks again,
            # and is told that there is no such upload. Nobody else writes under this name.
            if self._is_local or not self._is_whole():
                raise
        if self._is_local:
            Path(self._written).replace(self._target)

    def _is_whole(self) -> bool:
        try:
            return bool(self._fs.info(self._target)["size"] == self.file.size)
        except FileNotFoundError:
            return False

    def _give_up(self) -> None:
        if self._is_local:
            # On a full disk closing fails as writing did: what was not written yet is tried again.
            with contextlib.suppress(OSError):
                self._sink.close()
            Path(self._written).unlink(missing_ok=True)
            return
        # An object store's upload is given up, not finished with half the bytes.
        self._sink.discard()
        if self._fs.exists(self._target):  # memory:// shows a file from the moment it is opened
            self._fs.rm_file(self._target)

    def entry(
        self, *, rows: int | None = None, logical: str = "", statistics: Statistics | None = None
    ) -> FileEntry:
        return FileEntry(
            path=self.path,
            object=self.object,
            size=self.file.size,
            sha256=self.file.sha256.hexdigest(),
            rows=rows,
            logical=logical,
            statistics=statistics or {},
        )


def write_text_file(path: str, text: str, *, output: str) -> FileEntry:
    """Write a small text file of an artifact (UTF-8)."""
    with FileWriter(path, output=output) as writer:
        writer.file.write(text.encode())
    return writer.entry()


class ShardWriter:
    """Writes record batches of one schema to one shard.

    Use as a context manager: `write` batches, and take the `entry()` after it ends.
    """

    def __init__(
        self, path: str, *, schema: pa.Schema, output: str, compression: str | None = None
    ) -> None:
        """`compression` is None for shards that are read in place, `zstd` or `lz4` for others."""
        self.schema = schema
        self.rows = 0
        self._logical = 0
        self._writer = FileWriter(path, output=output)
        self._options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=False)
        self._arrow: Any = None

    def __enter__(self) -> Self:
        self._writer.__enter__()
        try:
            self._arrow = pa.ipc.new_file(self._writer.file, self.schema, options=self._options)
        except BaseException:
            self._writer.__exit__(*sys.exc_info())
            raise
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._logical = (self._logical + rows_digest(batch)) % MODULUS
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
        return self._writer.entry(
            rows=self.rows, logical=f"{self._logical:032x}", statistics=statistics or {}
        )


@contextlib.contextmanager
def open_shard(
    shard: str | InputFile,
    *,
    expected: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Open a shard; the file's bytes are mapped, not read.

    A remote shard is copied to a temporary file first, which goes when the block ends.

    Args:
        shard: its URL; or a shard of an artifact, all of whose bytes are compared with the manifest
            before any is used.
        expected: the schema that it must have.
        columns: the only ones that are read; None for all.

    Raises:
        ArtifactCorruptError: it is not an Arrow file, or not of the `expected` schema; its bytes
            are not those of the manifest.
    """
    url = shard.url if isinstance(shard, InputFile) else shard
    with _local_copy(shard) as path, pa.memory_map(str(path)) as mapped:
        try:
            reader = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid as error:
            raise ArtifactCorruptError(
                f"{url}: expected an Arrow IPC file, found something else ({error}). "
                "`bertloom verify` tells which files of an artifact are damaged."
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
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bertloom-"))
            local = Path(folder) / "shard.arrow"
            try:
                fs.get_file(path, str(local))
            except FileNotFoundError as error:
                raise (file.missing() if file else error) from error
        if file:
            file.check_copy(local)
        yield local


def is_local(url: str) -> bool:
    """Whether a file is read where it lies, not copied first."""
    return "file" in protocols_of(file_system(url)[0])


def protocols_of(fs: Any) -> tuple[str, ...]:
    """Names of a file system's protocols, such as ("file", "local")."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
