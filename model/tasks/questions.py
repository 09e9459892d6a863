"""Texts of a user as examples of a task, to be answered by a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from model.tasks.task import Task
from schemas.arrow import EXAMPLES
from schemas.errors import PredictionsError, UsageError

_WORD = re.compile(r"\w+(?:[-'\u2019.]\w+)*|[^\w\s]")
"""Words as newspaper corpora split them: punctuation separate, hyphens and apostrophes inside."""

_PARTS = {"span": "question", "choice": "choice"}
"""Part that the examples of a task type need in addition to the text."""


class Questions(NamedTuple):
    """Texts as examples of a task."""

    examples: pa.Table
    """Usable texts, in order. Their ids are the numbers of the texts from 0."""

    errors: Mapping[int, str]
    """Why a text cannot be used, by its number from 0."""


def make_questions(
    task: Task, texts: Sequence[str | None], parts: Mapping[str, Any] | None = None
) -> Questions:
    """Return texts as examples of a task.

    Args:
        task: Task of the model.
        texts: Texts; None for one that is not UTF-8. Without `text-pair`, a tab separates pairs.
        parts: The other parts of every example: `text-pair`, `question`, `choice`.

    Raises:
        PredictionsError: There is no text.
        UsageError: A part of the task is missing, or the task has no such part.
    """
    if not texts:
        raise PredictionsError("expected a text, lines on standard input, or --file, got none")
    parts = {name: value for name, value in (parts or {}).items() if value}
    _check_parts(task, texts, parts)
    rows, errors = [], {}
    for number, text in enumerate(texts):
        try:
            rows.append({"id": str(number), **_make_row(task, text, parts)})
        except ValueError as error:
            errors[number] = str(error)
    schema = EXAMPLES[task.type]
    rows = [{field.name: row.get(field.name) for field in schema} for row in rows]
    return Questions(pa.Table.from_pylist(rows, schema=schema), errors)


def _check_parts(task: Task, texts: Sequence[str | None], parts: Mapping[str, Any]) -> None:
    part = _PARTS.get(task.type, "text-pair" if task.is_pair else "")
    if extra := parts.keys() - {part}:
        raise UsageError(f"--{min(extra)}: not supported for task {task.name} ({task.type})")
    has_tabs = part == "text-pair" and any("\t" in text for text in texts if text)
    if part and part not in parts and not has_tabs:
        hint = " (or a tab between the two texts)" if part == "text-pair" else ""
        raise UsageError(f"--{part} is missing: task {task.name} needs it{hint}")
    if part == "choice" and len(parts[part]) != task.choices:
        raise UsageError(f"--choice: expected {task.choices} of them, got {len(parts[part])}")


def _make_row(task: Task, text: str | None, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the example of a text.

    Raises:
        ValueError: The text cannot be used.
    """
    if text is None:
        raise ValueError("not UTF-8")
    if not text.strip():
        raise ValueError("no text")
    if task.type == "choice":
        return {"context": text, "continuations": list(parts["choice"])}
    if task.type == "span":
        example = {"title": "", "question": parts["question"], "context": text}
        return {**example, "answers": [], "answer_starts": []}
    if task.type == "tagging":
        words = _WORD.findall(text)
        return {"sentence_lengths": [len(words)], "words": words}
    if not task.is_pair or "text-pair" in parts:
        return {"text_a": text, "text_b": parts.get("text-pair")}
    pair = [part for part in text.split("\t") if part.strip()]
    if len(pair) != 2 or text.count("\t") != 1:
        raise ValueError(f"expected two texts with one tab between, got {len(pair)} texts")
    return {"text_a": pair[0], "text_b": pair[1]}
