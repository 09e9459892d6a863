"""Texts from the command line and from standard input as examples: one answer or fault for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from model.tasks import Task
from schemas.arrow import EXAMPLES
from schemas.errors import UsageError

_WORD = re.compile(r"\w+(?:[-'\u2019.]\w+)*|[^\w\s]")
"""Words as newspapers' corpora split them: punctuation apart, hyphens and apostrophes inside."""


class AskedTexts(NamedTuple):
    """What is asked about some texts."""

    examples: pa.Table
    """Those that can be asked, in order; the ids are their numbers from 0 among all."""

    faults: dict[int, str]
    """Why the others cannot, by number from 0."""

    @property
    def size(self) -> int:
        """How many texts, both kinds."""
        return len(self.examples) + len(self.faults)


class _UnusableTextError(ValueError):
    """A text that nothing can be asked about; says why."""


def lines_of(source: Iterable[bytes]) -> list[str | None]:
    """Lines without their ends, blank ones too; None for one that is not UTF-8."""
    found: list[str | None] = []
    for line in source:
        try:
            found.append(line.removesuffix(b"\n").removesuffix(b"\r").decode())
        except UnicodeDecodeError:
            found.append(None)
    return found


def texts_as_examples(
    task: Task,
    texts: Sequence[str | None],
    *,
    pair: str | None = None,
    question: str | None = None,
    choices: Sequence[str] = (),
) -> AskedTexts:
    """Texts as examples of a task; one that cannot be used does not take others along.

    Args:
        task: that of the model.
        texts: None for one that is not UTF-8. Pairs have a tab between the two, if `pair` is None.
        pair, question, choices: the other parts, the same for each text.

    Raises:
        UsageError: a part that the task needs is missing, or one that it has no use for is given.
    """
    _check_parts(task, texts, pair=pair, question=question, choices=choices)
    rows, faults = [], {}
    for number, text in enumerate(texts):
        try:
            found = _row(task, text, pair=pair, question=question, choices=choices)
        except _UnusableTextError as error:
            faults[number] = str(error)
        else:
            rows.append({"id": str(number), **found})
    schema = EXAMPLES[task.kind]
    full = [{field.name: row.get(field.name) for field in schema} for row in rows]
    return AskedTexts(pa.Table.from_pylist(full, schema=schema), faults)


def _check_parts(
    task: Task,
    texts: Sequence[str | None],
    *,
    pair: str | None,
    question: str | None,
    choices: Sequence[str],
) -> None:
    parts: tuple[tuple[str, object, bool], ...] = (
        ("pair", pair, task.is_pair and task.kind != "choice"),
        ("question", question, task.kind == "span"),
        ("choice", choices or None, task.kind == "choice"),
    )
    has_tabs = any(text is not None and "\t" in text for text in texts)
    for name, value, is_needed in parts:
        if value is not None and not is_needed:
            raise UsageError(f"--{name}: {task.name} ({task.kind}) has no use for it")
        if value is None and is_needed and not (name == "pair" and has_tabs):
            more = " (or a tab between the two texts)" if name == "pair" else ""
            raise UsageError(f"--{name} is missing: {task.name} ({task.kind}) needs it{more}")
    if task.kind == "choice" and len(choices) != task.choices:
        raise UsageError(
            f"--choice: expected {task.choices} of them for {task.name}, found {len(choices)}"
        )


def _row(
    task: Task,
    text: str | None,
    *,
    pair: str | None,
    question: str | None,
    choices: Sequence[str],
) -> dict[str, Any]:
    if text is None:
        raise _UnusableTextError("not UTF-8")
    if not text.strip():
        raise _UnusableTextError("no text")
    if task.kind == "choice":
        return {"context": text, "continuations": list(choices)}
    if task.kind == "span":
        return {"title": "", "question": question, "context": text,
                "answers": [], "answer_starts": []}  # fmt: skip
    if task.kind == "tagging":
        words = _WORD.findall(text)
        return {"sentence_lengths": [len(words)], "words": words}
    if task.is_pair and pair is None:
        tabs = text.count("\t")
        if tabs != 1:
            raise _UnusableTextError(f"expected two texts with one tab between, found {tabs} tabs")
        text, _, pair = text.partition("\t")
        if not (text.strip() and pair.strip()):
            raise _UnusableTextError("expected two texts with one tab between, one is empty")
    return {"text_a": text, "text_b": pair}
