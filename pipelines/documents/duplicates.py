"""Find documents with equal texts or equal ids by grouping digests, and write their table.

Each shard sends an Arrow table to each of 64 or more buckets: the digests of texts or ids, with the
rows and ids of the documents. Beam groups the tables of a bucket; equal digests are in one bucket.
Each bucket gives an Arrow table (`documents.bucket_tables`), and `write_duplicates` merges them
through a temporary file on the local disk, about 80 bytes per row. Reading takes 4 bytes per row.

Of equal texts, the smallest `document_id` is kept. Of equal ids, the first in plan order is kept,
even if the texts differ, because every draw depends on an id. Of one page (number and title) in
several revisions, as in dumps of two months, the newest is kept.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Bools, Int64s, UInt64s, flat_lists
from pipelines.documents.bucket_tables import (
    bucket_blobs,
    bucket_report,
    bucket_tables,
    from_bytes,
    remove_bucket_files,
)
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.shard_job.work import Blob, WorkResult
from schemas.arrow import DUPLICATES
from schemas.errors import RunnerError
from schemas.manifest import FileEntry, path_order

BUCKETS = 64
"""Minimum number of buckets for each type of key."""

BYTES_PER_BUCKET = 1 << 29
"""Bytes of text or XML for each bucket. A worker groups its rows at once, 100 bytes each."""

KEY_COLUMNS = ("document_id", "digest", "title", "page_id", "revision_id")
"""Columns of the documents table that `duplicate_key_blobs` needs."""

EQUAL_TEXTS = pa.schema(
    [
        ("group", pa.int64()),
        ("document_id", pa.large_string()),
        ("shard", pa.string()),
        ("row", pa.uint32()),
    ]
)
"""Rows of a bucket with equal texts, by group, id, shard and row."""

REPEATED_IDS = pa.schema(
    [
        ("document_id", pa.large_string()),
        ("shard", pa.string()),
        ("row", pa.uint32()),
        ("canonical_document_id", pa.large_string()),
    ]
)
"""Rows of a bucket that are dropped for their ids, by shard and row."""

BY_TEXT, BY_ID = 0, 1
"""Types of keys. Bucket `n` has the numbers `2 * n` and `2 * n + 1`."""

NO_REVISION = -(1 << 63)
_KEY_BYTES = 16
_SMALL_BUCKET = 16 << 10
_KEYS = pa.schema(
    [
        ("key", pa.binary(_KEY_BYTES)),
        ("row", pa.uint32()),
        ("revision", pa.int64()),
        ("title", pa.uint32()),  # `title_key` for keys of ids, 0 for keys of texts
        ("document_id", pa.large_string()),
    ]
)


def buckets_for(num_bytes: int) -> int:
    """Return the number of buckets for an input. Results do not depend on it."""
    return max(BUCKETS, -(-num_bytes // BYTES_PER_BUCKET))


def duplicate_key_blobs(
    documents: pa.Table | pa.RecordBatch, *, shard: str, buckets: int = BUCKETS
) -> list[Blob]:
    """Return the keys of one shard, one blob per bucket that is not empty.

    Args:
        documents: All rows of the shard with the columns `KEY_COLUMNS`.
        shard: Logical name of the shard.
        buckets: Number of buckets for each type of key, equal for all shards of a job.
    """
    ids, digests, titles, pages, revisions = (
        documents.column(name).to_pylist() for name in KEY_COLUMNS
    )
    if not ids:
        return []
    by_text = {"key": digests, "revision": [NO_REVISION] * len(ids), "title": [0] * len(ids)}
    by_id = {
        "key": [id_key(*names) for names in zip(ids, pages, revisions, strict=True)],
        "revision": [NO_REVISION if number is None else number for number in revisions],
        "title": [title_key(title) for title in titles],
    }
    schema = _KEYS.with_metadata({"shard": shard})
    blobs: list[Blob] = []
    for kind, columns in ((BY_TEXT, by_text), (BY_ID, by_id)):
        rows = {"row": range(len(ids)), "document_id": ids}
        table = pa.table({**columns, **rows}, schema=schema)
        numbers = _numbers(table)[:, 0] % np.uint64(buckets) * np.uint64(2) + np.uint64(kind)
        blobs += bucket_blobs(table, numbers)
    return blobs


def _numbers(table: pa.Table) -> UInt64s:
    """Return the keys of rows as two numbers each."""
    keys = b"".join(table.column("key").to_pylist())
    return np.frombuffer(keys, np.uint64).reshape(-1, 2)


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def id_key(name: str, page: int | None, revision: int | None) -> bytes:
    """Return 16 bytes that are equal for documents of one id, or of one page in any revision."""
    if page is not None and revision is not None:
        name = name.removesuffix(f":{revision}")
    return _digest(name, _KEY_BYTES)


def title_key(title: str) -> int:
    """Return 32 bits of a title, to compare documents whose ids differ only in the revision."""
    return int.from_bytes(_digest(title, 4), "little")


def repeated_ids(
    groups: Int64s, *, titles: npt.NDArray[np.uint32], revisions: Int64s
) -> tuple[Int64s, Int64s]:
    """Return the rows that are dropped, and for each the row that is kept.

    Args:
        groups: A number per row, in plan order, that is equal for rows with equal `id_key`.
        titles: `title_key` of each row.
        revisions: Revision of each row, or `NO_REVISION`.
    """
    paged = np.flatnonzero(revisions != NO_REVISION)
    # ~ reverses the order, so that the newest is first. The sort keeps plan order among equals.
    newest = paged[np.lexsort((~revisions[paged], titles[paged], groups[paged]))]
    older, newer = _all_but_first(newest, groups[newest], titles[newest])
    left = np.zeros(len(groups), np.bool_)
    left[older] = True
    rest = np.flatnonzero(~left)
    rest = rest[np.lexsort((revisions[rest], groups[rest]))]
    later, first = _all_but_first(rest, groups[rest], revisions[rest])
    return np.concatenate([older, later]), np.concatenate([newer, first])


def _all_but_first(rows: Int64s, *keys: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """Return the rows that are not the first of a group of equal keys, and the first of each."""
    firsts = group_starts(*keys)
    first = rows[np.flatnonzero(firsts)][np.cumsum(firsts) - 1]
    return rows[~firsts], first[~firsts]


def group_starts(*keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return whether each row starts a group of consecutive rows with equal keys."""
    starts = np.ones(len(keys[0]), np.bool_)
    if len(starts):
        starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return starts


def find_duplicates_in_bucket(bucket: int, blobs: Iterable[bytes], *, output: str) -> WorkResult:
    """Return the `EQUAL_TEXTS` or `REPEATED_IDS` of a bucket, inline or as a file."""
    rows = _read_keys(blobs)
    keys = _numbers(rows)
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    starts = group_starts(keys[order, 0], keys[order, 1])
    groups = np.cumsum(starts) - 1
    repeated = np.bincount(groups)[groups] > 1
    table = rows.take(pa.array(order[repeated])).append_column("group", pa.array(groups[repeated]))
    table = _repeated_ids(table) if bucket % 2 == BY_ID else _equal_texts(table)
    if not table.num_rows:
        return WorkResult(bucket)
    file = f"__duplicates__/bucket-{bucket:06d}.arrow"
    return bucket_report(bucket, table, file=file, output=output, max_bytes=_SMALL_BUCKET)


def _read_keys(blobs: Iterable[bytes]) -> pa.Table:
    """Return the rows of all shards in plan order, with a column `shard`."""
    tables = {table.schema.metadata[b"shard"].decode(): table for table in map(from_bytes, blobs)}
    names = sorted(tables, key=path_order)
    sizes = [tables[name].num_rows for name in names]
    shards = pa.array(names, pa.string()).take(pa.array(np.repeat(np.arange(len(names)), sizes)))
    rows = pa.concat_tables(tables[name] for name in names)
    return rows.append_column("shard", shards).combine_chunks()


def _equal_texts(table: pa.Table) -> pa.Table:
    order = [(name, "ascending") for name in EQUAL_TEXTS.names]
    return table.select(EQUAL_TEXTS.names).cast(EQUAL_TEXTS).sort_by(order)


def _repeated_ids(table: pa.Table) -> pa.Table:
    """Return the rows to drop. Rows of a group in `table` are in plan order."""
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
"""Path of the table. Readers of a dataset skip folders that start with `_`."""

SAME_ID, SAME_TEXT = "same-id", "same-text"
"""Reasons. Rows with the reason "same-id" are always excluded."""

BATCH_ROWS = 1 << 18
"""Maximum rows of a record batch of the table. A batch has all rows of a document shard, so it is
larger if one shard has more."""

_REASONS = [SAME_TEXT, SAME_ID]
_RUN = pa.schema(
    [
        ("position", pa.int64()),  # number of the row among those of all shards, in plan order
        ("reason", pa.uint8()),  # index in the list of reasons
        ("document_id", pa.large_string()),
        ("canonical_document_id", pa.large_string()),
    ]
)


class RepeatedIds(NamedTuple):
    """Rows of a document shard that are dropped for their ids."""

    rows: int
    document_id: str
    """Id of the first row."""

    canonical_document_id: str


@dataclass
class Duplicates:
    """File of the table of duplicates, with counts."""

    file: FileEntry
    same_text: int = 0
    """Number of rows with the text of another."""

    repeated_ids: dict[str, RepeatedIds] = field(default_factory=dict)
    """Rows with repeated ids by document shard, in order of their names."""


class Positions(NamedTuple):
    """Rows of all document shards, numbered in plan order."""

    shards: pa.StringArray
    starts: Int64s
    """Number of the first row of each shard, and the total."""

    @classmethod
    def of(cls, shards: Iterable[FileEntry]) -> Self:
        rows = {entry.path: entry.rows or 0 for entry in shards}
        names = sorted(rows, key=path_order)
        starts = np.cumsum([0, *(rows[name] for name in names)], dtype=np.int64)
        return cls(pa.array(names, pa.string()), starts)

    def number(self, table: pa.Table | pa.RecordBatch) -> Int64s:
        """Return the position of each row of a table with the columns `shard` and `row`."""
        shard_numbers = pc.index_in(table.column("shard"), value_set=self.shards)
        if shard_numbers.null_count:
            unknown = table.column("shard").filter(pc.is_null(shard_numbers))[0]
            raise RunnerError(f"duplicates: rows refer to the unknown shard {unknown}")
        numbers: Int64s = self.starts[shard_numbers.to_numpy()] + table.column("row").to_numpy()
        return numbers

    def shard_of(self, positions: Int64s) -> Int64s:
        return np.searchsorted(self.starts, positions, side="right") - 1

    def windows(self, counts: Int64s) -> Iterator[tuple[int, int]]:
        """Yield bounds of positions with up to `BATCH_ROWS` counted rows, in whole shards."""
        first, rows = 0, 0
        for shard, count in enumerate(counts.tolist()):
            if rows and rows + count > BATCH_ROWS:
                yield int(self.starts[first]), int(self.starts[shard])
                first, rows = shard, 0
            rows += count
        if rows:
            yield int(self.starts[first]), int(self.starts[-1])


class SortedRuns:
    """Excluded rows in a temporary file, as sorted runs that `windows` merges."""

    def __init__(self, folder: str, positions: Positions) -> None:
        self._path, self._positions = Path(folder, "runs.arrow"), positions
        self._writer = pa.ipc.new_file(str(self._path), _RUN)
        self.counts = np.zeros(len(positions.shards), np.int64)
        """Number of rows of each shard."""

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
        """Yield all rows in order as tables."""
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
    reports: Iterable[WorkResult], *, output: str, shards: Iterable[FileEntry]
) -> Duplicates:
    """Write `DUPLICATES_FILE`, by shard and row, and delete the files of the buckets.

    Repeated ids come before equal texts: a row that is dropped for its id cannot be the row that is
    kept for its text.
    """
    positions = Positions.of(shards)
    kinds: dict[int, list[WorkResult]] = {BY_ID: [], BY_TEXT: []}
    for report in reports:
        kinds[report.index % 2].append(report)
    with (
        TemporaryDirectory(prefix="bertloom-duplicates-") as folder,
        ShardWriter(DUPLICATES_FILE, schema=DUPLICATES, output=output) as shard,
    ):
        runs = SortedRuns(folder, positions)
        repeated = np.zeros(positions.starts[-1], np.bool_)
        for table in bucket_tables(kinds[BY_ID], REPEATED_IDS, output=output):
            _settle_ids(table, positions, repeated=repeated, runs=runs)
        for table in bucket_tables(kinds[BY_TEXT], EQUAL_TEXTS, output=output):
            _settle_texts(table, positions, repeated=repeated, runs=runs)
        duplicates: list[tuple[int, dict[str, RepeatedIds]]] = []
        for window in runs.windows():
            batch = excluded_batch(window, positions, schema=DUPLICATES, reasons=_REASONS)
            shard.write(batch)
            duplicates.append(_summary(batch))
    remove_bucket_files(itertools.chain(*kinds.values()), output=output)
    result = Duplicates(shard.entry())
    for same_text, repeated_ids in duplicates:
        result.same_text += same_text
        result.repeated_ids |= repeated_ids
    return result


def _settle_ids(
    table: pa.Table, positions: Positions, *, repeated: Bools, runs: SortedRuns
) -> None:
    for batch in table.to_batches():
        numbers = positions.number(batch)
        repeated[numbers] = True
        names = (batch.column(name) for name in ("document_id", "canonical_document_id"))
        runs.add(numbers, *names, reason=_REASONS.index(SAME_ID))


def _settle_texts(
    table: pa.Table, positions: Positions, *, repeated: Bools, runs: SortedRuns
) -> None:
    """Keep the first row of each group that is not dropped for its id."""
    kept = EQUAL_TEXTS.empty_table()  # kept row of the last group, which may continue
    for batch in table.to_batches():
        numbers = positions.number(batch)
        there = pa.array(np.flatnonzero(~repeated[numbers]))
        rows = pa.concat_tables([kept, pa.Table.from_batches([batch]).take(there)])
        rows = rows.combine_chunks()
        if not rows.num_rows:
            continue
        starts = group_starts(rows.column("group").to_numpy())
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


def excluded_batch(
    window: pa.Table, positions: Positions, *, schema: pa.Schema, reasons: Sequence[str]
) -> pa.RecordBatch:
    """Return excluded rows as a batch of a table.

    Args:
        window: Table of `SortedRuns.windows`.
        positions: Positions of the rows.
        schema: Schema with the columns id, `shard`, `row`, reason, and id of the kept document.
        reasons: Reasons by number.
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
    """Return the number of rows with equal texts, and the rows with repeated ids by shard."""
    repeated = pa.table(batch).filter(pc.field("reason") == SAME_ID)
    firsts = [
        ("document_id", "count"),
        ("document_id", "first"),
        ("canonical_document_id", "first"),
    ]
    columns = repeated.group_by("shard", use_threads=False).aggregate(firsts).to_pydict()
    by_shard = dict(zip(columns.pop("shard"), map(RepeatedIds, *columns.values()), strict=True))
    return batch.num_rows - repeated.num_rows, by_shard


def excluded_rows(
    table: str | InputFile, *, shard: str, expected: pa.Schema
) -> Mapping[str, npt.NDArray[np.uint32]]:
    """Return the rows of a document shard that a table excludes, by reason."""
    return rows_by_shard(table, expected).get(shard, {})


@functools.lru_cache(maxsize=4)  # a stored name is never reused
def rows_by_shard(
    table: str | InputFile, expected: pa.Schema
) -> Mapping[str, Mapping[str, npt.NDArray[np.uint32]]]:
    """Return the excluded rows by shard and reason."""
    with open_shard(table, expected=expected, columns=("shard", "row", "reason")) as reader:
        by_shard = reader.read_all().group_by(["shard", "reason"], use_threads=False)
        groups = by_shard.aggregate([("row", "list")])
    rows, offsets = flat_lists(groups.column("row_list").combine_chunks())
    excluded: dict[str, dict[str, npt.NDArray[np.uint32]]] = {}
    for number, group in enumerate(groups.select(["shard", "reason"]).to_pylist()):
        part = rows.slice(offsets[number], offsets[number + 1] - offsets[number])
        excluded.setdefault(group["shard"], {})[group["reason"]] = part.to_numpy()
    return excluded
