"""Tasks for data of your own: no code, only files whose columns have the names below.

    single-sentence       sentence (or text), label
    sentence-pair         sentence1 and sentence2 (or text_a and text_b, ...), label
    sentence-regression   sentence (or text), score
    pair-regression       sentence1 and sentence2, score

A file is tab-separated, comma-separated, JSON or Parquet, with a header, named train, dev and test
(`train.tsv`, `dev.csv`, ...) or named in the recipe's `files`. A column `id` is optional. Labels
may be any text; they are those of the training data in sorted order, numbers by value.
"""

from __future__ import annotations

from typing import Any

from model.tasks.official_files import table_globs
from model.tasks.task import Task
from model.tasks.text_rows import TextColumns, read_text_rows

_SENTENCE = (("sentence",), ("text",), ("text_a",))
_PAIR = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)


def _task(name: str, title: str, *, is_pair: bool, **more: Any) -> Task:
    answers = ("score", "label") if more["type"] == "regression" else ("label", "class")
    return Task(
        name=name,
        title=title,
        splits={
            "train": table_globs("train"),
            "dev": table_globs("dev", "validation", "valid", "val"),
            "test": table_globs("test"),
        },
        reader=read_text_rows,
        is_pair=is_pair,
        columns={
            "text": TextColumns(
                texts=_PAIR if is_pair else _SENTENCE, answers=answers, ids=("id", "index", "idx")
            )
        },
        **more,
    )


_CLASSES: dict[str, Any] = {"type": "classification", "metrics": ("accuracy", "matthews")}
_SCORES: dict[str, Any] = {"type": "regression", "metrics": ("spearman", "pearson")}

OWN_DATA_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("single-sentence", "single sentences", is_pair=False, **_CLASSES),
        _task("sentence-pair", "sentence pairs", is_pair=True, **_CLASSES),
        _task("sentence-regression", "scored sentences", is_pair=False, **_SCORES),
        _task("pair-regression", "scored pairs", is_pair=True, **_SCORES),
    )
}
"""By name."""
