"""Split documents into pairs of segments A and B, or into full-length texts without a B.

The procedure is that of the paper (3.1, A.2) as in google-research/bert
(create_pretraining_data.py, lines 225-338), with these differences:

* A random B never comes from A's own document. A pool with no other document gives the real next
  segment with label "next".
* A random B comes from a document that is long enough, and has about as many tokens as the real
  next segment, so that the length of a pair does not reveal its label.
* Every chunk of sentences can be split in two, so that a B is random with exactly the requested
  probability: a chunk of one sentence gets the next one as well; a last sentence that is alone is
  appended to the sentence before it for a real next segment; a document of one sentence is split at
  a random token.
* The number of tokens that truncation removes is computed instead of removing one token at a time.

Each draw has the key (document, pass, first sentence of the chunk). Chunks begin at increasing
sentences, so no draw is used twice, and the chunks at all sentences are computed at once; only the
walk from chunk to chunk is a loop.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Int64s, TokenIds, UInt64s, offsets_of, ranges
from pipelines.counters import Count
from pipelines.instances.masking import VocabularyIds, mask_batch
from pipelines.instances.token_documents import NextSentencePool, TokenDocuments
from pipelines.seeds import integers, keys_for, random_bits, uniform
from schemas.corpus_configs import InstancesConfig

IS_NEXT, IS_RANDOM, NO_SEGMENT_B = 0, 1, -1

# Counters of the draws under a document's key ...
_SHORT, _SHORT_LENGTH, _FIRST_INSTANCE = 0, 1, 2
# ... and under that of an instance, which is the draw _FIRST_INSTANCE + its first sentence.
# _RANDOM_DOCUMENT uses counters 2 and 3: the document and its sentence (`NextSentencePool.draw`).
# A text without a B begins at a token, so its draw is _FIRST_INSTANCE + that token.
_IS_RANDOM, _A_END, _RANDOM_DOCUMENT, _CUT, _MASKING = 0, 1, 2, 4, 5
_A_FRONT, _B_FRONT = 1 << 32, 2 << 32


class Segments(NamedTuple):
    """Token ranges of the segments of instances; arrays of shape (instances,).

    Attributes:
        document_row: Row of A's document in its token shard.
        masking_key: Key of the draws for the instance's mask.
        a_start, a_stop: Range of A's tokens in its `TokenDocuments`.
        b_shard, b_row: Shard number of B's document and its row in the token shard.
        b_start, b_stop: Range of B's tokens in its `TokenDocuments`; empty without B.
        label: IS_NEXT, IS_RANDOM or NO_SEGMENT_B.
    """

    document_row: Int64s
    masking_key: UInt64s
    a_start: Int64s
    a_stop: Int64s
    b_shard: Int64s
    b_row: Int64s
    b_start: Int64s
    b_stop: Int64s
    label: npt.NDArray[np.int8]

    def part(self, start: int, stop: int) -> Segments:
        columns: tuple[npt.NDArray[Any], ...] = self
        return Segments(*(column[start:stop] for column in columns))


class _Chunks(NamedTuple):
    """Candidate or chosen chunks of sentences, which are numbered in the group of documents."""

    key: UInt64s
    document: Int64s  # in the group
    first: Int64s  # sentence
    middle: Int64s  # first sentence after A
    stop: Int64s  # first sentence after the chunk
    is_random: npt.NDArray[np.bool_]


def document_keys(document_ids: Sequence[str], *, seed: int, pass_number: int) -> UInt64s:
    """Return the key of each document's draws in one pass over the corpus."""
    return keys_for(seed, "instances", document_ids, pass_number)


def target_lengths(keys: UInt64s, config: InstancesConfig) -> Int64s:
    """Return the target length of A and B together, per document (reference, lines 232-241)."""
    longest = config.max_seq_length - 3
    short = 2 + integers(keys, _SHORT_LENGTH, below=longest - 1)
    return np.where(uniform(keys, _SHORT) < config.short_seq_prob, short, longest)


def next_sentence_pairs(
    documents: TokenDocuments,
    pool: NextSentencePool,
    config: InstancesConfig,
    *,
    rows: range,
    keys: UInt64s,
    own_shard: int,
) -> Segments:
    """Return the instances of documents in one pass, truncated to `max_seq_length`.

    Args:
        documents: Documents of a shard.
        pool: Pool with this shard and others.
        config: Configuration with `pairing: nsp`.
        rows: Numbers of the documents in `documents`. Documents with fewer than two tokens give no
            instance.
        keys: Keys of the documents, see `document_keys`.
        own_shard: Number of the shard in the pool.
    """
    first = documents.sentence_offsets[rows.start]
    offsets = documents.sentence_offsets[rows.start : rows.stop + 1] - first
    bounds = documents.token_bounds[first : first + offsets[-1] + 1]
    targets = target_lengths(keys, config)
    share = config.random_next_prob if len(pool) > 1 else 0.0
    every = _chunk_at_each_sentence(bounds, offsets, keys, targets=targets, random_share=share)
    following = np.where(every.is_random, every.middle, every.stop).tolist()
    walked, sentence = [], 0
    while sentence < len(following):  # the end of a document is the beginning of the next
        walked.append(sentence)
        sentence = following[sentence]
    chosen = np.array(walked, np.int64)
    tokens = np.diff(bounds[offsets])
    chosen = chosen[tokens[every.document[chosen]] >= 2]
    chunks = _Chunks(*(column[chosen] for column in every))
    document_row = documents.rows[rows.start + chunks.document]
    segments = _split_chunks(chunks, bounds, offsets, document_row=document_row, shard=own_shard)
    wanted = targets[chunks.document]
    replaced = _next_lengths(chunks, bounds, offsets)
    _draw_random_segments(
        segments, chunks.key, pool, wanted=wanted, replaced=replaced, own_shard=own_shard
    )
    return _truncated(segments, chunks.key, max_tokens=config.max_seq_length - 3)


def _chunk_at_each_sentence(
    bounds: Int64s, offsets: Int64s, keys: UInt64s, *, targets: Int64s, random_share: float
) -> _Chunks:
    """Return the chunk that would begin at each sentence."""
    document = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    first = np.arange(len(bounds) - 1)
    last = offsets[document + 1]
    enough = np.searchsorted(bounds, bounds[:-1] + targets[document])
    stop = np.minimum(np.maximum(enough, first + 2), last)
    key = random_bits(keys[document], first - offsets[document] + _FIRST_INSTANCE)
    middle = first + 1 + integers(key, _A_END, below=np.maximum(stop - first - 1, 1))
    is_random = uniform(key, _IS_RANDOM) < random_share
    return _Chunks(key, document, first, middle, stop, is_random)


def _split_chunks(
    chunks: _Chunks, bounds: Int64s, offsets: Int64s, *, document_row: Int64s, shard: int
) -> Segments:
    """Return A and the B that follows it."""
    alone = (chunks.stop - chunks.first == 1) & ~chunks.is_random
    has_previous = chunks.first > offsets[chunks.document]
    behind = alone & has_previous
    a_start = bounds[chunks.first - behind]
    a_stop = bounds[chunks.middle - behind]
    cut = np.flatnonzero(alone & ~has_previous)
    lengths = bounds[chunks.stop[cut]] - a_start[cut]
    a_stop[cut] = a_start[cut] + 1 + integers(chunks.key[cut], _CUT, below=lengths - 1)
    return Segments(
        document_row=document_row,
        masking_key=random_bits(chunks.key, _MASKING),
        a_start=a_start,
        a_stop=a_stop,
        b_shard=np.full(len(a_start), shard, np.int64),
        b_row=document_row.copy(),
        b_start=a_stop.copy(),
        b_stop=bounds[chunks.stop],
        label=np.where(chunks.is_random, IS_RANDOM, IS_NEXT).astype(np.int8),
    )


def _next_lengths(chunks: _Chunks, bounds: Int64s, offsets: Int64s) -> Int64s:
    """Return the number of tokens that a random B replaces.

    Where the chunk is the last sentence of a document, a pair with label "next" has the sentence
    before it as well: a random B replaces that one.
    """
    previous = np.maximum(chunks.first - 1, offsets[chunks.document])
    return np.where(
        chunks.middle < chunks.stop,
        bounds[chunks.stop] - bounds[chunks.middle],
        bounds[chunks.first] - bounds[previous],
    )


def _draw_random_segments(
    segments: Segments,
    keys: UInt64s,
    pool: NextSentencePool,
    *,
    wanted: Int64s,
    replaced: Int64s,
    own_shard: int,
) -> None:
    """Replace the real B by a random one in instances with the label IS_RANDOM."""
    at = np.flatnonzero(segments.label == IS_RANDOM)
    if not len(at):
        return
    drawn = pool.draw(
        keys[at],
        counter=_RANDOM_DOCUMENT,
        excluded=pool.ordinals(own_shard, segments.document_row[at]),
        tokens=wanted[at] - (segments.a_stop[at] - segments.a_start[at]),
        replaced=replaced[at],
    )
    segments.b_shard[at], segments.b_row[at] = drawn.shard, drawn.row
    segments.b_start[at], segments.b_stop[at] = drawn.start, drawn.stop


def _truncated(segments: Segments, keys: UInt64s, *, max_tokens: int) -> Segments:
    a_lost, b_lost = tokens_to_drop(
        segments.a_stop - segments.a_start,
        segments.b_stop - segments.b_start,
        max_tokens=max_tokens,
    )
    a_front = binomial_half(keys, a_lost, counter=_A_FRONT)
    b_front = binomial_half(keys, b_lost, counter=_B_FRONT)
    return segments._replace(
        a_start=segments.a_start + a_front,
        a_stop=segments.a_stop - (a_lost - a_front),
        b_start=segments.b_start + b_front,
        b_stop=segments.b_stop - (b_lost - b_front),
    )


def pack_full_sentences(
    documents: TokenDocuments,
    config: InstancesConfig,
    *,
    rows: range,
    keys: UInt64s,
    own_shard: int,
) -> Segments:
    """Return the instances of documents without a B: as many whole sentences as fit in each.

    A document is split into consecutive chunks, so every token is in exactly one chunk. Only a
    sentence that is longer than an instance is split. `short_seq_prob` is not used. For the
    arguments see `next_sentence_pairs`.
    """
    room = config.max_seq_length - 2
    first = int(documents.sentence_offsets[rows.start])
    last = int(documents.sentence_offsets[rows.stop])
    bounds = documents.token_bounds[first : last + 1].tolist()
    starts: list[int] = []
    stops: list[int] = []
    chunks: list[int] = []
    document_bounds = documents.document_bounds[rows.start : rows.stop + 1].tolist()
    for position, end in itertools.pairwise(document_bounds):
        before = len(starts)
        while position < end:
            starts.append(position)
            whole = bounds[bisect.bisect_right(bounds, min(position + room, end)) - 1]
            position = whole if whole > position else position + room
            stops.append(position)
        chunks.append(len(starts) - before)
    document = np.repeat(np.arange(len(rows)), chunks)
    document_row = documents.rows[rows.start + document]
    a_start, a_stop = np.array(starts, np.int64), np.array(stops, np.int64)
    key = random_bits(
        keys[document],
        a_start - np.array(document_bounds, np.int64)[document] + _FIRST_INSTANCE,
    )
    return Segments(
        document_row=document_row,
        masking_key=random_bits(key, _MASKING),
        a_start=a_start,
        a_stop=a_stop,
        b_shard=np.full(len(document), own_shard, np.int64),
        b_row=document_row,
        b_start=a_stop,
        b_stop=a_stop,
        label=np.full(len(document), NO_SEGMENT_B, np.int8),
    )


def tokens_to_drop(
    a_lengths: Int64s, b_lengths: Int64s, *, max_tokens: int
) -> tuple[Int64s, Int64s]:
    """Return the number of tokens that A and B lose to have at most `max_tokens` together.

    The reference (create_pretraining_data.py, lines 418-433) removes one token at a time from the
    longer segment, and from B if they are equally long.
    """
    excess = np.maximum(a_lengths + b_lengths - max_tokens, 0)
    difference = a_lengths - b_lengths
    alone = np.minimum(excess, np.abs(difference))  # lost by the longer segment
    both = excess - alone
    a_lost = np.where(difference > 0, alone, 0) + both // 2
    return a_lost, excess - a_lost


def binomial_half(keys: npt.NDArray[np.uint64], trials: Int64s, *, counter: int) -> Int64s:
    """Return draws from binomial(trials, 1/2).

    The reference removes a token from the front or the back with probability 1/2 each; this is the
    number of tokens removed from the front.

    Args:
        keys: Key of each row.
        trials: Number of trials of each row. Row r uses `ceil(trials[r] / 64)` counters.
        counter: First counter.
    """
    words = (trials + 63) >> 6
    rows = np.repeat(np.arange(len(trials)), words)
    word = ranges(0, words)
    bits = random_bits(keys[rows], word + counter)
    unused = np.clip(64 * (word + 1) - trials[rows], 0, 63).astype(np.uint64)
    ones = np.bitwise_count(bits >> unused)
    return np.bincount(rows, weights=ones, minlength=len(trials)).astype(np.int64)


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
