"""Scan document shards for n-grams of evaluation texts.

A worker memory-maps the sorted hashes of the texts' n-grams. It writes one row per document that
has any.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.arrays import Int64s, flat_lists, joined, list_array, offsets_of
from pipelines.contamination.ngrams import WordStream
from pipelines.counters import Counters
from pipelines.documents.exclusions import ShardItem, kept_rows
from pipelines.documents.word_hashes import WordHasher, Words
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.shard_job.item_cache import CacheableShardFn
from pipelines.shard_job.work import WorkResult
from schemas.arrow import CONTAMINATION_HITS, CONTAMINATION_NGRAMS


@dataclass
class ScanShard(CacheableShardFn):
    """Writes the hits of one document shard."""

    shard_folder = "__hits__/"

    ngrams: InputFile
    """Table `CONTAMINATION_NGRAMS`."""

    max_document_frequency: int
    output: str

    def setup(self) -> None:
        with open_shard(self.ngrams, expected=CONTAMINATION_NGRAMS) as reader:
            weights, self._hashes = (column.to_numpy() for column in reader.get_batch(0).columns)
        distinct, firsts = np.unique(weights, return_index=True)
        bounds = itertools.pairwise([*firsts.tolist(), len(weights)])
        self._ranges = list(zip(distinct.tolist(), bounds, strict=True))
        self._hasher = WordHasher()

    def identity(self, item: ShardItem) -> Any:
        return {**item.identity(), "ngrams": self.ngrams.sha256}

    def process(self, item: ShardItem) -> WorkResult:
        counters = Counters()
        with ShardWriter(
            self.shard_path(item), schema=CONTAMINATION_HITS, output=self.output
        ) as shard:
            for hits in self._hits(item, counters):
                shard.write(hits)
        return WorkResult(item.number, [shard.entry()], counters)

    def _hits(self, item: ShardItem, counters: Counters) -> Iterator[pa.RecordBatch]:
        """Yield the hits of a shard.

        Hits do not repeat an n-gram that earlier documents of the shard show to be common: those of
        a common phrase would grow with the corpus.
        """
        frequencies = np.zeros(len(self._hashes), np.uint32)
        for rows, batch in kept_rows(item, counters):
            sentences, bounds = flat_lists(batch.column("sentences"))
            words = self._hasher.words(sentences)
            counters.count("words", len(words.hashes))
            documents, ngrams = self._find_ngrams(words._replace(offsets=words.offsets[bounds]))
            is_rare = frequencies[ngrams] <= self.max_document_frequency
            np.add.at(frequencies, ngrams, 1)
            if np.any(is_rare):
                yield _hit_rows(rows, batch, documents[is_rare], ngrams[is_rare])

    def _find_ngrams(self, words: Words) -> tuple[Int64s, Int64s]:
        """Return the distinct pairs of a document and an n-gram of the table, sorted."""
        stream, rows = WordStream(words), len(self._hashes)
        pairs = []
        for weight, (first, end) in self._ranges:
            starts, _, hashes = stream.ngrams(weight)
            ngrams = np.searchsorted(self._hashes[first:end], hashes) + first
            ngrams[ngrams == end] = first
            is_equal = self._hashes[ngrams] == hashes
            pairs.append(stream.texts[starts[is_equal]] * rows + ngrams[is_equal])
        documents, ngrams = np.divmod(np.unique(joined(pairs)), max(rows, 1))
        return documents, ngrams


def _hit_rows(
    rows: list[int], batch: pa.RecordBatch, documents: Int64s, ngrams: Int64s
) -> pa.RecordBatch:
    """Return rows of `CONTAMINATION_HITS` for documents of a batch with these rows of its shard."""
    counts = np.bincount(documents, minlength=batch.num_rows)
    hit = np.flatnonzero(counts)
    columns = [
        pa.array(np.array(rows)[hit], pa.uint32()),
        *batch.select(["document_id", "title"]).take(pa.array(hit)).columns,
        list_array(ngrams, offsets_of(counts[hit]), CONTAMINATION_HITS.field("ngrams").type),
    ]
    return pa.record_batch(columns, schema=CONTAMINATION_HITS)
