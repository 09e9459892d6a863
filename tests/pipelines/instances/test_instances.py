"""Rows of instances: independent of how they are batched, and with the statistics of the paper."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.counters import Counters, check_balance
from pipelines.instances.masking import VocabularyIds, read_vocabulary_ids
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.pairing import BATCH_TOKENS, InstanceBatch, create_instances
from pipelines.instances.token_documents import TokenDocuments
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.corpus_configs import InstancesConfig, MaskingConfig

CLS, SEP, MASK, SIZE = 101, 102, 103, 30_522
VOCABULARY = VocabularyIds(SIZE, CLS, SEP, MASK, np.arange(SIZE) % 6 == 0)


def random_documents(
    documents: int, *, sentences: int = 60, seed: int = 0, size: int = SIZE
) -> TokenDocuments:
    """Sentences of 25 tokens on average, documents of 60 sentences."""
    rng = np.random.default_rng(seed)
    per_document = np.rint(rng.lognormal(np.log(sentences) - 0.32, 0.8, documents)).clip(1)
    offsets = np.concatenate(([0], np.cumsum(per_document))).astype(np.int64)
    lengths = np.rint(rng.lognormal(np.log(25) - 0.18, 0.6, offsets[-1])).clip(1)
    ids = rng.integers(104, size, int(lengths.sum()))
    return TokenDocuments(
        ids.astype(np.uint16) if size <= 1 << 16 else ids.astype(np.uint32),
        lengths.astype(np.uint32),
        offsets,
        [f"doc/{seed}/{row}" for row in range(documents)],
    )


def make(
    shards: dict[int, TokenDocuments],
    config: InstancesConfig,
    *,
    vocabulary: VocabularyIds = VOCABULARY,
    pass_number: int = 0,
    **options: Any,
) -> tuple[InstanceBatch, Counters]:
    """All batches put together; shard 0 is A's."""
    counters = Counters()
    batches = list(
        create_instances(
            NextSentencePool(shards),
            config,
            vocabulary=vocabulary,
            pass_number=pass_number,
            count=counters.count,
            **options,
        )
    )
    most_tokens = 2 * options.get("batch_tokens", BATCH_TOKENS)
    assert all(len(batch) == 1 or len(batch.input_ids) <= most_tokens for batch in batches)
    return together(batches), counters


def together(batches: list[InstanceBatch]) -> InstanceBatch:
    columns: dict[str, Any] = {}
    for field in fields(InstanceBatch):
        parts = [getattr(batch, field.name) for batch in batches]
        if field.name.endswith("offsets"):
            sizes = np.concatenate([np.diff(part) for part in parts])
            columns[field.name] = np.concatenate(([0], np.cumsum(sizes)))
        else:
            columns[field.name] = np.concatenate(parts)
    return InstanceBatch(**columns)


def same(one: InstanceBatch, other: InstanceBatch) -> bool:
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in fields(InstanceBatch)
    )


def unmasked(batch: InstanceBatch) -> np.ndarray[Any, np.dtype[Any]]:
    """input_ids with what was masked put back."""
    ids = batch.input_ids.copy()
    row = np.repeat(np.arange(len(batch)), np.diff(batch.masked_lm_offsets))
    ids[batch.input_offsets[row] + batch.masked_lm_positions] = batch.masked_lm_ids
    return ids


@pytest.mark.parametrize("pairing", ["nsp", "none"])
@pytest.mark.parametrize("strategy", ["wordpiece", "whole-word", "span", "none"])
def test_batches_may_be_cut_anywhere(pairing: Any, strategy: Any) -> None:
    shards = {0: random_documents(40, sentences=12), 5: random_documents(20, seed=1)}
    config = InstancesConfig(pairing=pairing, masking=MaskingConfig(strategy=strategy))
    whole, counts = make(shards, config)
    for batch_tokens in (1, 300, 5_000):
        cut, cut_counts = make(shards, config, batch_tokens=batch_tokens)
        assert same(whole, cut)
        assert counts == cut_counts


def test_passes_and_seeds_draw_apart_and_masking_apart_from_pairing() -> None:
    shards = {0: random_documents(30)}
    config = InstancesConfig()
    first, _ = make(shards, config)
    second, _ = make(shards, config, pass_number=1)
    other, _ = make(shards, config.model_copy(update={"seed": 1}))
    assert same(first, make(shards, config)[0])
    assert not np.array_equal(first.input_ids, second.input_ids)
    assert not np.array_equal(first.input_ids, other.input_ids)
    assert set(second.dupe_index.tolist()) == {1}
    one, _ = make(shards, InstancesConfig(masking=MaskingConfig(strategy="none")))
    for strategy in ("wordpiece", "whole-word", "span"):
        other, _ = make(shards, InstancesConfig(masking=MaskingConfig(strategy=strategy)))
        assert np.array_equal(unmasked(other), one.input_ids)


def test_documents_add_up() -> None:
    lengths = np.array([1, 5, 3, 1, 2], np.uint32)
    offsets = np.array([0, 1, 1, 3, 4, 5])
    documents = TokenDocuments(np.arange(12, dtype=np.uint16), lengths, offsets, list("abcde"))
    batch, counts = make({0: documents}, InstancesConfig())
    check_balance(counts, "documents", where="test")
    assert counts == {
        "documents-in": 5,
        "documents-kept": 2,
        "documents-dropped-no-token": 1,
        "documents-dropped-one-token": 2,
        "source-tokens-in": 12,
        "source-tokens-kept": 10,
        "source-tokens-dropped-one-token": 2,
        "source-tokens-dropped-without-pair": 0,
    }
    assert set(batch.document_row.tolist()) == {2, 4}
    batch, counts = make({0: documents}, InstancesConfig(pairing="none"))
    check_balance(counts, "documents", where="test")
    assert counts["documents-kept"] == 4
    assert batch.document_row.tolist() == [0, 2, 3, 4]
    assert len(batch.input_ids) == 12 + 2 * 4


@pytest.mark.parametrize("pairing", ["nsp", "none"])
@pytest.mark.parametrize("sentence_tokens", [3, 30, 300])
def test_every_token_is_in_a_pair_or_counted(pairing: Any, sentence_tokens: int) -> None:
    """Token ids are positions, so that each token of the documents can be looked for."""
    rng = np.random.default_rng(sentence_tokens)
    sentences = rng.integers(0, 7, 300)
    lengths = rng.integers(1, 2 * sentence_tokens, int(sentences.sum()))
    documents = TokenDocuments(
        np.arange(104, 104 + int(lengths.sum()), dtype=np.uint32),
        lengths.astype(np.uint32),
        np.concatenate(([0], np.cumsum(sentences))),
        [f"d/{row}" for row in range(300)],
    )
    size = 104 + len(documents.token_ids)
    vocabulary = VocabularyIds(size, CLS, SEP, MASK, np.zeros(size, np.bool_))
    config = InstancesConfig(pairing=pairing, masking=MaskingConfig(strategy="none"))
    batch, counts = make({0: documents}, config, vocabulary=vocabulary)
    present: set[int] = set()
    for row, label in enumerate(batch.next_sentence_label.tolist()):
        ids = batch.input_ids[batch.input_offsets[row] : batch.input_offsets[row + 1]]
        present.update((ids[: batch.segment_b_start[row]] if label == 1 else ids).tolist())
    kept = len([token for token in present if token >= 104])
    check_balance(counts, "source-tokens", where="test")
    assert counts["source-tokens-in"] == len(documents.token_ids)
    assert counts["source-tokens-kept"] == kept
    assert kept > 0.8 * len(documents.token_ids)


def test_statistics_of_a_hundred_thousand_instances() -> None:
    shards = {0: random_documents(7000), 1: random_documents(1000, seed=1)}
    batch, _ = make(shards, InstancesConfig())
    totals = batch.statistics()
    instances = totals["instances"]
    assert instances >= 100_000
    assert totals["random-next"] / instances == pytest.approx(0.5, abs=0.01)
    assert totals["without-segment-b"] == 0
    assert totals["tokens"] / instances / 128 >= 0.90
    assert totals["masked-tokens"] / totals["tokens"] == pytest.approx(0.15, abs=0.002)
    lengths = np.diff(batch.input_offsets)
    chosen = np.diff(batch.masked_lm_offsets)
    assert (chosen == np.clip(np.rint(lengths * 0.15), 1, 20)).all()
    assert lengths.max() == 128
    _assert_mix(batch)
    # Positions are distinct, and never those of [CLS] or [SEP].
    assert batch.masked_lm_ids.min() >= 104


def _assert_mix(batch: InstanceBatch) -> None:
    row = np.repeat(np.arange(len(batch)), np.diff(batch.masked_lm_offsets))
    new = batch.input_ids[batch.input_offsets[row] + batch.masked_lm_positions]
    masked, kept = new == MASK, new == batch.masked_lm_ids
    assert masked.mean() == pytest.approx(0.8, abs=0.005)
    assert kept.mean() == pytest.approx(0.1, abs=0.005)
    drawn = new[~masked & ~kept]
    assert len(drawn) / len(new) == pytest.approx(0.1, abs=0.005)
    assert drawn.mean() == pytest.approx(SIZE / 2, rel=0.01)
    assert drawn.min() < 104  # the whole vocabulary, as in the reference
    b_share = (batch.masked_lm_positions >= batch.segment_b_start[row]).mean()
    assert b_share == pytest.approx(0.5, abs=0.1)


def test_of_a_kind_with_the_instances_of_the_reference(real_data: Path) -> None:
    """The sample text, five passes: counts as google-research/bert's own generator has them."""
    packed = (real_data / "golden" / "reference-instances-uncased.json.gz").read_bytes()
    golden = json.loads(gzip.decompress(packed))
    vocab = str(real_data / "vocab" / "bert-base-uncased" / "vocab.txt")
    tokenizer = WordPieceTokenizer.from_vocab_file(vocab, lowercase=True)
    text = (real_data / "golden" / "sample_text.txt").read_text(encoding="utf-8")
    stories = [story.split("\n") for story in text.strip().split("\n\n")]
    ids, lengths = tokenizer.encode_sentences([line for story in stories for line in story])
    offsets = np.cumsum([0, *map(len, stories)])
    documents = TokenDocuments(ids, lengths, offsets, [f"s/{n}" for n in range(len(stories))])
    vocabulary = read_vocabulary_ids(vocab)
    runs = []
    for seed in range(40):
        config = InstancesConfig(seed=seed, short_seq_prob=golden["short_seq_prob"])
        made = [
            make({0: documents}, config, vocabulary=vocabulary, pass_number=n)[0]
            for n in range(golden["dupe_factor"])
        ]
        runs.append(together(made))
    counts = np.array([len(run) for run in runs])
    assert np.quantile(counts, 0.02) <= golden["n"] <= np.quantile(counts, 0.98)
    reference = golden["instances"]
    theirs = [len(one["tokens"]) for one in reference]
    ours = np.concatenate([np.diff(run.input_offsets) for run in runs])
    assert ours.mean() == pytest.approx(np.mean(theirs), rel=0.12)
    share = sum(len(one["masked_lm_positions"]) for one in reference) / sum(theirs)
    chosen = sum(len(run.masked_lm_positions) for run in runs) / ours.sum()
    assert chosen == pytest.approx(share, abs=0.003)
