"""Create batches of masked instances from tokenized documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.arrays import TokenIds, offsets_of, ranges
from pipelines.counters import Count
from pipelines.instances.masking import VocabularyIds, mask_batch
from pipelines.instances.pairing import (
    IS_RANDOM,
    NO_SEGMENT_B,
    Segments,
    document_keys,
    next_sentence_pairs,
    pack_full_sentences,
)
from pipelines.instances.token_documents import NextSentencePool, TokenDocuments
from schemas.corpus_configs import InstancesConfig

BATCH_TOKENS = 1 << 19
"""Number of tokens that are paired and masked at once."""

_OWN_SHARD = 0


@dataclass(frozen=True, kw_only=True)
class InstanceBatch:
    """Instances as flat arrays: the columns of `instances_schema`, and offsets of the lists.

    Instance i has input_ids[input_offsets[i] : input_offsets[i+1]], and positions and ids of the
    masked LM at masked_lm_offsets. All other columns have the shape (instances,).
    """

    input_ids: TokenIds
    input_offsets: npt.NDArray[np.int32]
    segment_b_start: npt.NDArray[np.uint16]
    masked_lm_positions: npt.NDArray[np.uint16]
    masked_lm_ids: TokenIds
    masked_lm_offsets: npt.NDArray[np.int32]
    next_sentence_label: npt.NDArray[np.int8]
    document_row: npt.NDArray[np.uint32]
    segment_b_shard: npt.NDArray[np.uint32]
    segment_b_row: npt.NDArray[np.uint32]
    dupe_index: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        """Number of instances."""
        return len(self.next_sentence_label)

    def statistics(self) -> dict[str, int]:
        """Return counts of the batch: instances, tokens, masked tokens, and labels."""
        labels = self.next_sentence_label
        return {
            "instances": len(labels),
            "tokens": len(self.input_ids),
            "masked-tokens": len(self.masked_lm_positions),
            "random-next": int(np.count_nonzero(labels == IS_RANDOM)),
            "without-segment-b": int(np.count_nonzero(labels == NO_SEGMENT_B)),
        }


def create_instances(
    pool: NextSentencePool,
    config: InstancesConfig,
    *,
    vocabulary: VocabularyIds,
    pass_number: int,
    count: Count,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[InstanceBatch]:
    """Create the instances of one pass over the documents of a pool's shard 0, in their order.

    Each row depends only on (config, document, pass, pool), and not on the size of batches.

    Args:
        pool: Documents that random Bs come from. Shard 0 has document ids.
        config: Lengths, pairing, masking, seed.
        vocabulary: Vocabulary of the token ids.
        pass_number: 0-based pass over the corpus.
        count: Called with `documents-in`, `documents-kept`, `documents-dropped-no-token` and, for
            paired segments, `documents-dropped-one-token` (one token cannot be split in two).
        batch_tokens: Approximate number of tokens per batch. A longer document is planned as a
            whole (some bytes per token) and returned in several batches.
    """
    documents = pool.shards[_OWN_SHARD]
    instances_per_batch = max(1, 2 * batch_tokens // config.max_seq_length)
    for rows in document_groups(documents, batch_tokens):
        _count_documents(documents, rows, config, count)
        names = documents.document_ids[rows.start : rows.stop]
        keys = document_keys(names, seed=config.seed, pass_number=pass_number)
        if config.pairing == "nsp":
            segments = next_sentence_pairs(
                documents, pool, config, rows=rows, keys=keys, own_shard=_OWN_SHARD
            )
        else:
            segments = pack_full_sentences(
                documents, config, rows=rows, keys=keys, own_shard=_OWN_SHARD
            )
        for start in range(0, len(segments.label), instances_per_batch):
            part = segments.part(start, start + instances_per_batch)
            yield _instance_batch(
                part, pool, config, vocabulary=vocabulary, pass_number=pass_number
            )


def document_groups(documents: TokenDocuments, batch_tokens: int) -> Iterator[range]:
    """Yield ranges of rows with at most `batch_tokens` tokens, or of one document."""
    bounds = documents.document_bounds
    start = 0
    while start < len(documents):
        fitting = int(np.searchsorted(bounds, bounds[start] + batch_tokens, side="right")) - 1
        stop = max(start + 1, fitting)
        yield range(start, stop)
        start = stop


def _count_documents(
    documents: TokenDocuments, rows: range, config: InstancesConfig, count: Count
) -> None:
    tokens = np.diff(documents.document_bounds[rows.start : rows.stop + 1])
    fewest = 2 if config.pairing == "nsp" else 1
    count("documents-in", len(rows))
    count("documents-kept", int(np.count_nonzero(tokens >= fewest)))
    count("documents-dropped-no-token", int(np.count_nonzero(tokens == 0)))
    if config.pairing == "nsp":
        count("documents-dropped-one-token", int(np.count_nonzero(tokens == 1)))


def _instance_batch(
    segments: Segments,
    pool: NextSentencePool,
    config: InstancesConfig,
    *,
    vocabulary: VocabularyIds,
    pass_number: int,
) -> InstanceBatch:
    paired = config.pairing == "nsp"
    a_lengths = segments.a_stop - segments.a_start
    b_lengths = segments.b_stop - segments.b_start
    lengths = a_lengths + b_lengths + (3 if paired else 2)
    offsets = offsets_of(lengths, dtype=np.int32)
    b_start = a_lengths + 2
    unmasked = _join_segments(segments, pool, offsets=offsets, vocabulary=vocabulary, paired=paired)
    masked = mask_batch(
        segments.masking_key,
        unmasked,
        offsets=offsets,
        segment_b_start=b_start,
        vocabulary=vocabulary,
        config=config.masking,
    )
    return InstanceBatch(
        input_ids=masked.input_ids,
        input_offsets=offsets,
        segment_b_start=b_start.astype(np.uint16),
        masked_lm_positions=masked.positions,
        masked_lm_ids=masked.original_ids,
        masked_lm_offsets=masked.offsets,
        next_sentence_label=segments.label,
        document_row=segments.document_row.astype(np.uint32),
        segment_b_shard=segments.b_shard.astype(np.uint32),
        segment_b_row=segments.b_row.astype(np.uint32),
        dupe_index=np.full(len(lengths), pass_number, np.uint16),
    )


def _join_segments(
    segments: Segments,
    pool: NextSentencePool,
    *,
    offsets: npt.NDArray[np.int32],
    vocabulary: VocabularyIds,
    paired: bool,
) -> TokenIds:
    """Return the unmasked rows `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, end to end.

    One `take` from A's shard gathers A with one more token on each side and B with one more token
    after it. [CLS] and [SEP] overwrite these tokens. Bs of other shards are copied in.
    """
    own = pool.shards[_OWN_SHARD].token_ids
    a_lengths = segments.a_stop - segments.a_start
    starts, lengths = segments.a_start - 1, a_lengths + 2
    if paired:
        starts = np.stack((starts, segments.b_start), axis=1).ravel()
        b_lengths = segments.b_stop - segments.b_start
        lengths = np.stack((lengths, b_lengths + 1), axis=1).ravel()
    # Writing and reading the indices dominates, so they are as narrow as possible.
    narrowest = np.int32 if len(own) < 1 << 31 else np.int64
    joined = own.take(ranges(starts, lengths, dtype=narrowest), mode="clip")
    joined[offsets[:-1]] = vocabulary.cls_id
    joined[offsets[:-1] + a_lengths + 1] = vocabulary.sep_id
    if paired:
        other = np.flatnonzero(segments.b_shard != _OWN_SHARD)
        bounds = (segments.b_start, segments.b_stop, offsets[1:] - 1 - b_lengths, offsets[1:] - 1)
        columns = [column[other].tolist() for column in (segments.b_shard, *bounds)]
        tokens = {number: shard.token_ids for number, shard in pool.shards.items()}
        for number, start, stop, to, end in zip(*columns, strict=True):
            joined[to:end] = tokens[number][start:stop]
        joined[offsets[1:] - 1] = vocabulary.sep_id
    return joined
