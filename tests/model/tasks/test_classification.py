"""Features, predictions and scores of classification, regression and choice."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT

from model.tasks import TASKS
from model.tasks.features import Encoding, Features, truncated_lengths
from model.tasks.row_terms import METRICS, answer_terms, metric_value
from model.tasks.task import BadRow, Row, Task
from model.tasks.task_types import TASK_TYPES
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.arrow import CHOICE_EXAMPLES, TEXT_EXAMPLES
from schemas.errors import PredictionsError, TaskDataError
from schemas.finetune_configs import FeaturesConfig, TaskTypeName

WORDS = [f"w{number}" for number in range(40)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *WORDS]
CLS, SEP = 2, 3
TOKENIZER = WordPieceTokenizer(VOCAB, lowercase=True)
FOUR = ["w1", "w2 w3", "", "w4"]


def no_rows(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    yield from ()


def a_task(kind: TaskTypeName, *metrics: str, **fields: Any) -> Task:
    names = {"name": "own", "title": "Own", "splits": {}, "reader": no_rows}
    return Task(type=kind, metrics=metrics, **names, **fields)


LABELED = a_task("classification", "f1", "accuracy", "matthews", labels=("no", "yes"))
SCORED = a_task("regression", "spearman", "pearson")
CHOICE = a_task("choice", "accuracy", choices=4)


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


def choices(*rows: tuple[str, list[str], int | None]) -> pa.Table:
    """Rows of context, continuations, label."""
    result = [
        {"id": f"r{number}", "context": context, "continuations": texts, "label": label}
        for number, (context, texts, label) in enumerate(rows)
    ]
    return pa.Table.from_pylist(result, schema=CHOICE_EXAMPLES)


def encoding(task: Task, *, length: int = 16) -> Encoding:
    config = FeaturesConfig(max_seq_length=length)
    return Encoding(task=task, labels=task.labels, tokenizer=TOKENIZER, config=config)


def features_of(
    examples: pa.Table, *, task: Task = LABELED, length: int = 16, is_training: bool = False
) -> Features:
    reads = encoding(task, length=length)
    return TASK_TYPES[task.type].build_features(examples, reads, is_training=is_training)


def decoded(examples: pa.Table, outputs: Any, *, task: Task = LABELED) -> list[dict[str, Any]]:
    task_type, reads = TASK_TYPES[task.type], encoding(task)
    features = task_type.build_features(examples, reads, is_training=False)
    return task_type.decode(examples, features, outputs, encoding=reads)


def score(examples: pa.Table, said: Any, *, task: Task = LABELED) -> dict[str, float]:
    return TASK_TYPES[task.type].score(examples, said, task=task)


def sequences(features: Features) -> list[list[int]]:
    return [part.tolist() for part in np.split(features.input_ids, features.offsets[1:-1])]


def ids(text: str) -> list[int]:
    return [VOCAB.index(word) for word in text.split()]


def test_one_text_and_two() -> None:
    features = features_of(table(("w1 W2s", None, "yes"), ("w3", "w4 w5", "no"), ("", "", "no")))
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


def test_the_longer_is_cut_from_its_end() -> None:
    long, short = " ".join(WORDS[:9]), "w20 w21"
    examples = table(
        (long, short, None), (short, long, None), (long, long, None), (long, None, None)
    )
    features = features_of(examples, length=10)
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
    result = truncated_lengths(np.array([a]), np.array([b]), room=np.array([room]))
    while a + b > room:  # what run_classifier.py does, a token at a time
        if a > b:
            a -= 1
        else:
            b -= 1
    assert [side.tolist() for side in result] == [[a], [b]]


@pytest.mark.parametrize(
    ("rows", "is_training", "expected"),
    [
        ([("w1", None, None), ("w2", None, None)], True, r"2 of 2 rows.*row 0 \(id r0\).*training"),
        ([("w1", None, "no"), ("w2", None, None)], False, r"1 of 2 rows.*row 1 \(id r1\).*none"),
    ],
)
def test_missing_labels_are_refused(rows: Any, is_training: bool, expected: str) -> None:
    with pytest.raises(TaskDataError, match=expected):
        features_of(table(*rows), is_training=is_training)


def test_regression() -> None:
    task = SCORED
    examples = table(("w1", "w2", 0.5), ("w2", "w3", 4.75), ("w3", "w3", 5.0))
    features = features_of(examples, task=task, is_training=True)
    assert features.labels is not None
    assert features.labels.dtype == np.float64
    assert features.labels.tolist() == [0.5, 4.75, 5.0]
    said = decoded(examples, np.array([1, 5.5, -0.25], np.float32), task=task)
    assert said == [
        {"id": "r0", "score": 1.0}, {"id": "r1", "score": 5.5}, {"id": "r2", "score": -0.25}
    ]  # fmt: skip
    # Ranks 1 2 3 and 2 3 1: 1 - 6 * (1 + 1 + 4) / (3 * 8).
    assert score(examples, said, task=task)["spearman"] == pytest.approx(-0.5)
    constant = [{**row, "score": 2.0} for row in said]
    assert score(examples, constant, task=task) == {"spearman": 0.0, "pearson": 0.0}


def test_predictions_and_their_score() -> None:
    examples = table(*(("w1", None, label) for label in ("yes", "yes", "no", "no", "yes")))
    outputs = np.array([[0, 1], [2, 0], [0, math.log(3)], [90, -90], [-1, 5]], np.float32)
    said = decoded(examples, outputs)
    assert [row["id"] for row in said] == ["r0", "r1", "r2", "r3", "r4"]
    assert [row["label"] for row in said] == ["yes", "no", "yes", "no", "yes"]
    assert said[2]["probabilities"] == {
        "no": pytest.approx(0.25, abs=1e-7), "yes": pytest.approx(0.75, abs=1e-7)
    }  # fmt: skip
    assert json.loads(json.dumps(said)) == said
    # F1 is of "yes": 2 of 3 found, 1 of 3 said wrongly.
    expected = {"f1": 2 / 3, "accuracy": 3 / 5, "matthews": (2 * 1 - 1 * 1) / 6}
    assert score(examples, said) == pytest.approx(expected)
    assert score(examples, said, task=TASKS["single-sentence"])["accuracy"] == 3 / 5


def test_outputs_that_are_not_finite_are_refused() -> None:
    outputs = np.array([[0, 1], [0, math.nan]], np.float32)
    with pytest.raises(PredictionsError, match=r"1 of 2 outputs are not finite.*is 1:"):
        decoded(table(("w1", None, "yes"), ("w2", None, "no")), outputs)


@pytest.mark.parametrize("label", ["hm", None])
def test_predictions_of_no_label_are_refused(label: str | None) -> None:
    with pytest.raises(PredictionsError, match=f"label: expected no, yes, got {label!r}"):
        score(table(("w1", None, "yes")), [{"id": "r0", "label": label}])


def test_no_rows_at_all() -> None:
    for examples, task, outputs in ((table(), LABELED, 2), (choices(), CHOICE, 4)):
        features = features_of(examples, task=task)
        assert (features.units, len(features.input_ids), features.offsets.tolist()) == (0, 0, [0])
        assert decoded(examples, np.zeros((0, outputs), np.float32), task=task) == []


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
    reads = replace(encoding(LABELED, length=64), tokenizer=tokenizer)
    features = TASK_TYPES["classification"].build_features(examples, reads, is_training=False)
    assert features.counters["texts-truncated"] > 50
    same = 0
    for row, sequence in enumerate(sequences(features)):
        segments = [0] * features.b_starts[row] + [1] * (len(sequence) - features.b_starts[row])
        same += sequence == theirs["input_ids"][row] and segments == theirs["token_type_ids"][row]
        assert len(sequence) == len(theirs["input_ids"][row])
    assert same == len(pairs) == 1000


# Choice


def test_four_sequences_a_unit() -> None:
    examples = choices(("w9 w8", FOUR, 3), ("w7", ["w5", "w5", "w6", "w6s"], 0))
    features = features_of(examples, task=CHOICE, is_training=True)
    context = [CLS, *ids("w9 w8"), SEP]
    assert sequences(features) == [
        *([*context, *ids(text), SEP] for text in FOUR),
        *([CLS, *ids("w7"), SEP, *ids(text), SEP] for text in ("w5", "w5", "w6", "w6 ##s")),
    ]
    assert features.b_starts.tolist() == [4] * 4 + [3] * 4
    assert (features.units, features.per_unit, features.kind) == (2, 4, "choice")
    assert features.rows.tolist() == [0, 1]
    assert features.labels is not None
    assert features.labels.tolist() == [3, 0]
    pieces = pa.concat_tables([examples.slice(1), examples.slice(0, 1)])
    again = sequences(features_of(pieces, task=CHOICE))
    assert again == sequences(features)[4:] + sequences(features)[:4]


def test_each_pair_is_cut_on_its_own() -> None:
    context, long = "w1 w2 w3 w4 w5 w6", "w11 w12 w13 w14 w15 w16"
    features = features_of(choices((context, [long, "w20", "", long], None)), task=CHOICE, length=9)
    assert sequences(features) == [
        [CLS, *ids("w1 w2 w3"), SEP, *ids("w11 w12 w13"), SEP],
        [CLS, *ids("w1 w2 w3 w4 w5"), SEP, *ids("w20"), SEP],
        [CLS, *ids("w1 w2 w3 w4 w5 w6"), SEP, SEP],
        [CLS, *ids("w1 w2 w3"), SEP, *ids("w11 w12 w13"), SEP],
    ]
    assert features.counters == {"texts-truncated": 3, "tokens-cut": 6 + 1 + 6}
    assert features.labels is None


def test_chosen_continuations_and_their_score() -> None:
    examples = choices(("w1", FOUR, 1), ("w2", FOUR, 0), ("w3", FOUR, 2))
    outputs = np.array([[0, 3, 0, 0], [1, 1, 1, 1], [0, 0, 0, np.log(3)]], np.float32)
    said = decoded(examples, outputs, task=CHOICE)
    assert [(row["id"], row["label"]) for row in said] == [("r0", 1), ("r1", 0), ("r2", 3)]
    assert said[2]["probabilities"] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert score(examples, said, task=CHOICE) == {"accuracy": pytest.approx(2 / 3)}


# Metrics, against values worked out by hand


def value(name: str, gold: list[float], predicted: list[float]) -> float:
    return metric_value(answer_terms(name, np.array(gold), np.array(predicted)))


GOLD = [1, 1, 1, 0, 0, 0, 0, 1]
SAID = [1, 1, 0, 0, 1, 0, 0, 1]  # 3 true and 1 false positive, 1 false and 3 true negatives


@pytest.mark.parametrize(
    ("name", "gold", "said", "expected"),
    [
        ("accuracy", GOLD, SAID, 6 / 8),
        ("matthews", GOLD, SAID, (3 * 3 - 1 * 1) / math.sqrt(4 * 4 * 4 * 4)),
        # F1 is of class 1.
        ("f1", [1, 0, 0, 0], [1, 1, 0, 0], 2 * 1 / (2 * 1 + 1 + 0)),
        # F1 of several classes is of class 1 against the others.
        ("f1", [1, 1, 2, 0], [1, 2, 2, 1], 2 * 1 / (2 * 1 + 1 + 1)),
        # Gorodkin's form: (c s - sum p t) / sqrt((s^2 - sum p^2)(s^2 - sum t^2)).
        ("matthews", [0, 1, 2, 0, 1, 2], [0, 1, 1, 0, 2, 2], (4 * 6 - 3 * 2 * 2) / (6**2 - 12)),
        # Without positives.
        ("f1", [0, 0], [0, 0], 0.0),
        ("matthews", GOLD, [0] * 8, 0.0),
        # Both have mean 2.5 and squared deviations 5; products of deviations: 4 x 0.75.
        ("pearson", [1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0], 3 / 5),
        # Ranks 1 2.5 2.5 4 and 1 2 3 4; Pearson of those: 4.5 / sqrt(4.5 * 5).
        ("spearman", [1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], 4.5 / math.sqrt(4.5 * 5)),
    ],
)
def test_metric_by_hand(name: str, gold: Any, said: Any, expected: float) -> None:
    assert value(name, gold, said) == pytest.approx(expected)


@pytest.mark.parametrize("name", METRICS)
def test_metric_of_equal_and_constant_answers(name: str) -> None:
    assert value(name, GOLD, GOLD) == pytest.approx(1.0)
    if name in ("pearson", "spearman"):
        assert value(name, [1.0, 2.0, 3.0], [2.5, 2.5, 2.5]) == 0.0
        assert value(name, [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0
        assert value(name, [1.0], [1.0]) == 0.0


def test_loading_is_light() -> None:
    heavy = "{'torch', 'sklearn', 'scipy', 'transformers', 'apache_beam', 'prefect'}"
    code = f"import sys, model.tasks.task_types; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
