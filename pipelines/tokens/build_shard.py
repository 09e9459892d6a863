"""Tokenize a shard of documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.arrays import flat_lists, list_array, offsets_of
from pipelines.counters import Count, Counters
from pipelines.documents.exclusions import ShardItem, kept_rows
from pipelines.instances import split_id
from pipelines.io.shards import ShardWriter
from pipelines.io.stage_inputs import InputFile
from pipelines.lengths import Histograms, count_lengths, merge_lengths
from pipelines.shard_job.item_cache import CacheableShardFn
from pipelines.shard_job.work import WorkResult
from pipelines.wordpiece.text_rules import TextRules
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.arrow import tokens_schema


@dataclass
class BuildTokenShard(CacheableShardFn):
    """Tokenizes one document shard."""

    vocab: InputFile
    rules: TextRules
    vocab_size: int
    word_cache_size: int
    output: str

    def setup(self) -> None:
        self._tokenizer = WordPieceTokenizer.from_vocab_file(
            self.vocab, word_cache_size=self.word_cache_size, **self.rules
        )

    def identity(self, item: ShardItem) -> Any:
        vocabulary = [self.vocab.sha256, self.vocab_size, self.rules]
        return {**item.identity(), "vocabulary": vocabulary}

    def process(self, item: ShardItem) -> WorkResult:
        counters = Counters()
        schema = tokens_schema(self.vocab_size)
        lengths: list[Histograms] = []
        with ShardWriter(self.shard_path(item), schema=schema, output=self.output) as shard:
            for _, documents in kept_rows(item, counters):
                batch = tokenize_batch(documents, self._tokenizer, counters.count, schema)
                shard.write(batch)
                lengths.append(_lengths(batch))
        entry = shard.entry(statistics={"tokens": counters["tokens"]})
        return WorkResult(item.number, [entry], counters, statistics=merge_lengths(lengths))


def _lengths(batch: pa.RecordBatch) -> Histograms:
    sentences, offsets = flat_lists(batch.column("sentence_lengths"))
    _, token_offsets = flat_lists(batch.column("token_ids"))
    return {
        "documents": count_lengths(np.diff(token_offsets)),
        "sentences": count_lengths(np.diff(offsets)),
        "words": count_lengths(sentences.to_numpy()),
    }


def tokenize_batch(
    batch: pa.RecordBatch, tokenizer: WordPieceTokenizer, count: Count, schema: pa.Schema
) -> pa.RecordBatch:
    """Return the tokens of documents, one row per document.

    Args:
        batch: Columns `document_id`, `sentences` and `revision_id`, at least.
        tokenizer: Tokenizer of the sentences.
        count: Called with `tokens`, `sentences` and `unknown-tokens`.
        schema: Result of `tokens_schema` for the vocabulary.
    """
    sentences, sentence_bounds = flat_lists(batch.column("sentences"))
    token_ids, lengths = tokenizer.encode_sentences(sentences)
    count("tokens", len(token_ids))
    count("sentences", len(lengths))
    count("unknown-tokens", int(np.count_nonzero(token_ids == tokenizer.unk_id)))
    token_bounds = offsets_of(lengths)[sentence_bounds]
    has_tokens = lengths > 0
    length_bounds = offsets_of(has_tokens)[sentence_bounds]
    ids, revisions = batch.column("document_id"), batch.column("revision_id")
    return pa.RecordBatch.from_arrays(
        [
            ids,
            list_array(token_ids, token_bounds, schema.field("token_ids").type),
            list_array(lengths[has_tokens], length_bounds, schema.field("sentence_lengths").type),
            pa.array(map(split_id, ids.to_pylist(), revisions.to_pylist()), pa.string()),
        ],
        schema=schema,
    )
