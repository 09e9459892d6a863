"""Memory-mapped instance shards, and the buffer offsets of their record batches.

Mapped files are closed. If a process may not map all of them, `model.data.address_space` maps some
at a time, so that the number of shards is not limited.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.data.address_space import AddressSpace
from pipelines.arrays import Int64s, offsets_of, ranges
from schemas.arrow import check_schema, instances_schema, token_type
from schemas.errors import ArtifactCorruptError, InstanceDataError
from schemas.manifest import FileEntry


class RecordBatches(NamedTuple):
    """Buffers of all record batches of all shards; int64 fields of shape (record batches,).

    `..._at` is the index of a buffer's first element in `MappedShards`' array of its type;
    `..._size` is its number of elements.
    """

    first_row: Int64s
    ids_offsets_at: Int64s
    ids_at: Int64s
    ids_size: Int64s
    segment_b_start_at: Int64s
    positions_offsets_at: Int64s
    positions_at: Int64s
    positions_size: Int64s
    masked_offsets_at: Int64s
    masked_at: Int64s
    masked_size: Int64s
    next_sentence_label_at: Int64s


class MappedShards:
    """Shards of the instances table, mapped as long as this object or one of its arrays lives.

    Each of the four arrays views all files as elements of one type. Only `numbers` and `lists` read
    them, at positions inside the buffers of `batches`, because not all files need be mapped.

    Attributes:
        batches: Offsets of the buffers.
        first_rows: Number of each shard's first row, and total rows; int64 of shape (shards + 1,).
        int8, uint16, int32: Views of the files.
        ids: View as token ids: uint16 or uint32.
    """

    def __init__(
        self, files: Sequence[Path], entries: Sequence[FileEntry], *, vocab_size: int
    ) -> None:
        """Map files of the sizes that their entries give.

        Raises:
            ArtifactCorruptError: A file is not an Arrow file, has another table, version or number
                of rows, or its buffers are inconsistent.
        """
        self._space = AddressSpace(files, [entry.size_bytes for entry in entries])
        self._lock = threading.Lock()
        self._entries = tuple(entries)
        schema = instances_schema(vocab_size)
        places: list[list[int]] = []
        first_rows = [0]
        for path, entry, offset in zip(files, entries, self._space.offsets, strict=True):
            mapped = _mapped(path, entry)
            found = _Shard(mapped, entry, offset).places(schema, first_row=first_rows[-1])
            places += found[0]
            first_rows.append(first_rows[-1] + found[1])
        table = np.array(places, np.int64).reshape(-1, len(RecordBatches._fields))
        self.batches = RecordBatches(*np.ascontiguousarray(table.T))
        self.first_rows = np.array(first_rows, np.int64)
        span = self._space.span
        self.ids: npt.NDArray[Any] = np.frombuffer(span, str(token_type(vocab_size)))
        self.int8 = np.frombuffer(span, np.int8)
        self.uint16 = np.frombuffer(span, np.uint16)
        self.int32 = np.frombuffer(span, np.int32)
        if self._space.holds_all:
            self._hold(range(len(files)))

    def numbers(self, array: npt.NDArray[Any], at: Int64s, *, rows: Int64s) -> npt.NDArray[Any]:
        """Return one element per row from one of the arrays."""
        if self._space.holds_all:
            return array[at]
        found = np.empty(len(at), array.dtype)
        with self._lock:
            for part in self._parts(rows):
                found[part] = array[at[part]]
        return found

    def lists(
        self, array: npt.NDArray[Any], at: Int64s, *, lengths: Int64s, rows: Int64s
    ) -> npt.NDArray[Any]:
        """Return the concatenated lists of the rows from one of the arrays."""
        if self._space.holds_all:
            return np.take(array, ranges(at, lengths))
        offsets = offsets_of(lengths)
        found = np.empty(int(offsets[-1]), array.dtype)
        with self._lock:
            for part in self._parts(rows):
                places = ranges(at[part], lengths[part])
                found[ranges(offsets[part], lengths[part])] = np.take(array, places)
        return found

    def _parts(self, rows: Int64s) -> Iterator[Int64s]:
        """Yield positions in `rows` whose shards are mapped at the same time."""
        shards = np.searchsorted(self.first_rows, rows, side="right") - 1
        order = np.argsort(shards, kind="stable")
        distinct, firsts = np.unique(shards[order], return_index=True)
        for begin in range(0, len(distinct), self._space.most):
            end = begin + self._space.most
            self._hold(distinct[begin:end].tolist())
            stop = firsts[end] if end < len(firsts) else len(order)
            yield order[firsts[begin] : stop]

    def _hold(self, shards: Iterable[int]) -> None:
        try:
            self._space.hold(shards)
        except OSError as error:
            raise InstanceDataError(
                f"a shard of {self._entries[0].path} to {self._entries[-1].path} cannot be mapped: "
                f"{error}. Do not move shards during training"
            ) from error


def _mapped(path: Path, entry: FileEntry) -> pa.Buffer:
    """Map a whole file and close it."""
    try:
        with pa.memory_map(str(path)) as file:
            # Read only metadata: Arrow requests read-ahead for everything that it reads of a map.
            first = file.read_buffer(1)
    except OSError as error:
        raise InstanceDataError(f"shard {entry.path}: {path} cannot be mapped: {error}") from error
    return pa.foreign_buffer(first.address, entry.size_bytes, base=first)


class _Shard:
    """Mapped shard whose buffers are located."""

    def __init__(self, mapped: pa.Buffer, entry: FileEntry, offset: int) -> None:
        self._mapped = mapped
        self._entry = entry
        self._offset = offset

    def places(self, schema: pa.Schema, *, first_row: int) -> tuple[list[list[int]], int]:
        """Return one row of `RecordBatches` per record batch, and the shard's row count."""
        path = self._entry.path
        places: list[list[int]] = []
        rows = 0
        try:
            reader = pa.ipc.open_file(self._mapped)
            check_schema(reader.schema, schema, where=f"shard {path}")
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                if batch.num_rows:
                    places.append([first_row + rows, *self._of_batch(batch)])
                rows += batch.num_rows
        except (pa.ArrowInvalid, OSError) as error:
            raise ArtifactCorruptError(
                f"shard {path}: expected an Arrow IPC file, found something else ({error}). "
                "`bertloom verify` lists damaged files."
            ) from error
        if self._entry.rows is not None and rows != self._entry.rows:
            self._refuse(f"expected {self._entry.rows:,} rows, found {rows:,}")
        return places, rows

    def _of_batch(self, batch: pa.RecordBatch) -> list[int]:
        rows = batch.num_rows
        return [
            *self._list(batch.column("input_ids"), rows),
            self._numbers(batch.column("segment_b_start"), rows),
            *self._list(batch.column("masked_lm_positions"), rows),
            *self._list(batch.column("masked_lm_ids"), rows),
            self._numbers(batch.column("next_sentence_label"), rows),
        ]

    def _list(self, column: pa.ListArray, rows: int) -> tuple[int, int, int]:
        """Return the positions of offsets and values, and the number of values."""
        _, offsets, _, values = column.buffers()
        width = column.type.value_type.bit_width // 8
        offsets_at = self._at(offsets, 4, at_least=rows + 1)
        size = values.size // width if values is not None else 0
        return offsets_at, self._at(values, width) if size else 0, size

    def _numbers(self, column: pa.Array, rows: int) -> int:
        return self._at(column.buffers()[1], column.type.bit_width // 8, at_least=rows)

    def _at(self, buffer: pa.Buffer | None, width: int, *, at_least: int = 0) -> int:
        if buffer is None or buffer.size < at_least * width:
            self._refuse("a column is shorter than its record batch")
        begin = buffer.address - self._mapped.address
        if not 0 <= begin <= self._mapped.size - buffer.size:
            self._refuse("its record batches are compressed, which cannot be read in place")
        at = int(begin) + self._offset
        if at % width:
            self._refuse("a column does not begin at a multiple of its element's size")
        return at // width

    def _refuse(self, problem: str) -> NoReturn:
        raise ArtifactCorruptError(
            f"shard {self._entry.path}: {problem}. Rebuild the stage build-instances."
        )
