"""Segments: equal to a slow form written from the specification, and its properties one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.label_guesses import (
    bertloom_pairs,
    corpora,
    guess_accuracies,
    reference_pairs,
)
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.pairing import (
    IS_NEXT,
    IS_RANDOM,
    NO_SEGMENT_B,
    Segments,
    document_keys,
    next_sentence_pairs,
    pack_full_sentences,
)
from pipelines.instances.token_documents import TokenDocuments
from pipelines.seeds import integers, key_for, random_bits, uniform
from schemas.corpus_configs import InstancesConfig, MaskingConfig

Lengths = list[list[int]]  # tokens of each sentence of each document
Shards = dict[int, Lengths]


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


Unit = tuple[int, int, bool]  # its tokens in the shard, and whether it begins inside a sentence


def slow_units(lengths: Lengths, max_tokens: int) -> list[list[Unit]]:
    """Sentences, cut where they are long, or where a document has no other."""
    units: list[list[Unit]] = []
    token = 0
    for document in lengths:
        units.append([])
        for size in document:
            piece = size if size <= max_tokens - max_tokens // 4 else (max_tokens + 1) // 2
            if len(document) == 1:
                piece = min(piece, (size + 1) // 2)
            for first in range(0, size, piece):
                stop = token + min(first + piece, size)
                units[-1].append((token + first, stop, first > 0))
            token += size
    return units


class Start(NamedTuple):
    """A unit, but not the first of its document, that a B can begin at."""

    document: tuple[int, int]  # shard, row
    start: int
    end: int  # of the document
    spare: int  # tokens of the unit that can be part of A

    @property
    def remaining(self) -> int:
        return self.end - self.start


class SlowPool:
    """Starts of random Bs, by whether they are inside a sentence."""

    def __init__(self, shards: Shards, max_tokens: int) -> None:
        self.units = {number: slow_units(shards[number], max_tokens) for number in sorted(shards)}
        self.max_tokens = max_tokens
        self.starts: dict[bool, list[Start]] = {False: [], True: []}
        for number, documents in self.units.items():
            for row, units in enumerate(documents):
                for start, stop, is_inside in units[1:]:
                    pair_start = Start((number, row), start, units[-1][1], (stop - start) // 2)
                    self.starts[is_inside].append(pair_start)

    def documents(self, *kinds: bool) -> list[tuple[int, int]]:
        return sorted({start.document for kind in kinds for start in self.starts[kind]})

    def draw(
        self, key: _Key, own: tuple[int, int], kind: bool, length: int, is_end: bool
    ) -> tuple[Start, bool]:
        drawable = [kind for kind in self.starts if len(self.documents(kind)) > 1]
        if len(drawable) < 2:
            kind = drawable[0] if drawable else not kind
        by_length = sorted(self.starts[kind], key=lambda s: min(s.remaining, self.max_tokens))
        choices = self.endings(by_length, length) if is_end else []
        if not is_end:
            choices = [start for start in by_length if start.remaining >= length]
        choices = choices or by_length[-1:]
        for attempt in range(4):
            start = choices[key.below(_RANDOM_SEGMENT + attempt, len(choices))]
            if start.document != own:
                return start, kind
        others = [document for document in self.documents(kind) if document != own]
        document = others[key.below(_RANDOM_SEGMENT + 4, len(others))]
        places = [start for start in self.starts[kind] if start.document == document]
        enough = max(1, sum(start.remaining >= length for start in places))
        return places[enough - 1 if is_end else key.below(_RANDOM_SEGMENT + 5, enough)], kind

    def endings(self, by_length: list[Start], length: int) -> list[Start]:
        """Ends of documents of this length, with neighbors where there are fewer than four."""
        ends = [start for start in by_length if start.remaining < self.max_tokens]
        groups: list[list[Start]] = [[]]
        for position, start in enumerate(ends):
            is_new = position > 0 and start.remaining > ends[position - 1].remaining
            if is_new and len(groups[-1]) >= 4 and len(ends) - position >= 4:
                groups.append([])
            groups[-1].append(start)
        shorter = sum(start.remaining < length for start in ends)
        at = min(shorter, max(len(ends) - 1, 0))
        for group in groups:
            if at < len(group):
                return group
            at -= len(group)
        return groups[-1]


_SHIFT, _MOVED, _MASKING, _AGAIN, _RANDOM_SEGMENT = 2, 3, 4, 5, 6


def slow_pairs(shards: Shards, own: int, config: InstancesConfig) -> Iterator[tuple[int, ...]]:
    """The specification, one unit at a time."""
    longest = config.max_seq_length - 3
    pool = SlowPool(shards, longest)
    share = config.random_next_prob if len(pool.documents(False, True)) > 1 else 0.0
    for row, units in enumerate(pool.units[own]):
        if len(units) < 2:
            continue
        key = _Key(key_for(config.seed, "instances", f"{own}/{row}", 0))
        target = longest
        if key.uniform(0) < config.short_seq_prob:
            target = 2 + key.below(1, longest - 1)
        at, attempt = 0, 0
        bits = key.bits(2)
        while at < len(units):
            draws = _Key(bits)
            a, b, middle, following = _slow_chunk(units, at, target, longest, draws)
            is_random = draws.uniform(0) < share
            moved = 0
            if units[middle][2]:
                moved = draws.below(_MOVED, (min(units[middle][1], b[1]) - b[0]) // 2 + 1)
            a, real = (a[0], a[1] + moved), (b[0] + moved, b[1])
            document, b_tokens = (own, row), real
            if is_random:
                is_end = b[1] == units[-1][1]
                start, kind = pool.draw(draws, document, units[middle][2], b[1] - b[0], is_end)
                document = start.document
                size = real[1] - real[0]
                first = start.start
                if kind:
                    exact = start.end - size
                    first += moved % (start.spare + 1)
                    if is_end and start.start <= exact <= start.start + start.spare:
                        first = exact
                most = longest - (a[1] - a[0]) if is_end else size
                b_tokens = (first, min(start.end, first + most))
            label = IS_RANDOM if is_random else IS_NEXT
            yield row, draws.bits(_MASKING), *a, *document, *b_tokens, label
            if at == len(units) - 1:
                attempt += 1
                if not is_random or attempt == 3:
                    break
                bits = draws.bits(_AGAIN)
                continue
            at = middle if is_random else following
            bits = key.bits(2 + at)


def _slow_chunk(
    units: list[Unit], at: int, target: int, longest: int, draws: _Key
) -> tuple[tuple[int, int], tuple[int, int], int, int]:
    """Return A, the real B, the unit that B begins at, and the first unit of the next chunk."""
    first, last, end = units[at][0], len(units) - 1, units[-1][1]
    size = units[at][1] - first
    tokens = min(max(target, 2 * size), longest)
    if at == last:  # the last unit is a B, and what fits before it is its A
        before = next(n for n in range(at) if n == at - 1 or units[n][0] >= end - tokens)
        return (max(units[before][0], end - longest), first), (first, end), at, at + 1
    stop = min(first + tokens, end)
    latest = max(n for n in range(at, last + 1) if units[n][0] <= first + tokens - tokens // 8)
    latest = max(min(latest, last - 1), at + 1)
    middle = at + 1 + draws.below(1, latest - at)
    following = next((n for n in range(at, last + 1) if units[n][0] >= stop), last + 1)
    spare = min((units[following][0] if following <= last else end) - stop, (size + 1) // 2)
    shift = draws.below(_SHIFT, max(spare, 1))
    bound = units[middle][0]
    return (first + shift, bound), (bound, stop + shift), middle, following


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


CORPORA = dict(corpora(tokens=60_000))


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("name", CORPORA)
def test_no_simple_feature_of_a_pair_guesses_its_label(name: str, length: int) -> None:
    config = InstancesConfig(max_seq_length=length, masking=MaskingConfig(strategy="none"))
    pairs = bertloom_pairs(CORPORA[name], config, passes=10)
    accuracies = guess_accuracies(pairs)
    assert max(accuracies.values()) < 0.55, accuracies
    assert pairs.label.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("equal", "odd"), [(15, 1), (30, 5)])
def test_odd_documents_among_few_equal_ones_give_no_label_away(equal: int, odd: int) -> None:
    """Most documents have the same tokens, the others are shorter."""
    rng = np.random.default_rng(0)
    lengths = np.array([25] * equal + [8] * odd, np.uint32)
    parts = [rng.integers(400, 1_700, 25)] * equal
    parts += [rng.integers(400, 1_700, 8) for _ in range(odd)]
    offsets = np.arange(equal + odd + 1)
    names = [f"line/{row}" for row in offsets[:-1]]
    ids = np.concatenate(parts).astype(np.uint16)
    documents = TokenDocuments(ids, lengths, offsets, names)
    config = InstancesConfig(
        max_seq_length=32, short_seq_prob=0.5, masking=MaskingConfig(strategy="none")
    )
    accuracies = guess_accuracies(bertloom_pairs(documents, config, passes=500))
    assert max(accuracies.values()) < 0.55, accuracies


def test_guesses_find_the_labels_that_the_reference_gives_away() -> None:
    config = InstancesConfig(max_seq_length=128)
    accuracies = guess_accuracies(reference_pairs(CORPORA["2 sentences"], config, passes=1))
    assert min(accuracies["length of B"], accuracies["first token of B"]) > 0.55


@pytest.mark.parametrize("length", [16, 128])
@pytest.mark.parametrize("short", [0.0, 0.5])
def test_half_of_the_pairs_are_random_whatever_the_documents(length: int, short: float) -> None:
    rng = np.random.default_rng(length)
    documents = [rng.integers(1, 40, rng.integers(0, 6)).tolist() for _ in range(8_000)]
    config = InstancesConfig(max_seq_length=length, short_seq_prob=short)
    labels = pairs(pool_of({0: documents}), config).label
    assert labels.mean() == pytest.approx(0.5, abs=0.01)


@given(DOCUMENTS, st.sampled_from([8, 16, 128]))
def test_packing_loses_nothing_and_cuts_between_sentences(own: Lengths, length: int) -> None:
    pool = pool_of({0: own})
    packed = pairs(pool, InstancesConfig(pairing="none", max_seq_length=length))
    assert (packed.label == NO_SEGMENT_B).all()
    sizes = packed.a_stop - packed.a_start
    assert (sizes >= 1).all()
    assert (sizes <= length - 2).all()
    pieces = [range(a, b) for a, b in zip(packed.a_start, packed.a_stop, strict=True)]
    assert [t for piece in pieces for t in piece] == list(range(sum(map(sum, own))))
    documents = pool.shards[0]
    bounds = documents.document_bounds
    assert (packed.a_start >= bounds[packed.document_row]).all()
    assert (packed.a_stop <= bounds[packed.document_row + 1]).all()
    sentence_ends = set(documents.token_bounds.tolist())
    for start, stop in zip(packed.a_start.tolist(), packed.a_stop.tolist(), strict=True):
        assert stop in sentence_ends or not sentence_ends & set(range(start + 1, stop))


def test_packing_fills_up_to_the_last_sentence_that_fits() -> None:
    packed = pairs(
        pool_of({0: [[3, 3, 3, 20, 2, 1]]}), InstancesConfig(pairing="none", max_seq_length=10)
    )
    assert (packed.a_stop - packed.a_start).tolist() == [6, 3, 8, 8, 7]
