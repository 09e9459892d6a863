"""`build-vocabulary`: words counted over the corpus by Beam, then a WordPiece vocabulary learnt.

Each document shard is counted by itself and sends its counts as small Arrow tables, one for each of
`BUCKETS` buckets of words; a combiner adds the tables of a bucket, before and after the shuffle.
Learning happens on the launching machine, from the counts. Or a given vocab.txt is taken as it is.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import fsspec
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.build_documents import document_shards
from pipelines.counters import Counters, check_balance
from pipelines.duplicates import DUPLICATES_FILE, duplicate_rows
from pipelines.memory import release_freed_memory
from pipelines.shard_jobs import Blob, WorkReport, add_up, run_shard_job
from pipelines.shards import ShardWriter, open_shard, write_text_file
from pipelines.vocabulary import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    check_vocab,
    count_words,
    learn_vocabulary,
    merge_counts,
    read_vocab,
    vocab_text,
)
from pipelines.wordpiece import tokenizer_config_json, tokenizer_json
from schemas.arrow import DOCUMENTS, WORD_COUNTS
from schemas.configs import ExecutionConfig, VocabularyConfig
from schemas.manifest import FileEntry, RawInput, StageInput, StageOutput

STAGE_VERSION = 1
LIBRARIES = ("pyarrow", "tokenizers")

BUCKETS = 32
WORD_COUNTS_FILE = "word-counts.arrow"


class ShardPiece(NamedTuple):
    """A shard of an input artifact."""

    number: int
    path: str
    """Its logical name."""

    url: str
    weight: int
    duplicates: str
    """URL of the table of duplicates, "" where there is none or it is not wanted."""


def shard_pieces(documents: StageInput, *, remove_duplicates: bool) -> list[ShardPiece]:
    """One piece for each document shard, in order."""
    tables = [entry for entry in documents.files if entry.path == DUPLICATES_FILE]
    table = f"{documents.data}/{tables[0].object}" if tables and remove_duplicates else ""
    return [
        ShardPiece(index, entry.path, f"{documents.data}/{entry.object}", entry.size, table)
        for index, entry in enumerate(document_shards(documents))
    ]


def wanted_documents(piece: ShardPiece, counters: Counters) -> Iterator[pa.RecordBatch]:
    """The batches of a document shard without its duplicates; counts `documents-*`."""
    left_out = duplicate_rows(piece.duplicates, shard=piece.path) if piece.duplicates else ()
    first = 0
    with open_shard(piece.url, expected=DOCUMENTS) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            rows = range(first, first + batch.num_rows)
            first += batch.num_rows
            counters.count("documents-in", batch.num_rows)
            keep = [row - rows.start for row in rows if row not in left_out]
            counters.count("documents-kept", len(keep))
            if len(keep) < batch.num_rows:
                counters.count("documents-dropped-duplicate", batch.num_rows - len(keep))
                batch = batch.take(pa.array(keep, pa.int64()))
            if batch.num_rows:
                yield batch


def sentences_of(batch: pa.RecordBatch) -> pa.StringArray:
    """All sentences of a batch of documents, end to end."""
    return batch.column("sentences").flatten()


@dataclass
class CountWords:
    """The work on one document shard: its words, counted."""

    lowercase: bool

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: ShardPiece) -> WorkReport:
        counters = Counters()
        counts = WORD_COUNTS.empty_table()
        for batch in wanted_documents(piece, counters):
            words = count_words(sentences_of(batch), lowercase=self.lowercase)
            counts = merge_counts([counts, words])
        counters.count("words", pc.sum(counts.column("count")).as_py() or 0)
        return WorkReport(piece.number, [], counters, list(_word_blobs(counts)))


def _word_blobs(counts: pa.Table) -> Iterator[Blob]:
    """The table cut into buckets by a hash of the word that is the same in every process."""
    words = counts.column("word").to_pylist()
    buckets = pa.array([zlib.crc32(word.encode()) % BUCKETS for word in words], pa.int32())
    for bucket in range(BUCKETS):
        part = counts.filter(pc.equal(buckets, bucket))
        if part.num_rows:
            yield Blob(bucket, _to_bytes(part))


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, WORD_COUNTS) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


class MergeWordCounts(beam.CombineFn):
    """Adds serialised word-count tables; Beam applies it before the shuffle and after it."""

    # How many tables are held before they are added: adding costs a sort.
    _HELD = 16

    def create_accumulator(self) -> list[bytes]:
        return []

    def add_input(self, accumulator: list[bytes], element: bytes) -> list[bytes]:
        accumulator.append(element)
        return self._add_up(accumulator) if len(accumulator) >= self._HELD else accumulator

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        merged: list[bytes] = []
        for accumulator in accumulators:
            merged.extend(accumulator)
            if len(merged) >= self._HELD:
                merged = self._add_up(merged)
        return merged

    def compact(self, accumulator: list[bytes]) -> list[bytes]:
        return self._add_up(accumulator) if len(accumulator) > 1 else accumulator

    def extract_output(self, accumulator: list[bytes]) -> bytes:
        compacted = self.compact(accumulator)
        return compacted[0] if compacted else _to_bytes(WORD_COUNTS.empty_table())

    @staticmethod
    def _add_up(tables: list[bytes]) -> list[bytes]:
        return [_to_bytes(merge_counts([_from_bytes(data) for data in tables]))]


class _WriteWordCounts(beam.DoFn):
    def __init__(self, output: str, min_count: int) -> None:
        self._output, self._min_count = output, min_count

    def process(self, element: tuple[int, bytes]) -> Iterator[str]:
        bucket, data = element
        table = _from_bytes(data)
        kept = table.filter(pc.greater_equal(table.column("count"), self._min_count))
        counters = Counters({"distinct-words": table.num_rows})
        counters["distinct-words-dropped-rare"] = table.num_rows - kept.num_rows
        with ShardWriter(
            f"words-{bucket:05d}.arrow", schema=WORD_COUNTS, output=self._output
        ) as shard:
            for batch in kept.combine_chunks().to_batches():
                shard.write(batch)
        yield WorkReport(bucket, [shard.entry()], counters).to_json()


@dataclass
class _SumWords:
    """(bucket, bytes) blobs in; JSON reports out, each naming the file of one bucket's words."""

    output: str
    min_count: int

    def __call__(self, blobs: Any) -> Any:
        return (
            blobs
            | "MergeWordCounts" >> beam.CombinePerKey(MergeWordCounts())
            | "WriteWordCounts"
            >> beam.ParDo(_WriteWordCounts(self.output, self.min_count)).with_output_types(str)
        )


def raw_inputs(config: VocabularyConfig) -> tuple[RawInput, ...]:
    """The given vocab.txt with its digest, if one is given."""
    if config.vocab_file is None:
        return ()
    fs, path = fsspec.core.url_to_fs(config.vocab_file)
    text = vocab_text(read_vocab(config.vocab_file)).encode()
    digest = hashlib.sha256(text).hexdigest()
    return (
        RawInput(
            name=VOCAB_FILE,
            uri=fs.unstrip_protocol(path),
            size=len(text),
            sha256=digest,
            checksum="",
            identity=digest,
        ),
    )


def build_vocabulary(
    config: VocabularyConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Count the words of the documents and learn a vocabulary from them, or take one as given.

    Args:
        config: size, casing, limits; or the file to take.
        inputs: `documents`.
        output: URL of the folder to write to.
        execution: where to run.

    Raises:
        VocabularyError: the corpus is too small for the size asked for, or the given file is not a
            BERT vocabulary.
    """
    files: list[FileEntry] = []
    counters = Counters()
    if config.vocab_file is not None:
        vocab = read_vocab(config.vocab_file)
        check_vocab(vocab)
    else:
        words, reports, files = _count_corpus(config, inputs["documents"], output, execution)
        counters.update(reports)
        vocab = learn_vocabulary(words, config)
        del words
        release_freed_memory()
    counters["vocabulary-size"] = len(vocab)
    files += [
        write_text_file(VOCAB_FILE, vocab_text(vocab), output=output),
        write_text_file(
            TOKENIZER_FILE, tokenizer_json(vocab, lowercase=config.lowercase), output=output
        ),
        write_text_file(
            TOKENIZER_CONFIG_FILE, tokenizer_config_json(lowercase=config.lowercase), output=output
        ),
    ]
    return StageOutput(
        files=tuple(files),
        counters=dict(sorted(counters.items())),
        statistics={"lowercase": config.lowercase, "vocab_size": len(vocab)},
        table="vocabulary",
        raw_inputs=raw_inputs(config),
    )


def _count_corpus(
    config: VocabularyConfig, documents: StageInput, output: str, execution: ExecutionConfig
) -> tuple[pa.Table, Counters, list[FileEntry]]:
    reports, buckets = run_shard_job(
        "build-vocabulary",
        shard_pieces(documents, remove_duplicates=True),
        work=CountWords(config.lowercase),
        output=output,
        execution=execution,
        grouping=_SumWords(output, config.min_count),
    )
    check_balance(add_up(reports), "documents", where="build-vocabulary")
    tables = []
    for report in buckets:
        for entry in report.files:
            with open_shard(f"{output}/{entry.object}", expected=WORD_COUNTS) as reader:
                tables.append(reader.read_all())
    words = merge_counts(tables)
    with ShardWriter(WORD_COUNTS_FILE, schema=WORD_COUNTS, output=output) as shard:
        for batch in words.combine_chunks().to_batches():
            shard.write(batch)
    fs, folder = fsspec.core.url_to_fs(output)
    for report in buckets:
        for entry in report.files:
            fs.rm_file(f"{folder}/{entry.object}")
    return words, add_up([*reports, *buckets]), [shard.entry()]
