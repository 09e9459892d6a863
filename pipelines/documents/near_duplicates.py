"""Find near-duplicates among documents that share a band key, and choose the ones to exclude.

Groups are compared by the Jaccard similarity of their n-gram sets. In a small group, all pairs are
compared. In a large group, each member is compared with the first, and the others with their
neighbors in the order of the next band keys. Within a pair, the newer revision has priority; ties
are broken by plan order. A document is excluded if it is near to a document that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from pipelines.arrays import Bools, Int64s, UInt64s, flat_lists, joined, ranges
from pipelines.beam.shard_work import WorkResult
from pipelines.counters import Counters
from pipelines.documents.bucket_tables import bucket_report, bucket_tables, remove_bucket_files
from pipelines.documents.duplicates import Positions, SortedRuns, excluded_batch, group_starts
from pipelines.documents.exclusions import EXCLUSIONS_FILE, NEAR_DUPLICATE
from pipelines.documents.sketches import BAND_BITS, Bands, SketchFiles, read_keys
from pipelines.io.shards import ShardWriter
from schemas.arrow import EXCLUDED_DOCUMENTS
from schemas.manifest import FileEntry

SMALL_GROUP = 16
NEIGHBOURS = 8

NEAR_PAIRS = pa.schema(
    [
        ("piece", pa.uint32()),  # work item of the document with lower priority
        ("row", pa.uint32()),  # in the document shard
        ("time", pa.int64()),
        ("document_id", pa.large_string()),
        ("first_piece", pa.uint32()),
        ("first_row", pa.uint32()),
        ("first_time", pa.int64()),
        ("first_document_id", pa.large_string()),
    ]
)
"""Pairs of near-duplicates, by work item and row."""

_SLICE = 1 << 16  # rows whose groups are compared together
_ELEMENTS = 1 << 21  # n-grams that are compared together
_SMALL_REPORT = 16 << 10


class _Pairs(NamedTuple):
    """Pairs of members of groups, by index; `first` has priority over `later`."""

    later: Int64s
    first: Int64s

    def where(self, kept: Bools) -> _Pairs:
        return _Pairs(self.later[kept], self.first[kept])


class _Members(NamedTuple):
    """Members of groups that share a key, sorted by group and priority."""

    groups: Int64s
    keys: UInt64s
    documents: Int64s
    """Numbers of the documents in a slice."""

    places: Int64s
    """Locations of the documents, ascending."""

    @property
    def starts(self) -> Int64s:
        """Index of the first member of each member's group."""
        firsts = group_starts(self.groups)
        found: Int64s = np.flatnonzero(firsts)[np.cumsum(firsts) - 1]
        return found


def find_near_duplicates_in_bucket(
    bucket: int, blobs: Iterable[bytes], *, output: str, bands: Bands, threshold: float
) -> WorkResult:
    """Return the `NEAR_PAIRS` of a bucket, inline or as a file."""
    rows = read_keys(blobs)
    order = np.lexsort((rows.places, rows.keys))
    keys, places = rows.keys[order], rows.places[order]
    groups = np.cumsum(group_starts(keys)) - 1
    shared = np.bincount(groups)[groups] > 1
    keys, places, groups = keys[shared], places[shared], groups[shared]
    counters, found = Counters(), [NEAR_PAIRS.empty_table()]
    with SketchFiles(rows.files, output=output) as files:
        for part in _slices(groups):
            members = _ranked(groups[part], keys[part], places[part], files)
            comparing = _Comparing(files, members, bands=bands, threshold=threshold)
            pairs = comparing.near_pairs()
            counters.count("pairs-compared", comparing.compared)
            found.append(_table(pairs, members, files))
    table = pa.concat_tables(found)
    if not table.num_rows:
        return WorkResult(bucket, counters=counters)
    file = f"__excluded__/bucket-{bucket:06d}.arrow"
    return bucket_report(
        bucket, table, file=file, output=output, max_bytes=_SMALL_REPORT, counters=counters
    )


def _slices(groups: Int64s) -> Iterator[slice]:
    """Yield slices of about `_SLICE` members, in whole groups."""
    bounds = np.append(np.flatnonzero(group_starts(groups)), len(groups))
    start = 0
    while start < len(groups):
        at = int(np.searchsorted(bounds, start + _SLICE, side="right")) - 1
        end = int(bounds[at])
        if end <= start:
            end = int(bounds[at + 1])
        yield slice(start, end)
        start = end


def _ranked(groups: Int64s, keys: UInt64s, places: Int64s, files: SketchFiles) -> _Members:
    distinct, documents = np.unique(places, return_inverse=True)
    times = files.take(distinct, ["time"]).column("time").to_numpy()
    ranks = np.empty(len(distinct), np.int64)
    ranks[priority_order(times, distinct)] = np.arange(len(distinct))
    order = np.lexsort((ranks[documents], groups))
    return _Members(groups[order], keys[order], documents[order], distinct)


def priority_order(times: Int64s, places: Int64s) -> Int64s:
    """Return documents by priority: the newest first, then plan order."""
    return np.lexsort((places, ~times))


class _Comparing:
    """Compares the members of some groups."""

    def __init__(
        self, files: SketchFiles, members: _Members, *, bands: Bands, threshold: float
    ) -> None:
        self._files, self._members, self._bands = files, members, bands
        self._threshold = threshold
        self._sizes = files.sizes(members.places)
        self.compared = 0
        """Number of compared pairs of documents."""

    def near_pairs(self) -> _Pairs:
        """Return the near pairs, except pairs of two documents near to the same first one."""
        starts = self._members.starts
        sizes = np.bincount(starts)[starts] if len(starts) else starts
        small = np.flatnonzero(sizes <= SMALL_GROUP)
        large = np.flatnonzero((sizes > SMALL_GROUP) & (starts != np.arange(len(starts))))
        pairs = [self._near(_all_pairs(small, small - starts[small]))]
        firsts = self._near(_Pairs(large, starts[large]))
        others = np.setdiff1d(large, firsts.later, assume_unique=True)
        pairs += [firsts, self._near(self._neighbours(others))]
        near = _Pairs(*map(joined, zip(*pairs, strict=True)))
        leaders = np.arange(len(starts))
        np.minimum.at(leaders, near.later, near.first)
        return near.where(
            (leaders[near.later] != leaders[near.first]) | (leaders[near.later] == near.first)
        )

    def _neighbours(self, members: Int64s) -> _Pairs:
        """Return pairs of members of a group that are neighbors in the order of their next keys."""
        groups, documents, keys, places = (
            self._members.groups[members],
            self._members.documents[members],
            self._members.keys[members],
            self._members.places,
        )
        distinct, of_members = np.unique(documents, return_inverse=True)
        band = (keys & np.uint64((1 << BAND_BITS) - 1)).astype(np.int64)
        next_keys = _next_keys(self._files, places[distinct], of_members, band, self._bands)
        order = np.lexsort((members, *reversed(next_keys), groups))
        found = []
        for apart in range(1, NEIGHBOURS + 1):
            one, other = order[apart:], order[:-apart]
            same = groups[one] == groups[other]
            found.append(np.sort(members[np.stack([one[same], other[same]])], axis=0))
        first, later = np.concatenate(found, axis=1)
        return _Pairs(later, first)

    def _near(self, pairs: _Pairs) -> _Pairs:
        """Return the pairs whose documents are near."""
        documents = self._members.documents
        one, other = documents[pairs.later], documents[pairs.first]
        low, high = np.minimum(one, other), np.maximum(one, other)
        smaller, larger = np.sort(self._sizes[np.stack([low, high])], axis=0)
        # The similarity of two sets is at most the ratio of their sizes.
        likely = smaller >= self._threshold * larger
        packed = low[likely] * len(self._sizes) + high[likely]
        distinct, of_pairs = np.unique(packed, return_inverse=True)
        near = np.zeros(len(low), np.bool_)
        near[likely] = self._are_near(*np.divmod(distinct, len(self._sizes)))[of_pairs]
        return pairs.where(near)

    def _are_near(self, low: Int64s, high: Int64s) -> Bools:
        self.compared += len(low)
        near = np.zeros(len(low), np.bool_)
        amounts = np.cumsum(self._sizes[low] + self._sizes[high])
        start = 0
        while start < len(low):
            before = int(amounts[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(amounts, before + _ELEMENTS, side="right")))
            part = slice(start, end)
            near[part] = self._similarities(low[part], high[part]) >= self._threshold
            start = end
        return near

    def _similarities(self, low: Int64s, high: Int64s) -> np.ndarray:
        """Return the Jaccard similarities of pairs of documents."""
        needed = np.unique(np.concatenate([low, high]))
        taken = self._files.take(self._members.places[needed], ["ngrams"]).column("ngrams")
        values, offsets = flat_lists(taken.combine_chunks())
        ngrams = values.to_numpy()
        sides = []
        for side in (low, high):
            at = np.searchsorted(needed, side)
            lengths = np.diff(offsets)[at]
            numbers = np.repeat(np.arange(len(side), dtype=np.uint64), lengths)
            sides.append((numbers << np.uint64(32)) | ngrams[ranges(offsets[at], lengths)])
        together = np.concatenate(sides)
        together.sort(kind="stable")  # merges two sorted runs
        twice = together[1:][together[1:] == together[:-1]] >> np.uint64(32)
        both = np.bincount(twice.astype(np.int64), minlength=len(low))
        return both / (self._sizes[low] + self._sizes[high] - both)


def _all_pairs(members: Int64s, before: Int64s) -> _Pairs:
    """Return each member with the `before` members that come before it in its group."""
    return _Pairs(np.repeat(members, before), ranges(members - before, before))


def _next_keys(
    files: SketchFiles, places: Int64s, documents: Int64s, band: Int64s, bands: Bands
) -> tuple[UInt64s, UInt64s]:
    """Return the keys of the two bands after each member's own band."""
    found = [np.empty(len(documents), np.uint64) for _ in range(2)]
    order = np.argsort(documents, kind="stable")
    for start in range(0, len(places), _SLICE):
        part = places[start : start + _SLICE]
        column = files.take(part, ["bands"]).column("bands").combine_chunks()
        keys = flat_lists(column)[0].to_numpy().reshape(len(part), bands.bands)
        begin, end = np.searchsorted(documents[order], (start, start + len(part)))
        of_part = order[begin:end]
        for after, column_of in enumerate(found, 1):
            number = (band[of_part] + after) % bands.bands
            column_of[of_part] = keys[documents[of_part] - start, number]
    return found[0], found[1]


def _table(pairs: _Pairs, members: _Members, files: SketchFiles) -> pa.Table:
    """Return the distinct pairs of documents with their ids."""
    packed = members.documents[pairs.later] * len(members.places) + members.documents[pairs.first]
    later, first = np.divmod(np.unique(packed), max(1, len(members.places)))
    needed, at = np.unique(np.concatenate([later, first]), return_inverse=True)
    rows = files.take(members.places[needed], ["row", "time", "document_id"])
    pieces = (members.places[needed] >> 32).astype(np.uint32)
    columns = []
    for numbers in np.split(at, 2):
        some = rows.take(pa.array(numbers))
        columns += [pa.array(pieces[numbers]), *(column for column in some.columns)]
    return pa.table(columns, names=NEAR_PAIRS.names).cast(NEAR_PAIRS)


_HELD = 1 << 20  # pairs that are held before known ones are removed
_WALKED = 1 << 16  # pairs that are Python objects at once


def write_near_duplicates(
    reports: Iterable[WorkResult], *, output: str, shards: Sequence[FileEntry]
) -> FileEntry:
    """Write `EXCLUSIONS_FILE`, by shard and row, and delete the files of the buckets.

    Document shards are in the order of the work items.
    """
    pairs = _NearPairs.none()
    for table in bucket_tables(reports, NEAR_PAIRS, output=output):
        pairs = pairs.with_more(table)
    settled = _Settled.of(pairs.distinct())
    positions = Positions.of(shards)
    names = pa.array([entry.path for entry in shards], pa.string())
    with (
        TemporaryDirectory(prefix="bertloom-near-duplicates-") as folder,
        ShardWriter(EXCLUSIONS_FILE, schema=EXCLUDED_DOCUMENTS, output=output) as shard,
    ):
        runs = SortedRuns(folder, positions)
        for table in bucket_tables(reports, NEAR_PAIRS, output=output):
            for batch in table.to_batches():
                rows = batch.filter(pa.array(settled.first_seen(batch)))
                located = pa.table({"shard": names.take(rows.column("piece")), "row": rows["row"]})
                ids = (rows.column(name) for name in ("document_id", "first_document_id"))
                runs.add(positions.number(located), *ids)
        for window in runs.windows():
            shard.write(
                excluded_batch(
                    window, positions, schema=EXCLUDED_DOCUMENTS, reasons=[NEAR_DUPLICATE]
                )
            )
    remove_bucket_files(reports, output=output)
    return shard.entry()


def _places(batch: pa.Table | pa.RecordBatch, prefix: str = "") -> Int64s:
    pieces = batch.column(f"{prefix}piece").to_numpy().astype(np.int64)
    found: Int64s = (pieces << 32) | batch.column(f"{prefix}row").to_numpy()
    return found


class _NearPairs(NamedTuple):
    """Near pairs: location (`ITEM << 32 | ROW`) and time of the later and of the first document."""

    columns: Int64s
    """Array of shape (4, pairs)."""

    known: int
    """Number of pairs that are known to be distinct."""

    @classmethod
    def none(cls) -> Self:
        return cls(np.empty((4, 0), np.int64), 0)

    def with_more(self, table: pa.Table) -> _NearPairs:
        times = (table.column(name).to_numpy() for name in ("time", "first_time"))
        more = np.stack([_places(table), _places(table, "first_"), *times])
        together = _NearPairs(np.concatenate([self.columns, more], axis=1), self.known)
        held = together.columns.shape[1] - self.known
        return together.distinct() if held > max(_HELD, self.known) else together

    def distinct(self) -> _NearPairs:
        order = np.lexsort((self.columns[1], self.columns[0]))
        columns = self.columns[:, order]
        columns = columns[:, group_starts(columns[0], columns[1])]
        return _NearPairs(columns, columns.shape[1])


class _Settled:
    """Excluded documents, each with the document that is kept."""

    def __init__(self, documents: Int64s, because: Int64s) -> None:
        self._documents, self._because = documents, because
        """Locations, ascending, and for each the number of the kept document; -1 if it is kept."""

        self._unseen = because >= 0

    @classmethod
    def of(cls, pairs: _NearPairs) -> Self:
        """Choose the kept document of each pair. Pairs are distinct."""
        later, first, *times = pairs.columns
        documents, at = np.unique(np.concatenate([later, first]), return_index=True)
        order = priority_order(np.concatenate(times)[at], documents)
        ranks = np.empty(len(documents), np.int64)
        ranks[order] = np.arange(len(documents))
        edges = np.stack([ranks[np.searchsorted(documents, side)] for side in (later, first)])
        edges = edges[:, np.lexsort((edges[1], edges[0]))]
        because = np.full(len(documents), -1)
        for start in range(0, edges.shape[1], _WALKED):
            # Documents are visited by priority, so it is known whether an earlier one is kept.
            for one, other in zip(*edges[:, start : start + _WALKED].tolist(), strict=True):
                if because[one] < 0 and because[other] < 0:
                    because[one] = other
        left = np.flatnonzero(because >= 0)
        of_documents = np.full(len(documents), -1)
        of_documents[order[left]] = order[because[left]]
        return cls(documents, of_documents)

    def first_seen(self, batch: pa.RecordBatch) -> Bools:
        """Return whether each pair is the first one that excludes its later document."""
        later, first = (
            np.searchsorted(self._documents, _places(batch, prefix)) for prefix in ("", "first_")
        )
        chosen = np.flatnonzero((self._because[later] == first) & self._unseen[later])
        _, ones = np.unique(later[chosen], return_index=True)
        self._unseen[later[chosen]] = False
        seen = np.zeros(batch.num_rows, np.bool_)
        seen[chosen[ones]] = True
        return seen
