"""DOC"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Bools, Int64s, UInt64s
from pipelines.beam.work import Blob, WorkReport
from pipelines.documents.bucket_tables import bucket_report, bucket_tables, remove_bucket_files
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.io.temporary_folders import temporary_folder
from schemas.arrow import DUPLICATES
from schemas.errors import RunnerError
from schemas.manifest import FileEntry, path_order

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


def report_repeated(bucket: int, blobs: Iterable[bytes], *, output: str) -> WorkReport:
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
        return WorkReport(bucket)
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
        return WorkReport(bucket)
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


DUPLICATES_FILE = "__duplicates__/duplicates.arrow"
"""In a folder that opening the one above as a data set passes over: its rows are no documents."""

SAME_ID, SAME_TEXT = "same-id", "same-text"
"""Why a row is left out. One of a repeated id always is."""

BATCH_ROWS = 1 << 18
"""Rows of a record batch of the table, which holds those of whole document shards: more only where
one shard has more."""

_REASONS = [SAME_TEXT, SAME_ID]
_RUN = pa.schema(
    [
        ("position", pa.int64()),  # of the row among those of all shards, by name
        ("reason", pa.uint8()),  # its number
        ("document_id", pa.large_string()),
        ("canonical_document_id", pa.large_string()),
    ]
)


class RepeatedIds(NamedTuple):
    """The rows of a document shard that are left out for their ids."""

    rows: int
    document_id: str
    """Of the first of them."""

    canonical_document_id: str


@dataclass
class Duplicates:
    """The table of duplicates, as a file of the artifact, and what it comes to."""

    file: FileEntry
    same_text: int = 0
    """Rows left out for their texts."""

    repeated_ids: dict[str, RepeatedIds] = field(default_factory=dict)
    """By document shard, in order of their names."""


class Positions(NamedTuple):
    """The rows of all document shards, numbered in the order of the plan."""

    shards: pa.StringArray
    starts: Int64s
    """Of each shard, and one more."""

    @classmethod
    def of(cls, shards: Iterable[FileEntry]) -> Self:
        rows = {entry.path: entry.rows or 0 for entry in shards}
        names = sorted(rows, key=path_order)
        starts = np.cumsum([0, *(rows[name] for name in names)], dtype=np.int64)
        return cls(pa.array(names, pa.string()), starts)

    def number(self, table: pa.Table | pa.RecordBatch) -> Int64s:
        """The position of each row of a table with the columns `shard` and `row`."""
        found = pc.index_in(table.column("shard"), value_set=self.shards)
        if found.null_count:
            unknown = table.column("shard").filter(pc.is_null(found))[0]
            raise RunnerError(f"duplicates: rows of a shard that no piece reported, {unknown}")
        numbers: Int64s = self.starts[found.to_numpy()] + table.column("row").to_numpy()
        return numbers

    def shard_of(self, positions: Int64s) -> Int64s:
        return np.searchsorted(self.starts, positions, side="right") - 1

    def windows(self, counts: Int64s) -> Iterator[tuple[int, int]]:
        """Bounds of positions that hold up to `BATCH_ROWS` of the counted rows, in whole shards."""
        first, rows = 0, 0
        for shard, count in enumerate(counts.tolist()):
            if rows and rows + count > BATCH_ROWS:
                yield int(self.starts[first]), int(self.starts[shard])
                first, rows = shard, 0
            rows += count
        if rows:
            yield int(self.starts[first]), int(self.starts[-1])


class Runs:
    """Rows to leave out, run by run in a temporary file; those of a run are in order."""

    def __init__(self, folder: str, positions: Positions) -> None:
        self._path, self._positions = Path(folder, "runs.arrow"), positions
        self._writer = pa.ipc.new_file(str(self._path), _RUN)
        self.counts = np.zeros(len(positions.shards), np.int64)
        """Rows of each shard."""

    def add(
        self, positions: Int64s, names: pa.Array, kept_names: pa.Array, *, reason: int = 0
    ) -> None:
        order = np.argsort(positions)
        reasons = pa.array(np.full(len(order), reason, np.uint8))
        take = pa.array(order)
        columns = [positions[order], reasons, names.take(take), kept_names.take(take)]
        self._writer.write_batch(pa.record_batch(columns, schema=_RUN))
        self.counts += np.bincount(self._positions.shard_of(positions), minlength=len(self.counts))

    def windows(self) -> Iterator[pa.Table]:
        """All rows in order, some at a time."""
        self._writer.close()
        with pa.memory_map(str(self._path)) as mapped:
            reader = pa.ipc.open_file(mapped)
            runs = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            numbered = [(run.column("position").to_numpy(), run) for run in runs]
            for bounds in self._positions.windows(self.counts):
                parts = []
                for positions, run in numbered:
                    start, end = np.searchsorted(positions, bounds).tolist()
                    parts.append(run.slice(start, end - start))
                yield pa.Table.from_batches(parts).sort_by("position")


def write_duplicates(
    reports: Iterable[WorkReport], *, output: str, shards: Iterable[FileEntry]
) -> Duplicates:
    """Write `DUPLICATES_FILE`, by shard and row, and delete the files of the buckets.

    Ids are settled before texts: a row that is left out for its id cannot be the one that stays
    for its text.

    Args:
        reports: of the buckets (`report_repeated`).
        output: URL of the folder that the document shards and the buckets' files are in.
        shards: the document shards.
    """
    positions = Positions.of(shards)
    kinds: dict[int, list[WorkReport]] = {BY_ID: [], BY_TEXT: []}
    for report in reports:
        kinds[report.index % 2].append(report)
    with (
        temporary_folder("duplicates") as folder,
        ShardWriter(DUPLICATES_FILE, schema=DUPLICATES, output=output) as shard,
    ):
        runs = Runs(folder, positions)
        repeated = np.zeros(positions.starts[-1], np.bool_)
        for table in bucket_tables(kinds[BY_ID], REPEATED_IDS, output=output):
            _settle_ids(table, positions, repeated=repeated, runs=runs)
        for table in bucket_tables(kinds[BY_TEXT], EQUAL_TEXTS, output=output):
            _settle_texts(table, positions, repeated=repeated, runs=runs)
        duplicates: list[tuple[int, dict[str, RepeatedIds]]] = []
        for window in runs.windows():
            batch = left_out_batch(window, positions, schema=DUPLICATES, reasons=_REASONS)
            shard.write(batch)
            duplicates.append(_summary(batch))
    remove_bucket_files(itertools.chain(*kinds.values()), output=output)
    found = Duplicates(shard.entry())
    for same_text, repeated_ids in duplicates:
        found.same_text += same_text
        found.repeated_ids |= repeated_ids
    return found


def _settle_ids(table: pa.Table, positions: Positions, *, repeated: Bools, runs: Runs) -> None:
    for batch in table.to_batches():
        numbers = positions.number(batch)
        repeated[numbers] = True
        names = (batch.column(name) for name in ("document_id", "canonical_document_id"))
        runs.add(numbers, *names, reason=_REASONS.index(SAME_ID))


def _settle_texts(table: pa.Table, positions: Positions, *, repeated: Bools, runs: Runs) -> None:
    """Of each group of a bucket the first row stays that is not left out for its id."""
    kept = EQUAL_TEXTS.empty_table()  # the row that stays of the last group, which may go on
    for batch in table.to_batches():
        numbers = positions.number(batch)
        there = pa.array(np.flatnonzero(~repeated[numbers]))
        rows = pa.concat_tables([kept, pa.Table.from_batches([batch]).take(there)])
        rows = rows.combine_chunks()
        if not rows.num_rows:
            continue
        starts = run_starts(rows.column("group").to_numpy())
        of_rows = np.flatnonzero(starts)[np.cumsum(starts) - 1]
        names = rows.column("document_id").chunk(0)
        left = pa.array(np.flatnonzero(~starts))
        runs.add(
            positions.number(rows.take(left)),
            names.take(left),
            names.take(pa.array(of_rows[~starts])),
            reason=_REASONS.index(SAME_TEXT),
        )
        kept = rows.slice(int(of_rows[-1]), 1)


def left_out_batch(
    window: pa.Table, positions: Positions, *, schema: pa.Schema, reasons: Sequence[str]
) -> pa.RecordBatch:
    """Rows to leave out as a batch of a table: of what document, where, why, and for which other.

    Args:
        window: of `Runs`.
        positions: of the rows.
        schema: its columns are an id, `shard`, `row`, a reason, and another id.
        reasons: by their numbers.
    """
    numbers = window.column("position").to_numpy()
    shards = positions.shard_of(numbers)
    columns = [
        window.column("document_id").combine_chunks().cast(pa.string()),
        positions.shards.take(pa.array(shards)),
        pa.array(numbers - positions.starts[shards], pa.uint32()),
        pa.array(reasons, pa.string()).take(window.column("reason").combine_chunks()),
        window.column("canonical_document_id").combine_chunks().cast(pa.string()),
    ]
    return pa.record_batch(columns, schema=schema)


def _summary(batch: pa.RecordBatch) -> tuple[int, dict[str, RepeatedIds]]:
    """How many rows are left out for their texts, and of each shard those for their ids."""
    repeated = batch.filter(pc.equal(batch.column("reason"), SAME_ID))
    of_shard = np.flatnonzero(
        run_starts(repeated.column("shard").dictionary_encode().indices.to_numpy())
    )
    firsts = repeated.take(pa.array(of_shard)).to_pylist()
    sizes = np.diff([*of_shard, repeated.num_rows]).tolist()
    found = {
        first["shard"]: RepeatedIds(rows, first["document_id"], first["canonical_document_id"])
        for first, rows in zip(firsts, sizes, strict=True)
    }
    return batch.num_rows - repeated.num_rows, found


def duplicate_rows(table: str | InputFile, *, shard: str, reason: str) -> frozenset[int]:
    """The rows of one document shard that are left out for a reason, from the table."""
    found = rows_by_shard(table, expected=DUPLICATES)
    return frozenset(found.get((shard, reason), _NO_ROWS).tolist())


_NO_ROWS = np.empty(0, np.uint32)


@functools.lru_cache(maxsize=4)  # a file's physical name is never given to another
def rows_by_shard(
    table: str | InputFile, *, expected: pa.Schema
) -> Mapping[tuple[str, str], npt.NDArray[np.uint32]]:
    """The rows of each document shard that are left out, by shard and reason.

    Args:
        table: with the columns `shard`, `row` and `reason`.
        expected: its schema.
    """
    parts: dict[tuple[str, str], list[npt.NDArray[np.uint32]]] = {}
    with open_shard(table, expected=expected, columns=("shard", "row", "reason")) as reader:
        for number in range(reader.num_record_batches):
            _add_rows(reader.get_batch(number), parts)
    return {key: np.concatenate(rows) for key, rows in parts.items()}


def _add_rows(
    batch: pa.RecordBatch, parts: dict[tuple[str, str], list[npt.NDArray[np.uint32]]]
) -> None:
    names = [batch.column(name).dictionary_encode() for name in ("shard", "reason")]
    shards, reasons = (column.indices.to_numpy() for column in names)
    order = np.lexsort((reasons, shards))
    starts = np.flatnonzero(run_starts(shards[order], reasons[order]))
    rows = batch.column("row").to_numpy()
    for members in np.split(order, starts[1:]) if len(order) else ():
        key = tuple(column[int(members[0])].as_py() for column in names)
        parts.setdefault(key, []).append(rows[members])
