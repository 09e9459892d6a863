"""Count the words of a corpus with Beam.

Each document shard sends its counts as small Arrow tables, one for each of `BUCKETS` buckets of
words. A combiner adds the tables of a bucket, before and after the shuffle.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.counters import Counters, check_balance
from pipelines.documents.bucket_tables import (
    bucket_blobs,
    bucket_report,
    bucket_tables,
    from_bytes,
    remove_bucket_files,
    to_bytes,
)
from pipelines.documents.exclusions import ShardItem, kept_rows, shard_items
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.shard_job.item_cache import CacheableShardFn
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import Blob, BucketReduce, WorkResult, sum_counters
from pipelines.vocabulary.training import count_words, merge_counts
from schemas.arrow import WORD_COUNTS
from schemas.corpus_configs import VocabularyConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, Reuse, StageInput

BUCKETS = 32
SMALL_BUCKET = 128 << 10
"""Maximum bytes of a bucket's words in its report; more are written to a file."""

WORD_COUNTS_FILE = "word-counts.arrow"


@dataclass
class CountWords(CacheableShardFn):
    """Counts the words of one document shard."""

    shard_folder = "__counts__/"

    lowercase: bool
    output: str

    def process(self, item: ShardItem) -> WorkResult:
        counters = Counters()
        counts = WORD_COUNTS.empty_table()
        for _, batch in kept_rows(item, counters):
            words = count_words(batch.column("sentences").flatten(), lowercase=self.lowercase)
            counts = merge_counts([counts, words])
        counters.count("words", pc.sum(counts.column("count")).as_py() or 0)
        entry = _write_counts(self.shard_path(item), counts, output=self.output, compression="zstd")
        return WorkResult(item.number, [entry], counters, list(_word_blobs(counts)))

    def load_blobs(self, files: Sequence[FileEntry]) -> list[Blob]:
        (entry,) = files
        with open_shard(f"{self.output}/{entry.stored_name}", expected=WORD_COUNTS) as reader:
            return list(_word_blobs(reader.read_all()))


def _write_counts(
    path: str, counts: pa.Table, *, output: str, compression: str | None = None
) -> FileEntry:
    with ShardWriter(path, schema=WORD_COUNTS, output=output, compression=compression) as shard:
        for batch in counts.combine_chunks().to_batches():
            shard.write(batch)
    return shard.entry()


def _word_blobs(counts: pa.Table) -> Iterator[Blob]:
    """Return the rows of each bucket, by a hash of the word that is equal in every process."""
    words = counts.column("word").to_pylist()
    hashes = np.array([zlib.crc32(word.encode()) for word in words], np.int64)
    return bucket_blobs(counts, hashes % BUCKETS)


def _add_counts(tables: Sequence[bytes]) -> bytes:
    """Return the sum of serialized word counts."""
    return to_bytes(merge_counts(map(from_bytes, tables)))


def _report_words(
    bucket: int, tables: Iterable[bytes], *, output: str, min_frequency: int
) -> WorkResult:
    """Return the words of a bucket, inline or as a file in the folder `output`."""
    table = merge_counts(map(from_bytes, tables))
    kept = table.filter(pc.greater_equal(table.column("count"), min_frequency))
    counters = Counters({"distinct-words": table.num_rows})
    counters["distinct-words-dropped-rare"] = table.num_rows - kept.num_rows
    return bucket_report(
        bucket,
        kept,
        file=f"words-{bucket:05d}.arrow",
        output=output,
        max_bytes=SMALL_BUCKET,
        counters=counters,
    )


class CountedWords(NamedTuple):
    """Words of a corpus with their counts."""

    words: pa.Table
    counters: Counters
    files: tuple[FileEntry, ...]
    """Counts of each shard, and of the corpus."""

    reuse: Reuse


def count_corpus(
    config: VocabularyConfig,
    documents: StageInput,
    *,
    exclusions: Sequence[InputFile] = (),
    output: str,
    execution: ExecutionConfig,
    pieces: str,
) -> CountedWords:
    """Count the words of all documents except duplicates and rows of the tables `exclusions`."""
    planned = shard_items(documents, remove_duplicates=True, exclusions=exclusions)
    report_words = functools.partial(
        _report_words, output=output, min_frequency=config.min_frequency
    )
    job = run_shard_job(
        "build-vocabulary",
        planned,
        work=CountWords(config.lowercase, output),
        output=output,
        execution=execution,
        pieces=pieces,
        grouping=BucketReduce(report_words, combine=_add_counts),
    )
    check_balance(sum_counters(job.reports), "documents", where="build-vocabulary")
    words = merge_counts(bucket_tables(job.groups, WORD_COUNTS, output=output))
    entry = _write_counts(WORD_COUNTS_FILE, words, output=output)
    remove_bucket_files(job.groups, output=output)
    counters = sum_counters([*job.reports, *job.groups])
    return CountedWords(words, counters, (*job.files, entry), job.reuse)
