"""Instance shards mapped into memory, and where in it the columns of their record batches lie.

A mapped file needs no open file behind it, and of more files than a process may map some are
mapped at a time (`model.data.address_space`): any number of shards is no trouble.
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
    """Of every record batch of every shard, one after another; int64 of shape (record batches,).

    `..._at` says where a buffer begins: its element's index in `MappedShards`' array of that type.
    `..._size` is how many elements it has.
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

    Each of the four arrays spans all files, seen as elements of one type. They are read by
    `numbers` and `lists` alone, at places inside `batches`' buffers: not all files need be mapped.

    Attributes:
        batches: where the buffers are.
        first_rows: number of each shard's first row, and of all rows; int64, (shards + 1,).
        int8, uint16, int32: the files.
        ids: likewise, as token ids: uint16 or uint32.
    """

    def __init__(
        self, files: Sequence[Path], entries: Sequence[FileEntry], *, vocab_size: int
    ) -> None:
        """Map the files, whose sizes are those of the entries.

        Raises:
            ArtifactCorruptError: a file is no Arrow file, or of another table, version or number
                of rows, or its buffers do not hold what they should.
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
        """Elements of one of the arrays, one for each of the rows that they belong to."""
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
        """Runs of elements of one of the arrays, end to end, one for each row."""
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
        """Positions in `rows` of those whose shards are mapped together, as they are."""
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
                f"{error}. Leave the shards in their place while they are trained on"
            ) from error


def _mapped(path: Path, entry: FileEntry) -> pa.Buffer:
    """The whole file; the map stays when the file is closed."""
    try:
        with pa.memory_map(str(path)) as file:
            # Arrow asks the system to read ahead whatever is read of a map, so read no more.
            first = file.read_buffer(1)
    except OSError as error:
        raise InstanceDataError(f"shard {entry.path}: {path} cannot be mapped: {error}") from error
    return pa.foreign_buffer(first.address, entry.size_bytes, base=first)


class _Shard:
    """One mapped shard, while the places of its buffers are found."""

    def __init__(self, mapped: pa.Buffer, entry: FileEntry, offset: int) -> None:
        self._mapped = mapped
        self._entry = entry
        self._offset = offset

    def places(self, schema: pa.Schema, *, first_row: int) -> tuple[list[list[int]], int]:
        """A row of `RecordBatches` for each record batch, and the number of the shard's rows."""
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
                "`bertloom verify` tells which files of an artifact are damaged."
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
        """Places of the offsets and of the values, and how many values there are."""
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
