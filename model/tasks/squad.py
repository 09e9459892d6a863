"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions answered by a span of a passage.

Files are the official JSON, plain or compressed, or the output of `datasets`: JSON Lines or Parquet
with the columns id, title, context, question, answers{text, answer_start}. The split
`augmentation`, on which a model is trained first, has other questions in one of these formats or
TriviaQA's files (`model.tasks.triviaqa`; paper 4.2).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from model.tasks.columns import find_columns
from model.tasks.files import is_text, read_json, shown
from model.tasks.input_tables import Table, is_json_lines, is_parquet, open_json, open_parquet
from model.tasks.sentence_tasks import CUSTOM_SPLITS
from model.tasks.task import Bad, FileLayout, Row, Task
from model.tasks.triviaqa import is_triviaqa, read_triviaqa
from schemas.errors import TaskDataError

NOT_FOUND = -1
"""Start of an answer that does not occur in the context."""

_TRAINED_ON = frozenset({"train", "augmentation"})
_LAYOUT = FileLayout(
    columns={
        "text": (("id", "question", "context"),),
        "answers": (("answers",),),
        "title": (("title",),),
        "is_impossible": (("is_impossible",),),
    }
)


class _Question(NamedTuple):
    """Unchecked question of a file."""

    position: str
    title: Any
    context: Any
    context_fault: tuple[str, str] | None
    """Reason and content of an invalid context (checked once per paragraph)."""

    values: dict[str, Any]
    """`id`, `question`, `answers`, `is_impossible`, as far as present."""


def read_squad(task: Task, split: str, url: str) -> Iterator[Row | Bad]:
    """Yield the questions of a file in order.

    An answer that is not at its `answer_start` gets the start of its nearest occurrence and a note.
    An answer that does not occur keeps its text, which scores dev, with start -1 and a note; a
    training question without another answer is Bad. `is_impossible` is null in files without
    answers (test sets); in files without this key, questions with answers are possible.

    TriviaQA is only for training: its scoring rules and answer aliases differ.

    Raises:
        TaskDataError: The file has another format, lacks a column, or has no question.
        InputError: The file is missing or damaged.
    """
    seen: set[str] = set()
    count = 0
    for item in _items(task, split, url):
        count += 1
        yield _row(item, task=task, split=split, seen=seen) if isinstance(item, _Question) else item
    if not count:
        raise TaskDataError(
            f"{url}: no question in it; expected questions below data, paragraphs, qas. It may be "
            "another file, or cut off"
        )


def with_evidence(task: Task, folder: str | None) -> Task:
    """Return the task with the folder of the documents of TriviaQA's questions, if there is one."""
    return task if folder is None else replace(task, layout=replace(task.layout, evidence=folder))


def _items(task: Task, split: str, url: str) -> Iterator[_Question | Row | Bad]:
    if is_parquet(url):
        return _rows(open_parquet(url), task, split, url)
    if not is_triviaqa(url):
        return _rows(open_json(url), task, split, url) if is_json_lines(url) else _json(url)
    if split not in _TRAINED_ON or not task.layout.evidence:
        raise TaskDataError(
            f"{url}: has TriviaQA's questions, which {task.title} can be trained on first "
            f"(`augmentation` of build_examples), expected those of {task.title} {split}"
        )
    return read_triviaqa(url, evidence=task.layout.evidence)


def _json(url: str) -> Iterator[_Question | Bad]:
    content = read_json(url, error=TaskDataError)
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        found = sorted(content) if isinstance(content, dict) else f"a {type(content).__name__}"
        raise TaskDataError(
            f"{url}: expected SQuAD's JSON, an object with the list data, found {found!s:.200}. "
            "Give the official file, or JSON Lines or Parquet with id, question, context, answers"
        )
    for number, article in enumerate(content["data"], start=1):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            yield Bad(f"article {number}", "missing-key", "no list paragraphs")
            continue
        title = article.get("title", "")
        name = title if isinstance(title, str) and title else f"article {number}"
        for at, paragraph in enumerate(paragraphs, start=1):
            yield from _questions(paragraph, title, position=f"paragraph {at} of {name}")


def _questions(paragraph: Any, title: Any, *, position: str) -> Iterator[_Question | Bad]:
    questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
    if not isinstance(questions, list):
        yield Bad(position, "missing-key", "no list qas")
        return
    context = paragraph.get("context")
    fault = _fault_of(context, "context")
    for number, values in enumerate(questions, start=1):
        where = f"question {number}, {position}"
        if isinstance(values, dict):
            yield _Question(where, title, context, fault, values)
        else:
            yield Bad(where, "malformed", f"no object: {values!r:.60}")


def _rows(table: Table, task: Task, split: str, url: str) -> Iterator[_Question | Bad]:
    for item in find_columns(table, task, split, url).records():
        if isinstance(item, Bad):
            yield item
            continue
        known = {key: value for key, value in item.values.items() if value is not None}
        context = known.get("context")
        fault = _fault_of(context, "context")
        yield _Question(f"row {item.number + 1}", known.get("title", ""), context, fault, known)


def _row(given: _Question, *, task: Task, split: str, seen: set[str]) -> Row | Bad:
    values = given.values
    identity = values.get("id")
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    title = given.title if given.title is not None else ""
    question = values.get("question")
    faults = (_fault_of(identity, "id"), _fault_of(question, "question"), given.context_fault)
    fault = next(filter(None, faults), None) or (
        None if is_text(title) else ("malformed", f"title {title!r:.60}")
    )
    if fault is not None:
        return Bad(given.position, *fault)
    if identity in seen:
        return Bad(given.position, "duplicate-id", str(identity))
    seen.add(str(identity))
    answers = _answers(given, task=task, split=split)
    if isinstance(answers, Bad):
        return answers
    found, is_impossible = answers
    columns = {
        "id": identity,
        "title": title,
        "question": question,
        "context": given.context,
        "answers": found.texts,
        "answer_starts": found.starts,
        "is_impossible": is_impossible,
    }
    return Row(given.position, columns, found.notes)


def _answers(given: _Question, *, task: Task, split: str) -> tuple[Answers, bool | None] | Bad:
    """Return the question's answers, and whether it is known to have none."""
    values, position = given.values, given.position
    said = values.get("is_impossible")
    if said is not None and not isinstance(said, bool):
        return Bad(position, "malformed", f"is_impossible {said!r:.60}")
    if values.get("answers") is None and said is not True:
        if split in _TRAINED_ON:
            return Bad(position, "missing-key", "no answers")
        return Answers([], [], ()), None
    try:
        found = check_answers(
            values.get("answers") or [], given.context, keeps_blank=split not in _TRAINED_ON
        )
    except WrongAnswersError as error:
        return Bad(position, "malformed", str(error))
    if not found.texts:
        if found.notes:
            return Bad(position, "empty-answer", "answers without text")
        if said is False:
            return Bad(position, "no-answer", "no answer, and is_impossible is false")
        if not task.has_unanswerable:
            hint = f"expected an answer to each question of {task.name}, got none"
            return Bad(position, "unanswerable", hint)
        return found, True
    if said:
        return Bad(
            position, "contradictory", f"is_impossible, and the answer {found.texts[0]!r:.60}"
        )
    if split in _TRAINED_ON and not found.is_found:
        answers = shown(values["answers"])
        where = f"not in the context of {len(given.context)} characters"
        return Bad(position, "answer-not-in-context", f"{answers}, {where}")
    return found, False


def _fault_of(value: Any, name: str) -> tuple[str, str] | None:
    """Return the reason and the content of an invalid text."""
    if value is None:
        return "missing-key", f"no {name}"
    if not is_text(value):
        return "malformed", f"{name} {value!r:.60}"
    return None if value.strip() else (f"empty-{name}", repr(value))


# Answers


class Answers(NamedTuple):
    """Answers of one question.

    Attributes:
        texts: Texts of the file; if only white space differs, texts of the context.
        starts: Character offsets into the context, or NOT_FOUND.
        notes: Distinct kebab-case names of corrections and oddities.
    """

    texts: list[str]
    starts: list[int]
    notes: tuple[str, ...]

    @property
    def is_found(self) -> bool:
        """True if any answer occurs in the context."""
        return any(start != NOT_FOUND for start in self.starts)


class WrongAnswersError(ValueError):
    """Answers have an unsupported structure."""


def check_answers(given: Any, context: str, *, keeps_blank: bool = False) -> Answers:
    """Find each answer in its context.

    If an answer is not at its given start, its nearest occurrence is used: first with equal white
    space, then with any.

    Args:
        given: `[{"text": ..., "answer_start": ...}, ...]` (the official files) or
            `{"text": [...], "answer_start": [...]}` (Hugging Face).
        context: Passage.
        keeps_blank: Keep an answer that is only white space, as not found, because the official
            scripts compare with it.

    Raises:
        WrongAnswersError: The answers have neither structure.
    """
    texts: list[str] = []
    starts: list[int] = []
    notes: list[str] = []
    for text, start in _pairs(given):
        if not text.strip():
            notes.append("empty-answer" if keeps_blank else "empty-answer-left-out")
            if keeps_blank:
                texts.append(text)
                starts.append(NOT_FOUND)
            continue
        found, at, note = _find(text, start, context)
        texts.append(found)
        starts.append(at)
        if note:
            notes.append(note)
    return Answers(texts, starts, tuple(dict.fromkeys(notes)))


def _pairs(given: Any) -> list[tuple[str, int | None]]:
    if isinstance(given, dict) and {"text", "answer_start"} <= given.keys():
        texts, starts = given["text"], given["answer_start"]
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise WrongAnswersError("answers.text and answers.answer_start: expected lists")
        if len(texts) != len(starts):
            raise WrongAnswersError(f"{len(texts)} answer texts and {len(starts)} starts")
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(given, list) and all(isinstance(item, dict) for item in given):
        pairs = [(item.get("text"), item.get("answer_start")) for item in given]
    else:
        raise WrongAnswersError(f"answers: expected a list of objects, found {given!r:.60}")
    for text, start in pairs:
        if not is_text(text):
            raise WrongAnswersError(f"text of an answer: expected text, found {text!r:.60}")
        if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
            raise WrongAnswersError(f"answer_start: expected a number, found {start!r:.60}")
    return pairs


def _find(text: str, start: int | None, context: str) -> tuple[str, int, str]:
    """Return the answer's text, its start, and what was mended ("" for nothing)."""
    near = start or 0
    if start is not None and start >= 0 and context.startswith(text, start):
        return text, start, ""
    found = _nearest(text, context, near, positions=range(len(context)))
    if found is not None:
        return text, found, "answer-start-mended"
    # Compare with one space in the place of each run of white space.
    positions = [run.start() for run in re.finditer(r"\s+|\S", context)]
    collapsed = "".join(" " if context[at].isspace() else context[at] for at in positions)
    phrase = " ".join(text.split())
    found = _nearest(phrase, collapsed, near, positions=positions)
    if found is not None:
        first, last = positions[found], positions[found + len(phrase) - 1]
        return context[first : last + 1], first, "answer-space-mended"
    return text, NOT_FOUND, "answer-not-in-context"


def _nearest(text: str, context: str, near: int, *, positions: Sequence[int]) -> int | None:
    """Return the index of the occurrence that is nearest to a position, the first of equals.

    Args:
        text: Text to look for.
        context: Text to look in.
        near: Position, counted as `positions` are.
        positions: Position of each character of the context, ascending.
    """
    at = bisect.bisect_left(positions, near)
    found = []
    # Search backwards in the reversed text: `str.rfind` takes quadratic time, `str.find` does not.
    head = context[: max(0, at + len(text) - 1)]
    if (before := head[::-1].find(text[::-1])) >= 0:
        found.append(len(head) - before - len(text))
    if (after := context.find(text, at)) >= 0:
        found.append(after)
    return min(found, key=lambda index: abs(positions[index] - near), default=None)


# Tasks


def _task(version: str, *, table: str, config: str, sizes: tuple[int, int]) -> Task:
    return Task(
        name=f"squad-{version}",
        title=f"SQuAD {version}",
        type="span",
        splits={
            "train": (f"train-v{version}.json*", "train-*.parquet", f"{config}/train-*.parquet"),
            "dev": (
                f"dev-v{version}.json*",
                "validation-*.parquet",
                f"{config}/validation-*.parquet",
            ),
            "test": (f"test-v{version}.json*", "test-*.parquet", f"{config}/test-*.parquet"),
            "augmentation": (
                "augmentation*.json*",
                "augmentation*.parquet",
                "triviaqa*.json*",
                "triviaqa-rc/qa/wikipedia-train.json*",
            ),
        },
        sizes=dict(zip(("train", "dev"), sizes, strict=True)),
        reader=read_squad,
        layout=_LAYOUT,
        metrics=("f1", "em"),
        has_unanswerable=version == "2.0",
        max_seq_length=384,
        paper={
            f"{split}/{metric}": (table, metric.upper())
            for split in ("dev", "test")
            for metric in ("em", "f1")
        },
    )


SQUAD_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("1.1", table="table-2", config="plain_text", sizes=(87_599, 10_570)),
        _task("2.0", table="table-3", config="squad_v2", sizes=(130_319, 11_873)),
    )
}
"""The two versions by name."""


def _custom(name: str, title: str, *, has_unanswerable: bool) -> Task:
    return Task(
        name=name,
        title=title,
        type="span",
        splits=CUSTOM_SPLITS,
        reader=read_squad,
        layout=_LAYOUT,
        metrics=("f1", "em"),
        has_unanswerable=has_unanswerable,
        max_seq_length=384,
    )


CUSTOM_QUESTION_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _custom("question-answering", "question answering", has_unanswerable=False),
        _custom(
            "question-answering-unanswerable",
            "question answering, some without an answer",
            has_unanswerable=True,
        ),
    )
}
"""Tasks for custom questions by name: files as of SQuAD, named train, dev and test."""
