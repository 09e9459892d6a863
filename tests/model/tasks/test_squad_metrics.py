"""Exact match and F1 by the official rules, on real predictions and on made-up ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli_runner import Cli
from support.qa_builder import real_examples

from model.tasks.prediction_files import read_answers
from model.tasks.squad_metrics import (
    Gold,
    gold_answers,
    normalize_answer,
    score_question,
    score_texts,
    texts_by_id,
)
from schemas.arrow import SPAN_EXAMPLES
from schemas.errors import PredictionsError

WORDS = st.lists(
    st.sampled_from(["a", "the", "An", "mill", "Mill.", "mill-race", "of", "1895", "-", "café"]),
    max_size=6,
).map(" ".join)


def plain_words(text: str) -> list[str]:
    """Normalize by the official rules, one character and then one word at a time.

    A run of letters and digits is an article, also next to other characters.
    """
    kept = ""
    for character in text.lower():
        if character in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~":
            continue
        kept += character
    words, run = "", ""
    for character in kept + " ":
        if character.isalnum():
            run += character
            continue
        words += (" " if run in ("a", "an", "the") else run) + character
        run = ""
    return words.split()


def plain_scores(text: str, golds: list[str], *, is_2_0: bool) -> tuple[float, float]:
    if is_2_0:
        golds = [gold for gold in golds if plain_words(gold)] or [""]
    best_em = best_f1 = 0.0
    results = plain_words(text)
    for gold in golds:
        right = plain_words(gold)
        best_em = max(best_em, float(results == right))
        left, same = list(right), 0
        for word in results:
            if word in left:
                left.remove(word)
                same += 1
        if is_2_0 and (not results or not right):
            f1 = float(results == right)
        else:
            f1 = 2 * same / (len(results) + len(right)) if same else 0.0
        best_f1 = max(best_f1, f1)
    return best_em, best_f1


def answer_table(golds: list[list[str]], ids: list[str] | None = None) -> pa.Table:
    """Return examples with these answers, and the ids q0, q1, ... unless others are given."""
    rows = [
        {
            **dict.fromkeys(("title", "question", "context"), ""),
            "id": identity,
            "answers": answers,
            "answer_starts": [-1] * len(answers),
            "is_impossible": not answers,
        }
        for identity, answers in zip(
            ids or [f"q{number}" for number in range(len(golds))], golds, strict=True
        )
    ]
    return pa.Table.from_pylist(rows, schema=SPAN_EXAMPLES)


@pytest.mark.parametrize(
    ("name", "em", "f1", "unanswered", "unknown"),
    [
        ("bert-ensemble", 86.206, 92.196, 0, 0),
        ("logistic-regression", 40.142, 50.982, 13, 28),
    ],
)
def test_real_predictions_get_their_official_scores(
    real_data: Path, name: str, em: float, f1: float, unanswered: int, unknown: int
) -> None:
    examples = real_examples(real_data, "squad-1.1", "dev", "dev-v1.1.json.gz")
    file = str(real_data / f"squad/predictions-v1.1-{name}.json.gz")
    predictions = texts_by_id(read_answers(file))
    golds = gold_answers(examples, has_unanswerable=False)
    scores = score_texts(golds, predictions)
    assert {key: round(100 * value, 3) for key, value in scores.items()} == {"em": em, "f1": f1}
    ids = {gold.id for gold in golds}
    assert (len(ids - predictions.keys()), len(predictions.keys() - ids)) == (unanswered, unknown)


@given(WORDS, st.lists(WORDS, max_size=3), st.booleans())
def test_scores_are_those_of_the_plain_rules(text: str, golds: list[str], is_2_0: bool) -> None:
    (gold,) = gold_answers(answer_table([golds]), has_unanswerable=is_2_0)
    results = score_question(text, gold)
    assert results == pytest.approx(plain_scores(text, golds, is_2_0=is_2_0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Mill.", "mill"),
        ("a.m.", "am"),
        ("A/B", "ab"),
        ("the “mill”", "“mill”"),
        ("an 1895\tmill", "1895 mill"),
        ("The", ""),
        ("Łódź", "łódź"),
    ],
)
def test_normalised(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


def test_unanswered_questions_count_0() -> None:
    golds = [Gold("q1", ("mill",), True), Gold("q2", ("race",), True)]
    scores = score_texts(golds, {"q1": "mill", "q9": "x"})
    assert scores == {"em": 0.5, "f1": 0.5}


def test_ids_of_predictions_have_to_be_unique() -> None:
    with pytest.raises(PredictionsError, match="two predictions have the id 'q1'"):
        texts_by_id([{"id": "q1", "text": ""}, {"id": "q1", "text": "mill"}])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[]", "found a list"),
        ('{"q1": 3}', "question q1"),
        ('{"q1": "a", "q1": "b"}', "'q1' stands twice"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "answers.json"
    path.write_text(content)
    with pytest.raises(PredictionsError, match=expected):
        read_answers(str(path))


def test_answers_of_squad_2_are_scored_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[dict[str, Any]] = [
        {"id": "q0", "question": "what?", "answers": [{"text": "mill", "answer_start": 4}]},
        {"id": "q1", "question": "who?", "answers": [], "is_impossible": True},
        {"id": "q2", "question": "why?", "answers": [{"text": " ", "answer_start": 3}]},
    ]
    data = [{"title": "T", "paragraphs": [{"context": "the mill", "qas": questions}]}]
    gold, said = tmp_path / "dev.json", tmp_path / "said.json"
    gold.write_text(json.dumps({"version": "v2.0", "data": data}))
    said.write_text(json.dumps({"q0": "mill", "q1": "mill", "q2": ""}))
    result = Cli(capsys)("evaluate", "squad-2.0", str(gold), "--predictions", str(said))
    assert result.code == 0, result.err
    figures = dict(line.rsplit(maxsplit=1) for line in result.out.splitlines())
    assert figures["em"] == "66.7"
    assert figures["has-answer-em"] == "100.0"  # that of white space alone too
    assert figures["no-answer-f1"] == "0.0"
    assert "3 of 11,873 dev rows" in result.out
