"""A text task and its vocabulary, for the tests of task types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from model.task_types.by_name import TASK_TYPES
from model.task_types.features import Features
from model.tasks.task import BadRow, Row, Task
from schemas.finetune_configs import TaskTypeName

WORDS = [f"w{number}" for number in range(40)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *WORDS]
CLS, SEP = 2, 3


def no_rows(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    yield from ()


def a_task(kind: TaskTypeName = "classification", **fields: Any) -> Task:
    given = {
        "name": "own", "title": "Own", "splits": {}, "reader": no_rows,
        "labels": ("no", "yes") if kind == "classification" else (),
        "metrics": ("accuracy", "f1") if kind == "classification" else ("spearman", "pearson"),
    }  # fmt: skip
    return Task(type=kind, **{**given, **fields})


def score(examples: pa.Table, said: Any, *, task: Task) -> dict[str, float]:
    return TASK_TYPES[task.type].score(examples, said, task=task)


def sequences(features: Features) -> list[list[int]]:
    return [part.tolist() for part in np.split(features.input_ids, features.offsets[1:-1])]


def ids(text: str) -> list[int]:
    return [VOCAB.index(word) for word in text.split()]
