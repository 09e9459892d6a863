"""Features, predictions and scores of choices among continuations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.text_task_builder import CLS, SEP, VOCAB, a_task, ids, score, sequences

from model.task_types.classification import MultipleChoice
from model.task_types.features import Features
from model.task_types.task_type import Encoding
from model.tasks.task import Task
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.arrow import CHOICE_EXAMPLES
from schemas.errors import PredictionsError, TaskDataError
from schemas.finetune_configs import FeaturesConfig

TASK = a_task("choice", choices=4, metrics=("accuracy",))
FOUR = ["w1", "w2 w3", "", "w4"]


def table(*rows: tuple[str, list[str], int | None]) -> pa.Table:
    names = [f"r{number}" for number in range(len(rows))]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.Table.from_arrays(
        [pa.array(v, f.type) for v, f in zip([names, *columns], CHOICE_EXAMPLES, strict=True)],
        schema=CHOICE_EXAMPLES,
    )


def features_of(
    examples: pa.Table, *, task: Task = TASK, length: int = 32, is_training: bool = False
) -> Features:
    return MultipleChoice().build_features(
        examples, encoding(task, length), is_training=is_training
    )


def encoding(task: Task = TASK, length: int = 32) -> Encoding:
    tokenizer = WordPieceTokenizer(VOCAB, lowercase=True)
    config = FeaturesConfig(max_seq_length=length)
    return Encoding(task=task, labels=(), tokenizer=tokenizer, config=config)


def decoded(examples: pa.Table, features: Features, outputs: Any) -> list[dict[str, Any]]:
    return MultipleChoice().decode(examples, outputs, features=features, encoding=encoding())


def test_four_sequences_a_unit() -> None:
    examples = table(("w9 w8", FOUR, 3), ("w7", ["w5", "w5", "w6", "w6s"], 0))
    features = features_of(examples, is_training=True)
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


def test_each_pair_is_cut_on_its_own() -> None:
    context, long = "w1 w2 w3 w4 w5 w6", "w11 w12 w13 w14 w15 w16"
    features = features_of(table((context, [long, "w20", "", long], None)), length=9)
    assert sequences(features) == [
        [CLS, *ids("w1 w2 w3"), SEP, *ids("w11 w12 w13"), SEP],
        [CLS, *ids("w1 w2 w3 w4 w5"), SEP, *ids("w20"), SEP],
        [CLS, *ids("w1 w2 w3 w4 w5 w6"), SEP, SEP],
        [CLS, *ids("w1 w2 w3"), SEP, *ids("w11 w12 w13"), SEP],
    ]
    assert features.counters == {"texts-truncated": 3, "tokens-cut": 6 + 1 + 6}
    assert features.labels is None


@pytest.mark.parametrize(
    ("rows", "is_training", "expected"),
    [
        (
            [("w1", FOUR, 0), ("w1", FOUR[:3], 0)],
            False,
            r"row 1 \(id r1\) .*continuations",
        ),
        ([("w1", FOUR, 4)], False, "has the label 4: expected a number from 0 to 3"),
        ([("w1", FOUR, -1)], False, "has the label -1: expected a number from 0 to 3"),
        ([("w1", FOUR, None)], True, "no label.*training"),
        ([("w1", FOUR, 1), ("w1", FOUR, None)], False, "1 of 2 rows have no label"),
    ],
)
def test_unusable_rows_are_refused(rows: Any, is_training: bool, expected: str) -> None:
    with pytest.raises(TaskDataError, match=expected):
        features_of(table(*rows), is_training=is_training)


def test_predictions_and_their_score() -> None:
    examples = table(("w1", FOUR, 1), ("w2", FOUR, 0), ("w3", FOUR, 2))
    features = features_of(examples)
    outputs = np.array([[0, 3, 0, 0], [1, 1, 1, 1], [0, 0, 0, np.log(3)]], np.float32)
    said = decoded(examples, features, outputs)
    assert [(row["id"], row["label"]) for row in said] == [("r0", 1), ("r1", 0), ("r2", 3)]
    assert said[2]["probabilities"] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert score(examples, said, task=TASK) == {"accuracy": pytest.approx(2 / 3)}
    with pytest.raises(PredictionsError, match=r"shape \(3, 2\), expected \(3, 4\)"):
        decoded(examples, features, outputs[:, :2])
    with pytest.raises(PredictionsError, match="2 predictions for 3 examples"):
        score(examples, said[:2], task=TASK)


def test_tables_of_several_chunks() -> None:
    examples = table(("w1", FOUR, 1), ("w2", FOUR, 0), ("w3 w4", FOUR, 2))
    pieces = pa.concat_tables([examples.slice(1, 2), examples.slice(0, 1)])
    whole = features_of(pieces.combine_chunks())
    features = features_of(pieces)
    assert features.input_ids.tolist() == whole.input_ids.tolist()
    assert features.labels is not None
    assert features.labels.tolist() == [0, 2, 1]


def test_no_rows_at_all() -> None:
    features = features_of(table())
    assert (features.units, features.per_unit) == (0, 4)
    assert decoded(table(), features, np.zeros((0, 4), np.float32)) == []
