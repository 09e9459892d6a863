"""Documents that say the same, and documents that bear the same id: found by grouping digests.

Each shard sends, for each of 64 buckets or more, a few packed bytes a document: of one kind by its
text's digest, of the other by its id's, each with its row and its id. Beam groups a bucket's bytes;
equal digests meet in one bucket, whose rows are arrays, not objects of Python. What it finds
is an Arrow table (`documents.bucket_tables`); `documents.duplicates_table` makes one of all.

Of equal texts the smallest `document_id` stays. Of equal ids the first in the order of the plan
stays, whatever the others say, for every draw belongs to an id. Of one page (its number and its
title) in several revisions, as in dumps of two months, the newest stays.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Int64s, UInt64s
from pipelines.beam.shard_work import Blob, WorkResult
from pipelines.documents.bucket_tables import bucket_report
from schemas.manifest import path_order

BUCKETS = 64
"""How many for each kind of key, at least."""

ROWS_A_BUCKET = 400_000
"""What a worker groups at once, in about 40 MB."""

KEY_COLUMNS = ("document_id", "digest", "title", "page_id", "revision_id")
"""Columns of the documents table that `digest_blobs` needs."""

EQUAL_TEXTS = pa.schema(
    [
        ("group", pa.int64()),
        ("document_id", pa.large_string()),
        ("shard", pa.string()),
        ("row", pa.uint32()),
    ]
)
"""The rows of a bucket whose texts others have too: by group, id, shard and row."""

REPEATED_IDS = pa.schema(
    [
        ("document_id", pa.large_string()),
        ("shard", pa.string()),
        ("row", pa.uint32()),
        ("canonical_document_id", pa.large_string()),
    ]
)
"""The rows of a bucket to leave out for their ids: by shard and row."""

BY_TEXT, BY_ID = 0, 1
"""Kinds of keys: of the bucket `n` these have the numbers `2 * n` and `2 * n + 1`."""

NO_REVISION = -(1 << 63)
_KEY_BYTES = 16
_SMALL_BUCKET = 16 << 10
_HEAD = struct.Struct("<HII")  # bytes of the shard's name, rows, bytes of what is packed behind


def buckets_for(documents: int) -> int:
    """How many buckets so many documents need; nothing that is found depends on it."""
    return max(BUCKETS, -(-documents // ROWS_A_BUCKET))


class _Keys(NamedTuple):
    """Rows of a shard by one kind of key."""

    keys: UInt64s
    """Two numbers a row."""

    rows: npt.NDArray[np.uint32]
    revisions: Int64s
    titles: npt.NDArray[np.uint32]
    """By id: digests of titles. By text these are 0."""

    names: pa.LargeStringArray

    def take(self, rows: Int64s) -> _Keys:
        return _Keys(
            keys=self.keys[rows],
            rows=self.rows[rows],
            revisions=self.revisions[rows],
            titles=self.titles[rows],
            names=self.names.take(pa.array(rows)),
        )

    def packed(self) -> bytes:
        # Ids of one source share most of their letters; they may hold any character.
        offsets = np.frombuffer(self.names.buffers()[1], np.int64, len(self.rows) + 1)
        text = self.names.buffers()[2]
        letters = text.to_pybytes()[offsets[0] : offsets[-1]] if text is not None else b""
        numbers = (self.rows, self.revisions, self.titles, np.diff(offsets).astype(np.uint32))
        packed = b"".join([*(column.tobytes() for column in numbers), letters])
        return self.keys.tobytes() + zlib.compress(packed, 1)

    @classmethod
    def unpacked(cls, packed: bytes, count: int) -> Self:
        keys = np.frombuffer(packed, np.uint64, 2 * count).reshape(count, 2)
        data = zlib.decompress(memoryview(packed)[_KEY_BYTES * count :])
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.frombuffer(data, np.uint32, count, 16 * count), out=offsets[1:])
        letters = pa.py_buffer(data).slice(20 * count)
        return cls(
            keys=keys,
            rows=np.frombuffer(data, np.uint32, count),
            revisions=np.frombuffer(data, np.int64, count, 4 * count),
            titles=np.frombuffer(data, np.uint32, count, 12 * count),
            names=pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets), letters),
        )

    @classmethod
    def together(cls, parts: Sequence[_Keys]) -> Self:
        return cls(
            keys=np.concatenate([part.keys for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            revisions=np.concatenate([part.revisions for part in parts]),
            titles=np.concatenate([part.titles for part in parts]),
            names=pa.concat_arrays([part.names for part in parts]),
        )


def digest_blobs(
    documents: pa.Table | pa.RecordBatch, *, shard: str, buckets: int = BUCKETS
) -> list[Blob]:
    """The packed keys of one shard, a blob for each bucket that has any.

    Args:
        documents: all rows of the shard, of the `KEY_COLUMNS` at least.
        shard: its logical name.
        buckets: how many there are for each kind of key, the same for all shards of a job.
    """
    ids, digests, titles, pages, revisions = (
        documents.column(name).to_pylist() for name in KEY_COLUMNS
    )
    if not ids:
        return []
    id_keys = [id_key(*names) for names in zip(ids, pages, revisions, strict=True)]
    rows = np.arange(len(ids), dtype=np.uint32)
    names = pa.array(ids, pa.large_string())
    known = np.array([NO_REVISION if one is None else one for one in revisions], np.int64)
    titled = np.array([title_key(title) for title in titles], np.uint32)
    by_text = _Keys(_numbers(digests), rows, np.zeros_like(known), np.zeros_like(titled), names)
    by_id = _Keys(_numbers(id_keys), rows, known, titled, names)
    blobs: list[Blob] = []
    for kind, found in ((BY_TEXT, by_text), (BY_ID, by_id)):
        numbers = found.keys[:, 0] % np.uint64(buckets)
        order = np.argsort(numbers, kind="stable")
        present, starts = np.unique(numbers[order], return_index=True)
        for bucket, members in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            packed, name = found.take(members).packed(), shard.encode()
            head = _HEAD.pack(len(name), len(members), len(packed))
            blobs.append(Blob(bucket * 2 + kind, head + name + packed))
    return blobs


def _numbers(keys: Sequence[bytes]) -> UInt64s:
    return np.frombuffer(b"".join(keys), np.uint64).reshape(len(keys), 2)


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def id_key(name: str, page: int | None, revision: int | None) -> bytes:
    """16 bytes that are equal for documents of one id, whatever the revision of a page."""
    if page is not None and revision is not None:
        name = name.removesuffix(f":{revision}")
    return _digest(name, _KEY_BYTES)


def title_key(title: str) -> int:
    """32 bits of a title, for documents that share all else of an id but the revision."""
    return int.from_bytes(_digest(title, 4), "little")


def repeated_ids(
    groups: Int64s, *, titles: npt.NDArray[np.uint32], revisions: Int64s
) -> tuple[Int64s, Int64s]:
    """Which rows to leave out, and for each the one that stays.

    Args:
        groups: for each row, in the order of the plan, a number that rows of one id share, but for
            the revision of a page.
        titles: `title_key` of each.
        revisions: `NO_REVISION` where there is none.
    """
    paged = np.flatnonzero(revisions != NO_REVISION)
    # ~ turns the order round, for the newest to come first. Where all is equal, the plan's holds.
    newest = paged[np.lexsort((~revisions[paged], titles[paged], groups[paged]))]
    older, newer = _all_but_first(newest, groups[newest], titles[newest])
    left = np.zeros(len(groups), np.bool_)
    left[older] = True
    rest = np.flatnonzero(~left)
    rest = rest[np.lexsort((revisions[rest], groups[rest]))]
    later, first = _all_but_first(rest, groups[rest], revisions[rest])
    return np.concatenate([older, later]), np.concatenate([newer, first])


def _all_but_first(rows: Int64s, *keys: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """The rows that are not the first of their run of equal keys, and for each that first one."""
    firsts = run_starts(*keys)
    first = rows[np.flatnonzero(firsts)][np.cumsum(firsts) - 1]
    return rows[~firsts], first[~firsts]


def run_starts(*keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a run of rows with equal keys starts."""
    starts = np.ones(len(keys[0]), np.bool_)
    if len(starts):
        starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return starts


def report_repeated(bucket: int, blobs: Iterable[bytes], *, output: str) -> WorkResult:
    """The report of a bucket with its `EQUAL_TEXTS` or `REPEATED_IDS`, or their file.

    Args:
        bucket: its number.
        blobs: of all shards.
        output: URL of the folder for the file.
    """
    shards, found = _together(blobs)
    keys = found.keys
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    starts = run_starts(keys[order, 0], keys[order, 1])
    groups = np.cumsum(starts) - 1
    repeated = np.bincount(groups)[groups] > 1
    order, groups = order[repeated], groups[repeated]
    if not len(order):
        return WorkResult(bucket)
    table = pa.table(
        {
            "group": groups,
            "document_id": found.names.take(pa.array(order)),
            "shard": shards.take(pa.array(order)),
            "row": found.rows[order],
            "revision": found.revisions[order],
            "title": found.titles[order],
        }
    )
    table = _repeated_ids(table) if bucket % 2 == BY_ID else _equal_texts(table)
    if not table.num_rows:
        return WorkResult(bucket)
    file = f"__duplicates__/bucket-{bucket:06d}.arrow"
    return bucket_report(bucket, table, file=file, output=output, most_bytes=_SMALL_BUCKET)


def _together(blobs: Iterable[bytes]) -> tuple[pa.DictionaryArray, _Keys]:
    """Return the shard and the keys of each row, in the order of the plan."""
    parts: list[tuple[str, _Keys]] = []
    for blob in blobs:
        name_bytes, count, packed_bytes = _HEAD.unpack_from(blob)
        name = blob[_HEAD.size : _HEAD.size + name_bytes].decode()
        packed = blob[_HEAD.size + name_bytes :]
        if len(packed) != packed_bytes:
            raise ValueError(f"a blob of {name} has {len(packed)} bytes, not {packed_bytes}")
        parts.append((name, _Keys.unpacked(packed, count)))
    parts.sort(key=lambda part: path_order(part[0]))
    names = pa.array([name for name, _ in parts], pa.string())
    numbers = np.repeat(np.arange(len(parts), dtype=np.int32), [len(k.rows) for _, k in parts])
    shards = pa.DictionaryArray.from_arrays(numbers, names)
    return shards, _Keys.together([keys for _, keys in parts])


def _equal_texts(table: pa.Table) -> pa.Table:
    order = [(name, "ascending") for name in EQUAL_TEXTS.names]
    return table.select(EQUAL_TEXTS.names).cast(EQUAL_TEXTS).sort_by(order)


def _repeated_ids(table: pa.Table) -> pa.Table:
    """Return the rows to leave out; the rows of a group in `table` are in the order of the plan."""
    groups, titles, revisions = (
        table.column(name).to_numpy() for name in ("group", "title", "revision")
    )
    left, kept = repeated_ids(groups, titles=titles, revisions=revisions)
    order = np.argsort(left)
    names = table.column("document_id")
    rows = table.take(pa.array(left[order])).select(REPEATED_IDS.names[:-1])
    return rows.append_column("canonical_document_id", names.take(pa.array(kept[order]))).cast(
        REPEATED_IDS
    )
