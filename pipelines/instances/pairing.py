"""Split documents into pairs of segments A and B, or into full-length texts without a B.

The procedure is that of the paper (3.1, A.2) as in google-research/bert
(create_pretraining_data.py, lines 225-338), with differences that keep labels from being guessed:

* A and the number of tokens of B are drawn before the label. So they do not depend on it.
* A random B never comes from A's own document, has as many tokens as the real B, begins inside a
  sentence only if that does, and ends with its document only if that does (`RandomSegments`). A
  pool with no other document gives the real B with label "next".
* A document of one sentence is cut in two for both labels (`units`), and a chunk of the last
  sentence alone gets the sentences before it as its A.
* A chunk has exactly its target length, so nothing is truncated. B ends where the pair is full.

Each draw has the key (document, pass, first unit of the chunk). Chunks begin at increasing units,
so no draw is used twice, and the chunks at all units are computed at once; only the walk from chunk
to chunk is a loop.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Bools, Int64s, TokenIds, UInt64s, offsets_of, ranges
from pipelines.counters import Count
from pipelines.instances.masking import VocabularyIds, mask_batch
from pipelines.instances.next_sentence_pool import NextSentencePool, RealSegments
from pipelines.instances.token_documents import TokenDocuments
from pipelines.instances.units import Units
from pipelines.seeds import integers, keys_for, random_bits, uniform
from schemas.corpus_configs import InstancesConfig

IS_NEXT, IS_RANDOM, NO_SEGMENT_B = 0, 1, -1

# Counters of the draws under a document's key ...
_SHORT, _SHORT_LENGTH, _FIRST_INSTANCE = 0, 1, 2
# ... and under that of an instance, which is the draw _FIRST_INSTANCE + its first unit.
# A text without a B begins at a token, so its draw is _FIRST_INSTANCE + that token.
_IS_RANDOM, _A_END, _SHIFT, _MOVED, _MASKING, _AGAIN, _RANDOM_SEGMENT = range(7)

_MAX_ENDINGS = 3
"""Maximum number of pairs for the last unit of a document. It is a B in all of them and never an A,
so it is drawn again while its place is taken by a random B."""


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
    """Candidate or chosen chunks, at units that are numbered in the group of documents.

    A is followed by the real B, which ends before the token `stop`.
    """

    key: UInt64s
    document: Int64s  # in the group
    a_start: Int64s  # token
    b_start: Int64s  # unit
    stop: Int64s  # token
    following: Int64s  # first unit of the next chunk if the label is IS_NEXT
    is_ending: Bools  # begins at the last unit of the document, which is its B

    def take(self, rows: Int64s) -> _Chunks:
        columns: tuple[npt.NDArray[Any], ...] = self
        return _Chunks(*(column[rows] for column in columns))


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
    """Return the instances of documents in one pass, of at most `max_seq_length` tokens.

    Args:
        documents: Documents of a shard.
        pool: Pool with this shard and others.
        config: Configuration with `pairing: nsp`.
        rows: Numbers of the documents in `documents`. Documents with fewer than two tokens give no
            instance.
        keys: Keys of the documents, see `document_keys`.
        own_shard: Number of the shard in the pool.
    """
    max_tokens = config.max_seq_length - 3
    random_segments = pool.random_segments(max_tokens)
    units = random_segments.units[own_shard].part(rows)
    targets = target_lengths(keys, config)
    share = config.random_next_prob if random_segments.num_documents > 1 else 0.0
    chunks = _choose_chunks(units, keys, targets=targets, share=share, max_tokens=max_tokens)
    document_row = documents.rows[rows.start + chunks.document]
    moved = _moved_bounds(chunks, units)
    b_start = units.bounds[chunks.b_start] + moved
    segments = Segments(
        document_row=document_row,
        masking_key=random_bits(chunks.key, _MASKING),
        a_start=chunks.a_start,
        a_stop=b_start,
        b_shard=np.full(len(document_row), own_shard, np.int64),
        b_row=document_row.copy(),
        b_start=b_start.copy(),
        b_stop=chunks.stop.copy(),
        label=np.where(_are_random(chunks.key, share), IS_RANDOM, IS_NEXT).astype(np.int8),
    )
    at = np.flatnonzero(segments.label == IS_RANDOM)
    if len(at):
        drawn = random_segments.draw(
            chunks.key[at],
            counter=_RANDOM_SEGMENT,
            own_shard=own_shard,
            own_rows=document_row[at],
            real=_real_segments(chunks.take(at), units, moved[at]),
        )
        segments.b_shard[at], segments.b_row[at] = drawn.shard, drawn.row
        segments.b_start[at], segments.b_stop[at] = drawn.start, drawn.stop
    return segments


def _are_random(keys: UInt64s, share: float) -> Bools:
    return uniform(keys, _IS_RANDOM) < share


def _choose_chunks(
    units: Units, keys: UInt64s, *, targets: Int64s, share: float, max_tokens: int
) -> _Chunks:
    """Return the chunks of documents of at least two units. `share` of them have a random B."""
    every = _chunk_at_each_unit(units, keys, targets=targets, max_tokens=max_tokens)
    puts_back = _are_random(every.key, share) & ~every.is_ending
    chosen = _walk(np.where(puts_back, every.b_start, every.following))
    chosen = chosen[np.diff(units.offsets)[every.document[chosen]] > 1]
    chunks = every.take(chosen)
    # Tokens behind B that no pair would have, in place of as many at the beginning of A.
    most = (units.bounds[chosen + 1] - chunks.a_start + 1) // 2
    spare = np.minimum(units.bounds[chunks.following] - chunks.stop, most)
    shift = integers(chunks.key, _SHIFT, below=np.maximum(spare, 1))
    chunks = chunks._replace(a_start=chunks.a_start + shift, stop=chunks.stop + shift)
    return _repeat_endings(chunks, share=share)


def _chunk_at_each_unit(
    units: Units, keys: UInt64s, *, targets: Int64s, max_tokens: int
) -> _Chunks:
    """Return the chunk that would begin at each unit."""
    bounds, offsets = units.bounds, units.offsets
    counts = np.diff(offsets)
    document = np.repeat(np.arange(len(counts)), counts)
    unit = np.arange(len(document))
    last = offsets[document + 1] - 1
    start, end, sizes = bounds[:-1], bounds[last + 1], np.diff(bounds)
    # A target that the first unit reaches alone leaves as many tokens to B.
    tokens = np.minimum(np.maximum(targets[document], 2 * sizes), max_tokens)
    stop = np.minimum(start + tokens, end)
    # B has an eighth of the tokens, and two units where a random B puts the real one back.
    latest = np.searchsorted(bounds, start + tokens - tokens // 8, side="right") - 1
    latest = np.maximum(np.minimum(latest, last - 1), unit + 1)
    key = random_bits(keys[document], unit - offsets[document] + _FIRST_INSTANCE)
    b_start = unit + 1 + integers(key, _A_END, below=latest - unit)
    chunks = _Chunks(
        key=key,
        document=document,
        a_start=start.copy(),
        b_start=b_start,
        stop=stop,
        following=np.searchsorted(bounds, stop),
        is_ending=unit == last,
    )
    _extend_endings(chunks, units, tokens=tokens, max_tokens=max_tokens)
    return chunks


def _extend_endings(chunks: _Chunks, units: Units, *, tokens: Int64s, max_tokens: int) -> None:
    """Make the last unit of each document the B of the units before it."""
    at = np.flatnonzero(chunks.is_ending)
    first, end = units.offsets[chunks.document[at]], units.bounds[at + 1]
    earliest = np.searchsorted(units.bounds, end - tokens[at])
    earliest = np.maximum(np.minimum(earliest, at - 1), first)
    chunks.a_start[at] = np.maximum(units.bounds[earliest], end - max_tokens)
    chunks.b_start[at], chunks.stop[at], chunks.following[at] = at, end, at + 1


def _walk(following: Int64s) -> Int64s:
    """Return the units where chunks begin; the end of a document is the beginning of the next."""
    steps, unit, chosen = following.tolist(), 0, list[int]()
    while unit < len(steps):
        chosen.append(unit)
        unit = steps[unit]
    return np.array(chosen, np.int64)


def _repeat_endings(chunks: _Chunks, *, share: float) -> _Chunks:
    """Repeat the chunk of a document's last unit while its B is random."""
    rows, keys = [np.arange(len(chunks.key))], [chunks.key]
    for _ in range(_MAX_ENDINGS - 1):
        is_repeated = chunks.is_ending[rows[-1]] & _are_random(keys[-1], share)
        rows.append(rows[-1][is_repeated])
        keys.append(random_bits(keys[-1][is_repeated], _AGAIN))
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return chunks.take(row[order])._replace(key=np.concatenate(keys)[order])


def _moved_bounds(chunks: _Chunks, units: Units) -> Int64s:
    """Return how many tokens of B's first unit are part of A: some, if it begins in a sentence.

    So a sentence that is read in several passes is not always cut at the same token.
    """
    start = units.bounds[chunks.b_start]
    most = np.minimum(units.bounds[chunks.b_start + 1], chunks.stop) - start
    below = np.where(units.is_inside[chunks.b_start], most // 2 + 1, 1)
    return integers(chunks.key, _MOVED, below=below)


def _real_segments(chunks: _Chunks, units: Units, moved: Int64s) -> RealSegments:
    b_start = units.bounds[chunks.b_start]
    return RealSegments(
        a_length=b_start + moved - chunks.a_start,
        length=chunks.stop - b_start,
        moved=moved,
        is_inside=units.is_inside[chunks.b_start],
        is_end=chunks.stop == units.bounds[units.offsets[chunks.document + 1]],
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


BATCH_TOKENS = 1 << 19
"""Number of tokens that are paired and masked at once."""


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
    own_shard: int = 0,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[InstanceBatch]:
    """Create the instances of one pass over the documents of a shard of a pool, in their order.

    Each row depends only on (config, document, pass, pool), and not on the size of batches.

    Args:
        pool: Documents that random Bs come from. The own shard has document ids.
        config: Lengths, pairing, masking, seed.
        vocabulary: Vocabulary of the token ids.
        pass_number: 0-based pass over the corpus.
        count: Called with `documents-in`, `documents-kept`, `documents-dropped-no-token` and, for
            paired segments, `documents-dropped-one-token` (one token cannot be split in two).
        own_shard: Number of the shard in the pool.
        batch_tokens: Approximate number of tokens per batch. A longer document is planned as a
            whole (some bytes per token) and returned in several batches.
    """
    documents = pool.shards[own_shard]
    instances_per_batch = max(1, 2 * batch_tokens // config.max_seq_length)
    for rows in document_groups(documents, batch_tokens):
        names = documents.document_ids[rows.start : rows.stop]
        keys = document_keys(names, seed=config.seed, pass_number=pass_number)
        if config.pairing == "nsp":
            segments = next_sentence_pairs(
                documents, pool, config, rows=rows, keys=keys, own_shard=own_shard
            )
        else:
            segments = pack_full_sentences(
                documents, config, rows=rows, keys=keys, own_shard=own_shard
            )
        _count_input(documents, segments, rows, config, count)
        for start in range(0, len(segments.label), instances_per_batch):
            part = segments.part(start, start + instances_per_batch)
            yield _instance_batch(
                part,
                pool,
                config,
                vocabulary=vocabulary,
                pass_number=pass_number,
                own_shard=own_shard,
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


def _count_input(
    documents: TokenDocuments,
    segments: Segments,
    rows: range,
    config: InstancesConfig,
    count: Count,
) -> None:
    """Count documents, and their tokens that are in an A or a real B of this pass."""
    tokens = np.diff(documents.document_bounds[rows.start : rows.stop + 1])
    one_token = int(np.count_nonzero(tokens == 1)) if config.pairing == "nsp" else 0
    no_token = int(np.count_nonzero(tokens == 0))
    count("documents-in", len(rows))
    count("documents-kept", len(rows) - no_token - one_token)
    count("documents-dropped-no-token", no_token)
    kept = _tokens_in_segments(segments)
    count("source-tokens-in", int(tokens.sum()))
    count("source-tokens-kept", kept)
    if config.pairing == "nsp":
        count("documents-dropped-one-token", one_token)
        count("source-tokens-dropped-one-token", one_token)
        count("source-tokens-dropped-without-pair", int(tokens.sum()) - kept - one_token)


def _tokens_in_segments(segments: Segments) -> int:
    """Return the number of tokens in an A or a real B."""
    stop = np.where(segments.label == IS_RANDOM, segments.a_stop, segments.b_stop)
    order = np.argsort(segments.a_start, kind="stable")
    start, stop = segments.a_start[order], stop[order]
    counted = np.maximum.accumulate(np.append(0, stop))[:-1]
    return int(np.maximum(stop - np.maximum(start, counted), 0).sum())


def _instance_batch(
    segments: Segments,
    pool: NextSentencePool,
    config: InstancesConfig,
    *,
    vocabulary: VocabularyIds,
    pass_number: int,
    own_shard: int,
) -> InstanceBatch:
    paired = config.pairing == "nsp"
    a_lengths = segments.a_stop - segments.a_start
    b_lengths = segments.b_stop - segments.b_start
    lengths = a_lengths + b_lengths + (3 if paired else 2)
    offsets = offsets_of(lengths, dtype=np.int32)
    b_start = a_lengths + 2
    unmasked = _join_segments(
        segments, pool, offsets=offsets, vocabulary=vocabulary, paired=paired, own_shard=own_shard
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
    pool: NextSentencePool,
    *,
    offsets: npt.NDArray[np.int32],
    vocabulary: VocabularyIds,
    paired: bool,
    own_shard: int,
) -> TokenIds:
    """Return the unmasked rows `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, end to end.

    One `take` from A's shard gathers A with one more token on each side and B with one more token
    after it. [CLS] and [SEP] overwrite these tokens. Bs of other shards are copied in.
    """
    own = pool.shards[own_shard].token_ids
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
        other = np.flatnonzero(segments.b_shard != own_shard)
        bounds = (segments.b_start, segments.b_stop, offsets[1:] - 1 - b_lengths, offsets[1:] - 1)
        columns = [column[other].tolist() for column in (segments.b_shard, *bounds)]
        tokens = {number: shard.token_ids for number, shard in pool.shards.items()}
        for number, start, stop, to, end in zip(*columns, strict=True):
            joined[to:end] = tokens[number][start:stop]
        joined[offsets[1:] - 1] = vocabulary.sep_id
    return joined
