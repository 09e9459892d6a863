"""The table of near-duplicates: made of the near pairs that the buckets found.

In the order of who comes first, a document is left out where it is near to one that stays. So each
that is left out is near to the one that is named as the reason, and no two that were found near
both stay. A pair takes 32 bytes of memory, once, whatever the number of keys that the two share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from pipelines.arrays import Bools, Int64s
from pipelines.beam.shard_work import WorkResult
from pipelines.documents.bucket_tables import bucket_tables, remove_bucket_files
from pipelines.documents.duplicates import run_starts
from pipelines.documents.duplicates_table import Positions, Runs, left_out_batch
from pipelines.documents.left_out import LEFT_OUT_FILE, NEAR_DUPLICATE
from pipelines.documents.near_duplicates import NEAR_PAIRS, first_come
from pipelines.io.shards import ShardWriter
from pipelines.io.temporary_folders import temporary_folder
from schemas.arrow import EXCLUDED_DOCUMENTS
from schemas.manifest import FileEntry

_HELD = 1 << 20  # pairs that are held before those known already are taken out
_WALKED = 1 << 16  # pairs that are objects of Python at once


def write_near_duplicates(
    reports: Sequence[WorkResult], *, output: str, shards: Sequence[FileEntry]
) -> FileEntry:
    """Write `LEFT_OUT_FILE`, by shard and row, and delete the files of the buckets.

    Args:
        reports: of the buckets (`report_near`).
        output: URL of the folder of the buckets' files.
        shards: the document shards, in the order of the pieces.
    """
    pairs = _Pairs.none()
    for table in bucket_tables(reports, NEAR_PAIRS, output=output):
        pairs = pairs.with_more(table)
    settled = _Settled.of(pairs.distinct())
    positions = Positions.of(shards)
    names = pa.array([entry.path for entry in shards], pa.string())
    with (
        temporary_folder("near-duplicates") as folder,
        ShardWriter(LEFT_OUT_FILE, schema=EXCLUDED_DOCUMENTS, output=output) as shard,
    ):
        runs = Runs(folder, positions)
        for table in bucket_tables(reports, NEAR_PAIRS, output=output):
            for batch in table.to_batches():
                rows = batch.filter(pa.array(settled.first_seen(batch)))
                located = pa.table({"shard": names.take(rows.column("piece")), "row": rows["row"]})
                ids = (rows.column(name) for name in ("document_id", "first_document_id"))
                runs.add(positions.number(located), *ids)
        for window in runs.windows():
            shard.write(
                left_out_batch(
                    window, positions, schema=EXCLUDED_DOCUMENTS, reasons=[NEAR_DUPLICATE]
                )
            )
    remove_bucket_files(reports, output=output)
    return shard.entry()


def _places(batch: pa.Table | pa.RecordBatch, prefix: str = "") -> Int64s:
    pieces = batch.column(f"{prefix}piece").to_numpy().astype(np.int64)
    found: Int64s = (pieces << 32) | batch.column(f"{prefix}row").to_numpy()
    return found


class _Pairs(NamedTuple):
    """Near pairs; `PIECE << 32 | ROW`, and time, of the later and of the first document."""

    columns: Int64s
    """Of shape (4, pairs)."""

    known: int
    """So many of them are distinct."""

    @classmethod
    def none(cls) -> Self:
        return cls(np.empty((4, 0), np.int64), 0)

    def with_more(self, table: pa.Table) -> _Pairs:
        times = (table.column(name).to_numpy() for name in ("time", "first_time"))
        more = np.stack([_places(table), _places(table, "first_"), *times])
        together = _Pairs(np.concatenate([self.columns, more], axis=1), self.known)
        held = together.columns.shape[1] - self.known
        return together.distinct() if held > max(_HELD, self.known) else together

    def distinct(self) -> _Pairs:
        order = np.lexsort((self.columns[1], self.columns[0]))
        columns = self.columns[:, order]
        columns = columns[:, run_starts(columns[0], columns[1])]
        return _Pairs(columns, columns.shape[1])


class _Settled:
    """Which documents are left out, each for which other."""

    def __init__(self, documents: Int64s, because: Int64s) -> None:
        self._documents, self._because = documents, because
        """Ascending places; of each the number of the one that stays, -1 where it stays itself."""

        self._unseen = because >= 0

    @classmethod
    def of(cls, pairs: _Pairs) -> Self:
        """Settle near pairs, each given once."""
        later, first, *times = pairs.columns
        documents, at = np.unique(np.concatenate([later, first]), return_index=True)
        order = first_come(np.concatenate(times)[at], documents)
        ranks = np.empty(len(documents), np.int64)
        ranks[order] = np.arange(len(documents))
        edges = np.stack([ranks[np.searchsorted(documents, side)] for side in (later, first)])
        edges = edges[:, np.lexsort((edges[1], edges[0]))]
        because = np.full(len(documents), -1)
        for start in range(0, edges.shape[1], _WALKED):
            # Whether an earlier document stays is known when a later one is looked at.
            for one, other in zip(*edges[:, start : start + _WALKED].tolist(), strict=True):
                if because[one] < 0 and because[other] < 0:
                    because[one] = other
        left = np.flatnonzero(because >= 0)
        of_documents = np.full(len(documents), -1)
        of_documents[order[left]] = order[because[left]]
        return cls(documents, of_documents)

    def first_seen(self, batch: pa.RecordBatch) -> Bools:
        """Of which pairs the later document is left out for the other, and was not seen before."""
        later, first = (
            np.searchsorted(self._documents, _places(batch, prefix)) for prefix in ("", "first_")
        )
        chosen = np.flatnonzero((self._because[later] == first) & self._unseen[later])
        _, ones = np.unique(later[chosen], return_index=True)
        self._unseen[later[chosen]] = False
        seen = np.zeros(batch.num_rows, np.bool_)
        seen[chosen[ones]] = True
        return seen
