"""Asking a fine-tuned model about texts and files: one answer or fault for each, in order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from flows.cli.models import answers
from model.tasks import Task, find_task
from model.tasks.examples import examples_of_file
from schemas.arrow import EXAMPLES
from schemas.errors import PredictionsError, UsageError

if TYPE_CHECKING:
    from model.finetuning.prediction import Predictor

_SHOWN = 5

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


class _Parts(NamedTuple):
    """What is the same for each text."""

    pair: str | None
    question: str | None
    choices: tuple[str, ...]


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
    parts = _Parts(pair, question, tuple(choices))
    _check_parts(task, texts, parts)
    rows, faults = [], {}
    for number, text in enumerate(texts):
        try:
            found = _row(task, text, parts)
        except _UnusableTextError as error:
            faults[number] = str(error)
        else:
            rows.append({"id": str(number), **found})
    schema = EXAMPLES[task.type]
    full = [{field.name: row.get(field.name) for field in schema} for row in rows]
    return AskedTexts(pa.Table.from_pylist(full, schema=schema), faults)


def _check_parts(task: Task, texts: Sequence[str | None], parts: _Parts) -> None:
    expected: tuple[tuple[str, object, bool], ...] = (
        ("pair", parts.pair, task.is_pair and task.type != "choice"),
        ("question", parts.question, task.type == "span"),
        ("choice", parts.choices or None, task.type == "choice"),
    )
    has_tabs = any(text is not None and "\t" in text for text in texts)
    for name, value, is_needed in expected:
        if value is not None and not is_needed:
            raise UsageError(f"--{name}: {task.name} ({task.type}) has no use for it")
        if value is None and is_needed and not (name == "pair" and has_tabs):
            more = " (or a tab between the two texts)" if name == "pair" else ""
            raise UsageError(f"--{name} is missing: {task.name} ({task.type}) needs it{more}")
    if task.type == "choice" and (found := len(parts.choices)) != task.choices:
        raise UsageError(
            f"--choice: expected {task.choices} of them for {task.name}, found {found}"
        )


def _row(task: Task, text: str | None, parts: _Parts) -> dict[str, Any]:
    if text is None:
        raise _UnusableTextError("not UTF-8")
    if not text.strip():
        raise _UnusableTextError("no text")
    if task.type == "choice":
        return {"context": text, "continuations": list(parts.choices)}
    if task.type == "span":
        return {"title": "", "question": parts.question, "context": text,
                "answers": [], "answer_starts": []}  # fmt: skip
    if task.type == "tagging":
        words = _WORD.findall(text)
        return {"sentence_lengths": [len(words)], "words": words}
    pair = parts.pair
    if task.is_pair and pair is None:
        tabs = text.count("\t")
        if tabs != 1:
            raise _UnusableTextError(f"expected two texts with one tab between, found {tabs} tabs")
        text, _, pair = text.partition("\t")
        if not (text.strip() and pair.strip()):
            raise _UnusableTextError("expected two texts with one tab between, one is empty")
    return {"text_a": text, "text_b": pair}


def file_as_examples(
    task: str, file: str, *, split: str, labels: Sequence[str]
) -> tuple[pa.Table, str]:
    """The examples of a file of a task, and which rows of it are none ("" where all are)."""
    examples, counts = examples_of_file(find_task(task), file, split=split, labels=labels)
    lost = [
        f"{name.removeprefix('rows-dropped-')} {count:,}"
        for name, count in sorted(counts.items())
        if name.startswith("rows-dropped-")
    ]
    if not lost:
        return examples, ""
    without = counts["rows-in"] - counts["rows-kept"]
    reasons = ", ".join(lost)
    return examples, f"{file}: {without:,} of {counts['rows-in']:,} rows get no answer: {reasons}"


def ask(predictors: Sequence[Predictor], asked: AskedTexts, *, as_json: bool) -> Iterator[str]:
    """A line for each text, in order: the answer and how sure the model is, or why there is none.

    Raises:
        PredictionsError: after the last line, if some text could not be asked about; says which.
    """
    lines = iter(_answer_lines(predictors, asked.examples, as_json=as_json))
    for number in range(asked.size):
        fault = asked.faults.get(number)
        if fault is None:
            yield next(lines)
        elif as_json:
            yield json.dumps({"id": str(number), "error": f"line {number + 1}: {fault}"})
        else:
            yield f"(not answered: {fault})"
    if asked.faults:
        faults = [f"line {number + 1}: {fault}" for number, fault in asked.faults.items()]
        more = f"; and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
        raise PredictionsError(
            f"{len(faults):,} of {asked.size:,} lines were not answered: "
            f"{'; '.join(faults[:_SHOWN])}{more}"
        )


def _answer_lines(
    predictors: Sequence[Predictor], examples: pa.Table, *, as_json: bool
) -> Iterator[str]:
    if not len(examples):
        return
    kind = predictors[0].task.type
    for row, said in zip(examples.to_pylist(), answers(predictors, examples), strict=True):
        if as_json:
            yield json.dumps(said, sort_keys=True, ensure_ascii=False)
        elif kind == "regression":
            yield f"{said['score']:.3f}"
        elif kind == "span":
            # Where the threshold decides, it need not be the first of them.
            shares = (
                best["probability"] for best in said["n_best"] if best["text"] == said["text"]
            )
            yield f"{said['text'] or '(no answer)'}\t{next(shares, 0.0):.3f}"
        elif kind == "tagging":
            pairs = zip(row["words"], said["tags"], strict=True)
            yield " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in pairs)
        else:
            label = said["label"]
            chosen = label if isinstance(label, str) else row["continuations"][label]
            yield f"{chosen}\t{said['probabilities'][label]:.3f}"
