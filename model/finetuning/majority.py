"""The baseline without a model: always the answer that is most frequent in the training data.

No torch here, and no text is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from model.tasks import Task
from schemas.errors import ExamplesError


def majority_answer(examples: pa.Table, *, task: Task, labels: Sequence[str]) -> dict[str, Any]:
    """What the majority says of every example: a prediction (`model.task_types`) without its `id`.

    Args:
        examples: the training data.
        task: whose examples they are.
        labels: classes in order; of equally frequent ones the first is taken.

    Returns:
        classification: `label`, and as `probabilities` the shares of the training data. regression:
        the mean `score`. choice: as classification, by number. span: the most frequent `text`, ""
        among them where questions may have no answer. tagging: the most frequent `tag`, which
        stands for each word.

    Raises:
        ExamplesError: no example has an answer.
    """
    if task.kind == "regression":
        mean = pc.mean(examples["score"]).as_py()
        if mean is None:
            raise _no_answers(task)
        return {"score": float(mean)}
    if task.kind == "span":
        return _span_answer(examples, task=task)
    if task.kind == "tagging":
        tags = examples["tags"].combine_chunks().flatten().to_pylist()
        return {"tag": _most_frequent(tags, task=task)}
    counts = Counter(name for name in examples["label"].to_pylist() if name is not None)
    if not counts:
        raise _no_answers(task)
    total = sum(counts.values())
    if task.kind == "choice":
        shares = [counts[number] / total for number in range(task.choices)]
        return {"label": shares.index(max(shares)), "probabilities": shares}
    named = {name: counts[name] / total for name in labels}
    best = max(labels, key=lambda name: named[name])  # the first of equals
    return {"label": best, "probabilities": named}


def majority_predictions(examples: pa.Table, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The majority's predictions, one a row of `examples`, in order."""
    names = examples["id"].to_pylist()
    if "tag" not in answer:
        return [{"id": name, **answer} for name in names]
    words = pc.list_value_length(examples["words"]).to_pylist()
    return [
        {"id": name, "tags": [answer["tag"]] * count}
        for name, count in zip(names, words, strict=True)
    ]


def _span_answer(examples: pa.Table, *, task: Task) -> dict[str, Any]:
    firsts = (answers[0] if answers else "" for answers in examples["answers"].to_pylist())
    texts = [text for text in firsts if text or task.has_unanswerable]
    text = _most_frequent(texts, task=task)
    entry = {"text": text, "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}
    # Above or below every threshold that is near 0: no answer, or one.
    return {"text": text, "null_odds": -1.0 if text else 1.0, "n_best": [entry]}


def _most_frequent(values: Iterable[str], *, task: Task) -> str:
    counts = Counter(values)
    if not counts:
        raise _no_answers(task)
    return min(counts, key=lambda value: (-counts[value], value))


def _no_answers(task: Task) -> ExamplesError:
    return ExamplesError(
        f"{task.name}: no example of the training data has an answer: expected labelled ones, to "
        "tell which is most frequent"
    )
