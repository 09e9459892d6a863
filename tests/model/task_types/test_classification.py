"""Features, predictions and scores of classification and regression."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.text_task_builder import CLS, SEP, VOCAB, WORDS, a_task, ids, score, sequences

from model.task_types.by_name import TASK_TYPES
from model.task_types.features import Features
from model.task_types.sequences import truncated_lengths
from model.task_types.task_type import Encoding
from model.tasks import TASKS
from model.tasks.task import Task
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.arrow import TEXT_EXAMPLES
from schemas.errors import PredictionsError, TaskDataError
from schemas.finetune_configs import FeaturesConfig


def table(*rows: tuple[str, str | None, str | float | None]) -> pa.Table:
    """Rows of text A, text B, label or score."""
    columns = {
        "id": [f"r{number}" for number in range(len(rows))],
        "text_a": [row[0] for row in rows],
        "text_b": [row[1] for row in rows],
        "label": [row[2] if isinstance(row[2], str) else None for row in rows],
        "score": [row[2] if isinstance(row[2], float) else None for row in rows],
    }
    return pa.table(columns, schema=TEXT_EXAMPLES)


@pytest.fixture
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCAB, lowercase=True)


def features_of(
    examples: pa.Table, tokenizer: WordPieceTokenizer, *, task: Task | None = None,
    length: int = 16, is_training: bool = False,
) -> Features:  # fmt: skip
    task = task or a_task()
    config = FeaturesConfig(max_seq_length=length)
    encoding = Encoding(task=task, labels=task.labels, tokenizer=tokenizer, config=config)
    return TASK_TYPES[task.type].build_features(examples, encoding, is_training=is_training)


def test_one_text_and_two(tokenizer: WordPieceTokenizer) -> None:
    features = features_of(
        table(("w1 W2s", None, "yes"), ("w3", "w4 w5", "no"), ("", "", "no")), tokenizer
    )
    assert sequences(features) == [
        [CLS, *ids("w1 w2 ##s"), SEP],
        [CLS, *ids("w3"), SEP, *ids("w4 w5"), SEP],
        [CLS, SEP, SEP],
    ]
    assert features.b_starts.tolist() == [5, 3, 2]  # the first has no B: its length
    assert features.labels is not None
    assert features.labels.tolist() == [1, 0, 0]
    assert features.labels.dtype == features.input_ids.dtype == features.rows.dtype == np.int64
    assert features.rows.tolist() == [0, 1, 2]
    assert (features.units, features.per_unit, features.kind) == (3, 1, "classification")
    assert features.counters == {"texts-truncated": 0, "tokens-cut": 0}


def test_the_longer_is_cut_from_its_end(tokenizer: WordPieceTokenizer) -> None:
    long, short = " ".join(WORDS[:9]), "w20 w21"
    examples = table(
        (long, short, None), (short, long, None), (long, long, None), (long, None, None)
    )
    features = features_of(examples, tokenizer, length=10)
    assert sequences(features) == [
        [CLS, *ids("w0 w1 w2 w3 w4"), SEP, *ids(short), SEP],
        [CLS, *ids(short), SEP, *ids("w0 w1 w2 w3 w4"), SEP],
        [CLS, *ids("w0 w1 w2 w3"), SEP, *ids("w0 w1 w2"), SEP],  # of equals B loses first
        [CLS, *ids("w0 w1 w2 w3 w4 w5 w6 w7"), SEP],
    ]
    assert features.counters == {"texts-truncated": 4, "tokens-cut": 4 + 4 + 11 + 1}
    assert features.lengths.max() == 10


@given(a=st.integers(0, 60), b=st.integers(0, 60), room=st.integers(0, 50))
def test_truncation_is_that_of_the_reference(a: int, b: int, room: int) -> None:
    found = truncated_lengths(np.array([a]), np.array([b]), room=np.array([room]))
    while a + b > room:  # what run_classifier.py does, a token at a time
        if a > b:
            a -= 1
        else:
            b -= 1
    assert [side.tolist() for side in found] == [[a], [b]]


@pytest.mark.parametrize(
    ("rows", "is_training", "expected"),
    [
        ([("w1", None, None), ("w2", None, None)], True, r"2 of 2 rows.*row 0 \(id r0\).*training"),
        ([("w1", None, "no"), ("w2", None, None)], False, r"1 of 2 rows.*row 1 \(id r1\).*none"),
        ([("w1", None, "no"), ("w2", None, "hm")], False, r"\(id r1\) .*'hm'.*one of no, yes"),
        ([("w1", None, math.nan)], False, r"row 0 \(id r0\) has the score"),
        ([("w1", None, math.inf)], False, r"row 0 \(id r0\) has the score"),
    ],
)
def test_missing_and_invalid_labels_are_refused(
    rows: Any, is_training: bool, expected: str, tokenizer: WordPieceTokenizer
) -> None:
    task = a_task("regression" if isinstance(rows[0][2], float) else "classification")
    with pytest.raises(TaskDataError, match=expected):
        features_of(table(*rows), tokenizer, task=task, is_training=is_training)


def test_features_without_labels(tokenizer: WordPieceTokenizer) -> None:
    examples = table(("w1", None, None), ("w2", None, None))
    assert features_of(examples, tokenizer).labels is None


def test_regression(tokenizer: WordPieceTokenizer) -> None:
    task = a_task("regression")
    examples = table(("w1", "w2", 0.5), ("w2", "w3", 4.75), ("w3", "w3", 5.0))
    features = features_of(examples, tokenizer, task=task, is_training=True)
    assert features.labels is not None
    assert features.labels.dtype == np.float64
    assert features.labels.tolist() == [0.5, 4.75, 5.0]
    said = decoded(examples, features, np.array([1, 5.5, -0.25], np.float32), tokenizer, task=task)
    assert said == [
        {"id": "r0", "score": 1.0}, {"id": "r1", "score": 5.5}, {"id": "r2", "score": -0.25}
    ]  # fmt: skip
    # Ranks 1 2 3 and 2 3 1: 1 - 6 * (1 + 1 + 4) / (3 * 8).
    assert score(examples, said, task=task)["spearman"] == pytest.approx(-0.5)
    constant = [{**row, "score": 2.0} for row in said]
    assert score(examples, constant, task=task) == {"spearman": 0.0, "pearson": 0.0}


def decoded(
    examples: pa.Table, features: Features, outputs: Any, tokenizer: WordPieceTokenizer,
    *, task: Task,
) -> list[dict[str, Any]]:  # fmt: skip
    config = FeaturesConfig()
    encoding = Encoding(task=task, labels=task.labels, tokenizer=tokenizer, config=config)
    return TASK_TYPES[task.type].decode(examples, outputs, features=features, encoding=encoding)


def test_predictions_and_their_score(tokenizer: WordPieceTokenizer) -> None:
    task = a_task(metrics=("f1", "accuracy", "matthews"))
    examples = table(*(("w1", None, label) for label in ("yes", "yes", "no", "no", "yes")))
    features = features_of(examples, tokenizer)
    outputs = np.array([[0, 1], [2, 0], [0, math.log(3)], [90, -90], [-1, 5]], np.float32)
    said = decoded(examples, features, outputs, tokenizer, task=task)
    assert [row["id"] for row in said] == ["r0", "r1", "r2", "r3", "r4"]
    assert [row["label"] for row in said] == ["yes", "no", "yes", "no", "yes"]
    assert said[2]["probabilities"] == {
        "no": pytest.approx(0.25, abs=1e-7), "yes": pytest.approx(0.75, abs=1e-7)
    }  # fmt: skip
    assert json.loads(json.dumps(said)) == said
    # F1 is of "yes": 2 of 3 found, 1 of 3 said wrongly.
    expected = {"f1": 2 / 3, "accuracy": 3 / 5, "matthews": (2 * 1 - 1 * 1) / 6}
    assert score(examples, said, task=task) == pytest.approx(expected)


def test_outputs_that_do_not_fit(tokenizer: WordPieceTokenizer) -> None:
    examples = table(("w1", None, "yes"), ("w2", None, "no"))
    features = features_of(examples, tokenizer)
    for outputs, message in (
        (np.zeros((2, 3), np.float32), r"shape \(2, 3\), expected \(2, 2\)"),
        (np.zeros((1, 2), np.float32), r"shape \(1, 2\)"),
        (np.array([[0, 1], [0, math.nan]], np.float32), "1 of 2 outputs are not finite.*is 1:"),
    ):
        with pytest.raises(PredictionsError, match=message):
            decoded(examples, features, outputs, tokenizer, task=a_task())


@pytest.mark.parametrize(
    ("label", "said", "expected"),
    [
        ("yes", [("r0", "hm")], "the label 'hm': expected one of no, yes"),
        ("yes", [("r0", None)], "the label None: expected one of no, yes"),
        (None, [("r0", "no")], "labeled split"),
        ("yes", [("r1", "no")], "prediction 0 has the id 'r1', its example 'r0'"),
        ("yes", [], "0 predictions for 1 examples"),
    ],
)
def test_unusable_predictions_are_refused(label: str | None, said: Any, expected: str) -> None:
    predictions = [{"id": name, "label": value} for name, value in said]
    with pytest.raises(PredictionsError, match=expected):
        score(table(("w1", None, label)), predictions, task=a_task())


def test_no_rows_at_all(tokenizer: WordPieceTokenizer) -> None:
    features = features_of(table(), tokenizer)
    assert (features.units, len(features.input_ids), features.offsets.tolist()) == (0, 0, [0])
    outputs = np.zeros((0, 2), np.float32)
    assert decoded(table(), features, outputs, tokenizer, task=a_task()) == []


def test_sequences_are_those_of_transformers(real_data: Path) -> None:
    """Uncut, and cut: no question here is so long that it would have to lose tokens, too."""
    from transformers import BertTokenizerFast

    vocab = real_data / "vocab" / "bert-base-uncased" / "vocab.txt"
    with gzip.open(real_data / "glue" / "QNLI" / "train-subset.json.gz", "rt") as source:
        pairs = list(json.load(source).values())[:1000]
    tokenizer = WordPieceTokenizer.from_vocab_file(str(vocab), lowercase=True)
    peer = BertTokenizerFast(vocab=str(vocab))
    theirs = peer(
        [p["text_a"] for p in pairs], [p["text_b"] for p in pairs],
        truncation=True, max_length=64,
    )  # fmt: skip
    examples = table(*((p["text_a"], p["text_b"], None) for p in pairs))
    features = features_of(examples, tokenizer, length=64)
    assert features.counters["texts-truncated"] > 50
    same = 0
    for row, sequence in enumerate(sequences(features)):
        segments = [0] * features.b_starts[row] + [1] * (len(sequence) - features.b_starts[row])
        same += sequence == theirs["input_ids"][row] and segments == theirs["token_type_ids"][row]
        assert len(sequence) == len(theirs["input_ids"][row])
    assert same == len(pairs) == 1000


def test_labels_of_custom_data_are_scored_as_they_are() -> None:
    examples = table(*(("x", None, name) for name in "abc"))
    said = [{"id": f"r{n}", "label": name} for n, name in enumerate("abb")]
    found = score(examples, said, task=TASKS["single-sentence"])
    assert found["accuracy"] == pytest.approx(2 / 3)
