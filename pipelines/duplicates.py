"""Documents that say the same, and documents that bear the same id: found by grouping digests.

Each shard sends, for each of `BUCKETS` buckets, a small Arrow table of (digest, id, row). Beam
groups a bucket's tables; equal digests meet in one bucket. Of equal texts the smallest
`document_id` stays, and of equal ids the row with the smallest digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.counters import Counters
from pipelines.shard_jobs import Blob, WorkReport
from pipelines.shards import ShardWriter, open_shard
from schemas.arrow import DUPLICATES
from schemas.manifest import FileEntry

DUPLICATES_FILE = "duplicates.arrow"
BUCKETS = 64
"""Of each kind of key. Many enough that no bucket of English Wikipedia is large (100,000 rows)."""

_BY_TEXT, _BY_ID = 0, 1
_ENTRIES = pa.schema(
    [
        ("key", pa.binary(16)),
        ("document_id", pa.string()),
        ("shard", pa.string()),
        ("row", pa.uint32()),
        ("digest", pa.binary(16)),
    ]
)


class _Member(NamedTuple):
    """Ordered so that the smallest of a group is the one that stays."""

    document_id: str
    digest: bytes
    shard: str
    row: int


def digest_blobs(ids: list[str], digests: list[bytes], *, shard: str) -> list[Blob]:
    """The (digest, id, row) tables of one shard, one for each bucket that has any."""
    blobs: list[Blob] = []
    id_keys = [hashlib.blake2b(name.encode(), digest_size=16).digest() for name in ids]
    for kind, keys in ((_BY_TEXT, digests), (_BY_ID, id_keys)):
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key[0] % BUCKETS, []).append(row)
        for bucket, members in sorted(rows.items()):
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array([keys[row] for row in members], pa.binary(16)),
                    pa.array([ids[row] for row in members], pa.string()),
                    pa.array([shard] * len(members), pa.string()),
                    pa.array(members, pa.uint32()),
                    pa.array([digests[row] for row in members], pa.binary(16)),
                ],
                schema=_ENTRIES,
            )
            blobs.append(Blob(bucket * 2 + kind, batch.serialize().to_pybytes()))
    return blobs


def repeated_keys(blobs: Iterable[bytes], *, by_id: bool) -> Iterator[list[_Member]]:
    """The groups of two or more rows with one key, each sorted; groups in order of the key."""
    tables = [pa.ipc.read_record_batch(blob, _ENTRIES) for blob in blobs]
    table = pa.Table.from_batches(tables, _ENTRIES)
    keys = table.column("key").to_pylist()
    seen: dict[bytes, list[int]] = {}
    for position, key in enumerate(keys):
        seen.setdefault(key, []).append(position)
    for _, positions in sorted(item for item in seen.items() if len(item[1]) > 1):
        members = [
            _Member(row["document_id"], row["digest"], row["shard"], row["row"])
            for row in table.take(positions).to_pylist()
        ]
        if not by_id or len({member.digest for member in members}) > 1:
            yield sorted(members)


class _FindInBucket(beam.DoFn):
    """(bucket, blobs) in; one report out, whose details are the bucket's groups."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[str]:
        bucket, blobs = element
        by_id = bucket % 2 == _BY_ID
        groups = [
            [
                [member.document_id, member.digest.hex(), member.shard, member.row]
                for member in group
            ]
            for group in repeated_keys(blobs, by_id=by_id)
        ]
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


def choose_duplicates(reports: Iterable[WorkReport]) -> list[dict[str, Any]]:
    """The rows to leave out, by shard and row; rows of the table `DUPLICATES`.

    Ids are settled before texts: a row that is left out for its id cannot be the one that stays
    for its text.
    """
    groups: dict[int, list[list[_Member]]] = {_BY_ID: [], _BY_TEXT: []}
    for report in reports:
        groups[report.index % 2].extend(
            [_Member(name, bytes.fromhex(digest), shard, row) for name, digest, shard, row in group]
            for group in report.details
        )
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for group in groups[_BY_ID]:
        kept = min(member.digest for member in group)
        _leave_out(rows, [m for m in group if m.digest != kept], "same-id", group[0].document_id)
    for group in groups[_BY_TEXT]:
        left = sorted(member for member in group if (member.shard, member.row) not in rows)
        if left:
            _leave_out(rows, left[1:], "same-text", left[0].document_id)
    return [rows[place] for place in sorted(rows)]


def _leave_out(
    rows: dict[tuple[str, int], dict[str, Any]], members: list[_Member], reason: str, kept: str
) -> None:
    for member in members:
        rows[member.shard, member.row] = {
            "document_id": member.document_id,
            "shard": member.shard,
            "row": member.row,
            "reason": reason,
            "kept_document_id": kept,
        }


def write_duplicates(reports: Iterable[WorkReport], *, output: str) -> Duplicates:
    """Write `duplicates.arrow`, by shard and row."""
    rows = choose_duplicates(reports)
    with ShardWriter(DUPLICATES_FILE, schema=DUPLICATES, output=output) as shard:
        if rows:
            shard.write(pa.RecordBatch.from_pylist(rows, schema=DUPLICATES))
    counters = Counters()
    for row in rows:
        counters.count(f"duplicates-{row['reason']}")
    return Duplicates([shard.entry()], counters)


def duplicate_rows(table: str, *, shard: str) -> frozenset[int]:
    """The rows of one document shard that are duplicates, from the table's URL."""
    with open_shard(table, expected=DUPLICATES) as reader:
        found = reader.read_all()
    mask = pc.equal(found.column("shard"), pa.scalar(shard, pa.string()))
    return frozenset(found.filter(mask).column("row").to_pylist())
