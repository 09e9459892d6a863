"""Choose the tokens of the masked LM and their replacements (paper 3.1, A.1, C.2).

`mask_batch` is a pure function of one key per instance, so the stage and a loader that masks again
in each epoch share it. Draws of an instance do not depend on the other instances of its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Bools, Int64s, UInt64s
from pipelines.io.stage_inputs import InputFile
from pipelines.seeds import integers, uniform
from pipelines.wordpiece.vocab_files import CLS, CONTINUATION, MASK, SEP, read_vocab
from schemas.corpus_configs import MaskingConfig

# Counters of the draws under an instance's masking key; the n-th draw of a type is counter + n.
_CHOICE, _SPAN_LENGTH, _REPLACEMENT, _RANDOM_TOKEN = 0, 1 << 32, 2 << 32, 3 << 32


class VocabularyIds(NamedTuple):
    """Special tokens and continuation tokens of a vocabulary.

    Attributes:
        vocab_size: Number of ids, which are 0 .. vocab_size - 1.
        cls_id, sep_id, mask_id: Ids of [CLS], [SEP] and [MASK].
        is_continuation: bool of shape (vocab_size,), true for tokens inside a word (##).
    """

    vocab_size: int
    cls_id: int
    sep_id: int
    mask_id: int
    is_continuation: Bools


class MaskedTokens(NamedTuple):
    """A masked batch of instances.

    Attributes:
        input_ids: Ids of all instances end to end, after masking.
        positions: uint16, positions of the chosen tokens in their instances, ascending, end to end.
        original_ids: Ids before masking; same type as input_ids, same shape as positions.
        offsets: instance i has positions[offsets[i] : offsets[i+1]]; int32, (instances + 1,).
    """

    input_ids: npt.NDArray[Any]
    positions: npt.NDArray[np.uint16]
    original_ids: npt.NDArray[Any]
    offsets: npt.NDArray[np.int32]


class Rows(NamedTuple):
    """Instances `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]` end to end, as strategies get them.

    Attributes:
        keys: Key of each instance.
        input_ids: Ids of shape (tokens,).
        starts, lengths: Index in input_ids of each instance's first token; length of the instance.
        a_lengths: Number of tokens of segment A.
        candidates: Number of tokens that may be chosen, all but [CLS] and [SEP].
        budgets: Number of tokens to choose, at most `candidates`.
    """

    keys: UInt64s
    input_ids: npt.NDArray[Any]
    starts: Int64s
    lengths: Int64s
    a_lengths: Int64s
    candidates: Int64s
    budgets: Int64s

    def token_of(self, candidates: Int64s, rows: slice | Int64s) -> Int64s:
        """Return the index in input_ids of a candidate, given its number in its instance."""
        token: Int64s = self.starts[rows] + 1 + candidates + (candidates >= self.a_lengths[rows])
        return token


def prediction_counts(lengths: Int64s, config: MaskingConfig) -> Int64s:
    """Return the number of tokens to choose, given lengths of instances with [CLS] and [SEP].

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
        keys: uint64 of shape (instances,), from `seeds.key_for` or `seeds.random_bits`. Equal keys
            and equal instances give equal masks.
        input_ids: Unmasked ids of all instances end to end, with [CLS] and [SEP]. Not changed.
        offsets: Instance i is input_ids[offsets[i] : offsets[i+1]]; shape (instances + 1,).
        segment_b_start: Position of B's first token; length of the instance without B.
        vocabulary: Vocabulary of the ids.
        config: Strategy, fraction and replacement rates.
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
    """Return [MASK], the token itself, or a random token, drawn for each chosen token."""
    draw = uniform(keys, positions + _REPLACEMENT)
    replaced = original.copy()
    replaced[draw < config.mask_token_prob] = vocabulary.mask_id
    # From the upper end, so that a rate of 0 means never, even if the sum of rates is rounded.
    at = np.flatnonzero((draw >= config.mask_token_prob) & (draw >= 1.0 - config.random_token_prob))
    counters = positions[at] + _RANDOM_TOKEN
    replaced[at] = integers(keys[at], counters, below=vocabulary.vocab_size)
    return replaced


def choose_nothing(rows: Rows, _vocabulary: VocabularyIds, _config: MaskingConfig) -> Bools:
    """Choose no token, for a loader that draws the masks."""
    return np.zeros(len(rows.input_ids), np.bool_)


def choose_wordpieces(rows: Rows, _vocabulary: VocabularyIds, _config: MaskingConfig) -> Bools:
    """Choose tokens uniformly, "no special consideration given to partial word pieces" (paper A.1).

    Floyd's sampling (Bentley, Floyd, CACM 30(9), 1987) chooses k of n candidates with k draws and
    no sorting, each subset equally likely. Each round draws for all instances.
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
    """Choose whole words in random order; skip words that exceed the remaining budget."""
    return _choose_words(rows, vocabulary, longer_than=np.empty(0))


def choose_spans(rows: Rows, vocabulary: VocabularyIds, config: MaskingConfig) -> Bools:
    """Choose spans of whole words (SpanBERT, Joshi et al. 2020, 3.1) within one segment.

    First words are in random order; lengths in words are geometric(span_geometric_p), at most
    max_span_words. A span ends early at the end of its segment, at a chosen word, and at a word
    that exceeds the remaining budget.
    """
    # P(longer than n words), from products only: their rounding is the same on every machine.
    powers = np.cumprod(np.full(config.max_span_words - 1, 1.0 - config.span_geometric_p))
    return _choose_words(rows, vocabulary, longer_than=powers)


class _Words(NamedTuple):
    """The words of all instances, end to end."""

    sizes: Int64s  # in tokens
    segments: Int64s  # 2 * instance for A, 2 * instance + 1 for B
    first: Int64s  # of each instance
    counts: Int64s  # of each instance


def _words(rows: Rows, is_candidate: Bools, vocabulary: VocabularyIds) -> _Words:
    """Return the words: a token marked ## belongs to the word before it, never across [SEP]."""
    is_start = ~vocabulary.is_continuation[rows.input_ids]
    is_start[rows.starts + 1] = True
    b_start = rows.starts + rows.a_lengths + 2
    has_b = b_start < rows.starts + rows.lengths
    is_start[b_start[has_b]] = True
    is_start |= ~is_candidate
    bounds = np.flatnonzero(is_start)  # [CLS] and [SEP] end words but are not words
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
    """Visit each instance's words in random order and choose a span at each free word.

    The order is a Fisher-Yates shuffle. Each step shuffles all instances, and the steps end when
    the budgets are used up.
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
    """Choose, for each row, a word and up to `more` words after it, within the budget `left`."""
    segment = words.segments[word]
    while True:
        fits = ~chosen[word] & (words.sizes[word] <= left[row]) & (words.segments[word] == segment)
        word, row, more, segment = word[fits], row[fits], more[fits], segment[fits]
        chosen[word] = True
        left[row] -= words.sizes[word]
        continues = (more > 0) & (word + 1 < len(words.sizes))
        word, row, segment = word[continues] + 1, row[continues], segment[continues]
        more = more[continues] - 1
        if not len(word):
            return


Strategy = Callable[[Rows, VocabularyIds, MaskingConfig], Bools]

MASKING_STRATEGIES: dict[str, Strategy] = {
    "wordpiece": choose_wordpieces,
    "whole-word": choose_whole_words,
    "span": choose_spans,
    "none": choose_nothing,
}
"""Functions by `MaskingConfig.strategy`. Each returns a bool per token: whether it is chosen."""


def read_vocabulary_ids(file: str | InputFile) -> VocabularyIds:
    """Return the special tokens and continuation tokens of a vocabulary.

    Args:
        file: See `pipelines.wordpiece.vocab_files.read_vocab`, which raises the same errors.
    """
    vocab = read_vocab(file)
    return VocabularyIds(
        vocab_size=len(vocab),
        cls_id=vocab.index(CLS),
        sep_id=vocab.index(SEP),
        mask_id=vocab.index(MASK),
        is_continuation=np.array([token.startswith(CONTINUATION) for token in vocab]),
    )
