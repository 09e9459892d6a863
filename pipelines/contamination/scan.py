"""Scan document shards for n-grams of evaluation texts.

The n-grams of the texts are the small side of the join: hashes in a file that workers memory-map. A
shard gives one row per document with any n-gram. N-grams in many documents are common phrases;
Beam adds the document counts of n-grams. Numbers cross a shuffle, never text.

The hash of an n-gram is `sum(h[k] * BASE**(k - start))` modulo 2**64 over the hashes of its words.
Cumulative sums give the hashes of all n-grams of any length in linear time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Int64s, UInt64s, flat_lists, joined, list_array, offsets_of
from pipelines.beam.item_cache import CacheableShardFn
from pipelines.beam.shard_work import Blob, BucketReduce, WorkResult
from pipelines.counters import Counters
from pipelines.documents.bucket_tables import (
    bucket_blobs,
    bucket_report,
    bucket_tables,
    from_bytes,
    remove_bucket_files,
    to_bytes,
)
from pipelines.documents.duplicates import group_starts
from pipelines.documents.exclusions import ShardItem, kept_rows
from pipelines.documents.word_hashes import WHOLE, WordHasher, Words
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import CONTAMINATION_HITS, CONTAMINATION_NGRAMS, EXAMPLES
from schemas.corpus_configs import ContaminationConfig
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.field_names import field_name
from schemas.manifest import FileEntry, StageInput

_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64


class NGrams(NamedTuple):
    """N-grams of a stream of words."""

    starts: Int64s
    """Index of the first word of each n-gram."""

    ends: Int64s
    """Index after the last word of each n-gram."""

    values: npt.NDArray[Any]
    """Hash of each n-gram, or its number in a table."""


class WordStream:
    """Words of documents, end to end, prepared for n-grams of any weight."""

    def __init__(self, words: Words) -> None:
        """`words.offsets` are the bounds of documents (or texts), which no n-gram crosses."""
        count = len(words.hashes)
        powers, self._inverse = _powers(max(1 << 16, 1 << count.bit_length()))
        self._sums = np.zeros(count + 1, np.uint64)
        np.cumsum(words.hashes * powers[:count], out=self._sums[1:])
        self._bounds = words.offsets
        self._weights = offsets_of(words.weights)
        self._at = _first_at(self._weights)

    def ngrams(self, weight: int) -> NGrams:
        """Return the shortest n-gram of at least this weight at each word, if there is one."""
        wanted = self._weights[:-1] + weight
        ends = self._at[wanted[: np.searchsorted(wanted, len(self._at))]]
        starts = np.arange(len(ends))
        limits = self._bounds[np.searchsorted(self._bounds, starts, side="right")]
        fits = ends <= limits
        return self._hashed(starts[fits], ends[fits])

    def matches(self, table: NgramTable) -> NGrams:
        """Return the n-grams that a table has, with their numbers."""
        ngrams = self.ngrams(table.weight)
        at, numbers = table.find(ngrams.values)
        return NGrams(ngrams.starts[at], ngrams.ends[at], numbers)

    def full_rows(self, rows: Int64s) -> NGrams:
        """Return all words of each document as one n-gram."""
        return self._hashed(self._bounds[rows], self._bounds[rows + 1])

    def _hashed(self, starts: Int64s, ends: Int64s) -> NGrams:
        return NGrams(starts, ends, (self._sums[ends] - self._sums[starts]) * self._inverse[starts])


def _first_at(weights: Int64s) -> Int64s:
    """Return, for each weight, the first index at which the cumulative sum reaches it."""
    at = np.zeros(int(weights[-1]) + 1, np.int64)
    indices = np.arange(len(weights))
    at[np.maximum(weights - 1, 0)] = indices  # for a whole word; overwritten for half words
    at[weights] = indices
    return at


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[UInt64s, UInt64s]:
    """Return BASE**0, BASE**1, ... modulo 2**64, and their inverses."""
    return tuple(
        np.cumprod(np.r_[np.uint64(1), np.full(count, base, np.uint64)])
        for base in (_BASE, pow(_BASE, -1, 1 << 64))
    )  # type: ignore[return-value]


class NgramTable(NamedTuple):
    """Distinct n-grams of one weight."""

    weight: int
    first: int
    """Number of the first n-gram; the others follow."""

    hashes: UInt64s
    """Hashes, ascending."""

    def find(self, hashes: UInt64s) -> tuple[Int64s, Int64s]:
        """Return the indices of the hashes that are in the table, and their numbers."""
        if not len(self.hashes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        at = np.searchsorted(self.hashes, hashes)
        at[at == len(self.hashes)] = 0
        found = np.flatnonzero(self.hashes[at] == hashes)
        return found, at[found] + self.first


TRAINING_SPLITS = ("train", "augmentation")
"""Splits that are searched for only if the configuration names them."""

FIELDS = {
    "classification": ("text_a", "text_b"),
    "regression": ("text_a", "text_b"),
    "choice": ("context", "continuations"),
    "span": ("context", "question"),
    "tagging": ("words",),
}
"""Text columns of examples by type of the task."""


class TextOrigin(NamedTuple):
    """Origin of texts."""

    task: str
    """Name of the task."""

    split: str
    field: str


class EvalTexts(NamedTuple):
    """Distinct texts of all fields, one field after the other."""

    places: list[TextOrigin]
    place: Int64s
    """Index in `places` of each text."""

    row: Int64s
    """Row in the split of the first example with each text."""

    used: Int64s
    """Number of examples with each text."""

    words: Int64s
    """Number of words of each text."""

    ngrams: Int64s
    """Numbers of the n-grams of all texts, end to end. Texts that are too short have none."""

    bounds: Int64s
    """Text i has ngrams[bounds[i]] .. ngrams[bounds[i + 1] - 1], in order."""

    ends: Int64s
    """Index of the word after each of `ngrams` in its text. The first n-gram of a text begins at
    word 0, and each next one a word later."""

    examples: dict[tuple[str, str], int]
    """Number of examples by task and split."""

    of_examples: dict[tuple[str, str], tuple[Int64s, Int64s]]
    """Pairs of a text and the row of an example with it, by task and split."""


SplitFiles = dict[tuple[str, str], tuple[str, InputFile]]
"""Type of the task and file of the examples, by task and split."""


def split_files(given: Mapping[str, StageInput], config: ContaminationConfig) -> SplitFiles:
    """Return the files of the splits to search for.

    Raises:
        ConfigError: No task has a split of the configuration.
        ArtifactCorruptError: An input is not an artifact of build-examples.
    """
    found: SplitFiles = {}
    known: set[str] = set()
    for task, examples in given.items():
        kind = str(examples.statistics.get("kind", ""))
        if kind not in FIELDS:
            raise ArtifactCorruptError(
                f"{task} {examples.artifact_id}: expected examples of build-examples with a known "
                f"kind, got {kind or 'none'}"
            )
        for entry in examples.files:
            split = entry.path.removesuffix(".arrow")
            known.add(split)
            wanted = split in config.splits if config.splits else split not in TRAINING_SPLITS
            if wanted:
                found[task, split] = (kind, InputFile.of(examples, entry))
    if unknown := [split for split in config.splits if split not in known]:
        raise ConfigError(
            f"{field_name('splits')}: expected some of {', '.join(sorted(known))}, "
            f"got {', '.join(unknown)}"
        )
    return found


def read_texts(
    files: SplitFiles, config: ContaminationConfig
) -> tuple[EvalTexts, list[tuple[int, UInt64s]]]:
    """Return all texts and the n-grams to search for.

    Returns:
        texts: Texts with the numbers of their n-grams.
        runs: Weights with the hashes of their n-grams, ascending, numbered in this order.
    """
    reading = _Reading(config)
    for (task, split), (kind, file) in files.items():
        with open_shard(file, expected=EXAMPLES[kind]) as reader:
            examples = reader.read_all()
        reading.examples[task, split] = examples.num_rows
        for field in FIELDS[kind]:
            rows, texts = _texts(examples.column(field).combine_chunks(), field)
            reading.add(TextOrigin(task, split, field), rows, texts)
    return reading.numbered()


def _texts(column: pa.Array, field: str) -> tuple[Int64s, pa.Array]:
    """Return the texts of a column with their rows, without nulls."""
    rows = np.arange(len(column))
    if field == "continuations":
        column, bounds = flat_lists(column)
        rows = np.repeat(rows, np.diff(bounds))
    elif field == "words":
        column = pa.array([" ".join(words) for words in column.to_pylist()], pa.string())
    return rows[column.is_valid().to_numpy(zero_copy_only=False)], column.drop_null()


class _Reading:
    """Collects the distinct texts of each field."""

    def __init__(self, config: ContaminationConfig) -> None:
        self._full = config.ngram_size * WHOLE
        self._least = config.min_text_words * WHOLE
        self._hasher = WordHasher()
        self._places: list[TextOrigin] = []
        self._place, self._row, self._used = list[Int64s](), list[Int64s](), list[Int64s]()
        self._words, self._counts, self._ends = list[Int64s](), list[Int64s](), list[Int64s]()
        self._keys: list[UInt64s] = []  # hashes
        self._weights: list[Int64s] = []  # of the n-grams
        self._pairs: dict[tuple[str, str], list[tuple[Int64s, Int64s]]] = {}
        self.examples: dict[tuple[str, str], int] = {}

    def add(self, place: TextOrigin, rows: Int64s, texts: pa.Array) -> None:
        """Add the texts of a field, in the order of their rows."""
        encoded = texts.dictionary_encode()  # in the order of first occurrence
        numbers = encoded.indices.to_numpy().astype(np.int64)
        distinct, firsts = np.unique(numbers, return_index=True)
        first_number = sum(map(len, self._row))
        self._place.append(np.full(len(distinct), len(self._places)))
        self._places.append(place)
        self._row.append(rows[firsts])
        # An example may have a text twice in a row.
        self._used.append(
            np.bincount(numbers[group_starts(numbers, rows)], minlength=len(distinct))
        )
        pairs = self._pairs.setdefault((place.task, place.split), [])
        pairs.append((numbers + first_number, rows))
        for start in range(0, len(distinct), _BATCH_ROWS):
            self._add_runs(self._hasher.words(encoded.dictionary.slice(start, _BATCH_ROWS)))

    def _add_runs(self, words: Words) -> None:
        """Add the n-grams of new texts: those of full weight, or all words of a short text."""
        stream = WordStream(words)
        weights = np.diff(offsets_of(words.weights)[words.offsets])
        short = (weights < self._full) & (weights >= self._least)
        full, whole = stream.ngrams(self._full), stream.full_rows(np.flatnonzero(short))
        starts = np.r_[full.starts, whole.starts]
        order = np.argsort(starts, kind="stable")
        starts = starts[order]
        text = np.searchsorted(words.offsets, starts, side="right") - 1
        self._counts.append(np.bincount(text, minlength=len(weights)))
        self._keys.append(np.r_[full.values, whole.values][order])
        self._weights.append(np.where(short[text], weights[text], self._full))
        self._ends.append(np.r_[full.ends, whole.ends][order] - words.offsets[text])
        self._words.append(np.diff(words.offsets))

    def numbered(self) -> tuple[EvalTexts, list[tuple[int, UInt64s]]]:
        keys = np.concatenate([np.empty(0, np.uint64), *self._keys])
        weights = joined(self._weights)
        numbers, first = np.empty(len(keys), np.int64), 0
        runs: list[tuple[int, UInt64s]] = []
        for weight in np.unique(weights).tolist():
            at = np.flatnonzero(weights == weight)
            distinct, numbers_of = np.unique(keys[at], return_inverse=True)
            numbers[at] = numbers_of + first
            first += len(distinct)
            runs.append((weight, distinct))
        texts = EvalTexts(
            places=self._places,
            place=joined(self._place),
            row=joined(self._row),
            used=joined(self._used),
            words=joined(self._words),
            ngrams=numbers,
            bounds=offsets_of(joined(self._counts)),
            ends=joined(self._ends),
            examples=self.examples,
            of_examples={
                split: (joined([texts for texts, _ in pairs]), joined([rows for _, rows in pairs]))
                for split, pairs in self._pairs.items()
            },
        )
        return texts, runs


COUNTS = pa.schema([("ngram", pa.uint32()), ("documents", pa.uint32())])
"""Number of documents with an n-gram."""

Found = tuple[Int64s, Int64s, Int64s]
"""Document in the batch, number and first word of each n-gram."""

HITS = "__hits__"
"""Folder of the shards of hits."""

_BUCKET_BITS = 18  # of the number of an n-gram; one worker counts a bucket
_SMALL_BUCKET = 64 << 10
_BATCH_ROWS = 1 << 12


@dataclass
class ScanShard(CacheableShardFn):
    """Scans one document shard."""

    ngrams: InputFile
    """Table `CONTAMINATION_NGRAMS`."""

    max_document_frequency: int
    output: str

    def setup(self) -> None:
        self._tables = read_tables(self.ngrams)
        self._hasher = WordHasher()

    def identity(self, item: ShardItem) -> Any:
        return {**item.identity(), "ngrams": self.ngrams.sha256}

    def rename_files(self, files: Sequence[FileEntry], item: ShardItem) -> list[FileEntry]:
        return [
            entry.model_copy(update={"path": path})
            for entry, path in zip(files, _shard_paths(item), strict=True)
        ]

    def load_blobs(self, files: Sequence[FileEntry]) -> list[Blob]:
        counts = f"{self.output}/{files[1].stored_name}"
        with open_shard(counts, expected=COUNTS) as reader:
            return _count_blobs(reader.read_all())

    def process(self, item: ShardItem) -> WorkResult:
        counters = Counters()
        hits = _Hits(sum(len(table.hashes) for table in self._tables), self.max_document_frequency)
        for rows, batch in kept_rows(item, counters):
            hits.add(rows, batch, self._found(batch, counters))
        hits_path, counts_path = _shard_paths(item)
        with ShardWriter(hits_path, schema=CONTAMINATION_HITS, output=self.output) as to:
            for rows in hits.batches():
                to.write(rows)
        counters.count("documents-with-any-run", to.rows)
        counts = hits.counts()
        with ShardWriter(
            counts_path, schema=COUNTS, output=self.output, compression="zstd"
        ) as shard:
            for rows in counts.to_batches():
                shard.write(rows)
        files = [to.entry(), shard.entry()]
        return WorkResult(item.number, files, counters, _count_blobs(counts))

    def _found(self, batch: pa.RecordBatch, counters: Counters) -> Found:
        sentences, bounds = flat_lists(batch.column("sentences"))
        words = self._hasher.words(sentences)
        of_documents = words.offsets[bounds]
        counters.count("words", len(words.hashes))
        stream = WordStream(Words(words.hashes, words.weights, of_documents))
        found = [stream.matches(table) for table in self._tables]
        starts = joined([runs.starts for runs in found])
        numbers = joined([runs.values.astype(np.int64) for runs in found])
        documents = np.searchsorted(of_documents, starts, side="right") - 1
        return documents, numbers, starts - of_documents[documents]


def _shard_paths(item: ShardItem) -> tuple[str, str]:
    """Return the paths of the hits and of the n-gram counts of a document shard."""
    name = f"part-{item.number:05d}.arrow"
    return f"{HITS}/{name}", f"__counts__/{name}"


def read_tables(file: InputFile) -> list[NgramTable]:
    """Return the n-grams to search for by weight. Their hashes are memory-mapped."""
    tables, first = [], 0
    with open_shard(file, expected=CONTAMINATION_NGRAMS) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            values, bounds = flat_lists(batch.column("hashes"))
            for row, weight in enumerate(batch.column("weight").to_pylist()):
                hashes = values[bounds[row] : bounds[row + 1]].to_numpy()
                tables.append(NgramTable(weight, first, hashes))
                first += len(hashes)
    return tables


class _Hits:
    """N-grams in the documents of a shard, without those in too many documents."""

    def __init__(self, ngrams: int, most: int) -> None:
        self._documents = np.zeros(ngrams, np.uint32)  # that have each
        self._most = most
        self._runs: list[tuple[Int64s, Int64s, Int64s]] = []  # row of _names, number, word
        self._names: list[pa.RecordBatch] = []
        self._rows: list[Int64s] = []  # in the shard

    def add(self, rows: list[int], batch: pa.RecordBatch, found: Found) -> None:
        """Add the n-grams of a batch with these rows of the shard."""
        order = np.lexsort(found[::-1])
        documents, numbers, words = (column[order] for column in found)
        first = group_starts(documents, numbers)
        np.add.at(self._documents, numbers[first], 1)
        keep = first & (self._documents[numbers] <= self._most)
        there, at = np.unique(documents[keep], return_inverse=True)
        if len(there):
            self._runs.append((at + sum(map(len, self._rows)), numbers[keep], words[keep]))
            self._names.append(batch.select(["document_id", "title"]).take(pa.array(there)))
            self._rows.append(np.array(rows, np.int64)[there])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the documents with any n-gram as rows of CONTAMINATION_HITS."""
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

    def counts(self) -> pa.Table:
        """Return the number of documents with each n-gram of the shard."""
        numbers = np.flatnonzero(self._documents)
        return pa.table([numbers, self._documents[numbers]], schema=COUNTS)


def _count_blobs(counts: pa.Table) -> list[Blob]:
    """Return the rows of `COUNTS` of each bucket."""
    numbers = counts.column("ngram").to_numpy().astype(np.int64)
    return list(bucket_blobs(counts, numbers >> _BUCKET_BITS))


def ngram_document_counts(max_document_frequency: int, *, output: str) -> BucketReduce:
    """Return a grouping that counts documents by n-gram and reports common n-grams."""
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
    return bucket_report(bucket, common, file=name, output=output, max_bytes=_SMALL_BUCKET)


def common_ngrams(groups: Iterable[WorkResult], *, output: str) -> Int64s:
    """Return the numbers of n-grams that too many documents have."""
    tables = list(bucket_tables(groups, COUNTS, output=output))
    remove_bucket_files(groups, output=output)
    return joined([table.column("ngram").to_numpy().astype(np.int64) for table in tables])
