"""Documents that say the same, and documents that bear the same id: found by grouping digests.

Each shard sends, for each of `BUCKETS` buckets, a few packed bytes a document: of one kind its
text's digest, row and id, of the other its id's digest, row and revision. Beam groups a bucket's
bytes; equal digests meet in one bucket. The runner of one machine holds several copies of what it
groups, so what is sent is small: about 60 bytes a document.

Of equal texts the smallest `document_id` stays. Of equal ids the first in the order of the plan
stays, whatever the others say, for every draw belongs to an id. Of one page (its number and its
title) in several revisions, as in dumps of two months, the newest stays.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.beam.work import Blob, WorkReport
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import DOCUMENTS, DUPLICATES
from schemas.manifest import FileEntry

DUPLICATES_FILE = "__duplicates__/duplicates.arrow"
"""In a folder that opening the one above as a data set passes over: its rows are no documents."""

BUCKETS = 64
"""How many for each kind of key: none is large for English Wikipedia (100,000 rows)."""

SAME_ID, SAME_TEXT = "same-id", "same-text"
"""Why a row is left out. One of a repeated id always is."""

KEY_COLUMNS = ("document_id", "digest", "title", "page_id", "revision_id")
"""Columns of the documents table that `digest_blobs` needs."""

Position = tuple[str, int]
"""Logical name of a document shard, and a row of it."""

Rows = Mapping[str, Sequence[int]]
"""Numbers of rows by the shard that they are in."""

_BY_TEXT, _BY_ID = 0, 1
_KEY_BYTES = 16
_HEAD = struct.Struct("<HII")  # bytes of the shard's name, rows, bytes of what is packed behind


class Member(NamedTuple):
    """Ordered so that the smallest of a group of equal texts is the one that stays."""

    rank: str
    """By text: the document's id. By id: its revision, if any, a space, digest of its title."""

    shard: str
    row: int

    @property
    def position(self) -> Position:
        return self.shard, self.row


def digest_blobs(documents: pa.Table | pa.RecordBatch, *, shard: str) -> list[Blob]:
    """The packed keys of one shard, a blob for each bucket that has any.

    Args:
        documents: all rows of the shard, of the `KEY_COLUMNS` at least.
        shard: its logical name.
    """
    ids, digests, titles, pages, revisions = (
        documents.column(name).to_pylist() for name in KEY_COLUMNS
    )
    id_keys = [id_key(*names) for names in zip(ids, pages, revisions, strict=True)]
    id_ranks = [id_rank(*names) for names in zip(titles, revisions, strict=True)]
    blobs: list[Blob] = []
    for kind, keys, ranks in ((_BY_TEXT, digests, ids), (_BY_ID, id_keys, id_ranks)):
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key[0] % BUCKETS, []).append(row)
        for bucket, members in sorted(rows.items()):
            packed = _pack([keys[row] for row in members], members, [ranks[row] for row in members])
            name = shard.encode()
            head = _HEAD.pack(len(name), len(members), len(packed))
            blobs.append(Blob(bucket * 2 + kind, head + name + packed))
    return blobs


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def id_key(name: str, page: int | None, revision: int | None) -> bytes:
    """16 bytes that are equal for documents of one id, whatever the revision of a page."""
    if page is not None and revision is not None:
        name = name.removesuffix(f":{revision}")
    return _digest(name, _KEY_BYTES)


def id_rank(title: str, revision: int | None) -> str:
    """The rank of a document among those of one id."""
    return f"{'' if revision is None else revision} {_digest(title, 4).hex()}"


def _pack(keys: list[bytes], rows: list[int], ranks: list[str]) -> bytes:
    # Ids of one source share most of their letters; they may hold any character.
    names = zlib.compress(json.dumps(ranks).encode(), 1)
    return b"".join(keys) + np.array(rows, "<u4").tobytes() + names


def _unpack(blob: bytes) -> Iterator[tuple[bytes, Member]]:
    name_bytes, count, packed_bytes = _HEAD.unpack_from(blob)
    shard = blob[_HEAD.size : _HEAD.size + name_bytes].decode()
    packed = blob[_HEAD.size + name_bytes :]
    if len(packed) != packed_bytes:
        raise ValueError(f"a blob of {shard} has {len(packed)} bytes, not {packed_bytes}")
    keys = count * _KEY_BYTES
    rows = np.frombuffer(packed, "<u4", count, keys).tolist()
    ranks = json.loads(zlib.decompress(packed[keys + 4 * count :]))
    for number, (row, rank) in enumerate(zip(rows, ranks, strict=True)):
        start = number * _KEY_BYTES
        yield packed[start : start + _KEY_BYTES], Member(rank, shard, row)


def repeated_keys(blobs: Iterable[bytes]) -> Iterator[list[Member]]:
    """The groups of two or more rows with one key, each sorted; groups in order of the key."""
    groups: dict[bytes, list[Member]] = {}
    for blob in blobs:
        for key, member in _unpack(blob):
            groups.setdefault(key, []).append(member)
    for _, members in sorted(item for item in groups.items() if len(item[1]) > 1):
        yield sorted(members)


def report_repeated(bucket: int, blobs: Iterable[bytes]) -> WorkReport:
    """The report of a bucket: its details are the groups of `repeated_keys`."""
    groups = [[list(member) for member in group] for group in repeated_keys(blobs)]
    return WorkReport(bucket, details=groups)


@dataclass
class Duplicates:
    """The table of duplicates, as a file of the artifact, and its rows."""

    file: FileEntry
    rows: list[dict[str, Any]]
    """Rows of the table `DUPLICATES`, by shard and row."""


def choose_duplicates(
    reports: Iterable[WorkReport], *, document_ids: Callable[[Rows], Iterable[list[str]]]
) -> list[dict[str, Any]]:
    """The rows to leave out, by shard and row; rows of the table `DUPLICATES`.

    Ids are settled before texts: a row that is left out for its id cannot be the one that stays
    for its text.

    Args:
        reports: of the buckets.
        document_ids: reads ids: for each shard, in the order given, those of its rows. Asked once,
            for the rows whose ids are repeated.
    """
    groups: dict[int, list[list[Member]]] = {_BY_ID: [], _BY_TEXT: []}
    for report in reports:
        groups[report.index % 2].extend(
            [Member(*member) for member in group] for group in report.details
        )
    repeated = {left: kept for group in groups[_BY_ID] for left, kept in repeated_ids(group)}
    names = _names({*repeated, *repeated.values()}, document_ids)
    rows = {
        left: _row(left, names[left], reason=SAME_ID, kept=names[kept])
        for left, kept in repeated.items()
    }
    for group in groups[_BY_TEXT]:
        left = sorted(member for member in group if member.position not in repeated)
        for member in left[1:]:
            rows[member.position] = _row(
                member.position, member.rank, reason=SAME_TEXT, kept=left[0].rank
            )
    return [rows[position] for position in sorted(rows)]


def _names(
    positions: Iterable[Position], document_ids: Callable[[Rows], Iterable[list[str]]]
) -> dict[Position, str]:
    wanted: dict[str, list[int]] = {}
    for shard, row in sorted(positions):
        wanted.setdefault(shard, []).append(row)
    return {
        (shard, row): name
        for (shard, rows), names in zip(wanted.items(), document_ids(wanted), strict=True)
        for row, name in zip(rows, names, strict=True)
    }


def _row(position: Position, name: str, *, reason: str, kept: str) -> dict[str, Any]:
    shard, row = position
    return {
        "document_id": name,
        "shard": shard,
        "row": row,
        "reason": reason,
        "kept_document_id": kept,
    }


def repeated_ids(group: Sequence[Member]) -> Iterator[tuple[Position, Position]]:
    """Pairs of a row to leave out and the one that stays, of rows that share all but a revision."""
    titles: dict[str, list[tuple[int, Position]]] = {}
    revisions: dict[str, list[tuple[int, Position]]] = {}
    for member in group:
        revision, _, title = member.rank.partition(" ")
        if revision:  # the newest first
            titles.setdefault(title, []).append((-int(revision), member.position))
        else:
            revisions.setdefault(revision, []).append((0, member.position))
    for page in titles.values():
        newest, *others = sorted(page)
        yield from ((position, newest[1]) for _, position in others)
        revisions.setdefault(str(-newest[0]), []).append(newest)
    for rows in revisions.values():
        first, *others = sorted(rows)
        yield from ((position, first[1]) for _, position in others)


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
    return Duplicates(shard.entry(), rows)


def duplicate_rows(table: str | InputFile, *, shard: str, reason: str) -> frozenset[int]:
    """The rows of one document shard that are left out for a reason, from the table."""
    return _rows_by_shard(table).get((shard, reason), frozenset())


@functools.lru_cache(maxsize=2)  # a file's physical name is never given to another
def _rows_by_shard(table: str | InputFile) -> dict[tuple[str, str], frozenset[int]]:
    with open_shard(table, expected=DUPLICATES) as reader:
        found = reader.read_all()
    rows: dict[tuple[str, str], set[int]] = {}
    columns = (found.column(name).to_pylist() for name in ("shard", "reason", "row"))
    for shard, reason, row in zip(*columns, strict=True):
        rows.setdefault((shard, reason), set()).add(row)
    return {key: frozenset(numbers) for key, numbers in rows.items()}
