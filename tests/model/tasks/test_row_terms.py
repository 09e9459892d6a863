"""Terms of rows give the metrics of the split, for each type of task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from model.tasks import TASKS
from model.tasks.row_terms import weighted_values
from model.tasks.task_types import TASK_TYPES
from schemas.arrow import EXAMPLES
from schemas.errors import PredictionsError

ROWS = 40
TAGS = ["B-PER", "I-PER", "O", "B-LOC", "O", "O"]


def rows_of(task: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return random examples of a task with their answers."""
    kind, labels = TASKS[task].type, TASKS[task].labels
    rows: list[dict[str, Any]] = []
    for number in range(ROWS):
        row: dict[str, Any] = {"id": str(number)}
        if kind == "span":
            answers = [] if task == "squad-2.0" and number % 3 == 0 else ["the red mill", "mill"]
            row |= {"title": "", "question": "?", "context": "the red mill", "answers": answers}
            row |= {"answer_starts": [0] * len(answers)}
        elif kind == "tagging":
            tags = TAGS[: 1 + int(rng.integers(len(TAGS)))] * 2
            row |= {"words": ["w"] * len(tags), "sentence_lengths": [len(tags) // 2] * 2}
            row |= {"tags": tags}
        elif kind == "choice":
            row |= {"context": "", "continuations": [""] * 4, "label": int(rng.integers(4))}
        else:
            is_regression = kind == "regression"
            row |= {"text_a": "", "text_b": None}
            row |= {"label": None if is_regression else str(rng.choice(labels))}
            row |= {"score": float(rng.integers(11)) / 2 if is_regression else None}
        rows.append(row)
    return rows


def predictions_of(task: str, rows: list[dict[str, Any]], rng: np.random.Generator) -> Any:
    """Return the answers of other rows for about half of the rows."""
    predictions = []
    for row in rows:
        if TASKS[task].type == "span":
            text = str(rng.choice(["the red mill", "a mill", "river", ""]))
            predictions.append({"id": row["id"], "text": text})
        elif TASKS[task].type == "tagging":
            tags = [str(rng.choice([tag, "O", "B-LOC"])) for tag in row["tags"]]
            predictions.append({"id": row["id"], "tags": tags})
        else:
            column = "score" if row.get("score") is not None else "label"
            other = rows[int(rng.integers(ROWS))] if rng.random() < 0.5 else row
            predictions.append({"id": row["id"], column: other[column]})
    return predictions


@pytest.mark.parametrize(
    "task",
    ["cola", "mrpc", "mnli", "sts-b", "swag", "squad-1.1", "squad-2.0", "conll-2003"],
)
def test_terms_give_the_metrics_of_the_split(task: str) -> None:
    rng = np.random.default_rng(len(task))
    rows = rows_of(task, rng)
    predictions = predictions_of(task, rows, rng)
    task_type = TASK_TYPES[TASKS[task].type]
    examples = pa.Table.from_pylist(rows, schema=EXAMPLES[TASKS[task].type])
    expected = task_type.score(examples, predictions, task=TASKS[task])
    terms_by_metric = task_type.row_terms(examples, predictions, task=TASKS[task])
    assert TASKS[task].metrics[0] in terms_by_metric
    for metric, terms in terms_by_metric.items():
        assert len(terms.terms) == ROWS
        value = weighted_values(terms, np.ones((1, ROWS)))
        assert value == pytest.approx([expected[metric]])
        assert 0 < abs(expected[metric]) < 1


def test_terms_of_invalid_predictions_are_refused() -> None:
    rows = rows_of("conll-2003", np.random.default_rng(0))
    examples = pa.Table.from_pylist(rows, schema=EXAMPLES["tagging"])
    predictions = [{"id": row["id"], "tags": ["O"]} for row in rows]
    with pytest.raises(PredictionsError):
        TASK_TYPES["tagging"].row_terms(examples, predictions, task=TASKS["conll-2003"])
