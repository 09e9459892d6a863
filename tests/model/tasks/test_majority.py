"""Baseline without a model: the most frequent answer of the training data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model.tasks import TASKS
from model.tasks.examples import read_examples
from model.tasks.task_types import TASK_TYPES
from schemas.manifest import StageInput


@pytest.mark.parametrize(
    ("task", "answers", "metric"),
    [
        ("sst-2", {"label": "0"}, ("accuracy", 0.5)),
        ("sts-b", {}, ("spearman", 0.0)),
        ("swag", {}, None),
        ("squad-1.1", {}, None),
        ("squad-2.0", {"text": ""}, ("em", 1 / 3)),
        ("conll-2003", {"tag": "O"}, ("entity-f1", 0.0)),
    ],
)
def test_majority_answer_is_most_frequent_of_train(
    task: str,
    answers: dict[str, Any],
    metric: tuple[str, float] | None,
    kinds: dict[str, StageInput],
) -> None:
    task_type, examples = TASK_TYPES[TASKS[task].type], kinds[task]
    table, labels = read_examples(examples, "train"), examples.statistics.get("labels", ())
    majority = task_type.majority_answer(table, task=TASKS[task], labels=labels)
    train = table.to_pylist()
    assert answers.items() <= majority.items()
    if task == "sts-b":
        assert majority["score"] == pytest.approx(np.mean([row["score"] for row in train]))
    elif task == "swag":
        counts = np.bincount([row["label"] for row in train], minlength=4)
        assert majority["label"] == counts.argmax()
    elif task.startswith("squad"):
        texts = [(row["answers"] or [""])[0] for row in train]
        assert texts.count(majority["text"]) == max(texts.count(text) for text in texts)
    rows = read_examples(examples, "dev")
    predictions = task_type.repeat_answer(rows, majority)
    dev = task_type.score(rows, predictions, task=TASKS[task])
    assert set(TASKS[task].metrics) <= set(dev)
    if metric is not None:
        assert dev[metric[0]] == pytest.approx(metric[1])
