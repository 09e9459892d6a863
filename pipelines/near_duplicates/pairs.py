"""Find near-duplicates among documents that share a band key, and choose the ones to exclude.

Groups are compared by the Jaccard similarity of their n-gram sets. In a small group, all pairs are
compared. In a large group, each member is compared with the first, and the others with their
neighbors in the order of the next band keys. Within a pair, the newer revision has priority; ties
are broken by plan order. A document is excluded if it is near to a document that is kept.

Workers compare the documents of a bucket. The launching process only joins their pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.arrays import Bools, Int64s, flat_lists, joined, ranges
from pipelines.counters import Counters
from pipelines.documents.bucket_tables import bucket_report, bucket_tables, remove_bucket_files
from pipelines.documents.duplicates import BATCH_ROWS
from pipelines.documents.exclusions import EXCLUSIONS_FILE, NEAR_DUPLICATE
from pipelines.io.shards import ShardWriter
from pipelines.near_duplicates.sketches import (
    ROW_BITS,
    Members,
    SketchFiles,
    priority_order,
    read_members,
)
from pipelines.shard_job.work import WorkResult
from schemas.arrow import EXCLUDED_DOCUMENTS
from schemas.manifest import FileEntry

NEIGHBORS = 15
SMALL_GROUP = NEIGHBORS + 1
"""Maximum number of members of a group in which all pairs are compared."""

NEAR_PAIRS = pa.schema(
    [
        ("later", pa.int64()),  # location of the sketch of the document with lower priority
        ("first", pa.int64()),
        ("later_time", pa.int64()),
        ("first_time", pa.int64()),
    ]
)
"""Pairs of near-duplicates."""

_SLICE = 1 << 16  # members that are paired with their neighbors at once
_ELEMENTS = 1 << 21  # n-grams that are compared together
_SMALL_REPORT = 16 << 10


class _Pairs(NamedTuple):
    """Pairs of members of groups, by index; `first` has priority over `later`."""

    later: Int64s
    first: Int64s

    def where(self, selected: Bools) -> _Pairs:
        return _Pairs(self.later[selected], self.first[selected])


def find_near_duplicates_in_bucket(
    bucket: int, blobs: Iterable[bytes], *, output: str, threshold: float
) -> WorkResult:
    """Return the `NEAR_PAIRS` of a bucket, inline or as a file."""
    members, files = read_members(blobs)
    with SketchFiles(files, output=output) as sketches:
        comparison = _Comparison(members, sketches, threshold)
        pairs = comparison.near_pairs()
    counters = Counters({"pairs-compared": comparison.compared})
    if not len(pairs.later):
        return WorkResult(bucket, counters=counters)
    columns = [column[side] for column in (members.places, members.times) for side in pairs]
    return bucket_report(
        bucket,
        pa.table(columns, schema=NEAR_PAIRS),
        file=f"__excluded__/bucket-{bucket:06d}.arrow",
        output=output,
        max_bytes=_SMALL_REPORT,
        counters=counters,
    )


class _Comparison:
    """Compares the members of groups."""

    def __init__(self, members: Members, files: SketchFiles, threshold: float) -> None:
        self._members, self._files, self._threshold = members, files, threshold
        self.compared = 0
        """Number of compared pairs."""

    def near_pairs(self) -> _Pairs:
        """Return the near pairs, except pairs of two documents near to the same first one."""
        starts = self._members.starts
        index = np.arange(len(starts))
        sizes = np.bincount(starts, minlength=len(starts))[starts]
        large = np.flatnonzero((sizes > SMALL_GROUP) & (starts != index))
        firsts = self._near(_Pairs(large, starts[large]))
        others = np.setdiff1d(index, firsts.later, assume_unique=True)
        pairs = [firsts, *map(self._near, self._neighbors(others))]
        near = _Pairs(*map(joined, zip(*pairs, strict=True)))
        leaders = index.copy()
        np.minimum.at(leaders, near.later, near.first)
        return near.where(
            (leaders[near.later] != leaders[near.first]) | (leaders[near.later] == near.first)
        )

    def _neighbors(self, members: Int64s) -> Iterator[_Pairs]:
        """Yield each member with up to `NEIGHBORS` before it, by group and next keys."""
        starts = self._members.starts
        order = members[np.lexsort((members, self._members.next_keys[members], starts[members]))]
        groups = starts[order]
        position = np.arange(len(order)) - np.searchsorted(groups, groups)
        before = np.minimum(position, NEIGHBORS)
        for begin in range(0, len(order), _SLICE):
            counts = before[begin : begin + _SLICE]
            at = np.arange(begin, begin + len(counts))
            pairs = order[np.stack([np.repeat(at, counts), ranges(at - counts, counts)])]
            yield _Pairs(pairs.max(axis=0), pairs.min(axis=0))

    def _near(self, pairs: _Pairs) -> _Pairs:
        """Return the pairs whose documents are near."""
        smaller, larger = np.sort(self._members.sizes[np.stack(pairs)], axis=0)
        # The similarity of two sets is at most the ratio of their sizes.
        likely = smaller >= self._threshold * larger
        pairs = pairs.where(likely)
        self.compared += len(pairs.later)
        parts = np.cumsum((smaller + larger)[likely]) // _ELEMENTS
        bounds = np.flatnonzero(np.diff(parts)) + 1
        near = [
            self._similarities(*part) >= self._threshold
            for part in zip(*(np.split(side, bounds) for side in pairs), strict=True)
        ]
        return pairs.where(np.concatenate(near))

    def _similarities(self, later: Int64s, first: Int64s) -> np.ndarray:
        """Return the Jaccard similarities of pairs of members."""
        places, at = np.unique(
            self._members.places[np.concatenate([later, first])], return_inverse=True
        )
        column = self._files.take(places, ["ngrams"]).column("ngrams")
        values, offsets = flat_lists(column.combine_chunks())
        ngrams, lengths = values.to_numpy(), np.diff(offsets)
        pairs = np.arange(len(later), dtype=np.uint64) << np.uint64(32)
        sides = [
            np.repeat(pairs, lengths[side]) | ngrams[ranges(offsets[side], lengths[side])]
            for side in np.split(at, 2)
        ]
        together = np.concatenate(sides)
        together.sort(kind="stable")  # merges two sorted runs
        twice = together[1:][together[1:] == together[:-1]] >> np.uint64(32)
        both = np.bincount(twice.astype(np.int64), minlength=len(later))
        sizes = self._members.sizes
        return both / (sizes[later] + sizes[first] - both)


def write_near_duplicates(
    reports: Iterable[WorkResult],
    *,
    output: str,
    shards: Sequence[FileEntry],
    sketches: Sequence[FileEntry],
) -> FileEntry:
    """Write `EXCLUSIONS_FILE`, by shard and row, and delete the files of the buckets.

    Document shards and shards of sketches are in the order of the work items.
    """
    pairs = _distinct_pairs(bucket_tables(reports, NEAR_PAIRS, output=output))
    excluded, kept = choose_excluded(*(column.to_numpy() for column in pairs.columns))
    names = pa.array([entry.path for entry in shards], pa.string())
    stored = dict(enumerate(entry.stored_name for entry in sketches))
    with (
        SketchFiles(stored, output=output) as files,
        ShardWriter(EXCLUSIONS_FILE, schema=EXCLUDED_DOCUMENTS, output=output) as shard,
    ):
        for start in range(0, len(excluded), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            shard.write(_excluded_batch(excluded[part], kept[part], files, names))
    remove_bucket_files(reports, output=output)
    return shard.entry()


_HELD = 1 << 16  # minimum pairs that are held before known ones are removed
_WALKED = 1 << 16  # pairs that are Python objects at once


def _distinct_pairs(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the distinct pairs of all buckets: a pair can share several keys."""
    known, held, rows = NEAR_PAIRS.empty_table(), list[pa.Table](), 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows > max(_HELD, known.num_rows):
            known, held, rows = _distinct([known, *held]), [], 0
    return _distinct([known, *held])


def _distinct(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).group_by(NEAR_PAIRS.names, use_threads=False).aggregate([])


def choose_excluded(
    later: Int64s, first: Int64s, later_times: Int64s, first_times: Int64s
) -> tuple[Int64s, Int64s]:
    """Return the excluded documents, ascending, and for each the document that is kept.

    Documents are visited by priority, so it is known whether an earlier one is kept.
    """
    documents, at = np.unique(np.concatenate([later, first]), return_index=True)
    order = priority_order(np.concatenate([later_times, first_times])[at], documents)
    ranks = np.empty(len(documents), np.int64)
    ranks[order] = np.arange(len(documents))
    ones, others = ranks[np.searchsorted(documents, np.stack([later, first]))]
    edges = np.sort(ones * len(documents) + others)
    because = np.full(len(documents), -1)
    for start in range(0, len(edges), _WALKED):
        pairs = np.divmod(edges[start : start + _WALKED], len(documents))
        for one, other in zip(*(side.tolist() for side in pairs), strict=True):
            if because[one] < 0 and because[other] < 0:
                because[one] = other
    excluded = np.flatnonzero(because >= 0)
    places = documents[order[excluded]]
    by_place = np.argsort(places)
    return places[by_place], documents[order[because[excluded]]][by_place]


def _excluded_batch(
    excluded: Int64s, kept: Int64s, files: SketchFiles, shards: pa.StringArray
) -> pa.RecordBatch:
    """Return the rows of the table for excluded documents, each with the document that is kept."""
    rows = files.take(excluded, ["document_id", "row"])
    distinct, at = np.unique(kept, return_inverse=True)
    columns = [
        rows.column("document_id"),
        shards.take(pa.array(excluded >> ROW_BITS)),
        rows.column("row"),
        pa.repeat(pa.scalar(NEAR_DUPLICATE), len(excluded)),
        files.take(distinct, ["document_id"]).column("document_id").take(pa.array(at)),
    ]
    table = pa.table(columns, schema=EXCLUDED_DOCUMENTS).combine_chunks()
    return table.to_batches()[0]
