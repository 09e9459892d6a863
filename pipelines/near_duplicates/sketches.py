"""MinHash sketches of documents: n-gram sets and band keys, written as shards and read by row.

Documents that share a band key are candidates for near-duplicates (MinHash LSH). Keys, never text,
cross a shuffle.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import rensa

from pipelines.arrays import Int64s, UInt64s, flat_lists, list_array, offsets_of
from pipelines.counters import Counters
from pipelines.documents.bucket_tables import bucket_blobs, from_bytes
from pipelines.documents.exclusions import ShardItem, kept_rows
from pipelines.documents.word_hashes import WordHasher, mixed, ngram_sets
from pipelines.io.file_systems import SMALL_READ_AHEAD, file_system, is_local, open_stream
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.shard_job.item_cache import CacheableShardFn
from pipelines.shard_job.work import Blob, WorkResult
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

BATCH_ROWS = 64
"""Maximum number of sketches in a batch of a shard. Sketch `i` of batch `n` is row `64 * n + i`."""

ROW_BITS = 32
"""Number of low bits of a location that hold the row. The others hold the number of the item."""

KEY_ROWS = pa.schema(
    [
        ("key", pa.uint64()),
        ("next_keys", pa.uint64()),  # high halves of the keys of the next two bands
        ("place", pa.int64()),  # location of the sketch
        ("time", pa.int64()),
        ("size", pa.uint32()),  # number of n-grams
    ]
)
"""Keys that Beam groups by bucket."""

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

    def process(self, item: ShardItem) -> WorkResult:
        counters, keys = Counters(), list[pa.Table]()
        with ShardWriter(
            self.shard_path(item), schema=MINHASH_SKETCHES, output=self.output
        ) as shard:
            for rows, documents in kept_rows(item, counters):
                made = sketches(rows, documents, config=self.config, hasher=self._hasher)
                counters.count("ngrams", len(made.column("ngrams").flatten()))
                for batch in pa.Table.from_batches([made]).to_batches(max_chunksize=BATCH_ROWS):
                    keys.append(_key_rows(batch, item.number, len(keys)))
                    shard.write(batch)
        entry = shard.entry()
        return WorkResult(item.number, [entry], counters, self._blobs(entry, keys))

    def load_blobs(self, files: Sequence[FileEntry]) -> list[Blob]:
        (entry,) = files
        item = int(entry.path.removeprefix("part-").removesuffix(".arrow"))
        with open_shard(f"{self.output}/{entry.stored_name}", expected=MINHASH_SKETCHES) as reader:
            numbers = range(reader.num_record_batches)
            keys = [_key_rows(reader.get_batch(number), item, number) for number in numbers]
            return self._blobs(entry, keys)

    def _blobs(self, entry: FileEntry, keys: Sequence[pa.Table]) -> list[Blob]:
        table = pa.concat_tables([KEY_ROWS.empty_table(), *keys]).combine_chunks()
        hashes = table.column("key").to_numpy() >> np.uint64(BAND_BITS)
        item = entry.path.removeprefix("part-").removesuffix(".arrow")
        table = table.replace_schema_metadata({"item": item, "file": entry.stored_name})
        return list(bucket_blobs(table, hashes % np.uint64(self.buckets)))


def _key_rows(batch: pa.RecordBatch, item: int, number: int) -> pa.Table:
    """Return the `KEY_ROWS` of a batch of sketches, given the numbers of its item and itself."""
    values, offsets = flat_lists(batch.column("bands"))
    worded = np.flatnonzero(np.diff(offsets))
    keys = values.to_numpy().reshape(len(worded), len(values) // max(1, len(worded)))
    half = np.uint64(32)
    following = np.roll(keys, -1, axis=1) >> half << half | np.roll(keys, -2, axis=1) >> half
    places = (item << ROW_BITS) | (number * BATCH_ROWS + worded)
    columns = (
        places,
        batch.column("time").to_numpy()[worded],
        batch.column("ngrams").value_lengths().to_numpy()[worded],
    )
    per_key = (np.repeat(column, keys.shape[1]) for column in columns)
    return pa.table([keys.reshape(-1), following.reshape(-1), *per_key], schema=KEY_ROWS)


def sketches(
    rows: Sequence[int],
    documents: pa.RecordBatch,
    *,
    config: NearDuplicatesConfig,
    hasher: WordHasher,
) -> pa.RecordBatch:
    """Return the sketches of documents. Documents without words have no key."""
    bands = Bands.of(config)
    ngrams, offsets = ngram_sets(documents.column("sentences"), config.ngram_size, hasher=hasher)
    worded = np.flatnonzero(np.diff(offsets))
    keys = np.empty(0, np.uint64)
    if len(worded):
        keys = band_keys(ngrams, offsets[np.append(worded, -1)], bands).reshape(-1)
    key_offsets = offsets_of(np.where(np.diff(offsets) > 0, bands.bands, 0))
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


class Members(NamedTuple):
    """Documents that share a band key with another, by key and priority."""

    starts: Int64s
    """Index of the first member with the same key."""

    next_keys: UInt64s
    places: Int64s
    """Locations of the sketches: `ITEM << ROW_BITS | ROW OF THE SKETCH`."""

    times: Int64s
    sizes: Int64s
    """Numbers of n-grams."""


def read_members(blobs: Iterable[bytes]) -> tuple[Members, dict[int, str]]:
    """Return the members of a bucket's groups, and the stored names of their sketches by item."""
    tables, files = [KEY_ROWS.empty_table()], dict[int, str]()
    for table in map(from_bytes, blobs):
        metadata = table.schema.metadata
        files[int(metadata[b"item"])] = metadata[b"file"].decode()
        tables.append(table.replace_schema_metadata())
    keys, next_keys, places, times, sizes = map(np.asarray, pa.concat_tables(tables).columns)
    order = priority_order(times, places, keys)
    _, firsts, counts = np.unique(keys[order], return_index=True, return_counts=True)
    starts = np.repeat(firsts, counts)
    return Members(starts, next_keys[order], places[order], times[order], sizes[order]), files


def priority_order(times: Int64s, places: Int64s, *groups: UInt64s) -> Int64s:
    """Return documents by group and priority: the newest first, then in the order of the plan."""
    return np.lexsort((places, ~times, *groups))


_MAX_OPEN = 64


class SketchFiles:
    """Shards of sketches of one job; a context manager that opens them on demand."""

    def __init__(self, files: Mapping[int, str], *, output: str) -> None:
        """Use the stored names `files` in the folder `output`, by number of the work item."""
        self._files, self._output = files, output
        self._open = collections.OrderedDict[int, tuple[contextlib.ExitStack, Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1][0].close()

    def take(self, places: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return columns of sketches at distinct locations, ascending."""
        parts = [pa.schema([MINHASH_SKETCHES.field(name) for name in columns]).empty_table()]
        batches = places // BATCH_ROWS
        starts = np.flatnonzero(np.diff(batches, prepend=-1))
        for of_batch in np.split(places, starts[1:]) if len(places) else ():
            item, row = divmod(int(of_batch[0]), 1 << ROW_BITS)
            batch = self._reader(item).get_batch(row // BATCH_ROWS).select(columns)
            parts.append(pa.Table.from_batches([batch.take(pa.array(of_batch % BATCH_ROWS))]))
        return pa.concat_tables(parts).combine_chunks()

    def _reader(self, item: int) -> Any:
        if item not in self._open:
            if len(self._open) == _MAX_OPEN:
                self._open.popitem(last=False)[1][0].close()
            self._open[item] = self._opened(f"{self._output}/{self._files[item]}")
        self._open.move_to_end(item)
        return self._open[item][1]

    def _opened(self, url: str) -> tuple[contextlib.ExitStack, Any]:
        fs, path = file_system(url)
        stack = contextlib.ExitStack()
        if is_local(url):
            source = stack.enter_context(pa.memory_map(path))
        else:
            source = stack.enter_context(open_stream(fs, path, ahead=SMALL_READ_AHEAD))
        reader = pa.ipc.open_file(source)
        check_schema(reader.schema, MINHASH_SKETCHES, where=url)
        return stack, reader
