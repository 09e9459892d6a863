"""The table of duplicates: made of what the buckets found, and read a document shard at a time.

Neither way is a row an object of Python. What is made goes through a temporary file on this
machine's disk, about 80 bytes a row; what is read takes 4 bytes a row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Bools, Int64s
from pipelines.beam.shard_work import WorkResult
from pipelines.documents.bucket_tables import bucket_tables, remove_bucket_files
from pipelines.documents.duplicates import BY_ID, BY_TEXT, EQUAL_TEXTS, REPEATED_IDS, run_starts
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.io.temporary_folders import temporary_folder
from schemas.arrow import DUPLICATES
from schemas.errors import RunnerError
from schemas.manifest import FileEntry, path_order

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
    reports: Iterable[WorkResult], *, output: str, shards: Iterable[FileEntry]
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
    kinds: dict[int, list[WorkResult]] = {BY_ID: [], BY_TEXT: []}
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
