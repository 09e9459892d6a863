"""Masks: exact with forced rates, equal to a slow form written from the specification."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.data.dataset import InstanceRows
from model.data.targets import apply_dynamic_masks
from pipelines.instances.masking import (
    MASKING_STRATEGIES,
    MaskedTokens,
    VocabularyIds,
    mask_batch,
    prediction_counts,
)
from pipelines.seeds import integers, uniform
from schemas.corpus_configs import MaskingConfig

CLS, SEP, MASK = 101, 102, 103
SIZE = 1000
IS_CONTINUATION = np.zeros(SIZE, np.bool_)
IS_CONTINUATION[600:] = True  # ids from 600 continue a word
VOCABULARY = VocabularyIds(SIZE, CLS, SEP, MASK, IS_CONTINUATION)
CHOOSING = sorted(set(MASKING_STRATEGIES) - {"none"})


class Instance(NamedTuple):
    key: int
    ids: list[int]
    b_start: int


def instance(key: int, a: list[int], b: list[int] | None = None) -> Instance:
    if b is None:
        return Instance(key, [CLS, *a, SEP], len(a) + 2)
    return Instance(key, [CLS, *a, SEP, *b, SEP], len(a) + 2)


def mask(instances: list[Instance], config: MaskingConfig, kind: Any = np.uint16) -> MaskedTokens:
    """Mask instances, whose ids stay as they are."""
    lengths = [len(one.ids) for one in instances]
    input_ids = np.array([index for one in instances for index in one.ids], kind)
    input_ids.flags.writeable = False
    return mask_batch(
        np.array([one.key for one in instances], np.uint64),
        input_ids,
        offsets=np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
        segment_b_start=np.array([one.b_start for one in instances], np.int64),
        vocabulary=VOCABULARY,
        config=config,
    )


def rows_of(instances: list[Instance], masked: MaskedTokens) -> list[tuple[list[int], ...]]:
    """(ids, positions, original ids) of each instance."""
    ends = list(itertools.accumulate([len(one.ids) for one in instances], initial=0))
    bounds = masked.offsets.tolist()
    return [
        (
            masked.input_ids[ends[i] : ends[i + 1]].tolist(),
            masked.positions[bounds[i] : bounds[i + 1]].tolist(),
            masked.original_ids[bounds[i] : bounds[i + 1]].tolist(),
        )
        for i in range(len(instances))
    ]


def _u(key: int, counter: int) -> float:
    return float(uniform(np.array([key], np.uint64), counter)[0])


def _below(key: int, counter: int, below: int) -> int:
    return int(integers(np.array([key], np.uint64), counter, below=below)[0])


def _slow_words(one: Instance) -> list[list[list[int]]]:
    """Positions of each word, by segment."""
    last = len(one.ids) - 1
    segments = [range(1, one.b_start - 1), range(one.b_start, last)]
    found = []
    for segment in segments:
        words: list[list[int]] = []
        for position in segment:
            if words and IS_CONTINUATION[one.ids[position]]:
                words[-1].append(position)
            else:
                words.append([position])
        found.append(words)
    return found


def _slow_choice(one: Instance, config: MaskingConfig) -> list[int]:
    words = _slow_words(one)
    candidates = [p for segment in words for word in segment for p in word]
    budget = min(
        config.max_predictions_per_seq, max(1, round(len(one.ids) * config.masked_lm_prob))
    )
    budget = min(budget, len(candidates))
    if config.strategy == "wordpiece":  # Floyd's sampling
        chosen: set[int] = set()
        for number in range(budget):
            last = len(candidates) - budget + number
            drawn = _below(one.key, number, last + 1)
            chosen.add(last if drawn in chosen else drawn)
        return sorted(candidates[index] for index in chosen)
    places = [(s, w) for s, segment in enumerate(words) for w in range(len(segment))]
    taken: set[tuple[int, int]] = set()
    left = budget
    for step in range(len(places)):
        if left == 0:
            break
        swap = step + _below(one.key, step, len(places) - step)
        places[step], places[swap] = places[swap], places[step]
        segment, word = places[step]
        length = 1
        if config.strategy == "span":
            draw, longer = _u(one.key, (1 << 32) + step), 1.0 - config.span_geometric_p
            while length < config.max_span_words and draw < longer:
                length += 1
                longer *= 1.0 - config.span_geometric_p
        for index in range(word, min(word + length, len(words[segment]))):
            if (segment, index) in taken or len(words[segment][index]) > left:
                break
            taken.add((segment, index))
            left -= len(words[segment][index])
    return sorted(p for segment, word in taken for p in words[segment][word])


def slow_mask(one: Instance, config: MaskingConfig) -> tuple[list[int], ...]:
    positions = [] if config.strategy == "none" else _slow_choice(one, config)
    ids = list(one.ids)
    for position in positions:
        draw = _u(one.key, (2 << 32) + position)
        if draw < config.mask_token_prob:
            ids[position] = MASK
        elif draw >= 1.0 - config.random_token_prob:
            ids[position] = _below(one.key, (3 << 32) + position, SIZE)
    return ids, positions, [one.ids[position] for position in positions]


TOKENS = st.lists(st.integers(104, SIZE - 1), min_size=1, max_size=60)
INSTANCES = st.builds(instance, st.integers(0, (1 << 64) - 1), TOKENS, st.none() | TOKENS)
MIXES = ((80, 10, 10), (100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100))
"""Shares of [MASK], of the token itself and of a random one: the rows of Table 8."""


def config_of(mix: tuple[int, ...], **options: Any) -> MaskingConfig:
    masked, unchanged, drawn = (share / 100 for share in mix)
    return MaskingConfig(
        mask_token_prob=masked, unchanged_prob=unchanged, random_token_prob=drawn, **options
    )


CONFIGS = st.builds(
    config_of,
    st.sampled_from([*MIXES, (0, 100, 0)]),
    strategy=st.sampled_from(sorted(MASKING_STRATEGIES)),
    masked_lm_prob=st.sampled_from([0.01, 0.15, 0.5, 1.0]),
    max_predictions_per_seq=st.integers(1, 100),
    span_geometric_p=st.sampled_from([0.2, 0.5, 1.0]),
    max_span_words=st.integers(1, 12),
)


@given(st.lists(INSTANCES, max_size=6), CONFIGS)
def test_equal_to_the_slow_form(instances: list[Instance], config: MaskingConfig) -> None:
    expected = [slow_mask(one, config) for one in instances]
    assert rows_of(instances, mask(instances, config)) == expected


def test_counts_round_half_to_even_and_stay_within_the_limits() -> None:
    config = MaskingConfig(masked_lm_prob=0.5, max_predictions_per_seq=6)
    lengths = np.array([1, 3, 5, 7, 9, 100])
    assert prediction_counts(lengths, config).tolist() == [1, 2, 2, 4, 4, 6]
    assert prediction_counts(np.array([128]), MaskingConfig()).tolist() == [19]


def test_ids_beyond_16_bits() -> None:
    one = Instance(9, [CLS, *range(70_000, 70_040), SEP], 42)
    wide = VOCABULARY._replace(vocab_size=100_000, is_continuation=np.zeros(100_000, np.bool_))
    masked = mask_batch(
        np.array([9], np.uint64),
        np.array(one.ids, np.uint32),
        offsets=np.array([0, 42]),
        segment_b_start=np.array([42]),
        vocabulary=wide,
        config=MaskingConfig(
            strategy="whole-word", mask_token_prob=0, unchanged_prob=0, random_token_prob=1
        ),
    )
    assert masked.original_ids.dtype == np.uint32
    assert masked.original_ids.tolist() == [one.ids[p] for p in masked.positions]
    assert masked.input_ids.max() < 100_000


@pytest.mark.parametrize("strategy", CHOOSING)
def test_every_position_is_equally_likely(strategy: Any) -> None:
    config = MaskingConfig(strategy=strategy, span_geometric_p=1.0)
    instances = [instance(key, list(range(200, 240)), list(range(300, 320))) for key in range(4000)]
    counts = np.bincount(mask(instances, config).positions, minlength=63)
    assert counts[[0, 41, 62]].tolist() == [0, 0, 0]
    others = np.delete(counts, [0, 41, 62])
    assert others.sum() == 4000 * 9
    assert others == pytest.approx(600, abs=125)  # five standard deviations


@pytest.mark.parametrize("way", ["stored", "dynamic"])
@pytest.mark.parametrize("mix", MIXES)
def test_the_mixes_of_table_8_are_those_that_are_drawn(mix: tuple[int, ...], way: str) -> None:
    masked_share, kept, random = (share / 100 for share in mix)
    config = config_of(mix, masked_lm_prob=0.5, max_predictions_per_seq=60)
    instances = [instance(key, list(range(200, 320))) for key in range(200)]
    made = mask(instances, config)
    ids, originals = made.input_ids, made.original_ids
    if way == "dynamic":  # in place of stored ones of another mix
        offsets = 122 * np.arange(201)
        before = mask(instances, MaskingConfig(max_predictions_per_seq=60))
        given = InstanceRows(
            rows=np.arange(200),
            input_ids=before.input_ids,
            offsets=offsets,
            segment_b_start=np.full(200, 122),
            masked_positions=before.positions,
            masked_ids=before.original_ids,
            masked_offsets=before.offsets.astype(np.int64),
            next_sentence_label=np.full(200, -1),
        )
        anew = apply_dynamic_masks(
            given, np.full(200, 3), seed=1, vocabulary=VOCABULARY, config=config
        )
        ids, originals = anew.input_ids, anew.masked_ids
        assert not np.array_equal(anew.masked_positions, made.positions)
        made = made._replace(positions=anew.masked_positions)
    assert len(originals) == 200 * 60
    found = ids.reshape(200, 122)[np.repeat(np.arange(200), 60), made.positions]
    # A random token may be [MASK] or the original token.
    by_chance = random / SIZE
    for count, share in (
        ((found == MASK).sum(), masked_share + by_chance),
        ((found == originals).sum(), kept + by_chance),
        (((found != MASK) & (found != originals)).sum(), random - 2 * by_chance),
    ):
        deviation = (len(found) * share * (1 - share)) ** 0.5
        assert count == pytest.approx(len(found) * share, abs=5 * deviation + 1e-9)
