"""Masks: exact with forced rates, equal to a slow form written from the specification."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


class Instance(NamedTuple):
    key: int
    ids: list[int]
    b_start: int


def instance(key: int, a: list[int], b: list[int] | None = None) -> Instance:
    if b is None:
        return Instance(key, [CLS, *a, SEP], len(a) + 2)
    return Instance(key, [CLS, *a, SEP, *b, SEP], len(a) + 2)


def mask(instances: list[Instance], config: MaskingConfig, kind: Any) -> MaskedTokens:
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
    all_words = []
    for segment in segments:
        words: list[list[int]] = []
        for position in segment:
            if words and IS_CONTINUATION[one.ids[position]]:
                words[-1].append(position)
            else:
                words.append([position])
        all_words.append(words)
    return all_words


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


@given(st.lists(INSTANCES, max_size=6), CONFIGS, st.sampled_from([np.uint16, np.uint32]))
def test_equal_to_the_slow_form(
    instances: list[Instance], config: MaskingConfig, kind: Any
) -> None:
    expected = [slow_mask(one, config) for one in instances]
    masked = mask(instances, config, kind)
    assert rows_of(instances, masked) == expected
    assert masked.input_ids.dtype == masked.original_ids.dtype == kind


@pytest.mark.parametrize("strategy", sorted(MASKING_STRATEGIES))
def test_long_instances_are_masked_as_in_the_slow_form(strategy: str) -> None:
    rng = random.Random(0)

    def tokens() -> list[int]:
        return [rng.randrange(104, SIZE) for _ in range(rng.randint(20, 60))]

    instances = [instance(rng.getrandbits(64), tokens(), tokens()) for _ in range(40)]
    config = config_of(MIXES[0], strategy=strategy, masked_lm_prob=0.5, max_predictions_per_seq=30)
    expected = [slow_mask(one, config) for one in instances]
    assert rows_of(instances, mask(instances, config, np.uint16)) == expected


def test_counts_round_half_to_even_and_stay_within_the_limits() -> None:
    config = MaskingConfig(masked_lm_prob=0.5, max_predictions_per_seq=6)
    lengths = np.array([1, 3, 5, 7, 9, 100])
    assert prediction_counts(lengths, config).tolist() == [1, 2, 2, 4, 4, 6]
    assert prediction_counts(np.array([128]), MaskingConfig()).tolist() == [19]
