"""Windows, labels, answers and tau of questions, equal to slow ones that are spelt out."""

from __future__ import annotations

import itertools
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import complexity
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

from model.tasks import qa
from model.tasks.features import Features
from model.tasks.qa import NO_ANSWER_ODDS
from model.tasks.qa_windows import max_context, plan_windows
from model.tasks.squad_metrics import best_threshold
from model.tasks.task import Task
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import ConfigError, TaskDataError
from schemas.finetune_configs import FeaturesConfig


def check_against_oracle(
    examples: pa.Table, tokenizer: WordPieceTokenizer, config: FeaturesConfig
) -> Oracle:
    oracle = Oracle(examples, tokenizer, config)
    features = qa.build_features(examples, encoding(tokenizer, config), is_training=False)
    assert features.labels is None
    assert features.rows.tolist() == [window.row for window in oracle.windows]
    assert features.b_starts.tolist() == [window.b_start for window in oracle.windows]
    parts = np.split(features.input_ids, features.offsets[1:-1]) if features.units else []
    assert [part.tolist() for part in parts] == [window.ids for window in oracle.windows]
    assert features.lengths.max(initial=0) <= config.max_seq_length
    plan = plan_windows(examples, tokenizer, config=config)
    is_max, offsets = max_context(plan)
    assert is_max.tolist() == [flag for window in oracle.windows for flag in window.is_max]
    assert np.diff(offsets).tolist() == [window.length for window in oracle.windows]
    trained = train(examples, tokenizer, config)
    kept = set(trained.rows.tolist())
    expected = [window for window in oracle.windows if window.row in kept]
    assert trained.labels is not None
    labels = [tuple(label) for label in trained.labels.tolist()]
    assert labels == [window.label for window in expected]
    assert trained.counters["windows-without-answer"] == labels.count((0, 0))
    for number in set(range(len(examples))) - kept:
        is_findable = oracle.answer_pieces(number) is not None
        assert not (is_findable and oracle.pieces[number])
    return oracle


@settings(max_examples=150, deadline=None)
@given(
    st.lists(example(), min_size=1, max_size=4),
    st.integers(12, 40),
    st.integers(1, 30),
    st.integers(1, 8),
    st.booleans(),
)
def test_windows_are_those_spelt_out(
    rows: list[dict[str, Any]], length: int, step: int, query: int, cased: bool
) -> None:
    config = FeaturesConfig(max_seq_length=length, doc_stride=step, max_query_length=query)
    check_against_oracle(table(*rows), TINY_CASED if cased else TINY, config)


def test_a_long_context_is_cut_every_step() -> None:
    context = " ".join(["mill"] * 20)
    config = FeaturesConfig(max_seq_length=15, doc_stride=4, max_query_length=2)
    plan = plan_windows(table({"context": context, "question": "a b c"}), TINY, config=config)
    assert plan.starts.tolist() == [0, 4, 8, 12]
    assert plan.lengths.tolist() == [10, 10, 10, 8]
    assert plan.cut_questions == 1
    is_max, offsets = max_context(plan)
    scored = [np.flatnonzero(is_max[a:b]).tolist() for a, b in itertools.pairwise(offsets)]
    # Pieces 0..7 have as much or more context in the first window, and so on.
    assert scored == [[0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 6], [3, 4, 5, 6], [3, 4, 5, 6, 7]]


def test_windows_of_the_papers_size_are_those_spelt_out() -> None:
    # A last window more than 100 pieces shorter than the others, so that its length counts.
    rows = [
        {"context": "a " * pieces, "question": question, "answers": ["a"]}
        for pieces in (377, 378, 379, 385, 430, 512)
        for question in ("who", "who?")
    ]
    check_against_oracle(table(*rows), TINY, BERT_CONFIG)


@pytest.mark.parametrize(
    ("context", "answer", "pieces"),
    [
        ("born (1895-1943) here", "1895", "1895"),
        ("born (1895-1943) here", "1943", "1 ##9 ##43"),
        ("born (1895-1943) here", "(1895-1943)", "( 1895 - 1 ##9 ##43 )"),
        ("the miller, the mill", "mill", "mill"),
        ("the miller.", "ille", "mill ##er ."),  # the whole word
        ("in 1895 and 1895.", "1895.", "1895 ."),
    ],
)
def test_the_span_is_narrowed_to_the_answer(context: str, answer: str, pieces: str) -> None:
    features = train(table({"context": context, "answers": [answer]}), TINY, BERT_CONFIG)
    assert features.labels is not None
    first, last = features.labels[0].tolist()
    result = TINY.convert_ids_to_tokens(features.input_ids[first : last + 1])
    assert " ".join(result) == pieces


def test_questions_that_cannot_be_trained_on_are_counted() -> None:
    examples = table(
        {"context": "the mill", "answers": ["mill"]},
        {"context": "\u200b", "answers": ["\u200b"]},
        {"context": "the mill", "answers": ["race"], "answer_starts": [-1]},
        {"context": "the mill"},
        {"context": "the \u200b mill", "answers": ["\u200b"]},
    )
    features = train(examples, TINY, BERT_CONFIG)
    assert features.rows.tolist() == [0, 3]
    counters = features.counters
    assert counters["rows-in"] == 5
    assert counters["rows-kept"] == 2
    assert counters["rows-dropped-no-token"] == 1
    assert counters["rows-dropped-answer-not-found"] == 2
    asked = qa.build_features(examples, encoding(TINY, BERT_CONFIG), is_training=False)
    assert asked.rows.tolist() == [0, 2, 3, 4]
    assert asked.counters["rows-without-token"] == 1


def test_a_question_that_leaves_no_room_is_refused() -> None:
    config = FeaturesConfig(max_seq_length=12, max_query_length=64)
    examples = table({"context": "mill", "question": "a b c d e f g h i j"})
    with pytest.raises(ConfigError, match="max_query_length"):
        train(examples, TINY, config)


def test_what_is_not_known_cannot_be_trained_on() -> None:
    examples = table({"context": "mill"}, {"context": "mill", "is_impossible": None})
    with pytest.raises(TaskDataError, match=r"is_impossible is unknown .*id q1"):
        train(examples, TINY, BERT_CONFIG)


def test_tables_in_several_chunks_are_the_same_examples() -> None:
    rows = [{"context": f"the mill {n // 2}", "answers": ["mill"], "id": str(n)} for n in range(6)]
    chunked = pa.concat_tables([table(*rows[:1]), table(*rows[1:4]), table(*rows[4:])])
    one, other = (train(examples, TINY, BERT_CONFIG) for examples in (table(*rows), chunked))
    assert one.input_ids.tolist() == other.input_ids.tolist()
    assert np.array_equal(one.labels, other.labels)


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_windows_of_real_questions_are_those_spelt_out(real_data: Path, lowercase: bool) -> None:
    name = "uncased" if lowercase else "cased"
    tokenizer = WordPieceTokenizer.from_vocab_file(
        str(real_data / "vocab" / f"bert-base-{name}" / "vocab.txt"), lowercase=lowercase
    )
    dev = real_examples(real_data, "squad-1.1", "dev", "dev-v1.1.json.gz")
    half = real_examples(real_data, "squad-2.0", "dev", "half-dev-v2.0.json.gz")
    lengths = np.array([len(text) for text in dev["context"].to_pylist()])
    longest = np.sort(np.argsort(-lengths, kind="stable")[:60])
    sample = pa.concat_tables(
        [dev.take(longest), dev.take(np.arange(0, 10_570, 60)), half.take(np.arange(0, 6078, 60))]
    )
    oracle = check_against_oracle(sample, tokenizer, BERT_CONFIG)
    assert len(oracle.windows) > len(sample) + 60
    small = FeaturesConfig(max_seq_length=100, doc_stride=32, max_query_length=16)
    check_against_oracle(sample.slice(0, 120), tokenizer, small)


def test_search_for_pieces_of_an_answer_takes_linear_time() -> None:
    config = FeaturesConfig(max_seq_length=32, doc_stride=16)

    def label(text: str) -> None:
        context = f"{text}-"
        start = len(context) // 2
        row = {"context": context, "answers": [context[start:]], "answer_starts": [start]}
        train(table(row), TINY, config)

    complexity.assert_linear(label, "(")


def test_an_answer_without_a_piece_is_the_word_it_stands_in() -> None:
    row = {"context": "..\u200b", "answers": ["\u200b"], "answer_starts": [2]}
    check_against_oracle(table(row), TINY, FeaturesConfig(max_seq_length=12))


# Answers


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
    features = qa.build_features(examples, reads, is_training=False)
    said = np.asarray(outputs(features), np.float32)
    result = qa.decode(examples, features, said, encoding=reads)
    return qa.apply_threshold(result, threshold) if task.has_unanswerable else result


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
    result = ask(examples, make, tokenizer=tokenizer, task=task, config=config, threshold=threshold)
    oracle = Oracle(examples, tokenizer, config)
    assert [item["id"] for item in result] == examples["id"].to_pylist()
    for number, item in enumerate(result):
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
    (result,) = ask(
        table({"context": context}), pointing((first, last, 5.0, 5.0)), tokenizer=tokenizer
    )
    assert result["text"] == expected


def test_where_no_span_may_be_the_answer_there_is_none() -> None:
    def make(features: Features) -> np.ndarray:
        outputs = np.full((len(features.input_ids), 2), -9.0)
        outputs[:3] = 5.0  # [CLS] and the question
        return outputs

    config = FeaturesConfig(max_seq_length=384, n_best_size=2)
    examples = table({"context": "the mill"}, {"context": "\u200b\u200b"})
    for task in (SQUAD_1, SQUAD_2):
        result = ask(examples, make, task=task, config=config)
        for item in result:
            assert item["text"] == ""
            assert item["null_odds"] == NO_ANSWER_ODDS
            assert [(e["text"], e["probability"]) for e in item["n_best"]] == [("", 1.0)]
        assert [item["text"] for item in qa.apply_threshold(result, 1e12)] == ["", ""]


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
        return qa.score(examples, qa.apply_threshold(predictions, tau), task=SQUAD_2)["f1"]

    tau = best_threshold(examples, predictions)
    assert math.isfinite(tau)
    candidates = [odds + shift for *_, odds in tried for shift in (-1e-7, 0.0, 1e-7)]
    assert f1(tau) == pytest.approx(max(map(f1, [-100.0, *candidates, 100.0])))


def test_scores_are_by_id_and_tell_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    examples = table({"context": "mill", "answers": ["mill"]}, {"context": "mill"})
    predictions = [{"id": "q1", "text": ""}, {"id": "q0", "text": "the mill"}]
    perfect = qa.score(examples, predictions, task=SQUAD_2)
    assert perfect == dict.fromkeys(
        ("em", "f1", "has-answer-em", "has-answer-f1", "no-answer-em", "no-answer-f1"), 1.0
    )
    with caplog.at_level(logging.WARNING):
        result = qa.score(
            examples, [{"id": "q0", "text": "mill"}, {"id": "x", "text": ""}], task=SQUAD_2
        )
    assert result["f1"] == 0.5
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name", "lowercase", "expected"),
    [
        ("squad-1.1", "dev-v1.1.json.gz", True, (18_015, 17_864)),
        ("squad-1.1", "dev-v1.1.json.gz", False, (18_015, 17_860)),
        ("squad-2.0", "half-dev-v2.0.json.gz", True, (5_109, 5_091)),
        ("squad-2.0", "half-dev-v2.0.json.gz", False, (5_109, 5_089)),
    ],
)
def test_real_answers_come_back_from_their_labels(
    real_data: Path, task: str, name: str, lowercase: bool, expected: tuple[int, ...]
) -> None:
    """Others begin or end inside a piece, have other pieces in their word, or are too long."""
    vocab = real_data / "vocab" / f"bert-base-{'un' * lowercase}cased" / "vocab.txt"
    tokenizer = WordPieceTokenizer.from_vocab_file(str(vocab), lowercase=lowercase)
    examples = each_answer(real_examples(real_data, task, "dev", name))
    features = train(examples, tokenizer, BERT_CONFIG)
    assert features.counters["rows-kept"] == len(examples)
    labels = features.labels
    assert labels is not None
    is_inside = labels[:, 0] > 0
    assert set(features.rows[is_inside].tolist()) == set(range(len(examples)))  # in some window
    outputs = np.zeros((len(features.input_ids), 2), np.float32)
    for side in (0, 1):
        outputs[features.offsets[:-1][is_inside] + labels[is_inside, side], side] = 9.0
    reads = encoding(tokenizer, BERT_CONFIG)
    asked = qa.build_features(examples, reads, is_training=False)
    result = qa.decode(examples, asked, outputs, encoding=reads)
    recovered = sum(
        item["text"] == row["answers"][0]
        for row, item in zip(examples.to_pylist(), result, strict=True)
    )
    assert (len(examples), recovered) == expected
