"""Segments: equal to a slow form written from the specification, and its properties one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plain_instances import plain_instances
from pipelines.instances.masking import VocabularyIds
from pipelines.instances.pairing import (
    IS_NEXT,
    IS_RANDOM,
    NO_SEGMENT_B,
    Segments,
    document_keys,
    next_sentence_pairs,
    pack_full_sentences,
)
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.token_documents import TokenDocuments
from pipelines.lengths import PairCounts
from pipelines.seeds import integers, key_for, random_bits, uniform
from schemas.corpus_configs import InstancesConfig, MaskingConfig
from schemas.errors import ArtifactCorruptError

Lengths = list[list[int]]  # tokens of each sentence of each document
Shards = dict[int, Lengths]
VOCABULARY = VocabularyIds(200, 101, 102, 103, np.zeros(200, np.bool_))


def documents_of(lengths: Lengths, *, shard: int = 0) -> TokenDocuments:
    """Documents whose token ids are their positions in the shard: no token occurs twice."""
    flat = np.array([size for document in lengths for size in document], np.uint32)
    offsets = np.concatenate(([0], np.cumsum([len(document) for document in lengths], dtype=int)))
    ids = np.arange(int(flat.sum()), dtype=np.uint32) + np.uint32(shard * 1_000_000)
    return TokenDocuments(ids, flat, offsets, [f"{shard}/{row}" for row in range(len(lengths))])


def pool_of(shards: Shards) -> NextSentencePool:
    return NextSentencePool({number: documents_of(x, shard=number) for number, x in shards.items()})


def pairs(pool: NextSentencePool, config: InstancesConfig, *, own: int = 0) -> Segments:
    documents = pool.shards[own]
    rows = range(len(documents))
    keys = document_keys(documents.document_ids, seed=config.seed, pass_number=0)
    if config.pairing == "nsp":
        return next_sentence_pairs(documents, pool, config, rows=rows, keys=keys, own_shard=own)
    return pack_full_sentences(documents, config, rows=rows, keys=keys, own_shard=own)


def tuples(segments: Segments) -> list[tuple[int, ...]]:
    columns: tuple[npt.NDArray[Any], ...] = segments
    return list(zip(*(column.tolist() for column in columns), strict=True))


class _Key:
    """The draws under one key, one at a time."""

    def __init__(self, key: int) -> None:
        self._key = np.array([key], np.uint64)

    def bits(self, counter: int) -> int:
        return int(random_bits(self._key, counter)[0])

    def uniform(self, counter: int) -> float:
        return float(uniform(self._key, counter)[0])

    def below(self, counter: int, below: int) -> int:
        return int(integers(self._key, counter, below=below)[0])

    def coin(self, counter: int, number: int) -> int:
        return self.bits(counter + number // 64) >> (63 - number % 64) & 1


Span = list[int]  # token positions in a shard


def slow_pairs(shards: Shards, own: int, config: InstancesConfig) -> Iterator[tuple[int, ...]]:
    """The specification, one sentence and one token at a time."""
    spans: dict[int, list[list[Span]]] = {}
    for number, lengths in shards.items():
        position = itertools.count()
        spans[number] = [
            [list(itertools.islice(position, size)) for size in document] for document in lengths
        ]
    for row, document in enumerate(spans[own]):
        if sum(map(len, document)) < 2:
            continue
        key = _Key(key_for(config.seed, "instances", f"{own}/{row}", 0))
        longest = target = config.max_seq_length - 3
        if key.uniform(0) < config.short_seq_prob:
            target = 2 + key.below(1, longest - 1)
        others = [
            (number, other)
            for number in sorted(spans)
            for other in range(len(spans[number]))
            if spans[number][other] and (number, other) != (own, row)
        ]
        at = 0
        while at < len(document):
            draws = _Key(key.bits(2 + at))
            end = at + 1
            while end < len(document) and (
                sum(map(len, document[at:end])) < target or end - at < 2
            ):
                end += 1
            middle = at + 1 + (draws.below(1, end - at - 1) if end - at > 1 else 0)
            a = list(itertools.chain(*document[at:middle]))
            b = list(itertools.chain(*document[middle:end]))
            b_shard, b_row, label = own, row, IS_NEXT
            if others and draws.uniform(0) < config.random_next_prob:
                label = IS_RANDOM
                wanted = max(1, target - len(a))
                replaced = len(b) if b or at == 0 else len(document[at - 1])
                length = min(wanted, replaced)
                long_enough = [place for place in others if _size(spans, place) >= length]
                by_size = sorted(long_enough or others, key=lambda place: -_size(spans, place))
                b_shard, b_row = by_size[draws.below(2, len(by_size))]
                source = spans[b_shard][b_row]
                left = [sum(map(len, source[i:])) for i in range(len(source))]
                if replaced < wanted:  # the nearest, and the earlier of two
                    start = min(range(len(left)), key=lambda i: (abs(left[i] - replaced), i))
                else:
                    start = draws.below(3, max(1, sum(size >= wanted for size in left)))
                b = list(source[start])
                for sentence in source[start + 1 :]:
                    if len(b) >= target - len(a):
                        break
                    b += sentence
                following = middle
            else:
                following = end
                if end - at == 1 and at > 0:
                    a, b = document[at - 1], document[at]
                elif end - at == 1:
                    cut = 1 + draws.below(4, len(a) - 1)
                    a, b = a[:cut], a[cut:]
            a, b = list(a), list(b)
            lost = [0, 0]
            while len(a) + len(b) > longest:
                which = 0 if len(a) > len(b) else 1
                front = draws.coin((1 + which) << 32, lost[which])
                del (a, b)[which][0 if front else -1]
                lost[which] += 1
            yield row, draws.bits(5), a[0], a[-1] + 1, b_shard, b_row, b[0], b[-1] + 1, label
            at = following


def _size(spans: dict[int, list[list[Span]]], place: tuple[int, int]) -> int:
    return sum(map(len, spans[place[0]][place[1]]))


SENTENCES = st.integers(1, 12) | st.sampled_from([1, 40, 200])
DOCUMENTS = st.lists(st.lists(SENTENCES, max_size=8), min_size=1, max_size=5)
CONFIGS = st.builds(
    InstancesConfig,
    max_seq_length=st.sampled_from([8, 16, 32, 128]),
    short_seq_prob=st.sampled_from([0.0, 0.5, 1.0]),
    random_next_prob=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)


@settings(max_examples=150)
@given(st.dictionaries(st.integers(1, 5), DOCUMENTS, max_size=2), DOCUMENTS, CONFIGS)
def test_equal_to_the_slow_form(others: Shards, own: Lengths, config: InstancesConfig) -> None:
    shards = {**others, 3: own}
    assert tuples(pairs(pool_of(shards), config, own=3)) == list(slow_pairs(shards, 3, config))


def _stubs_and_articles(seed: int) -> Lengths:
    """Sentence lengths of documents as in a wiki: many are shorter than an instance."""
    rng = np.random.default_rng(seed)
    sizes = rng.lognormal(2.0, 1.2, 400).astype(int) + 1
    return [np.rint(rng.lognormal(3.0, 0.6, n)).clip(1).astype(int).tolist() for n in sizes]


@pytest.mark.parametrize("length", [128, 512])
def test_length_of_a_pair_says_less_of_its_label_than_in_the_reference(length: int) -> None:
    lengths = [_stubs_and_articles(seed) for seed in range(4)]
    config = InstancesConfig(max_seq_length=length, masking=MaskingConfig(strategy="none"))

    def accuracy(pairs: list[tuple[Any, Any]]) -> float | None:
        tokens, labels = (np.concatenate(column) for column in zip(*pairs, strict=True))
        return PairCounts.from_pairs(tokens, labels, max_seq_length=length).guess_accuracy()

    ours, reference = [], []
    for documents in lengths:
        found = pairs(pool_of({0: documents}), config)
        sizes = found.a_stop - found.a_start + found.b_stop - found.b_start
        ours.append((sizes + 3, found.label.astype(np.int64)))
        made = plain_instances([[[0] * n for n in d] for d in documents], config, VOCABULARY)
        plain = [(len(one.input_ids), int(one.is_random)) for one in made]
        reference.append(tuple(np.array(plain).T))
    assert accuracy(ours) < 0.53
    assert accuracy(reference) > 0.54


@given(DOCUMENTS, st.sampled_from([8, 16, 128]))
def test_packing_loses_nothing_and_cuts_between_sentences(own: Lengths, length: int) -> None:
    pool = pool_of({0: own})
    found = pairs(pool, InstancesConfig(pairing="none", max_seq_length=length))
    assert (found.label == NO_SEGMENT_B).all()
    sizes = found.a_stop - found.a_start
    assert (sizes >= 1).all()
    assert (sizes <= length - 2).all()
    pieces = [range(a, b) for a, b in zip(found.a_start, found.a_stop, strict=True)]
    assert [t for piece in pieces for t in piece] == list(range(sum(map(sum, own))))
    documents = pool.shards[0]
    bounds = documents.document_bounds
    assert (found.a_start >= bounds[found.document_row]).all()
    assert (found.a_stop <= bounds[found.document_row + 1]).all()
    sentence_ends = set(documents.token_bounds.tolist())
    for start, stop in zip(found.a_start.tolist(), found.a_stop.tolist(), strict=True):
        assert stop in sentence_ends or not sentence_ends & set(range(start + 1, stop))


def test_packing_fills_up_to_the_last_sentence_that_fits() -> None:
    found = pairs(
        pool_of({0: [[3, 3, 3, 20, 2, 1]]}), InstancesConfig(pairing="none", max_seq_length=10)
    )
    assert (found.a_stop - found.a_start).tolist() == [6, 3, 8, 8, 7]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([2, 0, 3], "sentence 1 of row 0 has no token"), ([2, 1, 3], "6 tokens together.* 5")],
)
def test_misfitting_sentence_lengths_are_refused(lengths: list[int], message: str) -> None:
    with pytest.raises(ArtifactCorruptError, match=message):
        TokenDocuments(np.zeros(5, np.uint16), np.array(lengths, np.uint32), np.array([0, 3]))
