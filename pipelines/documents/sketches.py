"""A sketch of each document, by which documents that say nearly the same are found.

For each document shard a shard of sketches: of a document its n-grams, and a key for each band of
its MinHash signature (`rensa`). Documents that share a key may say nearly the same. What goes
through the runner is a document's keys, each with the place of its sketch: 12 bytes a band.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import rensa

from pipelines.arrays import Int64s, UInt64s, flat_lists, list_array
from pipelines.beam.item_cache import CacheableShardFn
from pipelines.beam.shard_work import Blob, WorkResult
from pipelines.counters import Counters
from pipelines.documents.ngrams import mixed, ngram_sets
from pipelines.documents.shards import ShardPiece, wanted_rows
from pipelines.documents.sketch_files import even_batches
from pipelines.documents.words import WordHasher
from pipelines.io.shards import ShardWriter, open_shard
from schemas.arrow import MINHASH_SKETCHES
from schemas.corpus_configs import NearDuplicatesConfig
from schemas.manifest import FileEntry

BUCKETS = 64
"""How many for keys, at least."""

ROWS_A_BUCKET = 200_000
"""What a worker groups at once, in about 100 MB."""

FOUND = 0.98
"""The probability with which two documents at the threshold share a key."""

BAND_BITS = 16
"""The last bits of a key: the number of its band."""

NO_TIME = -(1 << 63)
_SEED = 20181011
_HEAD = struct.Struct("<IHI")  # number of the piece, bytes of the file's name, rows


class Bands(NamedTuple):
    """How a signature is cut."""

    bands: int
    rows: int
    """Numbers of the signature in each band."""

    @classmethod
    def of(cls, config: NearDuplicatesConfig) -> Bands:
        """The fewest bands that find documents at the threshold with the probability `FOUND`.

        >>> Bands.of(NearDuplicatesConfig())
        Bands(bands=18, rows=7)
        """
        sizes = range(config.num_perm, 0, -1)
        shapes = (cls(config.num_perm // rows, rows) for rows in sizes)
        return next(shape for shape in shapes if shape.probability(config.threshold) >= FOUND)

    def probability(self, similarity: float) -> float:
        """That two documents of a Jaccard similarity share a key."""
        return 1 - (1 - similarity**self.rows) ** self.bands


def buckets_for(documents: int, bands: Bands) -> int:
    """How many buckets so many documents need; nothing that is found depends on it."""
    return max(BUCKETS, -(-documents * bands.bands // ROWS_A_BUCKET))


def band_keys(ngrams: npt.NDArray[np.uint32], offsets: Int64s, bands: Bands) -> UInt64s:
    """The keys of documents, of shape (documents, bands).

    Args:
        ngrams: of all documents end to end, of each at least one.
        offsets: where each document's begin and end.
        bands: how signatures are cut.
    """
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
        ngrams.astype(np.uint64), offsets.astype(np.uint64), bands.bands * bands.rows, _SEED
    )
    signatures = np.array(matrix.to_rows(), np.uint64)
    cut = signatures.reshape(len(offsets) - 1, bands.bands, bands.rows)
    keys = np.zeros(cut.shape[:2], np.uint64)
    for row in range(bands.rows):
        keys = mixed(keys, cut[:, :, row])
    numbers = np.arange(bands.bands, dtype=np.uint64)
    return (keys >> np.uint64(BAND_BITS) << np.uint64(BAND_BITS)) | numbers


@dataclass
class SketchShard(CacheableShardFn):
    """The work on one document shard."""

    config: NearDuplicatesConfig
    output: str
    buckets: int = BUCKETS
    _hasher: WordHasher | None = field(default=None, repr=False)

    def setup(self) -> None:
        self._open()

    def _open(self) -> WordHasher:
        if self._hasher is None:
            self._hasher = WordHasher()
        return self._hasher

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_hasher": None}

    def identity(self, piece: ShardPiece) -> Any:
        return piece.identity()

    def expected_rows(self, counters: Mapping[str, int]) -> int:
        return counters["documents-kept"]

    def rename_files(self, files: Sequence[FileEntry], piece: ShardPiece) -> list[FileEntry]:
        return [entry.model_copy(update={"path": _shard_path(piece.number)}) for entry in files]

    def process(self, piece: ShardPiece) -> WorkResult:
        counters, bands, hasher = Counters(), Bands.of(self.config), self._open()
        keys: list[pa.ListArray] = []
        path = _shard_path(piece.number)
        with ShardWriter(path, schema=MINHASH_SKETCHES, output=self.output) as shard:
            found = wanted_rows(piece, counters)
            made = (
                sketches(*some, config=self.config, bands=bands, hasher=hasher) for some in found
            )
            for batch in even_batches(made):
                counters.count("ngrams", len(batch.column("ngrams").flatten()))
                shard.write(batch)
                keys.append(batch.column("bands"))
        entry = shard.entry()
        return WorkResult(piece.number, [entry], counters, self._blobs(entry, keys))

    def load_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]:
        del stored
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
        return list(
            _packed(np.concatenate(found), np.concatenate(rows), entry=entry, buckets=self.buckets)
        )


def sketches(
    rows: Sequence[int],
    documents: pa.RecordBatch,
    *,
    config: NearDuplicatesConfig,
    bands: Bands,
    hasher: WordHasher,
) -> pa.RecordBatch:
    """The sketches of some documents; those without words share no key with any.

    Args:
        rows: of each its row in the shard.
        documents: a batch of the documents table.
        config: of the stage.
        bands: how signatures are cut.
        hasher: of their words.
    """
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
    """Since 1970, of an ISO 8601 time; `NO_TIME` of none, and of what is none."""
    try:
        time = datetime.datetime.fromisoformat(timestamp or "")
    except ValueError:
        return NO_TIME
    utc = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    return int(utc.timestamp())


def _shard_path(number: int) -> str:
    return f"part-{number:05d}.arrow"


def _packed(
    keys: UInt64s, rows: npt.NDArray[np.uint32], *, entry: FileEntry, buckets: int
) -> Iterator[Blob]:
    numbers = (keys >> np.uint64(BAND_BITS)) % np.uint64(buckets)
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    number, name = int(entry.path.removeprefix("part-").removesuffix(".arrow")), entry.stored_name
    for bucket, members in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        head = _HEAD.pack(number, len(name.encode()), len(members)) + name.encode()
        yield Blob(bucket, head + keys[members].tobytes() + rows[members].tobytes())


class KeyRows(NamedTuple):
    """The keys of a bucket, each with the place of the sketch that has it."""

    keys: UInt64s
    places: Int64s
    """`PIECE << 32 | ROW OF THE SKETCH`."""

    files: dict[int, str]
    """Physical names of the shards of sketches, by the pieces' numbers."""


def unpacked(blobs: Iterable[bytes]) -> KeyRows:
    """What the blobs of a bucket hold."""
    keys, places, files = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], dict[int, str]()
    for blob in blobs:
        number, name_bytes, count = _HEAD.unpack_from(blob)
        files[number] = blob[_HEAD.size : _HEAD.size + name_bytes].decode()
        start = _HEAD.size + name_bytes
        keys.append(np.frombuffer(blob, np.uint64, count, start))
        rows = np.frombuffer(blob, np.uint32, count, start + 8 * count)
        places.append(rows.astype(np.int64) | (number << 32))
    return KeyRows(np.concatenate(keys), np.concatenate(places), files)
