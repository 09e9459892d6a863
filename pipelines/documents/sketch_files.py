"""Sketches read back, a few out of many files: those of the documents that share a key."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from pipelines.arrays import Int64s
from pipelines.io.file_systems import SMALL_READ_AHEAD, file_system, is_local, open_stream
from schemas.arrow import MINHASH_SKETCHES, check_schema

BATCH_ROWS = 64
"""Sketches in each batch of a shard but the last, so that one is found by its row."""

_OPEN = 64
"""Files that are open at once."""

_ROW_BITS = 32


def even_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same sketches in batches of `BATCH_ROWS`."""
    rest = MINHASH_SKETCHES.empty_table()
    for batch in batches:
        rest = pa.concat_tables([rest, pa.Table.from_batches([batch])])
        whole = rest.num_rows - rest.num_rows % BATCH_ROWS
        if whole:
            yield from rest.slice(0, whole).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
            rest = rest.slice(whole).combine_chunks()
    yield from rest.combine_chunks().to_batches()


class SketchFiles:
    """The shards of sketches of one job; a context, in which they are open as they are needed."""

    def __init__(self, files: Mapping[int, str], *, output: str) -> None:
        """`files`: their physical names in the folder `output`, by the numbers of the pieces."""
        self._files, self._output = files, output
        self._open: collections.OrderedDict[int, tuple[contextlib.ExitStack, Any]]
        self._open = collections.OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stack, _reader in self._open.values():
            stack.close()
        self._open.clear()

    def take(self, places: Int64s, columns: Sequence[str]) -> pa.Table:
        """Columns of some sketches.

        Args:
            places: `PIECE << 32 | ROW`, ascending, each once.
            columns: their names.
        """
        schema = pa.schema([MINHASH_SKETCHES.field(name) for name in columns])
        found = [schema.empty_table()]
        for rows, batch in self._batches(places):
            found.append(pa.Table.from_batches([batch.select(columns).take(pa.array(rows))]))
        return pa.concat_tables(found).combine_chunks()

    def sizes(self, places: Int64s) -> Int64s:
        """How many n-grams documents have; `places` as for `take`."""
        found = [np.empty(0, np.int64)]
        for rows, batch in self._batches(places):
            found.append(batch.column("ngrams").value_lengths().to_numpy()[rows].astype(np.int64))
        return np.concatenate(found)

    def _batches(self, places: Int64s) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
        """The batches that hold sketches, and which of their rows these are."""
        starts = np.flatnonzero(np.diff(places >> _ROW_BITS, prepend=-1))
        for of_piece in np.split(places, starts[1:]) if len(places) else ():
            reader = self._reader(int(of_piece[0] >> _ROW_BITS))
            rows = of_piece & ((1 << _ROW_BITS) - 1)
            numbers = rows // BATCH_ROWS
            firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
            for of_batch in np.split(rows, firsts[1:]):
                number = int(of_batch[0]) // BATCH_ROWS
                yield of_batch - number * BATCH_ROWS, reader.get_batch(number)

    def _reader(self, piece: int) -> Any:
        if piece in self._open:
            self._open.move_to_end(piece)
            return self._open[piece][1]
        url = f"{self._output}/{self._files[piece]}"
        fs, path = file_system(url)
        stack = contextlib.ExitStack()
        if is_local(url):
            source = stack.enter_context(pa.memory_map(path))
        else:
            source = stack.enter_context(open_stream(fs, path, ahead=SMALL_READ_AHEAD))
        reader = pa.ipc.open_file(source)
        check_schema(reader.schema, MINHASH_SKETCHES, where=url)
        self._open[piece] = stack, reader
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)[1][0].close()
        return reader
