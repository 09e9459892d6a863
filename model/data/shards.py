"""Shards of an instances artifact: verified local files, mapped into memory.

Every start of a training compares all bytes with the manifest, once per machine. Remote shards are
copied once to `shards/` in the cache folder, named by their sha256, so that runs and artifacts
share them. Delete that folder to free its space.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Int64s, offsets_of
from pipelines.io.file_systems import fetch_file, file_system, protocols_of
from pipelines.io.raw_files import parallel_map
from pipelines.io.stage_inputs import InputFile
from pipelines.io.user_cache import cache_folder
from schemas.arrow import check_schema, instances_schema, token_type
from schemas.errors import ArtifactCorruptError, BertloomError, InstanceDataError
from schemas.manifest import FileEntry, StageInput

_LOGGER = logging.getLogger(__name__)

Value = TypeVar("Value")


class Ranks(Protocol):
    """Processes of a distributed training, such as `model.training.distributed.ProcessGroup`."""

    @property
    def local_rank(self) -> int:
        """Rank of this process on its machine, from 0."""

    def all_gather(self, values: Sequence[Value]) -> list[Value]:
        """Return the values of all processes."""


def local_files(
    data: StageInput, entries: Sequence[FileEntry], *, ranks: Ranks | None = None
) -> list[Path]:
    """Return the local paths of files of an artifact, in order.

    Args:
        data: Artifact.
        entries: Files of the artifact.
        ranks: Ranks that all call this function. The first rank of each machine verifies the files,
            then the others map them.

    Raises:
        InstanceDataError: A file is missing or cannot be read or copied.
        ArtifactCorruptError: The size or the digest of a file differs from the manifest.
    """
    files = [InputFile.of(data, entry) for entry in entries]
    if ranks is None:
        return _local_paths(files)
    paths: list[Path] = []
    problem: BertloomError | None = None
    if ranks.local_rank == 0:
        try:
            paths = _local_paths(files)
        except BertloomError as error:
            problem = error  # raised below: the other ranks wait for this one
    are_damaged = any(ranks.all_gather([problem is not None]))
    if problem is not None:
        raise problem
    return paths or _local_paths(files, is_verified=not are_damaged)


def _local_paths(files: Sequence[InputFile], *, is_verified: bool = False) -> list[Path]:
    return parallel_map(functools.partial(_local_path, is_verified=is_verified), files)


def _local_path(file: InputFile, *, is_verified: bool) -> Path:
    name = f"shard {file.path} of {file.artifact}"
    try:
        fs, path = file_system(file.url)
        if "file" not in protocols_of(fs):
            return _cached_copy(fs, path, file, is_verified=is_verified)
        if not is_verified:
            _check(file, Path(path))
        return Path(path)
    except FileNotFoundError as error:
        raise InstanceDataError(
            f"{name}: no such file: {file.url}. Put it back, or rebuild the stage."
        ) from error
    except (OSError, ValueError, ImportError) as error:
        raise InstanceDataError(
            f"{name}: cannot read {file.url}: {error}. A remote store may need its package, such "
            f"as s3fs; copies of its files need space in {cache_folder()} (BERTLOOM_CACHE)."
        ) from error


def _cached_copy(fs: Any, remote: str, file: InputFile, *, is_verified: bool) -> Path:
    copy = cache_folder() / "shards" / file.sha256[:2] / f"{file.sha256}.arrow"
    if is_verified:
        return copy
    if copy.exists():
        try:
            _check(file, copy)
        except ArtifactCorruptError as error:
            _LOGGER.warning("%s: damaged copy, copying again: %s", copy, error)
        else:
            return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    incomplete = copy.with_name(f".{uuid.uuid4().hex}.part")
    try:
        fetch_file(fs, remote, str(incomplete))
        _check(file, incomplete)
        incomplete.replace(copy)
    finally:
        incomplete.unlink(missing_ok=True)
    return copy


def _check(file: InputFile, path: Path) -> None:
    with path.open("rb") as source:
        file.check_stream(source)


class ListColumn(NamedTuple):
    """Column of lists in all record batches; int64 fields of shape (record batches,).

    Attributes:
        offsets: Position of the first offset in `MappedShards.int32`.
        values: Position of the first value in the array of its type.
        size: Number of values.
    """

    offsets: Int64s
    values: Int64s
    size: Int64s


class MappedShards:
    """Shards of the instances table, mapped as long as this object lives.

    Arrays over the addresses of all maps let a few NumPy operations gather rows from any shards.
    The arrays of numbers cover the addresses from the first map to the last. Read them only at the
    positions of columns.

    Attributes:
        shard_starts: First row of each shard, and number of rows; int64 of shape (shards + 1,).
        batch_starts: First row of each record batch, int64 of shape (record batches,).
        input_ids, masked_positions, masked_ids: Columns of lists.
        segment_b_start, next_sentence_label: Position of each record batch's first element in
            `uint16` and in `int8`; int64 of shape (record batches,).
        int8, uint16, int32, ids: Arrays of numbers; token ids are uint16 or uint32.
    """

    def __init__(
        self, files: Sequence[Path], entries: Sequence[FileEntry], *, vocab_size: int
    ) -> None:
        """Map files.

        Raises:
            InstanceDataError: A file cannot be mapped.
            ArtifactCorruptError: A file is not an Arrow file, has another table, version or number
                of rows, or its buffers are inconsistent.
        """
        shards = [_Shard(path, entry) for path, entry in zip(files, entries, strict=True)]
        maps = [shard.map for shard in shards]
        start = min(buffer.address for buffer in maps)
        end = max(buffer.address + buffer.size for buffer in maps)
        span = pa.foreign_buffer(start, -(-(end - start) // 8) * 8, base=maps)
        self.int8 = np.frombuffer(span, np.int8)
        self.uint16 = np.frombuffer(span, np.uint16)
        self.int32 = np.frombuffer(span, np.int32)
        self.ids: npt.NDArray[Any] = np.frombuffer(span, str(token_type(vocab_size)))

        schema = instances_schema(vocab_size)
        batches = [list(shard.record_batches(schema)) for shard in shards]
        table = np.array([batch for shard in batches for batch in shard], np.int64).reshape(-1, 12)
        columns = iter(np.ascontiguousarray(table.T))
        rows = next(columns)
        self.batch_starts = offsets_of(rows)[:-1]
        self.shard_starts = offsets_of([sum(batch[0] for batch in shard) for shard in batches])

        def positions(width: int) -> Int64s:
            elements: Int64s = (next(columns) - start) // width
            return elements

        id_width = self.ids.itemsize
        self.input_ids = ListColumn(positions(4), positions(id_width), next(columns))
        self.masked_positions = ListColumn(positions(4), positions(2), next(columns))
        self.masked_ids = ListColumn(positions(4), positions(id_width), next(columns))
        self.segment_b_start, self.next_sentence_label = positions(2), positions(1)


class _Shard:
    """Mapped shard."""

    def __init__(self, path: Path, entry: FileEntry) -> None:
        self._entry = entry
        try:
            with pa.memory_map(str(path)) as file:
                # Read only metadata: Arrow requests read-ahead for everything that it reads.
                first = file.read_buffer(1)
                self.map = pa.foreign_buffer(first.address, file.size(), base=first)
        except OSError as error:
            raise InstanceDataError(
                f"shard {entry.path}: cannot map {path}: {error}. With very many shards, raise the "
                "kernel's limit vm.max_map_count (sysctl)."
            ) from error

    def record_batches(self, schema: pa.Schema) -> Iterator[list[int]]:
        """Yield the number of rows of each record batch, then addresses and sizes of its columns.

        The order is that of `MappedShards`.
        """
        name, rows = f"shard {self._entry.path}", 0
        try:
            reader = pa.ipc.open_file(self.map)
            check_schema(reader.schema, schema, where=name)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                rows += batch.num_rows
                if batch.num_rows:
                    yield [
                        batch.num_rows,
                        *self._list(batch, "input_ids"),
                        *self._list(batch, "masked_lm_positions"),
                        *self._list(batch, "masked_lm_ids"),
                        self._numbers(batch, "segment_b_start"),
                        self._numbers(batch, "next_sentence_label"),
                    ]
        except (pa.ArrowInvalid, OSError) as error:
            raise ArtifactCorruptError(
                f"{name}: expected an Arrow IPC file, got: {error}. `bertloom verify` lists "
                "damaged files."
            ) from error
        if self._entry.rows is not None and rows != self._entry.rows:
            self._refuse(f"expected {self._entry.rows:,} rows, got {rows:,}")

    def _list(self, batch: pa.RecordBatch, column: str) -> tuple[int, int, int]:
        """Return the addresses of offsets and values, and the number of values."""
        array = batch.column(column)
        _, offsets, _, values = array.buffers()
        width = array.type.value_type.bit_width // 8
        address = self._address(offsets, 4, size=batch.num_rows + 1)
        count = values.size // width if values is not None else 0
        return address, self._address(values, width) if count else self.map.address, count

    def _numbers(self, batch: pa.RecordBatch, column: str) -> int:
        array = batch.column(column)
        return self._address(array.buffers()[1], array.type.bit_width // 8, size=batch.num_rows)

    def _address(self, buffer: pa.Buffer | None, width: int, *, size: int = 0) -> int:
        """Return the address of a buffer with at least `size` elements."""
        if buffer is None or buffer.size < size * width:
            self._refuse("a column is shorter than its record batch")
        offset = buffer.address - self.map.address
        if not 0 <= offset <= self.map.size - buffer.size:
            self._refuse("its record batches are compressed, so it cannot be read in place")
        if offset % width:
            self._refuse("a column does not begin at a multiple of its element size")
        return int(buffer.address)

    def _refuse(self, problem: str) -> NoReturn:
        raise ArtifactCorruptError(
            f"shard {self._entry.path}: {problem}. Rebuild the stage build-instances."
        )
