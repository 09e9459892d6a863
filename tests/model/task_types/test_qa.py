"""Answers from logits: the n best as spelt out, the text of the original, and tau."""

from __future__ import annotations

import functools
import json
import logging
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.qa_builder import (
    BERT_CONFIG,
    TINY,
    TINY_CASED,
    encoding,
    example,
    real_examples,
    train,
)
from support.qa_reference import SQUAD_1, SQUAD_2, TINY_VOCAB, Oracle, table
from tokenizers import Encoding

from model.task_types.features import Features
from model.task_types.qa import QuestionAnswering
from model.task_types.qa_decoding import NO_ANSWER_ODDS
from model.task_types.squad_metrics import best_threshold
from model.tasks.task import Task
from pipelines.wordpiece.tokenizer import WordPieceTokenizer, bert_tokenizer
from schemas.errors import PredictionsError
from schemas.finetune_configs import FeaturesConfig

SPAN = QuestionAnswering()


def ask(
    examples: pa.Table,
    outputs: Any = None,
    *,
    tokenizer: WordPieceTokenizer = TINY,
    task: Task = SQUAD_1,
    config: FeaturesConfig = BERT_CONFIG,
    threshold: float = 0.0,
) -> list[dict[str, Any]]:
    """Predictions of outputs, or of those that a function makes of the features."""
    reads = encoding(tokenizer, config, task=task)
    features = SPAN.build_features(examples, reads, is_training=False)
    said = np.asarray(outputs(features), np.float32)
    found = SPAN.decode(examples, said, features=features, encoding=reads)
    return SPAN.apply_threshold(found, threshold) if task.has_unanswerable else found


def pointing(*spans: tuple[int, int, float, float]) -> Any:
    """Outputs of one window: logits of (first, last) places in the context; -9 elsewhere."""

    def make(features: Features) -> np.ndarray:
        outputs = np.full((len(features.input_ids), 2), -9.0)
        for first, last, start_logit, end_logit in spans:
            outputs[features.b_starts[0] + first, 0] = start_logit
            outputs[features.b_starts[0] + last, 1] = end_logit
        return outputs

    return make


@settings(max_examples=150, deadline=None)
@given(
    st.lists(example(), min_size=1, max_size=3),
    st.builds(
        FeaturesConfig,
        max_seq_length=st.integers(12, 30),
        doc_stride=st.integers(1, 12),
        max_query_length=st.just(4),
        n_best_size=st.integers(1, 6),
        max_answer_length=st.integers(1, 5),
    ),
    st.sampled_from([SQUAD_1, SQUAD_2]),
    st.integers(1, 3),
    st.integers(0, 1 << 30),
)
def test_n_best_are_those_of_the_oracle(
    rows: list[dict[str, Any]], config: FeaturesConfig, task: Task, spread: int, seed: int
) -> None:
    examples = table(*rows)
    tokenizer = TINY if seed % 2 else TINY_CASED
    drawn = np.random.default_rng(seed)
    # Whole numbers from a small range, so that many sums are equal.
    outputs: list[np.ndarray] = []

    def make(features: Features) -> np.ndarray:
        size = (len(features.input_ids), 2)
        outputs.append(drawn.integers(-spread, spread + 1, size).astype(np.float32))
        return outputs[0]

    threshold = float(drawn.integers(-2, 3))
    found = ask(examples, make, tokenizer=tokenizer, task=task, config=config, threshold=threshold)
    oracle = Oracle(examples, tokenizer, config)
    assert [item["id"] for item in found] == examples["id"].to_pylist()
    for number, item in enumerate(found):
        json.dumps(item, allow_nan=False)
        if not oracle.pieces[number]:
            assert (item["text"], item["null_odds"]) == ("", NO_ANSWER_ODDS)
            continue
        is_2_0 = task.has_unanswerable
        expected, odds = oracle.answers(number, outputs[0], has_unanswerable=is_2_0)
        sums = [(e["text"], e["start_logit"] + e["end_logit"]) for e in item["n_best"]]
        assert sums[: len(expected)] == expected
        # With an n best of one, the best answer is kept in addition to "".
        is_one = config.n_best_size == 1 and is_2_0 and expected[0][0] == ""
        assert len(sums) - len(expected) <= is_one
        assert item["null_odds"] == (NO_ANSWER_ODDS if odds is None else odds)
        best = next((text for text, _ in sums if text), "")
        assert item["text"] == ("" if is_2_0 and item["null_odds"] > threshold else best)
        total = sum(math.exp(value) for _, value in sums)
        chances = [entry["probability"] for entry in item["n_best"]]
        assert chances == pytest.approx([math.exp(value) / total for _, value in sums])


@pytest.mark.parametrize(
    ("context", "first", "last", "expected"),
    [
        ("The Mill (1895-1943).", 3, 3, "1895"),
        ("The Mill (1895-1943).", 5, 6, "1943"),
        ("The Mill (1895-1943).", 0, 1, "The Mill"),
        ("THE\n  Miller", 0, 2, "THE\n  Miller"),
        ("the Mille\u0301r", 1, 2, "Mille\u0301r"),
        ("the e\u0301, e", 1, 1, "e\u0301"),
        ("the É, e", 1, 1, "É"),
        ("the Miller", 2, 2, "er"),
        ("the ☃☃☃. e", 1, 1, "☃☃☃"),
        ("the\u200b mill", 0, 0, "the"),
        ("1895\xa01943", 0, 1, "1895\xa019"),
        ("日日 the", 0, 0, "日"),
    ],
)
def test_text_is_cut_out_of_the_original(
    context: str, first: int, last: int, expected: str
) -> None:
    vocab = [*(piece for piece in TINY_VOCAB if piece != "é"), "19", "日"]
    tokenizer = WordPieceTokenizer(vocab, lowercase=True)
    (found,) = ask(
        table({"context": context}), pointing((first, last, 5.0, 5.0)), tokenizer=tokenizer
    )
    assert found["text"] == expected


def test_equal_texts_are_one_answer_with_the_best_sum() -> None:
    spans = ((0, 0, 3.0, 3.0), (2, 2, 4.0, 4.0), (1, 1, 1.0, 1.0))
    (found,) = ask(table({"context": "mill the mill"}), pointing(*spans))
    assert found["text"] == "mill"
    texts = [entry["text"] for entry in found["n_best"]]
    assert len(set(texts)) == len(texts)
    assert found["n_best"][0]["start_logit"] == 4.0
    assert sum(entry["probability"] for entry in found["n_best"]) == pytest.approx(1)


def test_where_no_span_may_be_the_answer_there_is_none() -> None:
    def make(features: Features) -> np.ndarray:
        outputs = np.full((len(features.input_ids), 2), -9.0)
        outputs[:3] = 5.0  # [CLS] and the question
        return outputs

    config = FeaturesConfig(max_seq_length=384, n_best_size=2)
    examples = table({"context": "the mill"}, {"context": "\u200b\u200b"})
    for task in (SQUAD_1, SQUAD_2):
        found = ask(examples, make, task=task, config=config)
        for item in found:
            assert item["text"] == ""
            assert item["null_odds"] == NO_ANSWER_ODDS
            assert [(e["text"], e["probability"]) for e in item["n_best"]] == [("", 1.0)]
        assert [item["text"] for item in SPAN.apply_threshold(found, 1e12)] == ["", ""]


def test_the_null_score_is_the_lowest_of_all_windows() -> None:
    config = FeaturesConfig(max_seq_length=15, doc_stride=4, max_query_length=2)
    context = " ".join("abcdefghijklmnopqrst")

    def make(features: Features) -> np.ndarray:
        outputs = np.zeros((len(features.input_ids), 2))
        outputs[features.offsets[:-1]] = [[4, 4], [1, 2], [3, 1], [4, 4]]
        outputs[features.b_starts[0] + 2] = [2, 2]
        return outputs

    examples = table({"context": context, "question": "who is"})
    (found,) = ask(examples, make, task=SQUAD_2, config=config, threshold=-1.5)
    assert found["null_odds"] == 3 - 4
    assert found["text"] == ""
    assert [e["text"] for e in found["n_best"]][:2] == ["c", ""]
    assert (found["n_best"][1]["start_logit"], found["n_best"][1]["end_logit"]) == (1, 2)
    (found,) = ask(examples, make, task=SQUAD_2, config=config, threshold=-1.0)
    assert found["text"] == "c"


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (lambda f: np.zeros((len(f.input_ids) - 1, 2)), "shape"),
        (lambda f: np.zeros((len(f.input_ids), 1)), "shape"),
        (lambda f: np.full((len(f.input_ids), 2), np.nan), "not finite"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(outputs: Any, expected: str) -> None:
    with pytest.raises(PredictionsError, match=expected):
        ask(table({"context": "the mill"}), outputs)


def test_features_of_another_configuration_are_refused() -> None:
    examples = table({"context": " ".join(["mill"] * 40)})
    features = train(examples, TINY, FeaturesConfig(max_seq_length=20))
    outputs = np.zeros((len(features.input_ids), 2), np.float32)
    other = encoding(TINY, FeaturesConfig(max_seq_length=21))
    with pytest.raises(PredictionsError, match="windows that differ"):
        SPAN.decode(examples, outputs, features=features, encoding=other)


def said(identity: str, best: str, odds: float) -> dict[str, Any]:
    entries = [{"text": text, "probability": 0.5} for text in dict.fromkeys((best, ""))]
    return {"id": identity, "text": "", "null_odds": odds, "n_best": entries}


ODDS = st.integers(-4, 4).map(float) | st.floats(-5, 5)
TRIED = st.lists(
    st.tuples(
        st.sampled_from([[], ["mill"], ["the mill race", "race"], ["The"]]),
        st.sampled_from(["", "mill", "mill race", "a", "1895"]),
        ODDS,
    ),
    min_size=1,
    max_size=12,
)


@given(TRIED)
def test_tau_is_the_best_of_all(tried: list[tuple[list[str], str, float]]) -> None:
    examples = table(*({"context": "mill", "answers": answers} for answers, _, _ in tried))
    predictions = [said(f"q{n}", best, odds) for n, (_, best, odds) in enumerate(tried)]

    def f1(tau: float) -> float:
        return SPAN.score(examples, SPAN.apply_threshold(predictions, tau), task=SQUAD_2)["f1"]

    tau = best_threshold(examples, predictions)
    assert math.isfinite(tau)
    candidates = [odds + shift for *_, odds in tried for shift in (-1e-7, 0.0, 1e-7)]
    assert f1(tau) == pytest.approx(max(map(f1, [-100.0, *candidates, 100.0])))


def test_tau_needs_the_predictions_of_the_examples() -> None:
    examples = table({"context": "mill", "answers": ["mill"]}, {"context": "mill"})
    with pytest.raises(PredictionsError, match="in the same order"):
        best_threshold(examples, [said("q1", "mill", 0.0), said("q0", "mill", 0.0)])


def test_scores_are_by_id_and_tell_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    examples = table({"context": "mill", "answers": ["mill"]}, {"context": "mill"})
    predictions = [{"id": "q1", "text": ""}, {"id": "q0", "text": "the mill"}]
    perfect = SPAN.score(examples, predictions, task=SQUAD_2)
    assert perfect == dict.fromkeys(
        ("em", "f1", "has-answer-em", "has-answer-f1", "no-answer-em", "no-answer-f1"), 1.0
    )
    with caplog.at_level(logging.WARNING):
        found = SPAN.score(
            examples, [{"id": "q0", "text": "mill"}, {"id": "x", "text": ""}], task=SQUAD_2
        )
    assert found["f1"] == 0.5
    assert "1 questions have no prediction" in caplog.text
    assert "1 predictions match no question" in caplog.text


def each_answer(examples: pa.Table) -> pa.Table:
    """One row for each distinct answer of each question, which it then is the only one of."""
    rows = []
    for row in examples.to_pylist():
        pairs = dict.fromkeys(zip(row["answers"], row["answer_starts"], strict=True))
        rows += [
            {**row, "id": f"{row['id']}/{n}", "answers": [text], "answer_starts": [start]}
            for n, (text, start) in enumerate(pairs)
        ]
    return pa.Table.from_pylist(rows, schema=examples.schema)


def why_not(row: dict[str, Any], label: tuple[int, int], encoded: Encoding, own: list[str]) -> str:
    """Why an answer cannot be cut out of its context by pieces, or "" if it can.

    Args:
        label: its first and last token.
        encoded: the context as the library's pieces, with the characters of each.
        own: the answer's pieces by itself.
    """
    start = row["answer_starts"][0]
    end = start + len(row["answers"][0])
    if start not in {first for first, _ in encoded.offsets}:
        return "begins inside a piece"
    if end not in {last for _, last in encoded.offsets}:
        return "ends inside a piece"
    pairs = zip(encoded.tokens, encoded.offsets, strict=True)
    if [token for token, (first, last) in pairs if first >= start and last <= end] != own:
        return "has other pieces in its word"
    return "is too long" if label[1] - label[0] + 1 > BERT_CONFIG.max_answer_length else ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name", "lowercase", "expected"),
    [
        ("squad-1.1", "dev-v1.1.json.gz", True, (17864, 47, 75, 8, 21)),
        ("squad-1.1", "dev-v1.1.json.gz", False, (17860, 44, 71, 11, 29)),
        ("squad-2.0", "half-dev-v2.0.json.gz", True, (5091, 2, 9, 0, 7)),
        ("squad-2.0", "half-dev-v2.0.json.gz", False, (5089, 2, 9, 0, 9)),
    ],
)
def test_real_answers_come_back_from_their_labels(
    real_data: Path, task: str, name: str, lowercase: bool, expected: tuple[int, ...]
) -> None:
    """Every distinct answer of dev, but those that pieces cannot say, each with its reason."""
    vocab = real_data / "vocab" / f"bert-base-{'un' * lowercase}cased" / "vocab.txt"
    tokenizer = WordPieceTokenizer.from_vocab_file(str(vocab), lowercase=lowercase)
    examples = each_answer(real_examples(real_data, task, "dev", name))
    features = train(examples, tokenizer, BERT_CONFIG)
    assert features.counters["rows-kept"] == len(examples)
    labels = features.labels
    assert labels is not None
    is_inside = labels[:, 0] > 0
    label_of = dict(zip(features.rows[is_inside].tolist(), labels[is_inside].tolist(), strict=True))
    assert len(label_of) == len(examples)  # each answer lies within a window
    outputs = np.zeros((len(features.input_ids), 2), np.float32)
    for side in (0, 1):
        outputs[features.offsets[:-1][is_inside] + labels[is_inside, side], side] = 9.0
    reads = encoding(tokenizer, BERT_CONFIG)
    found = SPAN.decode(examples, outputs, features=features, encoding=reads)
    library = bert_tokenizer(tokenizer.vocab, lowercase=lowercase)
    encode = functools.cache(library.encode)
    reasons: Counter[str] = Counter()
    for number, (row, item) in enumerate(zip(examples.to_pylist(), found, strict=True)):
        (gold,) = row["answers"]
        if item["text"] == gold:
            reasons["recovered"] += 1
            continue
        why = why_not(row, label_of[number], encode(row["context"]), library.encode(gold).tokens)
        assert why, f"{row['id']}: {gold!r} came back as {item['text']!r}"
        reasons[why] += 1
    names = (
        "recovered",
        "begins inside a piece",
        "ends inside a piece",
        "has other pieces in its word",
        "is too long",
    )
    assert reasons == Counter(dict(zip(names, expected, strict=True)))
