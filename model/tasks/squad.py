"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions answered by a span of a passage.

Files are the official JSON, plain or compressed, or the output of `datasets`: JSON Lines or Parquet
with the columns id, title, context, question, answers{text, answer_start}. The split
`augmentation`, on which a model is trained first, has other questions in one of these formats, such
as what TriviaQA's own `convert_to_squad_format.py` writes (paper 4.2).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from model.task_results import TRAINED_ON
from model.tasks.files import DataFile, is_text, open_data, shown
from model.tasks.sentences import CUSTOM_SPLITS
from model.tasks.tables import read_table
from model.tasks.task import BadRow, FileLayout, InvalidRowError, Row, Task, convert_row
from schemas.errors import TaskDataError
from schemas.field_names import field_name

NOT_FOUND = -1
"""Start of an answer that does not occur in the context."""

_TEXTS = ("context", "id", "question")
_LAYOUT = FileLayout(
    columns={
        "text": (_TEXTS,),
        "answers": (("answers",),),
        "title": (("title",),),
        "is_impossible": (("is_impossible",),),
    }
)


def read_squad(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Yield the questions of a file in order.

    An answer that is not at its `answer_start` gets the start of its nearest occurrence and a note.
    An answer that does not occur keeps its text, which scores dev, with start -1 and a note; a
    training question without another answer is bad. `is_impossible` is null in files without
    answers (test sets); in files without this key, questions with answers are possible.

    Raises:
        TaskDataError: The file has another format, lacks a column, or has no question.
        InputError: The file is missing or damaged.
    """
    example = partial(_example, task=task, split=split)
    row = None
    with open_data(url) as data:
        if data.format in ("parquet", "json-lines"):
            questions = _table_questions(data, task, split)
        else:
            questions = _json_questions(data, task)
        for row in questions:
            yield convert_row(row, example)
    if row is None:
        raise TaskDataError(
            f"{url}: no question in it; expected questions below data, paragraphs, qas. It may be "
            "another file, or cut off"
        )


def _json_questions(data: DataFile, task: Task) -> Iterator[Row | BadRow]:
    content = data.read_json(TaskDataError)
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        keys = sorted(content) if isinstance(content, dict) else f"a {type(content).__name__}"
        raise TaskDataError(
            f"{data.url}: expected SQuAD's JSON, an object with the list data, found "
            f"{keys!s:.200}. Give the official file, or JSON Lines or Parquet with id, question, "
            "context, answers"
        )
    if task.layout.named_columns:
        raise TaskDataError(
            f"{data.url}: expected a table, because {field_name('columns')} is set, got SQuAD's "
            "nested JSON. Remove it"
        )
    for number, article in enumerate(articles, start=1):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            yield BadRow(f"article {number}", "missing-key", "no list paragraphs")
            continue
        title = article.get("title", "")
        name = title if isinstance(title, str) and title else f"article {number}"
        for at, paragraph in enumerate(paragraphs, start=1):
            yield from _paragraph_questions(paragraph, title, f"paragraph {at} of {name}")


def _paragraph_questions(paragraph: Any, title: Any, position: str) -> Iterator[Row | BadRow]:
    questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
    if not isinstance(questions, list):
        yield BadRow(position, "missing-key", "no list qas")
        return
    for number, values in enumerate(questions, start=1):
        where = f"question {number}, {position}"
        if isinstance(values, dict):
            yield Row(where, {**values, "title": title, "context": paragraph.get("context")})
        else:
            yield BadRow(where, "malformed", f"no object: {values!r:.60}")


def _table_questions(data: DataFile, task: Task, split: str) -> Iterator[Row | BadRow]:
    for row in read_table(data, task, split).rows:
        if isinstance(row, Row):
            texts = dict(zip(_TEXTS, row.values["text"], strict=True))
            row = Row(f"row {row.number + 1}", {**row.values, **texts})
        yield row


def _example(row: Row, *, task: Task, split: str) -> Row:
    values, title = row.values, row.values.get("title")
    if type(values.get("id")) is int:
        values = {**values, "id": str(values["id"])}
    for name in _TEXTS:
        _check_text(values.get(name), name)
    if title is not None and not is_text(title):
        raise _malformed(f"title {title!r:.60}")
    answers, is_impossible = _answers(values, task=task, split=split)
    columns = {
        "id": values["id"],
        "title": title or "",
        "question": values["question"],
        "context": values["context"],
        "answers": answers.texts,
        "answer_starts": answers.starts,
        "is_impossible": is_impossible,
    }
    return Row(row.position, columns, answers.notes)


def _answers(values: Mapping[str, Any], *, task: Task, split: str) -> tuple[Answers, bool | None]:
    """Return the question's answers, and whether it is known to have none."""
    said, raw_answers = values.get("is_impossible"), values.get("answers")
    context = values["context"]
    is_training = split in TRAINED_ON
    if said is not None and not isinstance(said, bool):
        raise _malformed(f"is_impossible {said!r:.60}")
    if raw_answers is None and not said:
        if is_training:
            raise InvalidRowError("missing-key", "no answers")
        return Answers([], [], ()), None
    answers = check_answers(raw_answers or [], context, keeps_blank=not is_training)
    if not answers.texts:
        if answers.notes:
            raise InvalidRowError("empty-answer", "answers without text")
        if said is False:
            raise InvalidRowError("no-answer", "no answer, and is_impossible is false")
        if not task.has_unanswerable:
            hint = f"expected an answer to each question of {task.name}, got none"
            raise InvalidRowError("unanswerable", hint)
        return answers, True
    if said:
        detail = f"is_impossible, and the answer {answers.texts[0]!r:.60}"
        raise InvalidRowError("contradictory", detail)
    if is_training and set(answers.starts) == {NOT_FOUND}:
        where = f"not in the context of {len(context)} characters"
        raise InvalidRowError("answer-not-in-context", f"{shown(raw_answers)}, {where}")
    return answers, False


def _check_text(value: Any, name: str) -> None:
    if value is None:
        raise InvalidRowError("missing-key", f"no {name}")
    if not is_text(value):
        raise _malformed(f"{name} {value!r:.60}")
    if not value.strip():
        raise InvalidRowError(f"empty-{name}", repr(value))


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


def check_answers(value: Any, context: str, *, keeps_blank: bool = False) -> Answers:
    """Find each answer in its context.

    If an answer is not at its given start, its nearest occurrence is used: first with equal white
    space, then with any.

    Args:
        value: `[{"text": ..., "answer_start": ...}, ...]` (the official files) or
            `{"text": [...], "answer_start": [...]}` (Hugging Face).
        context: Passage.
        keeps_blank: Keep an answer that is only white space, as not found, because the official
            scripts compare with it.

    Raises:
        InvalidRowError: The answers have neither structure.
    """
    texts: list[str] = []
    starts: list[int] = []
    notes: list[str] = []
    for text, start in _pairs(value):
        if not text.strip():
            notes.append("empty-answer" if keeps_blank else "empty-answer-left-out")
            if keeps_blank:
                texts.append(text)
                starts.append(NOT_FOUND)
            continue
        answer, at, note = _find(text, start, context)
        texts.append(answer)
        starts.append(at)
        if note:
            notes.append(note)
    return Answers(texts, starts, tuple(dict.fromkeys(notes)))


def _pairs(value: Any) -> list[tuple[str, int | None]]:
    if isinstance(value, dict) and {"text", "answer_start"} <= value.keys():
        texts, starts = value["text"], value["answer_start"]
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise _malformed("answers.text and answers.answer_start: expected lists")
        if len(texts) != len(starts):
            raise _malformed(f"{len(texts)} answer texts and {len(starts)} starts")
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
        pairs = [(item.get("text"), item.get("answer_start")) for item in value]
    else:
        raise _malformed(f"answers: expected a list of objects, found {value!r:.60}")
    for text, start in pairs:
        if not is_text(text):
            raise _malformed(f"text of an answer: expected text, found {text!r:.60}")
        if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
            raise _malformed(f"answer_start: expected a number, found {start!r:.60}")
    return pairs


def _malformed(detail: str) -> InvalidRowError:
    return InvalidRowError("malformed", detail)


def _find(text: str, start: int | None, context: str) -> tuple[str, int, str]:
    """Return the answer's text, its start, and what was mended ("" for nothing)."""
    near = start or 0
    if start is not None and start >= 0 and context.startswith(text, start):
        return text, start, ""
    index = _nearest(text, context, near, positions=range(len(context)))
    if index is not None:
        return text, index, "answer-start-mended"
    # Compare with one space in the place of each run of white space.
    positions = [run.start() for run in re.finditer(r"\s+|\S", context)]
    collapsed = "".join(" " if context[at].isspace() else context[at] for at in positions)
    phrase = " ".join(text.split())
    index = _nearest(phrase, collapsed, near, positions=positions)
    if index is not None:
        first, last = positions[index], positions[index + len(phrase) - 1]
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
    indexes = []
    # Search backwards in the reversed text: `str.rfind` takes quadratic time, `str.find` does not.
    head = context[: max(0, at + len(text) - 1)]
    if (before := head[::-1].find(text[::-1])) >= 0:
        indexes.append(len(head) - before - len(text))
    if (after := context.find(text, at)) >= 0:
        indexes.append(after)
    return min(indexes, key=lambda index: abs(positions[index] - near), default=None)


# Tasks


def _task(name: str, title: str, splits: Mapping[str, tuple[str, ...]], **fields: Any) -> Task:
    return Task(
        name=name,
        title=title,
        type="span",
        splits=splits,
        reader=read_squad,
        layout=_LAYOUT,
        metrics=("f1", "em"),
        max_seq_length=384,
        **fields,
    )


def _squad(version: str, *, table: str, hub: str, train: int, dev: int) -> Task:
    files = {"train": "train", "dev": "validation", "test": "test"}
    splits: dict[str, tuple[str, ...]] = {
        split: (
            f"{split}-v{version}.json*",
            f"{name}-*.parquet",
            f"{hub}/{name}-*.parquet",
        )
        for split, name in files.items()
    }
    splits["augmentation"] = ("augmentation*.json*", "augmentation*.parquet", "triviaqa*.json*")
    return _task(
        f"squad-{version}",
        f"SQuAD {version}",
        splits,
        sizes={"train": train, "dev": dev},
        has_unanswerable=version == "2.0",
        paper={
            f"{split}/{metric}": (table, f"{split} {metric.upper()}")
            for split in ("dev", "test")
            for metric in ("em", "f1")
        },
    )


SQUAD_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _squad("1.1", table="table-2", hub="plain_text", train=87_599, dev=10_570),
        _squad("2.0", table="table-3", hub="squad_v2", train=130_319, dev=11_873),
    )
}
"""The two versions by name."""

CUSTOM_QUESTION_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("question-answering", "question answering", CUSTOM_SPLITS),
        _task(
            "question-answering-unanswerable",
            "question answering, some without an answer",
            CUSTOM_SPLITS,
            has_unanswerable=True,
        ),
    )
}
"""Tasks for custom questions by name: files as of SQuAD, named train, dev and test."""
