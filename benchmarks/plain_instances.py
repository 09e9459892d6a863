"""The reference procedure in plain Python, one token at a time: the peer of bench_instances.

Written from the description of google-research/bert's create_pretraining_data.py, with Python's
`random` as there: one generator for all, lists of ids, a loop over tokens to truncate and to mask.
It keeps that script's special cases (a chunk of one sentence always has a random B; up to ten draws
of another document).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from pipelines.instances.masking import VocabularyIds
from schemas.corpus_configs import InstancesConfig

Document = list[list[int]]  # sentences of token ids


class PlainInstance(NamedTuple):
    input_ids: list[int]
    segment_b_start: int
    positions: list[int]
    original_ids: list[int]
    is_random: bool


def plain_instances(
    documents: list[Document], config: InstancesConfig, vocabulary: VocabularyIds
) -> Iterator[PlainInstance]:
    """One pass over the documents."""
    rng = random.Random(config.seed)
    for row in range(len(documents)):
        yield from _of_document(documents, row, config, vocabulary, rng)


def _of_document(
    documents: list[Document],
    row: int,
    config: InstancesConfig,
    vocabulary: VocabularyIds,
    rng: random.Random,
) -> Iterator[PlainInstance]:
    longest = target = config.max_seq_length - 3
    if rng.random() < config.short_seq_prob:
        target = rng.randint(2, longest)
    document = documents[row]
    chunk: Document = []
    size = index = 0
    while index < len(document):
        chunk.append(document[index])
        size += len(document[index])
        if index == len(document) - 1 or size >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            segment_a = [token for sentence in chunk[:a_end] for token in sentence]
            is_random = len(chunk) == 1 or rng.random() < config.random_next_prob
            if is_random:
                segment_b = _random_segment(documents, row, target - len(segment_a), rng)
                index -= len(chunk) - a_end
            else:
                segment_b = [token for sentence in chunk[a_end:] for token in sentence]
            _truncate(segment_a, segment_b, longest, rng)
            yield _masked(segment_a, segment_b, is_random, config, vocabulary, rng)
            chunk, size = [], 0
        index += 1


def _random_segment(
    documents: list[Document], row: int, wanted: int, rng: random.Random
) -> list[int]:
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != row:
            break
    segment: list[int] = []
    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
        segment.extend(sentence)
        if len(segment) >= wanted:
            break
    return segment


def _truncate(segment_a: list[int], segment_b: list[int], longest: int, rng: random.Random) -> None:
    while len(segment_a) + len(segment_b) > longest:
        longer = segment_a if len(segment_a) > len(segment_b) else segment_b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def _masked(
    segment_a: list[int],
    segment_b: list[int],
    is_random: bool,
    config: InstancesConfig,
    vocabulary: VocabularyIds,
    rng: random.Random,
) -> PlainInstance:
    tokens = [vocabulary.cls_id, *segment_a, vocabulary.sep_id, *segment_b, vocabulary.sep_id]
    masking = config.masking
    kept_out = (vocabulary.cls_id, vocabulary.sep_id)
    candidates = [position for position, token in enumerate(tokens) if token not in kept_out]
    rng.shuffle(candidates)
    budget = min(
        masking.max_predictions_per_seq, max(1, round(len(tokens) * masking.masked_lm_prob))
    )
    output = list(tokens)
    chosen: list[tuple[int, int]] = []
    for position in candidates:
        if len(chosen) >= budget:
            break
        if rng.random() < masking.mask_token_prob:
            output[position] = vocabulary.mask_id
        elif rng.random() >= masking.unchanged_prob / (1 - masking.mask_token_prob):
            output[position] = rng.randint(0, vocabulary.vocab_size - 1)
        chosen.append((position, tokens[position]))
    chosen.sort()
    return PlainInstance(
        output,
        len(segment_a) + 2,
        [position for position, _ in chosen],
        [token for _, token in chosen],
        is_random,
    )
