"""The documents of one shard, looked through for runs of words of evaluation texts.

What is found is a row for each document that has any. A run that many documents of the corpus have
is a common phrase; how many have it Beam adds up: numbers of runs and of documents cross, never
text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Int64s, flat_lists, joined, list_array, offsets_of
from pipelines.beam.item_cache import CacheableShardFn
from pipelines.beam.shard_work import Blob, BucketReduce, WorkResult
from pipelines.contamination.ngrams import NgramTable, Stream
from pipelines.counters import Counters
from pipelines.documents.bucket_tables import (
    bucket_report,
    bucket_tables,
    from_bytes,
    remove_bucket_files,
    to_bytes,
)
from pipelines.documents.shards import ShardPiece, wanted_rows
from pipelines.documents.words import WordHasher, Words
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import CONTAMINATION_HITS, CONTAMINATION_NGRAMS
from schemas.manifest import FileEntry

COUNTS = pa.schema([("ngram", pa.uint32()), ("documents", pa.uint32())])
"""How many documents have a run."""

Found = tuple[Int64s, Int64s, Int64s]
"""Of each run that is found its document in the batch, its number, its first word there."""

_BUCKET_BITS = 18  # of a run's number: those of one bucket are counted by one worker
_SMALL_BUCKET = 64 << 10
_BATCH_ROWS = 1 << 12
_BLOBS = pa.schema([("bucket", pa.int32()), ("data", pa.large_binary())])


@dataclass
class ScanShard(CacheableShardFn):
    """The work on one document shard."""

    ngrams: InputFile
    """A table `CONTAMINATION_NGRAMS`."""

    max_document_frequency: int
    output: str
    _tables: list[NgramTable] = field(default_factory=list, repr=False)
    _hasher: WordHasher | None = field(default=None, repr=False)

    def setup(self) -> None:
        self._open()

    def _open(self) -> WordHasher:
        if self._hasher is None:
            self._tables = read_tables(self.ngrams)
            self._hasher = WordHasher()
        return self._hasher

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_tables": [], "_hasher": None}

    def identity(self, piece: ShardPiece) -> Any:
        return {**piece.identity(), "ngrams": self.ngrams.sha256}

    def rename_files(self, files: Sequence[FileEntry], piece: ShardPiece) -> list[FileEntry]:
        return [entry.model_copy(update={"path": _shard_path(piece)}) for entry in files]

    def dump_blobs(self, report: WorkResult) -> bytes:
        columns = [list(column) for column in zip(*report.blobs, strict=True)] or [[], []]
        return to_bytes(pa.table(columns, schema=_BLOBS))

    def load_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]:
        del files
        columns = (from_bytes(stored).column(name).to_pylist() for name in _BLOBS.names)
        return [Blob(*pair) for pair in zip(*columns, strict=True)]

    def process(self, piece: ShardPiece) -> WorkResult:
        hasher, counters = self._open(), Counters()
        hits = _Hits(sum(len(table.hashes) for table in self._tables), self.max_document_frequency)
        for rows, batch in wanted_rows(piece, counters):
            hits.add(rows, batch, self._found(batch, hasher, counters))
        with ShardWriter(_shard_path(piece), schema=CONTAMINATION_HITS, output=self.output) as to:
            for rows in hits.batches():
                to.write(rows)
        counters.count("documents-with-any-run", to.rows)
        return WorkResult(piece.number, [to.entry()], counters, hits.blobs())

    def _found(self, batch: pa.RecordBatch, hasher: WordHasher, counters: Counters) -> Found:
        sentences, bounds = flat_lists(batch.column("sentences"))
        words = hasher.words(sentences)
        of_documents = words.offsets[bounds]
        counters.count("words", len(words.hashes))
        stream = Stream(Words(words.hashes, words.weights, of_documents))
        found = [stream.found(table) for table in self._tables]
        starts = joined([runs.starts for runs in found])
        numbers = joined([runs.values.astype(np.int64) for runs in found])
        documents = np.searchsorted(of_documents, starts, side="right") - 1
        return documents, numbers, starts - of_documents[documents]


def _shard_path(piece: ShardPiece) -> str:
    return f"__hits__/part-{piece.number:05d}.arrow"


def read_tables(file: InputFile) -> list[NgramTable]:
    """The runs that are looked for, by weight; their hashes are mapped, not copied."""
    tables, first = [], 0
    with open_shard(file, expected=CONTAMINATION_NGRAMS) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            values, bounds = flat_lists(batch.column("hashes"))
            for row, weight in enumerate(batch.column("weight").to_pylist()):
                hashes = values[bounds[row] : bounds[row + 1]].to_numpy()
                tables.append(NgramTable.of(weight, first, hashes))
                first += len(hashes)
    return tables


class _Hits:
    """What the documents of a shard have, without the runs that too many of them have."""

    def __init__(self, ngrams: int, most: int) -> None:
        self._documents = np.zeros(ngrams, np.uint32)  # that have each
        self._most = most
        self._runs: list[tuple[Int64s, Int64s, Int64s]] = []  # row of _names, number, word
        self._names: list[pa.RecordBatch] = []
        self._rows: list[Int64s] = []  # in the shard

    def add(self, rows: list[int], batch: pa.RecordBatch, found: Found) -> None:
        """Take what was found in a batch, whose rows in the shard these are."""
        order = np.lexsort(found[::-1])
        documents, numbers, words = (column[order] for column in found)
        first = np.ones(len(order), np.bool_)
        first[1:] = (documents[1:] != documents[:-1]) | (numbers[1:] != numbers[:-1])
        np.add.at(self._documents, numbers[first], 1)
        keep = first & (self._documents[numbers] <= self._most)
        there, at = np.unique(documents[keep], return_inverse=True)
        if len(there):
            self._runs.append((at + sum(map(len, self._rows)), numbers[keep], words[keep]))
            self._names.append(batch.select(["document_id", "title"]).take(pa.array(there)))
            self._rows.append(np.array(rows, np.int64)[there])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows of CONTAMINATION_HITS: the documents that have any."""
        if not self._names:
            return
        at, numbers, words = map(np.concatenate, zip(*self._runs, strict=True))
        keep = self._documents[numbers] <= self._most
        at, numbers, words = at[keep], numbers[keep], words[keep]
        names, rows = pa.Table.from_batches(self._names), joined(self._rows)
        counts = np.bincount(at, minlength=len(rows))
        there, offsets = np.flatnonzero(counts), offsets_of(counts[counts > 0])
        named = names.take(pa.array(there)).combine_chunks()
        columns = [
            pa.array(rows[there], pa.uint32()),
            *(named.column(name).combine_chunks() for name in names.column_names),
            list_array(numbers, offsets, CONTAMINATION_HITS.field("ngrams").type),
            list_array(words, offsets, CONTAMINATION_HITS.field("words").type),
        ]
        table = pa.Table.from_arrays(columns, schema=CONTAMINATION_HITS)
        yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    def blobs(self) -> list[Blob]:
        """How many documents have each run, a blob for each bucket that has any."""
        found = np.flatnonzero(self._documents)
        table = pa.table([found, self._documents[found]], schema=COUNTS)
        ends = np.searchsorted(
            found, np.arange(1, (len(self._documents) >> _BUCKET_BITS) + 2) << _BUCKET_BITS
        )
        blobs, start = [], 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                blobs.append(Blob(bucket, to_bytes(table.slice(start, end - start))))
            start = end
        return blobs


def counting(max_document_frequency: int, *, output: str) -> BucketReduce:
    """Adds up how many documents have each run; reports the runs that too many have."""
    report = functools.partial(_report_common, most=max_document_frequency, output=output)
    return BucketReduce(report, combine=_add_counts)


def _add_counts(tables: Sequence[bytes]) -> bytes:
    return to_bytes(_together(tables))


def _together(tables: Iterable[bytes]) -> pa.Table:
    counts = pa.concat_tables([from_bytes(table) for table in tables])
    return (
        counts.group_by("ngram")
        .aggregate([("documents", "sum")])
        .rename_columns(COUNTS.names)
        .cast(COUNTS)
    )


def _report_common(bucket: int, tables: Iterable[bytes], *, most: int, output: str) -> WorkResult:
    counts = _together(tables)
    common = counts.filter(pc.greater(counts.column("documents"), most)).sort_by("ngram")
    name = f"__common__/bucket-{bucket:05d}.arrow"
    return bucket_report(bucket, common, file=name, output=output, most_bytes=_SMALL_BUCKET)


def common_runs(groups: Iterable[WorkResult], *, output: str) -> Int64s:
    """The numbers of the runs that too many documents have, from the reports of `counting`."""
    tables = list(bucket_tables(groups, COUNTS, output=output))
    remove_bucket_files(groups, output=output)
    return joined([table.column("ngram").to_numpy().astype(np.int64) for table in tables])
