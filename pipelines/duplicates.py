"""Documents that say the same, and documents that bear the same id: found by grouping digests.

Each shard sends, for each of `BUCKETS` buckets, a few packed bytes a document: of one kind its
text's digest, row and id, of the other its id's digest, row and part of the text's. Beam groups a
bucket's bytes; equal digests meet in one bucket. Of equal texts the smallest `document_id` stays,
and of equal ids the row with the smallest digest. The runner of one machine holds several copies
of what it groups, so what is sent is small: about 60 bytes a document.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

from pipelines.counters import Counters
from pipelines.shard_work import Blob, WorkReport
from pipelines.shards import ShardWriter, open_shard
from schemas.arrow import DOCUMENTS, DUPLICATES
from schemas.manifest import FileEntry

DUPLICATES_FILE = "__duplicates__/duplicates.arrow"
"""In a folder that opening the one above as a data set passes over: its rows are no documents."""
BUCKETS = 64
"""Of each kind of key. Many enough that no bucket of English Wikipedia is large (100,000 rows)."""

_BY_TEXT, _BY_ID = 0, 1
_KEY_BYTES = 16
_HEAD = struct.Struct("<HII")  # bytes of the shard's name, rows, bytes of what is packed behind


class _Member(NamedTuple):
    """Ordered so that the smallest of a group is the one that stays."""

    rank: str
    """By text: the document's id. By id: 8 bytes of the text's digest, in hex."""

    shard: str
    row: int


def digest_blobs(ids: list[str], digests: list[bytes], *, shard: str) -> list[Blob]:
    """The packed keys of one shard, a blob for each bucket that has any."""
    id_keys = [hashlib.blake2b(name.encode(), digest_size=_KEY_BYTES).digest() for name in ids]
    ranks = {_BY_TEXT: (digests, ids), _BY_ID: (id_keys, [digest[:8].hex() for digest in digests])}
    blobs: list[Blob] = []
    for kind, (keys, rank) in ranks.items():
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key[0] % BUCKETS, []).append(row)
        for bucket, members in sorted(rows.items()):
            packed = _pack([keys[row] for row in members], members, [rank[row] for row in members])
            name = shard.encode()
            head = _HEAD.pack(len(name), len(members), len(packed))
            blobs.append(Blob(bucket * 2 + kind, head + name + packed))
    return blobs


def _pack(keys: list[bytes], rows: list[int], ranks: list[str]) -> bytes:
    # Ids of one source share most of their letters.
    names = zlib.compress("\n".join(ranks).encode(), 1)
    return b"".join(keys) + np.array(rows, "<u4").tobytes() + names


def _unpack(blob: bytes) -> Iterator[tuple[bytes, _Member]]:
    name_bytes, count, packed_bytes = _HEAD.unpack_from(blob)
    shard = blob[_HEAD.size : _HEAD.size + name_bytes].decode()
    packed = blob[_HEAD.size + name_bytes :]
    if len(packed) != packed_bytes:
        raise ValueError(f"a blob of {shard} has {len(packed)} bytes, not {packed_bytes}")
    keys = count * _KEY_BYTES
    rows = np.frombuffer(packed, "<u4", count, keys).tolist()
    ranks = zlib.decompress(packed[keys + 4 * count :]).decode().split("\n")
    for number, (row, rank) in enumerate(zip(rows, ranks, strict=True)):
        start = number * _KEY_BYTES
        yield packed[start : start + _KEY_BYTES], _Member(rank, shard, row)


def repeated_keys(blobs: Iterable[bytes], *, by_id: bool) -> Iterator[list[_Member]]:
    """The groups of two or more rows with one key, each sorted; groups in order of the key.

    Rows with one id *and* one text are left to the grouping by text.
    """
    groups: dict[bytes, list[_Member]] = {}
    for blob in blobs:
        for key, member in _unpack(blob):
            groups.setdefault(key, []).append(member)
    for _, members in sorted(item for item in groups.items() if len(item[1]) > 1):
        if not by_id or len({member.rank for member in members}) > 1:
            yield sorted(members)


class _FindInBucket(beam.DoFn):
    """(bucket, blobs) in; one report out, whose details are the bucket's groups."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[str]:
        bucket, blobs = element
        found = repeated_keys(blobs, by_id=bucket % 2 == _BY_ID)
        groups = [[list(member) for member in group] for group in found]
        yield WorkReport(bucket, details=groups).to_json()


class FindDuplicates(beam.PTransform[Any, Any]):
    """(bucket, bytes) blobs in; JSON reports out, each with the repeated keys of one bucket."""

    def expand(self, blobs: Any) -> Any:
        return (
            blobs
            | "GroupDigests" >> beam.GroupByKey()
            | "FindInBuckets" >> beam.ParDo(_FindInBucket()).with_output_types(str)
        )


@dataclass
class Duplicates:
    """The table of duplicates, as a file of the artifact, and its counts."""

    files: list[FileEntry]
    counters: Counters


Rows = Mapping[str, Sequence[int]]
"""Numbers of rows by the shard that they are in."""


def choose_duplicates(
    reports: Iterable[WorkReport], *, document_ids: Callable[[Rows], Iterable[list[str]]]
) -> list[dict[str, Any]]:
    """The rows to leave out, by shard and row; rows of the table `DUPLICATES`.

    Ids are settled before texts: a row that is left out for its id cannot be the one that stays
    for its text.

    Args:
        reports: of the buckets.
        document_ids: reads ids: for each shard, in the order given, those of its rows. Asked once,
            for one row of each repeated id.
    """
    groups: dict[int, list[list[_Member]]] = {_BY_ID: [], _BY_TEXT: []}
    for report in reports:
        groups[report.index % 2].extend(
            [_Member(*member) for member in group] for group in report.details
        )
    rows: dict[tuple[str, int], dict[str, Any]] = {}

    def leave_out(member: _Member, *, name: str, reason: str, kept: str) -> None:
        rows[member.shard, member.row] = {
            "document_id": name,
            "shard": member.shard,
            "row": member.row,
            "reason": reason,
            "kept_document_id": kept,
        }

    names = _names(groups[_BY_ID], document_ids)
    for group in groups[_BY_ID]:
        name = names[group[0].shard, group[0].row]
        for member in group:
            if member.rank != group[0].rank:
                leave_out(member, name=name, reason="same-id", kept=name)
    for group in groups[_BY_TEXT]:
        left = sorted(member for member in group if (member.shard, member.row) not in rows)
        for member in left[1:]:
            leave_out(member, name=member.rank, reason="same-text", kept=left[0].rank)
    return [rows[place] for place in sorted(rows)]


def _names(
    groups: Iterable[list[_Member]], document_ids: Callable[[Rows], Iterable[list[str]]]
) -> dict[tuple[str, int], str]:
    """The ids of groups with equal ids, by shard and row of the first member."""
    wanted: dict[str, list[int]] = {}
    for first, *_ in groups:
        wanted.setdefault(first.shard, []).append(first.row)
    return {
        (shard, row): name
        for (shard, rows), names in zip(wanted.items(), document_ids(wanted), strict=True)
        for row, name in zip(rows, names, strict=True)
    }


def write_duplicates(
    reports: Iterable[WorkReport], *, output: str, shards: Iterable[FileEntry]
) -> Duplicates:
    """Write `DUPLICATES_FILE`, by shard and row.

    Args:
        reports: of the buckets.
        output: URL of the folder that the document shards are in.
        shards: the document shards.
    """
    objects = {entry.path: entry.object for entry in shards}

    def document_ids(wanted: Rows) -> Iterator[list[str]]:
        for shard, rows in wanted.items():
            url, columns = f"{output}/{objects[shard]}", ("document_id",)
            with open_shard(url, expected=DOCUMENTS, columns=columns) as reader:
                yield reader.read_all().column("document_id").take(pa.array(rows)).to_pylist()

    rows = choose_duplicates(reports, document_ids=document_ids)
    with ShardWriter(DUPLICATES_FILE, schema=DUPLICATES, output=output) as shard:
        if rows:
            shard.write(pa.RecordBatch.from_pylist(rows, schema=DUPLICATES))
    counters = Counters()
    for row in rows:
        counters.count(f"duplicates-{row['reason']}")
    return Duplicates([shard.entry()], counters)


def duplicate_rows(table: str, *, shard: str) -> frozenset[int]:
    """The rows of one document shard that are duplicates, from the table's URL."""
    return _rows_by_shard(table).get(shard, frozenset())


@functools.lru_cache(maxsize=2)  # a file's physical name is never given to another
def _rows_by_shard(table: str) -> dict[str, frozenset[int]]:
    with open_shard(table, expected=DUPLICATES) as reader:
        found = reader.read_all()
    rows: dict[str, set[int]] = {}
    columns = (found.column(name).to_pylist() for name in ("shard", "row"))
    for shard, row in zip(*columns, strict=True):
        rows.setdefault(shard, set()).add(row)
    return {shard: frozenset(numbers) for shard, numbers in rows.items()}
