"""DOC"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Bools, Int64s, UInt64s, flat_lists, joined, list_array, offsets_of
from pipelines.beam.reuse import PieceWork
from pipelines.beam.work import Blob, Grouping, WorkReport
from pipelines.counters import Counters
from pipelines.documents.bucket_tables import (
    bucket_report,
    bucket_tables,
    from_bytes,
    remove_bucket_files,
    to_bytes,
)
from pipelines.documents.exclusions import ShardItem, kept_rows
from pipelines.documents.word_hashes import WHOLE, WordHasher, Words
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import CONTAMINATION_HITS, CONTAMINATION_NGRAMS, EXAMPLES
from schemas.contamination_configs import ContaminationConfig
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.manifest import FileEntry, StageInput

_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_BITS_A_HASH = 16
_MOST_BITS = 27  # a filter of 16 MB
_BLOCK = 1 << 15  # words, whose arrays stay in a core's cache
_EMPTY = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))


class NGrams(NamedTuple):
    """NGrams of words in a stream."""

    starts: Int64s
    """Index of the first word of each."""

    ends: Int64s
    """Index behind the last."""

    values: npt.NDArray[Any]
    """Of each its hash, or its number in a table."""


class WordStream:
    """Documents end to end, prepared for runs of any weight."""

    def __init__(self, words: Words) -> None:
        """`words.offsets` are the bounds of documents (or texts), no run crosses them."""
        count = len(words.hashes)
        powers, self._inverse = _powers(max(1 << 16, 1 << count.bit_length()))
        self._sums = np.zeros(count + 1, np.uint64)
        np.cumsum(words.hashes * powers[:count], out=self._sums[1:])
        self._bounds, self._count = words.offsets, count
        self._weights = offsets_of(words.weights)
        self._at = _first_at(self._weights)

    def all(self, weight: int) -> NGrams:
        """From each word on the shortest run of at least this weight, where there is one."""
        runs = [self._runs(block, weight) for block in range(0, self._count, _BLOCK)]
        return self._within([NGrams(*_EMPTY), *runs])

    def matches(self, table: NgramTable) -> NGrams:
        """Those that a table has, with their numbers."""
        runs = [NGrams(*_EMPTY[:2], _EMPTY[0])]
        for block in range(0, self._count, _BLOCK):
            starts, ends, hashes = self._runs(block, table.weight)
            at, numbers = table.find(hashes)
            runs.append(NGrams(starts[at], ends[at], numbers))
        return self._within(runs)

    def full_rows(self, rows: Int64s) -> NGrams:
        """All words of some documents, a run each."""
        starts, ends = self._bounds[rows], self._bounds[rows + 1]
        return NGrams(starts, ends, (self._sums[ends] - self._sums[starts]) * self._inverse[starts])

    def _runs(self, block: int, weight: int) -> NGrams:
        """Of the words of a block, also over the ends of documents."""
        wanted = self._weights[block : min(block + _BLOCK, self._count)] + weight
        wanted = wanted[: np.searchsorted(wanted, len(self._at))]
        ends, stop = self._at[wanted], block + len(wanted)
        hashes = self._sums[ends] - self._sums[block:stop]
        hashes *= self._inverse[block:stop]
        return NGrams(np.arange(block, stop), ends, hashes)

    def _within(self, runs: list[NGrams]) -> NGrams:
        starts, ends, values = map(np.concatenate, zip(*runs, strict=True))
        limits = self._bounds[np.searchsorted(self._bounds, starts, side="right")]
        fits = ends <= limits
        return NGrams(starts[fits], ends[fits], values[fits])


def _first_at(weights: Int64s) -> Int64s:
    """Of each weight up to the last the first index from which on the sums are no less."""
    at = np.zeros(int(weights[-1]) + 1, np.int64)
    indices = np.arange(len(weights))
    at[np.maximum(weights - 1, 0)] = indices  # of a whole word; a half's is written over
    at[weights] = indices
    return at


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[UInt64s, UInt64s]:
    """BASE**0, BASE**1, ... modulo 2**64, and their inverses."""
    return tuple(
        np.cumprod(np.r_[np.uint64(1), np.full(count, base, np.uint64)])
        for base in (_BASE, pow(_BASE, -1, 1 << 64))
    )  # type: ignore[return-value]


class NgramTable(NamedTuple):
    """Distinct runs of one weight, to look others up among them."""

    weight: int
    first: int
    """Number of the first of them; the others follow."""

    hashes: UInt64s
    """Ascending."""

    filter: npt.NDArray[np.uint8]
    """A bit for each value of the hashes' first bits: whether any begins so."""

    @classmethod
    def of(cls, weight: int, first: int, hashes: UInt64s) -> Self:
        wanted = (_BITS_A_HASH * len(hashes)).bit_length()
        bits = min(_MOST_BITS, max(10, wanted))
        marked = np.zeros(1 << bits, np.bool_)
        marked[hashes >> np.uint64(64 - bits)] = True
        return cls(weight, first, hashes, np.packbits(marked, bitorder="little"))

    def find(self, hashes: UInt64s) -> tuple[Int64s, Int64s]:
        """Which of these hashes are in the table, and the number of each."""
        bits = (8 * len(self.filter)).bit_length() - 1
        begin = hashes >> np.uint64(64 - bits)
        maybe = np.flatnonzero(_are_set(self.filter, begin))
        at = np.searchsorted(self.hashes, hashes[maybe])
        at[at == len(self.hashes)] = 0
        found = self.hashes[at] == hashes[maybe]
        return maybe[found], at[found] + self.first


def _are_set(bits: npt.NDArray[np.uint8], numbers: UInt64s) -> Bools:
    bytes_ = bits[(numbers >> np.uint64(3)).view(np.int64)]
    marks: Bools = (bytes_ >> (numbers & np.uint64(7)).astype(np.uint8)) & np.uint8(1) != 0
    return marks


LEARNT_FROM = ("train", "augmentation")
"""Splits that are looked for only where the configuration names them."""

FIELDS = {
    "classification": ("text_a", "text_b"),
    "regression": ("text_a", "text_b"),
    "choice": ("context", "continuations"),
    "span": ("context", "question"),
    "tagging": ("words",),
}
"""Columns of examples that hold text, by the type of the task."""


class TextOrigin(NamedTuple):
    """Where texts are from."""

    task: str
    """Name of the input."""

    split: str
    field: str


class EvalTexts(NamedTuple):
    """Distinct texts of a field, or of many one after the other."""

    places: list[TextOrigin]
    place: Int64s
    """Of each text, which of `places`."""

    row: Int64s
    """Of each text the first example that has it: its row in the split."""

    used: Int64s
    """How many examples have it."""

    words: Int64s
    """How many words it has."""

    ngrams: Int64s
    """Numbers of runs, text after text; of a text that is too short there are none."""

    bounds: Int64s
    """Text i has ngrams[bounds[i]] .. ngrams[bounds[i + 1] - 1], in order."""

    ends: Int64s
    """For each of `ngrams`, the word of its text behind it; those before begin one word later each,
    the first with the text."""

    examples: dict[tuple[str, str], int]
    """How many examples each split of a task has."""

    of_examples: dict[tuple[str, str], tuple[Int64s, Int64s]]
    """By split of a task: numbers of texts and the rows that have them, a pair each time."""


SplitFiles = dict[tuple[str, str], tuple[str, InputFile]]
"""By task and split the task's type and the file of the examples."""


def split_files(given: Mapping[str, StageInput], config: ContaminationConfig) -> SplitFiles:
    """The files of the splits that are looked for.

    Raises:
        ConfigError: a split is named that no task has.
        ArtifactCorruptError: an input is no artifact of build-examples.
    """
    found: SplitFiles = {}
    known: set[str] = set()
    for task, examples in given.items():
        kind = str(examples.statistics.get("kind", ""))
        if kind not in FIELDS:
            raise ArtifactCorruptError(
                f"{task} {examples.artifact_id}: expected examples of build-examples, whose "
                f"statistics say their kind, found {kind or 'none'}"
            )
        for entry in examples.files:
            split = entry.path.removesuffix(".arrow")
            known.add(split)
            wanted = split in config.splits if config.splits else split not in LEARNT_FROM
            if wanted:
                found[task, split] = (kind, InputFile.of(examples, entry))
    if unknown := [split for split in config.splits if split not in known]:
        raise ConfigError(
            f"splits: no task has a split {' or '.join(unknown)}. Expected some of "
            f"{', '.join(sorted(known))}"
        )
    return found


def read_texts(
    files: SplitFiles, config: ContaminationConfig
) -> tuple[EvalTexts, list[tuple[int, UInt64s]]]:
    """All texts, and the runs that are looked for.

    Returns:
        texts: with the numbers of their runs.
        runs: by weight the hashes of that weight's runs, ascending; numbered in that order.
    """
    hasher = WordHasher()
    reading = _Reading(config)
    for (task, split), (kind, file) in files.items():
        for column in FIELDS[kind]:
            place = TextOrigin(task, split, column)
            for rows, texts in _columns(file, kind, column):
                reading.add(place, rows, texts, hasher)
        with open_shard(file, expected=EXAMPLES[kind]) as reader:
            reading.examples[task, split] = sum(
                reader.get_batch(n).num_rows for n in range(reader.num_record_batches)
            )
    return reading.numbered()


def _columns(file: InputFile, kind: str, field: str) -> Iterator[tuple[Int64s, pa.Array]]:
    """The texts of a column, and the row of each; a null is no text."""
    first = 0
    with open_shard(file, expected=EXAMPLES[kind], columns=(field,)) as reader:
        for number in range(reader.num_record_batches):
            for batch in pa.Table.from_batches([reader.get_batch(number)]).to_batches(_BATCH_ROWS):
                column = batch.column(field)
                rows = np.arange(first, first + len(column))
                first += len(column)
                if field == "continuations":
                    column, bounds = flat_lists(column)
                    rows = np.repeat(rows, np.diff(bounds))
                elif field == "words":
                    column = pa.array([" ".join(words) for words in column.to_pylist()])
                there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
                yield rows[there], column.take(pa.array(there))


class _Reading:
    """EvalTexts as they are read, each distinct one of a field once."""

    def __init__(self, config: ContaminationConfig) -> None:
        self._config = config
        self._full = config.ngram_size * WHOLE
        self._number_of: dict[bytes, int] = {}
        self._places: list[TextOrigin] = []
        self._place: list[int] = []
        self._row: list[int] = []
        self._used: list[int] = []
        self._words, self._counts, self._ends = list[Int64s](), list[Int64s](), list[Int64s]()
        self._keys: list[UInt64s] = []  # hashes
        self._weights: list[Int64s] = []  # of the runs
        self._pairs: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.examples: dict[tuple[str, str], int] = {}

    def add(self, place: TextOrigin, rows: Int64s, texts: pa.Array, hasher: WordHasher) -> None:
        if not self._places or self._places[-1] != place:
            self._places.append(place)
            self._number_of.clear()
        pairs = self._pairs.setdefault((place.task, place.split), [])
        new: list[int] = []
        for at, (row, text) in enumerate(zip(rows.tolist(), texts.to_pylist(), strict=True)):
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            number = self._number_of.setdefault(digest, len(self._row))
            if number == len(self._row):
                new.append(at)
                self._place.append(len(self._places) - 1)
                self._row.append(row)
                self._used.append(0)
            if not pairs or pairs[-1] != (number, row):
                self._used[number] += 1
            pairs.append((number, row))
        self._add_runs(hasher.words(texts.take(pa.array(new, pa.int64()))))

    def _add_runs(self, words: Words) -> None:
        """The runs of new texts: those of full weight, or the one of a whole short text."""
        stream = WordStream(words)
        weights = np.diff(offsets_of(words.weights)[words.offsets])
        short = (weights < self._full) & (weights >= self._config.min_text_words * WHOLE)
        full, whole = stream.all(self._full), stream.full_rows(np.flatnonzero(short))
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
        pairs = {
            split: tuple(np.array(found, np.int64).reshape(-1, 2).T)
            for split, found in self._pairs.items()
        }
        texts = EvalTexts(
            places=self._places,
            place=np.array(self._place, np.int64),
            row=np.array(self._row, np.int64),
            used=np.array(self._used, np.int64),
            words=joined(self._words),
            ngrams=numbers,
            bounds=offsets_of(joined(self._counts)),
            ends=joined(self._ends),
            examples=self.examples,
            of_examples=pairs,  # type: ignore[arg-type]
        )
        return texts, runs


COUNTS = pa.schema([("ngram", pa.uint32()), ("documents", pa.uint32())])
"""How many documents have a run."""

Found = tuple[Int64s, Int64s, Int64s]
"""Of each run that is found its document in the batch, its number, its first word there."""

_BUCKET_BITS = 18  # of a run's number: those of one bucket are counted by one worker
_SMALL_BUCKET = 64 << 10
_BATCH_ROWS = 1 << 12
_BLOBS = pa.schema([("bucket", pa.int32()), ("data", pa.large_binary())])


@dataclass
class ScanShard(PieceWork):
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

    def identity(self, piece: ShardItem) -> Any:
        return {**piece.identity(), "ngrams": self.ngrams.sha256}

    def renamed(self, files: Sequence[FileEntry], piece: ShardItem) -> list[FileEntry]:
        return [entry.model_copy(update={"path": _shard_path(piece)}) for entry in files]

    def stored_blobs(self, report: WorkReport) -> bytes:
        columns = [list(column) for column in zip(*report.blobs, strict=True)] or [[], []]
        return to_bytes(pa.table(columns, schema=_BLOBS))

    def restored_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]:
        del files
        columns = (from_bytes(stored).column(name).to_pylist() for name in _BLOBS.names)
        return [Blob(*pair) for pair in zip(*columns, strict=True)]

    def process(self, piece: ShardItem) -> WorkReport:
        hasher, counters = self._open(), Counters()
        hits = _Hits(sum(len(table.hashes) for table in self._tables), self.max_document_frequency)
        for rows, batch in kept_rows(piece, counters):
            hits.add(rows, batch, self._found(batch, hasher, counters))
        with ShardWriter(_shard_path(piece), schema=CONTAMINATION_HITS, output=self.output) as to:
            for rows in hits.batches():
                to.write(rows)
        counters.count("documents-with-any-run", to.rows)
        return WorkReport(piece.number, [to.entry()], counters, hits.blobs())

    def _found(self, batch: pa.RecordBatch, hasher: WordHasher, counters: Counters) -> Found:
        sentences, bounds = flat_lists(batch.column("sentences"))
        words = hasher.words(sentences)
        of_documents = words.offsets[bounds]
        counters.count("words", len(words.hashes))
        stream = WordStream(Words(words.hashes, words.weights, of_documents))
        found = [stream.matches(table) for table in self._tables]
        starts = joined([runs.starts for runs in found])
        numbers = joined([runs.values.astype(np.int64) for runs in found])
        documents = np.searchsorted(of_documents, starts, side="right") - 1
        return documents, numbers, starts - of_documents[documents]


def _shard_path(piece: ShardItem) -> str:
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


def ngram_document_counts(max_document_frequency: int, *, output: str) -> Grouping:
    """Adds up how many documents have each run; reports the runs that too many have."""
    report = functools.partial(_report_common, most=max_document_frequency, output=output)
    return Grouping(report, merge=_add_counts)


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


def _report_common(bucket: int, tables: Iterable[bytes], *, most: int, output: str) -> WorkReport:
    counts = _together(tables)
    common = counts.filter(pc.greater(counts.column("documents"), most)).sort_by("ngram")
    name = f"__common__/bucket-{bucket:05d}.arrow"
    return bucket_report(bucket, common, file=name, output=output, max_bytes=_SMALL_BUCKET)


def common_ngrams(groups: Iterable[WorkReport], *, output: str) -> Int64s:
    """Return the numbers of n-grams that too many documents have."""
    tables = list(bucket_tables(groups, COUNTS, output=output))
    remove_bucket_files(groups, output=output)
    return joined([table.column("ngram").to_numpy().astype(np.int64) for table in tables])
