"""Token shards as a worker reads them: the documents for training, and those held out.

What is not asked for is not copied: a part never holds a token of the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Int64s, flat_lists, ranges
from pipelines.instances.held_out import is_held_out
from pipelines.instances.plan import REMEMBERED_BYTES
from pipelines.instances.token_documents import TokenDocuments
from pipelines.io.file_systems import is_local
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import tokens_schema

FETCHED_BYTES = 1 << 30
"""Bytes of shards from elsewhere that a worker keeps copies of; the one in use is always kept."""


class TokenShards:
    """Reads token shards by number, in two parts.

    It remembers which rows are held out (8 bytes each), so that ids are read once a shard, and the
    held-out documents themselves up to `REMEMBERED_BYTES`: pools of many shards take few of each.
    Shards of an object store are fetched once, as far as `FETCHED_BYTES` of disk hold them.

    Args:
        shards: URLs, or files of an artifact, in the order of their numbers. All bytes of a file
            are compared with the manifest when it is first read, and each time that it is fetched
            from elsewhere.
        vocab_size: of the vocabulary that their ids are of.
        share: of the documents that is held out; at 0 no id is looked at.
    """

    def __init__(self, shards: Sequence[str | InputFile], *, vocab_size: int, share: float) -> None:
        self._shards = shards
        self._schema = tokens_schema(vocab_size)
        self._share = share
        self._rows: dict[int, Int64s] = {}
        self._held_out: dict[int, TokenDocuments] = {}
        self._remembered = 0
        self._fetched: OrderedDict[int, pa.Table] = OrderedDict()

    def __len__(self) -> int:
        """Number of shards."""
        return len(self._shards)

    def read(self, number: int) -> tuple[TokenDocuments, TokenDocuments]:
        """The documents of a shard for training, and those held out, with their ids."""
        return self._training(number, with_ids=True), self.held_out(number)

    def training(self, number: int) -> TokenDocuments:
        """The documents of a shard that are not held out, without their ids: for a pool."""
        return self._training(number, with_ids=False)

    def held_out(self, number: int) -> TokenDocuments:
        """The documents of a shard that are held out, with their ids."""
        if number not in self._held_out:
            self._read(number)
        return self._held_out[number]

    def _training(self, number: int, *, with_ids: bool) -> TokenDocuments:
        table = self._read(number)
        return training_documents(table, self._rows[number], with_ids=with_ids)

    def _read(self, number: int) -> pa.Table:
        """A shard; what is held out of it is remembered."""
        table = self._table(number)
        if number not in self._rows:
            self._rows[number] = held_out_rows(table, share=self._share)
        if number not in self._held_out:
            # Copied: a view would keep the whole shard mapped for as long as it is remembered.
            found = held_out_documents(table, self._rows[number])
            self._remembered += found.nbytes
            if self._remembered > REMEMBERED_BYTES:
                self._held_out.clear()
                self._remembered = found.nbytes
            self._held_out[number] = found.copy()
        return table

    def _table(self, number: int) -> pa.Table:
        """A shard's rows: mapped, or of one that was fetched from elsewhere, from the copy."""
        if number in self._fetched:
            self._fetched.move_to_end(number)
            return self._fetched[number]
        shard = self._shards[number]
        url = shard.url if isinstance(shard, InputFile) else shard
        if number in self._rows and is_local(url):
            shard = url  # it was found sound, and is the same file
        with open_shard(shard, expected=self._schema) as reader:
            table: pa.Table = reader.read_all()
        if not is_local(url):
            # The copy has no name any more; its bytes stay on disk for as long as they are mapped.
            self._fetched[number] = table
            while len(self._fetched) > 1 and self._bytes_fetched() > FETCHED_BYTES:
                self._fetched.popitem(last=False)
        return table

    def _bytes_fetched(self) -> int:
        return sum(table.nbytes for table in self._fetched.values())


def held_out_rows(table: pa.Table, *, share: float) -> Int64s:
    """Return the rows of a tokens table that are held out, ascending."""
    if share == 0.0:
        return np.empty(0, np.int64)
    ids = pc.coalesce(table.column("split_id"), table.column("document_id")).to_pylist()
    return np.flatnonzero(is_held_out(ids, share=share))


def training_documents(table: pa.Table, held_out: Int64s, *, with_ids: bool) -> TokenDocuments:
    """Return the documents of a tokens table that are not held out."""
    return _documents(table, _other_runs(held_out, table.num_rows), with_ids=with_ids)


def held_out_documents(table: pa.Table, held_out: Int64s) -> TokenDocuments:
    """Return the documents of a tokens table that are held out, with their ids."""
    return _documents(table, np.stack((held_out, held_out + 1), axis=1), with_ids=True)


def _other_runs(rows: Int64s, size: int) -> Int64s:
    """Runs (first, stop) of the rows 0 .. size-1 that are not among `rows`; shape (runs, 2)."""
    runs = np.stack((np.append(0, rows + 1), np.append(rows, size)), axis=1)
    return runs[runs[:, 0] < runs[:, 1]]


def _documents(table: pa.Table, runs: Int64s, *, with_ids: bool) -> TokenDocuments:
    """Some runs of rows as flat arrays: views of the mapped file where it is one run, one batch."""
    names = ["token_ids", "sentence_lengths", *(["document_id"] if with_ids else [])]
    total, table = table.num_rows, table.select(names)
    if len(runs) == 1:
        table = table.slice(int(runs[0, 0]), int(runs[0, 1] - runs[0, 0]))
    elif total:
        slices = [table.slice(first, stop - first) for first, stop in runs.tolist()]
        table = pa.concat_tables(slices or [table.slice(0, 0)])
    table = table.combine_chunks()
    ids = table.column("document_id").to_pylist() if with_ids else ()
    (token_ids, _), (lengths, offsets) = (
        flat_lists(column.chunk(0) if column.num_chunks else pa.array([], column.type))
        for column in (table.column("token_ids"), table.column("sentence_lengths"))
    )
    rows = ranges(runs[:, 0], runs[:, 1] - runs[:, 0]) if table.num_rows < total else None
    return TokenDocuments(token_ids.to_numpy(), lengths.to_numpy(), offsets, ids, rows)
