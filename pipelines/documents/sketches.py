"""MinHash sketches of documents: n-gram sets and band keys, written as shards and read by row.

Documents that share a band key are candidates for near-duplicates (MinHash LSH). Keys, never text,
cross a shuffle.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import rensa

from pipelines.arrays import Int64s, UInt64s, flat_lists, list_array
from pipelines.beam.item_cache import CacheableShardFn
from pipelines.beam.shard_work import Blob, WorkResult
from pipelines.counters import Counters
from pipelines.documents.bucket_tables import bucket_blobs, from_bytes
from pipelines.documents.exclusions import ShardItem, kept_rows
from pipelines.documents.word_hashes import WordHasher, mixed, ngram_sets
from pipelines.io.file_systems import SMALL_READ_AHEAD, file_system, is_local, open_stream
from pipelines.io.shards import ShardWriter, open_shard
from schemas.arrow import MINHASH_SKETCHES, check_schema
from schemas.corpus_configs import NearDuplicatesConfig
from schemas.manifest import FileEntry

BUCKETS = 64
"""Minimum number of buckets of keys."""

ROWS_PER_BUCKET = 200_000
"""Number of keys that a worker groups at once, in about 100 MB."""

FOUND = 0.98
"""Probability that two documents at the threshold share a key."""

BAND_BITS = 16
"""Number of low bits of a key that hold the number of its band."""

NO_TIME = -(1 << 63)
_SEED = 20181011


class Bands(NamedTuple):
    """Shape of a signature."""

    bands: int
    rows: int
    """Number of hashes per band."""

    @classmethod
    def of(cls, config: NearDuplicatesConfig) -> Bands:
        """Return the fewest bands that find documents at the threshold with probability `FOUND`.

        >>> Bands.of(NearDuplicatesConfig())
        Bands(bands=18, rows=7)
        """
        sizes = range(config.num_perm, 0, -1)
        shapes = (cls(config.num_perm // rows, rows) for rows in sizes)
        return next(shape for shape in shapes if shape.probability(config.threshold) >= FOUND)

    def probability(self, similarity: float) -> float:
        """Return the probability that documents with a Jaccard similarity share a key."""
        return 1 - (1 - similarity**self.rows) ** self.bands


def buckets_for(documents: int, bands: Bands) -> int:
    """Return the number of buckets for a number of documents. Results do not depend on it."""
    return max(BUCKETS, -(-documents * bands.bands // ROWS_PER_BUCKET))


def band_keys(ngrams: npt.NDArray[np.uint32], offsets: Int64s, bands: Bands) -> UInt64s:
    """Return the keys of documents, of shape (documents, bands).

    Args:
        ngrams: N-grams of all documents end to end, at least one per document.
        offsets: Document i has ngrams[offsets[i] : offsets[i + 1]].
        bands: Shape of the signatures.
    """
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
        ngrams.astype(np.uint64), offsets.astype(np.uint64), bands.bands * bands.rows, _SEED
    )
    signatures = np.array(matrix.to_rows(), np.uint64)
    banded = signatures.reshape(len(offsets) - 1, bands.bands, bands.rows)
    keys = np.zeros(banded.shape[:2], np.uint64)
    for row in range(bands.rows):
        keys = mixed(keys, banded[:, :, row])
    numbers = np.arange(bands.bands, dtype=np.uint64)
    return (keys >> np.uint64(BAND_BITS) << np.uint64(BAND_BITS)) | numbers


@dataclass
class SketchShard(CacheableShardFn):
    """Writes the sketches of one document shard."""

    config: NearDuplicatesConfig
    output: str
    buckets: int = BUCKETS

    def setup(self) -> None:
        self._hasher = WordHasher()

    def identity(self, item: ShardItem) -> Any:
        return item.identity()

    def rename_files(self, files: Sequence[FileEntry], item: ShardItem) -> list[FileEntry]:
        return [entry.model_copy(update={"path": _shard_path(item.number)}) for entry in files]

    def process(self, item: ShardItem) -> WorkResult:
        counters, bands = Counters(), Bands.of(self.config)
        keys: list[pa.ListArray] = []
        path = _shard_path(item.number)
        with ShardWriter(path, schema=MINHASH_SKETCHES, output=self.output) as shard:
            found = kept_rows(item, counters)
            made = (
                sketches(*some, config=self.config, bands=bands, hasher=self._hasher)
                for some in found
            )
            for batch in even_batches(made):
                counters.count("ngrams", len(batch.column("ngrams").flatten()))
                shard.write(batch)
                keys.append(batch.column("bands"))
        entry = shard.entry()
        return WorkResult(item.number, [entry], counters, self._blobs(entry, keys))

    def load_blobs(self, files: Sequence[FileEntry]) -> list[Blob]:
        (entry,) = files
        url = f"{self.output}/{entry.stored_name}"
        with open_shard(url, expected=MINHASH_SKETCHES, columns=("bands",)) as reader:
            keys = reader.read_all().column("bands").chunks
            return self._blobs(entry, keys)

    def _blobs(self, entry: FileEntry, keys: Iterable[pa.ListArray]) -> list[Blob]:
        found, rows, first = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)], 0
        for column in keys:
            values, offsets = flat_lists(column)
            found.append(values.to_numpy())
            numbers = np.arange(first, first + len(column), dtype=np.uint32)
            rows.append(np.repeat(numbers, np.diff(offsets)))
            first += len(column)
        return _key_blobs(
            np.concatenate(found), np.concatenate(rows), entry=entry, buckets=self.buckets
        )


def sketches(
    rows: Sequence[int],
    documents: pa.RecordBatch,
    *,
    config: NearDuplicatesConfig,
    bands: Bands,
    hasher: WordHasher,
) -> pa.RecordBatch:
    """Return the sketches of documents. Documents without words have no key."""
    ngrams, offsets = ngram_sets(documents.column("sentences"), config.ngram_size, hasher=hasher)
    worded = np.flatnonzero(np.diff(offsets))
    keys = np.empty(0, np.uint64)
    if len(worded):
        keys = band_keys(ngrams, offsets[np.append(worded, -1)], bands).reshape(-1)
    counts = np.where(np.diff(offsets) > 0, bands.bands, 0)
    key_offsets = np.concatenate([[0], np.cumsum(counts)])
    columns = [
        documents.column("document_id"),
        pa.array(rows, pa.uint32()),
        pa.array(map(_seconds, documents.column("timestamp").to_pylist()), pa.int64()),
        list_array(ngrams, offsets, MINHASH_SKETCHES.field("ngrams").type),
        list_array(keys, key_offsets, MINHASH_SKETCHES.field("bands").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MINHASH_SKETCHES)


def _seconds(timestamp: str | None) -> int:
    """Return the seconds since 1970 of an ISO 8601 time; `NO_TIME` if missing or invalid."""
    try:
        time = datetime.datetime.fromisoformat(timestamp or "")
    except ValueError:
        return NO_TIME
    utc = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    return int(utc.timestamp())


def _shard_path(number: int) -> str:
    return f"part-{number:05d}.arrow"


def _key_blobs(
    keys: UInt64s, rows: npt.NDArray[np.uint32], *, entry: FileEntry, buckets: int
) -> list[Blob]:
    item = entry.path.removeprefix("part-").removesuffix(".arrow")
    metadata = {"item": item, "file": entry.stored_name}
    table = pa.table({"key": keys, "row": rows}, metadata=metadata)
    numbers = (keys >> np.uint64(BAND_BITS)) % np.uint64(buckets)
    return list(bucket_blobs(table, numbers))


class KeyRows(NamedTuple):
    """Keys of a bucket, each with the location of its sketch."""

    keys: UInt64s
    places: Int64s
    """`ITEM << 32 | ROW OF THE SKETCH`."""

    files: dict[int, str]
    """Stored names of the shards of sketches, by number of the work item."""


def read_keys(blobs: Iterable[bytes]) -> KeyRows:
    """Return the keys in the blobs of a bucket."""
    keys, places, files = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], dict[int, str]()
    for table in map(from_bytes, blobs):
        item = int(table.schema.metadata[b"item"])
        files[item] = table.schema.metadata[b"file"].decode()
        keys.append(table.column("key").to_numpy())
        places.append((item << _ROW_BITS) | table.column("row").to_numpy().astype(np.int64))
    return KeyRows(np.concatenate(keys), np.concatenate(places), files)


BATCH_ROWS = 64
"""Number of sketches in each batch of a shard except the last, so that a row gives its batch."""

_OPEN = 64
"""Maximum number of open files."""

_ROW_BITS = 32


def even_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield sketches in batches of `BATCH_ROWS`."""
    rest = MINHASH_SKETCHES.empty_table()
    for batch in batches:
        rest = pa.concat_tables([rest, pa.Table.from_batches([batch])])
        whole = rest.num_rows - rest.num_rows % BATCH_ROWS
        if whole:
            yield from rest.slice(0, whole).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
            rest = rest.slice(whole).combine_chunks()
    yield from rest.combine_chunks().to_batches()


class SketchFiles:
    """Shards of sketches of one job; a context manager that opens them on demand."""

    def __init__(self, files: Mapping[int, str], *, output: str) -> None:
        """Use the stored names `files` in the folder `output`, by number of the work item."""
        self._files, self._output = files, output
        self._open: collections.OrderedDict[int, tuple[contextlib.ExitStack, Any]]
        self._open = collections.OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stack, _reader in self._open.values():
            stack.close()
        self._open.clear()

    def take(self, places: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return columns of sketches at distinct locations `ITEM << 32 | ROW`, ascending."""
        schema = pa.schema([MINHASH_SKETCHES.field(name) for name in columns])
        found = [schema.empty_table()]
        for rows, batch in self._batches(places):
            found.append(pa.Table.from_batches([batch.select(columns).take(pa.array(rows))]))
        return pa.concat_tables(found).combine_chunks()

    def sizes(self, places: Int64s) -> Int64s:
        """Return the number of n-grams of documents, given locations as for `take`."""
        found = [np.empty(0, np.int64)]
        for rows, batch in self._batches(places):
            found.append(batch.column("ngrams").value_lengths().to_numpy()[rows].astype(np.int64))
        return np.concatenate(found)

    def _batches(self, places: Int64s) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
        """Yield the batches of sketches, with the rows of the sketches in each."""
        starts = np.flatnonzero(np.diff(places >> _ROW_BITS, prepend=-1))
        for of_item in np.split(places, starts[1:]) if len(places) else ():
            reader = self._reader(int(of_item[0] >> _ROW_BITS))
            rows = of_item & ((1 << _ROW_BITS) - 1)
            numbers = rows // BATCH_ROWS
            firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
            for of_batch in np.split(rows, firsts[1:]):
                number = int(of_batch[0]) // BATCH_ROWS
                yield of_batch - number * BATCH_ROWS, reader.get_batch(number)

    def _reader(self, item: int) -> Any:
        if item in self._open:
            self._open.move_to_end(item)
            return self._open[item][1]
        url = f"{self._output}/{self._files[item]}"
        fs, path = file_system(url)
        stack = contextlib.ExitStack()
        if is_local(url):
            source = stack.enter_context(pa.memory_map(path))
        else:
            source = stack.enter_context(open_stream(fs, path, ahead=SMALL_READ_AHEAD))
        reader = pa.ipc.open_file(source)
        check_schema(reader.schema, MINHASH_SKETCHES, where=url)
        self._open[item] = stack, reader
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)[1][0].close()
        return reader
