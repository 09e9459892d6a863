"""From tokenised documents to batches of masked instances, the columns of `instances_schema`."""

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
    pack_text,
    pair_segments,
)
from pipelines.instances.token_documents import NegativePool, TokenDocuments
from schemas.corpus_configs import InstancesConfig
from schemas.errors import ConfigError

BATCH_TOKENS = 1 << 19
"""Measured: from a quarter of this to four times as much, speed differs by less than a fifth."""


@dataclass(frozen=True, kw_only=True)
class InstanceBatch:
    """Instances as flat arrays; each field but the offsets is a column of `instances_schema`.

    Instance i has input_ids[input_offsets[i] : input_offsets[i+1]], and likewise its positions
    and ids of the masked LM by masked_lm_offsets. All other columns have the shape (instances,).
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
        """Sums over the batch, to be added up over batches.

        Mean fill is tokens / (instances * max_seq_length); the share of random Bs is random-next /
        (instances - without-segment-b).
        """
        labels = self.next_sentence_label
        return {
            "instances": len(labels),
            "tokens": len(self.input_ids),
            "masked-tokens": len(self.masked_lm_positions),
            "random-next": int(np.count_nonzero(labels == IS_RANDOM)),
            "without-segment-b": int(np.count_nonzero(labels == NO_SEGMENT_B)),
        }


def create_instances(
    documents: TokenDocuments,
    pool: NegativePool,
    config: InstancesConfig,
    *,
    vocabulary: VocabularyIds,
    pass_number: int,
    own_shard: int,
    count: Count,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[InstanceBatch]:
    """Make the instances of one pass over documents of one token shard, in their order.

    Every row is decided by (config, document, pass, pool) alone; where the batches are cut
    changes none.

    Args:
        documents: of the shard, with document ids.
        pool: the documents that random Bs come from, these among them.
        config: lengths, pairing, masking, seed.
        vocabulary: the vocabulary of the token ids.
        pass_number: counted from 0.
        own_shard: number of the shard in the pool.
        count: gets `documents-in`, `documents-kept`, `documents-dropped-no-token` and, where
            segments are paired, `documents-dropped-one-token` (one token cannot be cut in two).
            They add up in every pass.
        batch_tokens: about how many tokens are worked on at once. A longer document is planned as
            a whole (some bytes a token) and written in several batches.

    Raises:
        ConfigError: the pool does not hold this shard, or there are no document ids.
    """
    if pool.shards.get(own_shard) is not documents:
        raise ConfigError(
            f"the pool has the shards {sorted(pool.shards)}, but not the documents of shard "
            f"{own_shard} themselves: put the same TokenDocuments into the pool under that number"
        )
    if len(documents.document_ids) != len(documents):
        raise ConfigError(
            f"shard {own_shard} has {len(documents)} documents but no document ids, which decide "
            "what is drawn for them: read the column document_id as well"
        )
    instances_a_batch = max(1, 2 * batch_tokens // config.max_seq_length)
    for rows in document_groups(documents, batch_tokens):
        _count_documents(documents, rows, config, count)
        names = documents.document_ids[rows.start : rows.stop]
        keys = document_keys(names, seed=config.seed, pass_number=pass_number)
        if config.pairing == "nsp":
            segments = pair_segments(
                documents, pool, config, rows=rows, keys=keys, own_shard=own_shard
            )
        else:
            segments = pack_text(documents, config, rows=rows, keys=keys, own_shard=own_shard)
        for start in range(0, len(segments.label), instances_a_batch):
            part = segments.part(start, start + instances_a_batch)
            yield _instance_batch(
                part,
                pool,
                config,
                own_shard=own_shard,
                vocabulary=vocabulary,
                pass_number=pass_number,
            )


def document_groups(documents: TokenDocuments, batch_tokens: int) -> Iterator[range]:
    """Runs of rows with at most `batch_tokens` tokens, or of one document."""
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
    pool: NegativePool,
    config: InstancesConfig,
    *,
    own_shard: int,
    vocabulary: VocabularyIds,
    pass_number: int,
) -> InstanceBatch:
    paired = config.pairing == "nsp"
    a_lengths = segments.a_stop - segments.a_start
    b_lengths = segments.b_stop - segments.b_start
    lengths = a_lengths + b_lengths + (3 if paired else 2)
    offsets = offsets_of(lengths, dtype=np.int32)
    b_start = a_lengths + 2
    unmasked = _join_segments(
        segments,
        pool,
        offsets=offsets,
        own_shard=own_shard,
        vocabulary=vocabulary,
        paired=paired,
    )
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
    pool: NegativePool,
    *,
    offsets: npt.NDArray[np.int32],
    own_shard: int,
    vocabulary: VocabularyIds,
    paired: bool,
) -> TokenIds:
    """The rows without masks, `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, end to end.

    All is taken from A's shard in one go: the tokens of A with one more on each side, those of B
    with one more behind, where [CLS] and [SEP] are put then. Bs of other shards are copied in.
    """
    own = pool.shards[own_shard].token_ids
    a_lengths = segments.a_stop - segments.a_start
    starts, lengths = segments.a_start - 1, a_lengths + 2
    if paired:
        starts = np.stack((starts, segments.b_start), axis=1).ravel()
        b_lengths = segments.b_stop - segments.b_start
        lengths = np.stack((lengths, b_lengths + 1), axis=1).ravel()
    # Half as wide where that is enough: time here goes into writing and reading the indices.
    narrowest = np.int32 if len(own) < 1 << 31 else np.int64
    joined = own.take(ranges(starts, lengths, dtype=narrowest), mode="clip")
    joined[offsets[:-1]] = vocabulary.cls_id
    joined[offsets[:-1] + a_lengths + 1] = vocabulary.sep_id
    if paired:
        other = np.flatnonzero(segments.b_shard != own_shard)
        bounds = (segments.b_start, segments.b_stop, offsets[1:] - 1 - b_lengths, offsets[1:] - 1)
        columns = [column[other].tolist() for column in (segments.b_shard, *bounds)]
        tokens = {number: shard.token_ids for number, shard in pool.shards.items()}
        for number, start, stop, to, end in zip(*columns, strict=True):
            joined[to:end] = tokens[number][start:stop]
        joined[offsets[1:] - 1] = vocabulary.sep_id
    return joined
