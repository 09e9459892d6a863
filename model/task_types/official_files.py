"""Predictions in the form that tasks' own scorers read. GLUE's are in `model.tables.submission`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from model.tasks import Task


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
