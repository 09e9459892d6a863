"""Spans of a passage that answer a question: SQuAD 1.1 and 2.0 (paper 4.2, 4.3).

A unit is a window over a context (`model.task_types.qa_windows`); a question with a long context
has several. An ensemble averages the *logits* of its models, because answers are ranked by sums of
logits: probabilities are normalized per window and not comparable between windows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from model.task_types.features import Features
from model.task_types.prediction_files import is_ours, read_lines
from model.task_types.qa_decoding import decode_answers
from model.task_types.qa_windows import (
    answer_spans,
    plan_windows,
    window_labels,
    window_sequences,
)
from model.task_types.row_terms import RowTerms, mean_terms
from model.task_types.squad_metrics import (
    QuestionScore,
    best_answer,
    gold_answers,
    score_all,
    score_texts,
    texts_by_id,
)
from model.task_types.squad_metrics import (
    read_predictions as read_texts,
)
from model.task_types.task_type import (
    Encoding,
    Prediction,
    check_outputs,
    most_frequent,
)
from model.tasks.task import Task
from pipelines.arrays import Float32s
from schemas.errors import PredictionsError

_LOGGER = logging.getLogger(__name__)


def build_features(examples: pa.Table, encoding: Encoding, *, is_training: bool) -> Features:
    """Return windows `[CLS] question [SEP] part of the context [SEP]`.

    For training, each window has the positions of the first answer that occurs in the context,
    or (0, 0) if the window does not contain it completely or there is no answer. Questions
    whose answer does not occur, or whose context has no token, are dropped and counted.
    Prediction keeps every question; only a context without tokens has no window.

    Raises:
        ConfigError: A question leaves no space for its context.
    """
    tokenizer = encoding.tokenizer
    plan = plan_windows(examples, tokenizer, config=encoding.config)
    counters = {"rows-in": len(examples), "questions-cut": plan.cut_questions}
    has_window = np.zeros(len(examples), np.bool_)
    has_window[plan.rows] = True
    counters["rows-without-token"] = int((~has_window).sum())
    spans_at = None
    if is_training:
        spans = answer_spans(examples, plan, tokenizer)
        kept = has_window & spans.is_usable
        counters["rows-dropped-no-token"] = counters.pop("rows-without-token")
        counters["rows-dropped-answer-not-found"] = int((has_window & ~spans.is_usable).sum())
        counters["rows-kept"] = int(kept.sum())
        plan = plan.select(kept)
        spans_at = window_labels(plan, spans)
        counters["windows-without-answer"] = int((spans_at[:, 0] == 0).sum())
    counters["windows"] = len(plan.rows)
    return Features(
        kind="span",
        **window_sequences(plan, tokenizer)._asdict(),
        rows=plan.rows,
        labels=spans_at,
        plan=None if is_training else plan,
        counters=counters,
    )


def decode(
    examples: pa.Table, features: Features, outputs: Float32s, *, encoding: Encoding
) -> list[dict[str, Any]]:
    """Return the answer to each question and its n best, as in the original context.

    With `has_unanswerable`, the answer is "" where `null_odds` is above 0.
    """
    assert features.plan is not None  # noqa: S101  # for mypy: it is None in training alone
    check_outputs(outputs, task=encoding.task)
    return list(decode_answers(examples, features.plan, outputs, encoding=encoding))


def score(examples: pa.Table, predictions: Sequence[Prediction], *, task: Task) -> dict[str, float]:
    """Return exact match and F1 by the official rules: `em`, `f1`.

    With `has_unanswerable` also `has-answer-em`, `has-answer-f1`, `no-answer-em`,
    `no-answer-f1`. Questions without a prediction count 0; they and predictions of unknown ids
    are logged.
    """
    golds = gold_answers(examples, has_unanswerable=task.has_unanswerable)
    found = score_texts(golds, texts_by_id(predictions), has_unanswerable=task.has_unanswerable)
    for ids, problem in (
        (found.unanswered, "questions have no prediction and count 0"),
        (found.unknown, "predictions match no question and are ignored"),
    ):
        if ids:
            _LOGGER.warning("%s: %d %s, first %s", task.title, len(ids), problem, ids[0])
    return found.metrics


def row_terms(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
) -> dict[str, RowTerms]:
    """Return exact match and F1 of each question."""
    golds = gold_answers(examples, has_unanswerable=task.has_unanswerable)
    texts = texts_by_id(predictions)
    scores = score_all(golds, texts, has_unanswerable=task.has_unanswerable)
    return {
        name: mean_terms([getattr(score, name) for score in scores])
        for name in QuestionScore._fields
    }


def apply_threshold(predictions: Sequence[Prediction], threshold: float) -> list[dict[str, Any]]:
    """Return the predictions with "" if `null_odds` is above the threshold."""
    return [
        {**item, "text": "" if item["null_odds"] > threshold else best_answer(item)}
        for item in predictions
    ]


def list_answers(row: Mapping[str, Any]) -> list[str]:
    """Return the text of a prediction, or the first answer of an example; "" for none."""
    return [row["text"]] if "text" in row else row["answers"][:1] or [""]


def find_majority_text(examples: pa.Table, *, task: Task, labels: Sequence[str]) -> dict[str, Any]:
    """Return the most frequent `text`; it may be "" if questions may have no answer."""
    del labels
    firsts = (answers[0] if answers else "" for answers in examples["answers"].to_pylist())
    texts = [text for text in firsts if text or task.has_unanswerable]
    text = most_frequent(texts, task=task)
    entry = {"text": text, "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}
    # Beyond all thresholds near 0.
    return {"text": text, "null_odds": -1.0 if text else 1.0, "n_best": [entry]}


def read_predictions(url: str, examples: pa.Table, *, task: Task) -> list[dict[str, Any]]:
    """Read bertloom's format, or SQuAD's JSON of ids and answers, in any order.

    The text of a missing answer is None; answers to other questions are logged.
    """
    del task
    if is_ours(url):
        return read_lines(url)
    answers = read_texts(url)
    ids = examples.column("id").to_pylist()
    unknown = sorted(set(answers) - set(ids))
    if unknown and len(unknown) == len(answers):
        raise PredictionsError(
            f"{url}: none of {len(answers):,} answers is to a question of the file, first "
            f"{unknown[0]!r}. Score the file that was predicted"
        )
    if unknown:
        _LOGGER.warning(
            "%s: %d of %d answers match no question of the file and are ignored, first %s",
            url,
            len(unknown),
            len(answers),
            unknown[0],
        )
    return [{"id": name, "text": answers.get(name)} for name in ids]


def official_files(
    examples: pa.Table,
    predictions: Sequence[Prediction],
    *,
    task: Task,
    split: str,
    threshold: float,
) -> dict[str, bytes]:
    """Return SQuAD's JSON of answers, and for 2.0 of null odds: no answer above 0."""
    del examples
    answers = {str(item["id"]): item["text"] for item in predictions}
    files = {f"answers-{split}.json": _json(answers)}
    if task.has_unanswerable:
        odds = {str(item["id"]): item["null_odds"] - threshold for item in predictions}
        files[f"null-odds-{split}.json"] = _json(odds)
    return files


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=0) + "\n").encode()
