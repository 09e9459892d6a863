"""Tasks for custom data: they need no code, only files with the columns named below.

    single-sentence       sentence (or text), label
    sentence-pair         sentence1 and sentence2 (or text_a and text_b, ...), label
    sentence-regression   sentence (or text), score
    pair-regression       sentence1 and sentence2, score
    question-answering    id, context, question, answers
    question-answering-unanswerable     the same; a question may have no answer

Files of questions are JSON Lines, Parquet or SQuAD's JSON. Any other file is tab-separated,
comma-separated, JSON or Parquet, with a header. Files are named train, dev and test (`train.tsv`,
`dev.csv`, ...) or named in the recipe's `files`. A column `id` is optional, but questions need it.
Labels may be any text; they are those of the training data in sorted order, numbers by value, or
those of the recipe's `labels` in its order.
"""

from __future__ import annotations

from typing import Any

from model.tasks.official_files import row_globs, table_globs
from model.tasks.squad import read_squad
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


def _questions(name: str, title: str, *, has_unanswerable: bool) -> Task:
    return Task(
        name=name,
        title=title,
        type="span",
        splits={
            "train": row_globs("train"),
            "dev": row_globs("dev", "validation", "valid", "val"),
            "test": row_globs("test"),
        },
        reader=read_squad,
        metrics=("f1", "em"),
        has_unanswerable=has_unanswerable,
        max_seq_length=384,
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
        _questions("question-answering", "question answering", has_unanswerable=False),
        _questions(
            "question-answering-unanswerable",
            "question answering, some without an answer",
            has_unanswerable=True,
        ),
    )
}
"""Tasks for custom data by name."""
