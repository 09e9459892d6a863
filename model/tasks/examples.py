"""Examples of a task as tables: from an artifact of `build-examples`, a file, or single texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from model.tasks.task import (
    BadRow,
    InvalidRowError,
    Row,
    Task,
    check_repeated_ids,
    convert_row,
    describe_bad,
)
from pipelines.io.stage_inputs import input_file
from schemas.errors import (
    ConfigError,
    PredictionsError,
    TaskDataError,
    UsageError,
)
from schemas.manifest import StageInput

if TYPE_CHECKING:
    import pyarrow as pa

_WORD = re.compile(r"\w+(?:[-'\u2019.]\w+)*|[^\w\s]")
"""Words as newspaper corpora split them: punctuation separate, hyphens and apostrophes inside."""

_PARTS = {"span": "question", "choice": "choice"}
"""Part that the examples of a task type need in addition to the text."""


def splits_of(examples: StageInput) -> tuple[str, ...]:
    """Return the splits of the examples, in the task's order."""
    return tuple(examples.statistics["splits"])


def labels_of(examples: StageInput) -> tuple[str, ...]:
    """Return the names of a model's outputs, in order; () for types whose outputs have none."""
    return tuple(str(label) for label in examples.statistics.get("labels", ()))


def read_examples(examples: StageInput, split: str) -> pa.Table:
    """Return the examples of a split, in the order of its files, as the table of the task's type.

    Raises:
        TaskDataError: The split does not exist.
        ArtifactCorruptError: The file is missing or differs from the manifest.
    """
    from pipelines.io.shards import open_shard
    from schemas.arrow import EXAMPLES

    if split not in splits_of(examples):
        raise TaskDataError(
            f"examples of {examples.statistics['task']} ({examples.artifact_id}): expected the "
            f"split {split}, got {', '.join(splits_of(examples))}. Give build_examples a file of it"
        )
    file = input_file(examples, f"{split}.arrow")
    with open_shard(file, expected=EXAMPLES[examples.statistics["kind"]]) as reader:
        table: pa.Table = reader.read_all()
    return table


def examples_of_file(
    task: Task, url: str, *, split: str, labels: Sequence[str] = ()
) -> tuple[pa.Table, dict[str, int]]:
    """Read a file in a split's official layout.

    Args:
        task: Task of the file.
        url: Path or any fsspec URL.
        split: `dev`, `test`, ...
        labels: Labels of the model, for tasks without fixed ones; rows with other labels are
            dropped and counted.

    Returns:
        The valid examples, and the counts `rows-in`, `rows-kept` and `rows-dropped-REASON`.

    Raises:
        ConfigError: The task has no such split.
        TaskDataError: The file cannot be used, has no valid row, or repeats ids of questions.
    """
    if split not in task.splits:
        raise ConfigError(
            f"--split {split}: {task.name} has no such split; choose from {', '.join(task.splits)}"
        )

    def check_label(row: Row) -> Row:
        label = row.values.get("label")
        if task.type == "classification" and labels and label not in (None, *labels):
            raise InvalidRowError("label-not-of-the-model", str(label))
        return row

    try:
        rows = [convert_row(row, check_label) for row in task.reader(task, split, url)]
    except IsADirectoryError as error:
        raise TaskDataError(
            f"{url}: expected the file of {task.name} {split}, found a folder; name a file in it"
        ) from error
    kept = [row.values for row in rows if isinstance(row, Row)]
    bad = [row for row in rows if isinstance(row, BadRow)]
    if not kept:
        raise TaskDataError(
            f"{url}: as {task.name} {split}, none of {len(rows):,} rows can be used"
            f"{f' ({describe_bad(bad)})' if bad else ''}: is it the right file?"
        )
    ids = Counter(row["id"] for row in kept)
    check_repeated_ids(ids, are_matched=task.type == "span", where=f"{url}: {task.name} {split}")
    counts = Counter(f"rows-dropped-{row.reason}" for row in bad)
    counts.update({"rows-in": len(rows), "rows-kept": len(kept)})
    return _to_table(kept, task), dict(counts)


def _to_table(rows: Sequence[Mapping[str, Any]], task: Task) -> pa.Table:
    import pyarrow as pa

    from schemas.arrow import EXAMPLES

    return pa.Table.from_pylist(rows, schema=EXAMPLES[task.type])


# Texts


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
    return Questions(_to_table(rows, task), errors)


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
