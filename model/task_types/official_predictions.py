"""Predictions in the forms that tasks' own scorers and other programs read and write.

GLUE's submission is written by `model.tables.submission`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from model.task_types.prediction_files import raw_lines, read_lines
from model.task_types.squad_metrics import read_predictions
from model.tasks import Task
from model.tasks.columns import fields_of
from model.tasks.entities import entities_of, iob2, is_tag
from schemas.errors import PredictionsError

_LOGGER = logging.getLogger(__name__)


def read_any(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """Predictions of examples, in their order, as `model.task_types` describes them.

    Ours (JSON lines) are told by their first line. Otherwise: SQuAD's JSON of ids and answers, in
    any order, of which some may be missing (they have the text None, and count 0) and others be
    too many (they are logged); GLUE's `index` and `prediction` columns, in any order, where `index`
    is either a row's id or its number from 0; CoNLL columns with the word first and the tag last.

    Raises:
        PredictionsError: the file cannot be read, or is not of these examples.
        InputError: it is damaged.
    """
    if _is_ours(url):
        return read_lines(url)
    if task.kind == "span":
        return _answers(url, examples)
    if task.kind == "tagging":
        return _tags(url, examples, task=task)
    return _column(url, examples, task=task)


def _is_ours(url: str) -> bool:
    try:
        found = json.loads(next(raw_lines(url), b""))
    except (ValueError, RecursionError):
        return False
    # SQuAD's own JSON may stand in one line; no question has the id "id".
    return isinstance(found, dict) and "id" in found


def _lines(url: str) -> list[str]:
    """The lines; LF alone ends one, for a word may hold any of Unicode's other line ends."""
    found = []
    for number, line in enumerate(raw_lines(url), start=1):
        try:
            found.append(line.decode())
        except UnicodeDecodeError as error:
            raise PredictionsError(f"{url}, line {number}: not UTF-8: convert the file") from error
    return found


def _answers(url: str, examples: pa.Table) -> list[dict[str, Any]]:
    """SQuAD's object of ids and answers, in the order of the examples."""
    answers = read_predictions(url)
    ids = examples.column("id").to_pylist()
    unknown = sorted(set(answers) - set(ids))
    if unknown and len(unknown) == len(answers):
        raise PredictionsError(
            f"{url}: none of {len(answers):,} answers is to a question of the file, the first has "
            f"the id {unknown[0]!r}: score them against the file that they are of"
        )
    if unknown:
        _LOGGER.warning(
            "%s: %d of %d answers are to no question of the file and are left out, first %s",
            url,
            len(unknown),
            len(answers),
            unknown[0],
        )
    return [{"id": name, "text": answers.get(name)} for name in ids]


def _column(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """GLUE's submission: a header, then index and prediction."""
    lines = _lines(url)
    header = lines[0].split("\t") if lines else []
    if header != ["index", "prediction"]:
        raise PredictionsError(
            f"{url}: expected a first line with the columns index and prediction, found "
            f"{lines[0][:80]!r}"
            if lines
            else f"{url}: the file is empty"
        )
    if len(lines) - 1 != len(examples):
        raise PredictionsError(
            f"{url}: {len(lines) - 1:,} predictions for {len(examples):,} examples: expected one "
            "for each, in their order"
        )
    names = {said: label for label, said in task.submitted_labels.items()}
    ids = examples.column("id").to_pylist()
    found = {}
    for number, line in enumerate(lines[1:], start=2):
        index, tab, said = line.partition("\t")
        where = f"{url}, line {number}"
        if not tab:
            raise PredictionsError(f"{where}: expected two columns, found {line!r:.80}")
        if index in found:
            raise PredictionsError(f"{where}: the index {index!r:.80} is there a second time")
        found[index] = _said(said, names, task=task, where=where)
    order = _order(list(found), ids, url=url)
    return [{"id": name, **found[index]} for index, name in zip(order, ids, strict=True)]


def _order(indexes: list[str], ids: list[str], *, url: str) -> list[str]:
    """The index of each example: its id, or its number from 0."""
    if set(indexes) == set(ids):
        return ids
    numbers = [str(number) for number in range(len(ids))]
    if set(indexes) == set(numbers):
        return numbers
    known = set(ids)
    row = next(row for row, index in enumerate(indexes) if index not in known)
    raise PredictionsError(
        f"{url}, line {row + 2}: the index {indexes[row]!r:.80}: expected the ids of the examples, "
        f"or the numbers 0 to {len(ids) - 1}"
    )


def _said(said: str, names: Mapping[str, str], *, task: Task, where: str) -> dict[str, Any]:
    if task.kind == "classification":
        label = names.get(said, said)
        if task.labels and label not in task.labels:
            raise PredictionsError(
                f"{where}: {said!r} is no label of {task.name}: expected one of "
                f"{', '.join(task.labels)}"
            )
        return {"label": label}
    try:
        return {"score": float(said)} if task.kind == "regression" else {"label": int(said)}
    except ValueError as error:
        raise PredictionsError(f"{where}: expected a number, found {said!r}") from error


def _tags(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """CoNLL columns: the words have to be those of the examples, in their order.

    They may have `_` for the spaces inside them, as our own such files have.
    """
    lines = [
        (number, line, fields_of(line))
        for number, line in enumerate(_lines(url), start=1)
        if line.strip(" \t\r") and not line.startswith("-DOCSTART-")
    ]
    may_comment = task.columns.get("allows_comments", False)
    tokens = [
        (number, fields)
        for number, line, fields in lines
        if not (may_comment and line.startswith("# ") and not is_tag(fields[-1]))
    ]
    words = sum(len(row) for row in examples.column("words").to_pylist())
    if len(tokens) != words:
        raise PredictionsError(
            f"{url}: {len(tokens):,} words with tags, the examples have {words:,}: expected the "
            "file that they were made of, tagged"
        )
    found, place = [], 0
    for document in examples.select(["id", "sentence_lengths", "words"]).to_pylist():
        tags: list[str] = []
        own = tokens[place : place + len(document["words"])]
        for (number, columns), word in zip(own, document["words"], strict=True):
            if len(columns) < 2 or columns[0] not in (word, "_".join(word.split())):
                raise PredictionsError(
                    f"{url}, line {number}: expected {word!r} and its tag, found "
                    f"{' '.join(columns)!r}"
                )
            if not is_tag(columns[-1]):
                raise PredictionsError(
                    f"{url}, line {number}: {columns[-1]!r:.60} is no tag: expected O or such as "
                    "B-LOC"
                )
            tags.append(columns[-1])
        found.append({"id": document["id"], "tags": _iob2(tags, document["sentence_lengths"])})
        place += len(own)
    return found


def _iob2(tags: list[str], lengths: list[int]) -> list[str]:
    """Tags of one scheme or another, sentence by sentence, as conlleval takes them."""
    converted: list[str] = []
    place = 0
    for length in lengths:
        converted += iob2(entities_of(tags[place : place + length]), words=length)
        place += length
    return converted


def official_files(
    task: Task,
    examples: pa.Table,
    *,
    predictions: Sequence[Mapping[str, Any]],
    split: str,
    threshold: float,
) -> dict[str, bytes]:
    """Files by name: SQuAD's JSON of answers and of null odds, CoNLL columns; none for other kinds.

    Args:
        task: decides the form.
        examples: what was answered.
        predictions: one for each example, in order.
        split: for the files' names.
        threshold: SQuAD 2.0: the tau that the answers were chosen with; null odds above it mean
            that there is no answer.
    """
    if task.kind == "span":
        answers = {str(item["id"]): item["text"] for item in predictions}
        files = {f"answers-{split}.json": _json(answers)}
        if task.has_unanswerable:
            odds = {str(item["id"]): item["null_odds"] - threshold for item in predictions}
            files[f"null-odds-{split}.json"] = _json(odds)
        return files
    if task.kind == "tagging":
        return {f"tags-{split}.conll": _conll(examples, predictions)}
    return {}


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=0) + "\n").encode()


def _conll(examples: pa.Table, predictions: Sequence[Mapping[str, Any]]) -> bytes:
    """`word gold predicted`, as conlleval reads it; `word predicted` where no gold is known.

    Documents are marked where any has several sentences. A space inside a word is written `_`,
    since columns are cut at spaces.
    """
    lines = []
    rows = examples.to_pylist()
    has_documents = any(len(document["sentence_lengths"]) > 1 for document in rows)
    for document, said in zip(rows, predictions, strict=True):
        if has_documents:
            lines.append("-DOCSTART- O O\n" if document["tags"] is not None else "-DOCSTART- O\n")
        place = 0
        for length in document["sentence_lengths"]:
            for at in range(place, place + length):
                gold = [document["tags"][at]] if document["tags"] is not None else []
                word = "_".join(document["words"][at].split())
                lines.append(" ".join([word, *gold, said["tags"][at]]))
            lines.append("")
            place += length
    return "".join(f"{line}\n" for line in lines).encode()
