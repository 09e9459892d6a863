"""Reading saved predictions, ours or in the forms that other programs write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fsspec
import pyarrow as pa

from model.kinds.prediction_files import read_lines
from model.kinds.squad_metrics import read_predictions
from model.tasks import Task
from model.tasks.entities import entities_of, iob2
from schemas.errors import PredictionsError

_HEAD_BYTES = 1 << 16


def read_any(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """Predictions of examples, in their order, as `model.kinds` describes them.

    Ours (JSON lines) are told by their first line. Otherwise: SQuAD's JSON of ids and answers, of
    which some may be missing (they count 0); GLUE's `index` and `prediction` columns; CoNLL columns
    with the word first and the tag last.

    Raises:
        PredictionsError: the file cannot be read, or is not of these examples.
    """
    if _is_ours(url):
        return read_lines(url)
    if task.kind == "span":
        answers = read_predictions(url)
        return [{"id": name, "text": text} for name, text in answers.items()]
    if task.kind == "tagging":
        return _tags(url, examples)
    return _column(url, examples, task=task)


def _is_ours(url: str) -> bool:
    try:
        with fsspec.open(url, "rb", compression="infer") as source:
            first = source.readline(_HEAD_BYTES)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise PredictionsError(f"{url}: no file there; expected saved predictions") from error
    try:
        found = json.loads(first)
    except ValueError:
        return False
    # SQuAD's own JSON may stand in one line; no question has the id "id".
    return isinstance(found, dict) and "id" in found


def _lines(url: str) -> list[str]:
    try:
        with fsspec.open(url, "rt", encoding="utf-8-sig", compression="infer") as source:
            return list(source.read().splitlines())
    except UnicodeDecodeError as error:
        raise PredictionsError(f"{url}: not UTF-8 at byte {error.start}: convert it") from error


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
    found = []
    for number, (line, name) in enumerate(zip(lines[1:], ids, strict=True), start=2):
        _, tab, said = line.partition("\t")
        if not tab:
            raise PredictionsError(f"{url}, line {number}: expected two columns, found {line!r}")
        found.append({"id": name, **_said(said, names, task=task, where=f"{url}, line {number}")})
    return found


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


def _tags(url: str, examples: pa.Table) -> list[dict[str, Any]]:
    """CoNLL columns: the words have to be those of the examples, in their order."""
    tokens = [
        (number, line.split())
        for number, line in enumerate(_lines(url), start=1)
        if line.strip() and not line.startswith("-DOCSTART-")
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
            if len(columns) < 2 or columns[0] != word:
                raise PredictionsError(
                    f"{url}, line {number}: expected {word!r} and its tag, found "
                    f"{' '.join(columns)!r}"
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
