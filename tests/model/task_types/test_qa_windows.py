"""Windows, max-context and labels are those of the slow, spelt-out ones, on any text."""

from __future__ import annotations

import itertools
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
    TEXT,
    TINY,
    TINY_CASED,
    encoding,
    example,
    real_examples,
    train,
)
from support.qa_reference import Oracle, table

from model.task_types.qa import QuestionAnswering
from model.task_types.qa_windows import Plan, max_context, plan_windows, split_words
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import ConfigError, TaskDataError
from schemas.finetune_configs import FeaturesConfig


def check_against_oracle(
    examples: pa.Table, tokenizer: WordPieceTokenizer, config: FeaturesConfig
) -> Oracle:
    oracle = Oracle(examples, tokenizer, config)
    features = QuestionAnswering().build_features(
        examples, encoding(tokenizer, config), is_training=False
    )
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
    check_each_piece_is_scored_once(plan, is_max)
    trained = train(examples, tokenizer, config)
    kept = set(trained.rows.tolist())
    expected = [window for window in oracle.windows if window.row in kept]
    assert trained.labels is not None
    assert [tuple(label) for label in trained.labels.tolist()] == [w.label for w in expected]
    for number in set(range(len(examples))) - kept:
        is_findable = oracle.answer_pieces(number) is not None
        assert not (is_findable and oracle.pieces[number])
    return oracle


def check_each_piece_is_scored_once(plan: Plan, is_max: np.ndarray) -> None:
    of_window = np.repeat(np.arange(len(plan.rows)), plan.lengths)
    first = np.cumsum(plan.lengths) - plan.lengths
    piece = plan.starts[of_window] + np.arange(len(of_window)) - first[of_window]
    chosen = list(zip(plan.rows[of_window][is_max].tolist(), piece[is_max].tolist(), strict=True))
    every = set(zip(plan.rows[of_window].tolist(), piece.tolist(), strict=True))
    assert len(chosen) == len(every)
    assert set(chosen) == every


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


@pytest.mark.parametrize("question", ["who", "who?"])
@pytest.mark.parametrize("pieces", [377, 378, 379, 385, 400, 430, 507, 512])
def test_windows_of_the_papers_size_are_those_spelt_out(pieces: int, question: str) -> None:
    # A last window more than 100 pieces shorter than the others, so that its length counts.
    examples = table({"context": "a " * pieces, "question": question, "answers": ["a"]})
    check_against_oracle(examples, TINY, BERT_CONFIG)


@pytest.mark.parametrize(
    ("context", "answer", "pieces"),
    [
        ("born (1895-1943) here", "1895", ["1895"]),
        ("born (1895-1943) here", "1943", ["19", "43"]),
        ("born (1895-1943) here", "(1895-1943)", None),
        ("the miller, the mill", "mill", ["mill"]),
        ("the miller.", "ille", None),
        ("in 1895 and 1895.", "1895.", ["1895", "."]),
    ],
)
def test_the_span_is_narrowed_to_the_answer(
    context: str, answer: str, pieces: list[str] | None
) -> None:
    examples = table({"context": context, "answers": [answer]})
    features = train(examples, TINY, BERT_CONFIG)
    assert features.labels is not None
    first, last = features.labels[0].tolist()
    found = TINY.convert_ids_to_tokens(features.input_ids[first : last + 1])
    if pieces is None:  # the whole words
        start = context.index(answer)
        begin = context.rfind(" ", 0, start) + 1
        end = (context + " ").index(" ", start + len(answer))
        assert found == TINY.convert_ids_to_tokens(TINY.encode(context[begin:end]))
    else:
        assert "".join(piece.removeprefix("##") for piece in found) == "".join(pieces)


def test_a_window_without_the_whole_answer_is_labelled_as_without() -> None:
    context = " ".join(["mill"] * 8 + ["1895", "1943"] + ["mill"] * 8)
    config = FeaturesConfig(max_seq_length=14, doc_stride=3, max_query_length=2)
    features = train(table({"context": context, "answers": ["1895 1943"]}), TINY, config)
    assert features.labels is not None
    labels = features.labels.tolist()
    assert [0, 0] in labels
    assert any(label != [0, 0] for label in labels)
    assert features.counters["windows-without-answer"] == labels.count([0, 0])
    for number, (first, last) in enumerate(labels):
        start = features.offsets[number]
        text = TINY.convert_ids_to_tokens(features.input_ids[start + first : start + last + 1])
        assert text == ["[CLS]"] or "".join(text).replace("##", "") == "18951943"


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
    asked = QuestionAnswering().build_features(
        examples, encoding(TINY, BERT_CONFIG), is_training=False
    )
    assert asked.rows.tolist() == [0, 2, 3, 4]
    assert asked.counters["rows-without-token"] == 1


def test_no_examples_make_no_windows() -> None:
    features = train(table(), TINY, BERT_CONFIG)
    assert (features.units, len(features.input_ids), features.offsets.tolist()) == (0, 0, [0])
    assert features.labels is not None
    assert features.labels.shape == (0, 2)


def test_a_question_that_leaves_no_room_is_refused() -> None:
    config = FeaturesConfig(max_seq_length=12, max_query_length=64)
    examples = table({"context": "mill", "question": "a b c d e f g h i j"})
    with pytest.raises(ConfigError, match="max_query_length"):
        train(examples, TINY, config)


def test_what_is_not_known_cannot_be_trained_on() -> None:
    examples = table({"context": "mill"}, {"context": "mill", "is_impossible": None})
    with pytest.raises(TaskDataError, match="question q1: its answers are not known"):
        train(examples, TINY, BERT_CONFIG)


def test_tables_in_several_chunks_are_the_same_examples() -> None:
    rows = [{"context": f"the mill {n // 2}", "answers": ["mill"], "id": str(n)} for n in range(6)]
    chunked = pa.concat_tables([table(*rows[:1]), table(*rows[1:4]), table(*rows[4:])])
    one, other = (train(examples, TINY, BERT_CONFIG) for examples in (table(*rows), chunked))
    assert one.input_ids.tolist() == other.input_ids.tolist()
    assert np.array_equal(one.labels, other.labels)


@given(st.lists(TEXT, max_size=5))
def test_words_are_cut_out_at_their_places(texts: list[str]) -> None:
    split = split_words(texts)
    for number, text in enumerate(texts):
        own = slice(split.offsets[number], split.offsets[number + 1])
        cut = [text[a:b] for a, b in zip(split.starts[own], split.ends[own], strict=True)]
        assert cut == split.words[own]
        assert "".join(cut) == "".join(c for c in text if c not in " \t\r\n\u202f")


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


@pytest.mark.slow
def test_windows_of_all_training_data(real_data: Path) -> None:
    examples = real_examples(real_data, "squad-1.1", "train", "train-v1.1.json.gz")
    tokenizer = WordPieceTokenizer.from_vocab_file(
        str(real_data / "vocab" / "bert-base-uncased" / "vocab.txt"), lowercase=True
    )
    features = train(examples, tokenizer, BERT_CONFIG)
    assert features.units == 88_641
    assert features.counters["rows-kept"] == 87_599


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
