"""Measure how well simple features of a pair predict its next-sentence label.

Each feature guesses with a rule that is learned from every second pair and measured on the others,
and the other way round: a threshold for lengths, the most frequent label for each token. A
feature that does not depend on the label has an accuracy of 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.plain_instances import Document, plain_instances
from pipelines.arrays import offsets_of
from pipelines.counters import Counters
from pipelines.instances.masking import VocabularyIds
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.pairing import create_instances
from pipelines.instances.token_documents import TokenDocuments
from schemas.corpus_configs import InstancesConfig

Ints = npt.NDArray[np.int64]

_END, _OPENING, _STARTS, _WORDS, _SUFFIXES = 104, 110, 150, 400, 1700
VOCABULARY = VocabularyIds(2000, 101, 102, 103, np.arange(2000) >= _SUFFIXES)
"""Ids: 104 is a full stop, from 110 words that begin documents, from 150 words that begin other
sentences, from 400 other words, from 1700 continuations."""


class Pairs(NamedTuple):
    """Segments A and B of pairs, and their labels; arrays of shape (pairs,)."""

    a_length: Ints
    b_length: Ints
    a_first: Ints
    a_last: Ints
    b_first: Ints
    b_last: Ints
    label: Ints


FEATURES: dict[str, Callable[[Pairs], Ints]] = {
    "length of A": lambda pairs: pairs.a_length,
    "length of B": lambda pairs: pairs.b_length,
    "length of both": lambda pairs: pairs.a_length + pairs.b_length,
    "length of A - B": lambda pairs: pairs.a_length - pairs.b_length,
    "A ends a sentence": lambda pairs: (pairs.a_last == _END).astype(np.int64),
    "B ends a sentence": lambda pairs: (pairs.b_last == _END).astype(np.int64),
    "A begins as": lambda pairs: _kinds(pairs.a_first),
    "B begins as": lambda pairs: _kinds(pairs.b_first),
    "first token of A": lambda pairs: pairs.a_first,
    "last token of A": lambda pairs: pairs.a_last,
    "first token of B": lambda pairs: pairs.b_first,
    "last token of B": lambda pairs: pairs.b_last,
}
_LENGTHS = frozenset(name for name in FEATURES if name.startswith("length"))


def _kinds(tokens: Ints) -> Ints:
    return np.searchsorted([_OPENING, _STARTS, _WORDS, _SUFFIXES], tokens, side="right")


def guess_accuracies(pairs: Pairs) -> dict[str, float]:
    """Return the accuracy of each feature's guess."""
    return {
        name: _accuracy(feature(pairs), pairs.label, is_length=name in _LENGTHS)
        for name, feature in FEATURES.items()
    }


def _accuracy(values: Ints, labels: Ints, *, is_length: bool) -> float:
    rule = _threshold_guesses if is_length else _majority_guesses
    scores = [
        rule(values[half::2], labels[half::2], values[1 - half :: 2])
        * (2 * labels[1 - half :: 2] - 1)
        for half in (0, 1)
    ]
    return 0.5 + 0.5 * float(np.concatenate(scores).mean())


def _majority_guesses(values: Ints, labels: Ints, others: Ints) -> Ints:
    """Guess the label that most pairs of the same value have: 1, -1, or 0 for a tie."""
    size = int(max(values.max(), others.max())) + 1
    votes = np.bincount(values, weights=2 * labels - 1, minlength=size)
    return np.sign(votes).astype(np.int64)[others]


def _threshold_guesses(values: Ints, labels: Ints, others: Ints) -> Ints:
    """Guess one label up to the best threshold, and the other label above it."""
    thresholds, position = np.unique(values, return_inverse=True)
    votes = np.cumsum(np.bincount(position, weights=2 * labels - 1))
    gains = 2 * votes - votes[-1]  # label 1 up to the threshold, label 0 above
    best = int(np.abs(gains).argmax())
    sign = 1 if gains[best] >= 0 else -1
    return np.where(others <= thresholds[best], sign, -sign)


def bertloom_pairs(documents: TokenDocuments, config: InstancesConfig, *, passes: int) -> Pairs:
    """Return the pairs of some passes over documents, made by bertloom without masks."""
    pool = NextSentencePool({0: documents})
    parts = []
    for number in range(passes):
        batches = create_instances(
            pool, config, vocabulary=VOCABULARY, pass_number=number, count=Counters().count
        )
        for batch in batches:
            ids, start = batch.input_ids.astype(np.int64), batch.input_offsets[:-1].astype(np.int64)
            stop, b_start = batch.input_offsets[1:].astype(np.int64), start + batch.segment_b_start
            ends = (ids[start + 1], ids[b_start - 2], ids[b_start], ids[stop - 2])
            lengths = (b_start - start - 2, stop - b_start - 1)
            parts.append(Pairs(*lengths, *ends, batch.next_sentence_label.astype(np.int64)))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def reference_pairs(documents: TokenDocuments, config: InstancesConfig, *, passes: int) -> Pairs:
    """Return the pairs of some passes over documents, made by the reference procedure."""
    rows = []
    for number in range(passes):
        seeded = config.model_copy(update={"seed": number})
        for one in plain_instances(as_lists(documents), seeded, VOCABULARY):
            ids = list(one.input_ids)
            for position, token in zip(one.positions, one.original_ids, strict=True):
                ids[position] = token
            a, b = ids[1 : one.segment_b_start - 1], ids[one.segment_b_start : -1]
            rows.append((len(a), len(b), a[0], a[-1], b[0], b[-1], int(one.is_random)))
    return Pairs(*np.array(rows, np.int64).T)


def as_lists(documents: TokenDocuments, *, tokens: int | None = None) -> list[Document]:
    """Return documents that are not empty as lists of sentences, which are lists of ids.

    Args:
        documents: Documents of a shard.
        tokens: Approximate number of tokens to return, but at least two documents. Default: all.
    """
    lists: list[Document] = []
    bounds, offsets = documents.token_bounds.tolist(), documents.sentence_offsets.tolist()
    ids = documents.token_ids.tolist()
    for row in range(len(documents)):
        sentences = range(offsets[row], offsets[row + 1])
        if sentences:
            lists.append([ids[bounds[s] : bounds[s + 1]] for s in sentences])
        if tokens is not None and len(lists) > 1 and bounds[offsets[row + 1]] >= tokens:
            break
    return lists


def corpora(*, tokens: int) -> Iterator[tuple[str, TokenDocuments]]:
    """Yield name and documents of generated corpora of about `tokens` tokens each."""
    rng = np.random.default_rng(0)

    def sizes(*choices: int) -> Ints:
        return rng.choice(choices, 1 + tokens // int(25 * np.mean(choices)))

    many = np.rint(rng.lognormal(3.0, 0.8, 1 + tokens // 700)).clip(4).astype(np.int64)
    for number in (1, 2, 3):
        name = f"{number} sentence{'s' if number > 1 else ''}"
        yield name, make_documents(sizes(number), rng)
    yield "many sentences", make_documents(many, rng)
    yield "half 1, half many", make_documents(_mixed(rng, np.ones_like(many), many), rng)
    yield "0 to 5 sentences", make_documents(sizes(0, 1, 2, 3, 4, 5), rng)
    yield "sentences of one length", make_documents(sizes(1, 2, 3), rng, spread=0.0)
    yield "half long sentences", make_documents(sizes(1, 2, 12), rng, long_share=0.5)
    yield "without full stops", make_documents(sizes(1, 2, 12), rng, long_share=0.2, end_share=0.0)
    yield (
        "half of one token",
        make_documents(_mixed(rng, np.ones_like(many), many), rng, one_token=True),
    )


def _mixed(rng: np.random.Generator, *parts: Ints) -> Ints:
    return rng.permutation(np.concatenate(parts))


def make_documents(
    sizes: Ints,
    rng: np.random.Generator,
    *,
    spread: float = 0.6,
    long_share: float = 0.0,
    end_share: float = 0.9,
    one_token: bool = False,
) -> TokenDocuments:
    """Generate documents whose sentences tell by their first and last tokens what they are.

    Args:
        sizes: Number of sentences of each document.
        rng: Source of all randomness.
        spread: Spread of the lognormal lengths of sentences, whose mean is about 25 tokens.
        long_share: Fraction of the documents with sentences of about 600 tokens.
        end_share: Fraction of the sentences that end with a full stop.
        one_token: Documents of one sentence have one token.
    """
    offsets = offsets_of(sizes)
    document = np.repeat(np.arange(len(sizes)), sizes)
    mean = np.where(rng.random(len(sizes)) < long_share, 600, 25)[document]
    lengths = np.rint(mean * rng.lognormal(-spread * spread / 2, spread, len(document))).clip(2)
    if one_token:
        lengths[sizes[document] == 1] = 1
    bounds = offsets_of(lengths.astype(np.int64))
    ids = rng.integers(_WORDS, 2000, int(bounds[-1]))
    ids[bounds[1:] - 1] = np.where(
        rng.random(len(document)) < end_share, _END, rng.integers(_WORDS, _SUFFIXES, len(document))
    )
    ids[bounds[:-1]] = rng.integers(_STARTS, _WORDS, len(document))
    opening = bounds[offsets[:-1][sizes > 0]]
    ids[opening] = rng.integers(_OPENING, _STARTS, len(opening))
    names: list[Any] = [f"doc/{number}" for number in range(len(sizes))]
    return TokenDocuments(ids.astype(np.uint16), lengths.astype(np.uint32), offsets, names)
