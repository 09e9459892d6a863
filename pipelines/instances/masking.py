"""Choosing the tokens of the masked LM, and what is put in their place (paper 3.1, A.1, C.2).

`mask_batch` is a pure function of one key an instance, so it serves both the stage that writes
masked instances and a loader that masks anew in each epoch. All work is done for a whole batch at
once; no instance's draws depend on the others in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Bools, Int64s, UInt64s
from pipelines.seeds import integers, uniform
from schemas.corpus_configs import MaskingConfig

# Counters of the draws under an instance's masking key; the n-th of each kind is counter + n.
_CHOICE, _SPAN_LENGTH, _REPLACEMENT, _RANDOM_TOKEN = 0, 1 << 32, 2 << 32, 3 << 32


class VocabularyIds(NamedTuple):
    """What making instances needs to know of a vocabulary.

    Attributes:
        vocab_size: ids are 0 .. vocab_size - 1.
        cls_id, sep_id, mask_id: ids of [CLS], [SEP] and [MASK].
        is_continuation: bool of shape (vocab_size,), true for pieces that go on with a word (##).
    """

    vocab_size: int
    cls_id: int
    sep_id: int
    mask_id: int
    is_continuation: Bools


class MaskedTokens(NamedTuple):
    """A masked batch of instances.

    Attributes:
        input_ids: ids of all instances end to end, after masking.
        positions: uint16, positions of the chosen tokens in their instances, ascending, end to end.
        original_ids: what stood at each of them; same type as input_ids, same shape as positions.
        offsets: instance i has positions[offsets[i] : offsets[i+1]]; int32, (instances + 1,).
    """

    input_ids: npt.NDArray[Any]
    positions: npt.NDArray[np.uint16]
    original_ids: npt.NDArray[Any]
    offsets: npt.NDArray[np.int32]


class Rows(NamedTuple):
    """Instances `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]` end to end, as strategies see them.

    Attributes:
        keys: one an instance.
        input_ids: shape (tokens,).
        starts, lengths: where an instance begins in input_ids; its length.
        a_lengths: tokens of segment A.
        candidates: tokens that may be chosen, all but [CLS] and [SEP].
        budgets: how many are to be chosen, at most `candidates`.
    """

    keys: UInt64s
    input_ids: npt.NDArray[Any]
    starts: Int64s
    lengths: Int64s
    a_lengths: Int64s
    candidates: Int64s
    budgets: Int64s

    def token_of(self, candidates: Int64s, rows: slice | Int64s) -> Int64s:
        """Index in input_ids of the candidate with this number, counted in its instance from 0."""
        token: Int64s = self.starts[rows] + 1 + candidates + (candidates >= self.a_lengths[rows])
        return token


def prediction_counts(lengths: Int64s, config: MaskingConfig) -> Int64s:
    """How many tokens are chosen in instances of these lengths, [CLS] and [SEP] counted.

    Half is rounded to even (reference: create_pretraining_data.py, lines 369-370).
    """
    share = np.rint(lengths * config.masked_lm_prob).astype(np.int64)
    counts: Int64s = np.minimum(config.max_predictions_per_seq, np.maximum(1, share))
    return counts


def mask_batch(
    keys: UInt64s,
    input_ids: npt.NDArray[Any],
    *,
    offsets: npt.NDArray[Any],
    segment_b_start: npt.NDArray[Any],
    vocabulary: VocabularyIds,
    config: MaskingConfig,
) -> MaskedTokens:
    """Choose and replace tokens of a batch of instances.

    Args:
        keys: uint64, one an instance: from `seeds.key_for`, or `seeds.random_bits` of such a key.
            Equal keys and equal instances give equal masks.
        input_ids: unmasked ids of all instances end to end, with [CLS] and [SEP]; left as they are.
        offsets: instance i is input_ids[offsets[i] : offsets[i+1]]; shape (instances + 1,).
        segment_b_start: position of B's first token; the instance's length where there is no B.
        vocabulary: the ids' vocabulary.
        config: strategy, share and replacement rates.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    b_start = segment_b_start.astype(np.int64)
    candidates = lengths - 2 - (b_start < lengths)
    budgets = np.minimum(prediction_counts(lengths, config), candidates)
    rows = Rows(keys, input_ids, starts, lengths, b_start - 2, candidates, budgets)
    chosen = np.flatnonzero(MASKING_STRATEGIES[config.strategy](rows, vocabulary, config))
    ends = np.searchsorted(chosen, offsets)
    row = np.repeat(np.arange(len(keys)), np.diff(ends))
    position = chosen - starts[row]
    original = input_ids[chosen]
    masked = input_ids.copy()
    masked[chosen] = _replacements(keys[row], position, original, vocabulary, config)
    return MaskedTokens(masked, position.astype(np.uint16), original, ends.astype(np.int32))


def _replacements(
    keys: UInt64s,
    positions: Int64s,
    original: npt.NDArray[Any],
    vocabulary: VocabularyIds,
    config: MaskingConfig,
) -> npt.NDArray[Any]:
    """[MASK], the token itself, or one from the whole vocabulary: decided for each token alone."""
    draw = uniform(keys, positions + _REPLACEMENT)
    replaced = original.copy()
    replaced[draw < config.mask_token_prob] = vocabulary.mask_id
    # From the upper end, so that a rate of 0 means never, however the rates' sum was rounded.
    at = np.flatnonzero((draw >= config.mask_token_prob) & (draw >= 1.0 - config.random_token_prob))
    counters = positions[at] + _RANDOM_TOKEN
    replaced[at] = integers(keys[at], counters, below=vocabulary.vocab_size)
    return replaced


def choose_nothing(rows: Rows, _vocabulary: VocabularyIds, _config: MaskingConfig) -> Bools:
    """For a loader that draws the masks itself."""
    return np.zeros(len(rows.input_ids), np.bool_)


def choose_wordpieces(rows: Rows, _vocabulary: VocabularyIds, _config: MaskingConfig) -> Bools:
    """Tokens uniformly, "no special consideration given to partial word pieces" (paper A.1).

    Floyd's sampling (Bentley, Floyd, CACM 30(9), 1987), a round for all instances at once: of n
    candidates, k are chosen with k draws and no sorting, each subset equally likely.
    """
    chosen = np.zeros(len(rows.input_ids), np.bool_)
    order = np.argsort(-rows.budgets, kind="stable")
    rows = Rows(rows.keys[order], rows.input_ids, *(column[order] for column in rows[2:]))
    rounds = np.arange(rows.budgets[0] if len(order) else 0)
    takes_part = np.searchsorted(-rows.budgets, -rounds)  # instances with a larger budget
    lowest = rows.candidates - rows.budgets
    for number, active in zip(rounds.tolist(), takes_part.tolist(), strict=True):
        last = lowest[:active] + number
        drawn = integers(rows.keys[:active], _CHOICE + number, below=last + 1)
        token = rows.token_of(drawn, slice(active))
        again = np.flatnonzero(chosen[token])
        token[again] = rows.token_of(last[again], again)
        chosen[token] = True
    return chosen


def choose_whole_words(rows: Rows, vocabulary: VocabularyIds, _config: MaskingConfig) -> Bools:
    """Whole words in random order; one that would exceed what is left of the budget is skipped."""
    return _choose_words(rows, vocabulary, longer_than=np.empty(0))


def choose_spans(rows: Rows, vocabulary: VocabularyIds, config: MaskingConfig) -> Bools:
    """Spans of whole words (SpanBERT, Joshi et al. 2020, 3.1) within one segment.

    First words come in random order; lengths in words are geometric(span_geometric_p), cut to
    max_span_words. A span ends early at the end of its segment, at a word already chosen and at
    one that would exceed what is left of the budget.
    """
    # P(longer than n words); by products alone, whose rounding is the same on every machine.
    powers = np.cumprod(np.full(config.max_span_words - 1, 1.0 - config.span_geometric_p))
    return _choose_words(rows, vocabulary, longer_than=powers)


class _Words(NamedTuple):
    """The words of all instances, end to end."""

    sizes: Int64s  # in tokens
    segments: Int64s  # two an instance: A and B
    first: Int64s  # of each instance
    counts: Int64s  # of each instance


def _words(rows: Rows, is_candidate: Bools, vocabulary: VocabularyIds) -> _Words:
    """A piece marked ## belongs to the word before it, but never across [SEP]."""
    is_start = ~vocabulary.is_continuation[rows.input_ids]
    is_start[rows.starts + 1] = True
    b_start = rows.starts + rows.a_lengths + 2
    has_b = b_start < rows.starts + rows.lengths
    is_start[b_start[has_b]] = True
    is_start |= ~is_candidate
    bounds = np.flatnonzero(is_start)  # [CLS] and [SEP] end words, but are none
    is_word = is_candidate[bounds]
    words = bounds[is_word]
    sizes = np.diff(bounds, append=len(rows.input_ids))[is_word]
    first = np.searchsorted(words, rows.starts)
    count = np.diff(first, append=len(words))
    segments = 2 * np.repeat(np.arange(len(first)), count)
    segments += words >= np.repeat(b_start, count)
    return _Words(sizes, segments, first, count)


def _candidates(rows: Rows) -> Bools:
    is_candidate = np.ones(len(rows.input_ids), np.bool_)
    is_candidate[rows.starts] = False
    is_candidate[rows.starts + rows.a_lengths + 1] = False
    is_candidate[rows.starts + rows.lengths - 1] = False
    return is_candidate


def _choose_words(
    rows: Rows, vocabulary: VocabularyIds, *, longer_than: npt.NDArray[np.float64]
) -> Bools:
    """Go through each instance's words in random order and choose a span from each that is free.

    The order is a Fisher-Yates shuffle, one step for all instances at once and only as many as it
    takes to use up the budget.
    """
    is_candidate = _candidates(rows)
    words = _words(rows, is_candidate, vocabulary)
    chosen = np.zeros(len(words.sizes), np.bool_)
    order = np.arange(len(words.sizes))
    left = rows.budgets.copy()
    active = np.flatnonzero(words.counts)
    step = 0
    while len(active):
        here = words.first[active] + step
        unseen = words.counts[active] - step
        there = here + integers(rows.keys[active], _CHOICE + step, below=unseen)
        word = order[there]
        order[there] = order[here]
        more = np.zeros(len(active), np.int64)
        if len(longer_than):
            draw = uniform(rows.keys[active], _SPAN_LENGTH + step)
            more += len(longer_than) - np.searchsorted(longer_than[::-1], draw, side="right")
        _choose_spans_at(word, active, more, words=words, chosen=chosen, left=left)
        step += 1
        active = active[(left[active] > 0) & (words.counts[active] > step)]
    is_chosen = np.zeros(len(rows.input_ids), np.bool_)
    is_chosen[is_candidate] = np.repeat(chosen, words.sizes)
    return is_chosen


def _choose_spans_at(
    word: Int64s, row: Int64s, more: Int64s, *, words: _Words, chosen: Bools, left: Int64s
) -> None:
    """Choose, for each row, a word and up to `more` after it, as far as `left` reaches."""
    segment = words.segments[word]
    while True:
        fits = ~chosen[word] & (words.sizes[word] <= left[row]) & (words.segments[word] == segment)
        word, row, more, segment = word[fits], row[fits], more[fits], segment[fits]
        chosen[word] = True
        left[row] -= words.sizes[word]
        goes_on = (more > 0) & (word + 1 < len(words.sizes))
        word, row, segment = word[goes_on] + 1, row[goes_on], segment[goes_on]
        more = more[goes_on] - 1
        if not len(word):
            return


Strategy = Callable[[Rows, VocabularyIds, MaskingConfig], Bools]

MASKING_STRATEGIES: dict[str, Strategy] = {
    "wordpiece": choose_wordpieces,
    "whole-word": choose_whole_words,
    "span": choose_spans,
    "none": choose_nothing,
}
"""By `MaskingConfig.strategy`. Each gives a bool for every token: true where it is chosen."""
