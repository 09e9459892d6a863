"""What spans of a passage are asked and scored as: SQuAD 1.1 and 2.0 (paper 4.2, 4.3). No torch.

A unit is a window over a context (`model.task_types.span_windows`); a question with a long context
has several. The functions are those of `model.task_types`, and two for the tau of questions without
answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.task_types.features import Features
from model.task_types.span_decoding import SpanTexts, best_entries, to_prediction
from model.task_types.span_labels import answer_spans, window_labels
from model.task_types.span_windows import Plan, plan_windows, window_ids
from model.task_types.squad_metrics import (
    gold_answers,
    score_question,
    score_texts,
    texts_by_id,
)
from model.tasks.task import Task
from pipelines.wordpiece.ids import WordPieceTokenizer
from schemas.errors import PredictionsError
from schemas.task_configs import FeaturesConfig

_LOGGER = logging.getLogger(__name__)


def build_features(
    examples: pa.Table,
    tokenizer: WordPieceTokenizer,
    *,
    task: Task,
    labels: Sequence[str],
    config: FeaturesConfig,
    is_training: bool,
) -> Features:
    """Cut SPAN_EXAMPLES into windows `[CLS] question [SEP] part of the context [SEP]`.

    For training each window has the places of the first answer that stands in the context, or
    (0, 0) if it does not hold the whole of it or there is none. Questions whose answer stands
    nowhere, or whose context has no token, are left out and counted; at prediction every question
    is kept, and only a context without a token has no window.

    Raises:
        ConfigError: a question leaves no room for its context.
        ExamplesError: training, and the answers of a row are not known.
    """
    del task, labels  # of other kinds
    plan = plan_windows(examples, tokenizer, config=config)
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
        plan = plan.taken(kept)
        spans_at = window_labels(plan, spans)
        counters["windows-without-answer"] = int((spans_at[:, 0] == 0).sum())
    input_ids, offsets = window_ids(plan, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
    counters["windows"] = len(plan.rows)
    return Features(
        kind="span",
        offsets=offsets,
        input_ids=input_ids,
        b_starts=plan.b_starts,
        rows=plan.rows,
        labels=spans_at,
        counters=counters,
    )


def decode(
    examples: pa.Table,
    features: Features,
    outputs: npt.NDArray[np.float32],
    *,
    tokenizer: WordPieceTokenizer,
    task: Task,
    labels: Sequence[str],
    config: FeaturesConfig,
    threshold: float,
) -> list[dict[str, Any]]:
    """The answer to each question and its n best, cut out of the original context.

    For an ensemble the mean of the models' *logits* is right, token by token: answers are ranked by
    sums of logits, which a mean of probabilities (normalised in each window for itself) would make
    incomparable between windows.

    Args:
        outputs: float32 (T, 2), logits of start and end of each token of `features.input_ids`.
        config: the one the features were built with.
        threshold: with `has_unanswerable`, the answer is "" where `null_odds` is above it.

    Returns:
        One prediction a row of `examples`, in order: `id`, `text`, `null_odds`, `n_best`.

    Raises:
        PredictionsError: outputs, features and examples do not belong together, or an output is
            not finite.
    """
    del labels  # of other kinds
    plan = plan_windows(examples, tokenizer, config=config)
    if len(plan.rows) != len(features.rows):
        kept = np.zeros(len(examples), np.bool_)
        kept[features.rows[features.rows < len(examples)]] = True
        plan = plan.taken(kept)  # features made for training leave out some rows
    _check_fit(plan, features, outputs)
    found = best_entries(
        plan,
        outputs,
        texts=SpanTexts(plan, tokenizer),
        config=config,
        has_unanswerable=task.has_unanswerable,
    )
    used = threshold if task.has_unanswerable else None
    return [
        to_prediction(identity, entries, null_odds, threshold=used)
        for identity, (entries, null_odds) in zip(
            examples.column("id").to_pylist(), found, strict=True
        )
    ]


def score(
    examples: pa.Table, predictions: Sequence[Mapping[str, Any]], *, task: Task
) -> dict[str, float]:
    """Exact match and F1 by the official rules: `em`, `f1`, shares of 1.

    With `has_unanswerable` also `has-answer-em`, `has-answer-f1`, `no-answer-em`, `no-answer-f1`.
    Questions without a prediction count 0; they and predictions of unknown ids are logged.

    Raises:
        PredictionsError: answers are not known, or an id is there twice.
    """
    golds = gold_answers(examples, has_unanswerable=task.has_unanswerable)
    found = score_texts(golds, texts_by_id(predictions), has_unanswerable=task.has_unanswerable)
    for ids, problem in (
        (found.unanswered, "questions have no prediction and count 0"),
        (found.unknown, "predictions are of no question and are left out"),
    ):
        if ids:
            _LOGGER.warning("%s: %d %s, first %s", task.title, len(ids), problem, ids[0])
    return found.metrics


def tune_threshold(examples: pa.Table, predictions: Sequence[Mapping[str, Any]]) -> float:
    """The tau with the highest F1 on these examples (SQuAD 2.0; paper 4.3).

    Every tau that makes a difference is tried: in the order of rising `null_odds` one question
    after the other gets its best answer in place of "". Of equally good ones it is the lowest.

    Raises:
        PredictionsError: the predictions are not those of the examples, in order, or answers are
            not known.
    """
    golds = gold_answers(examples, has_unanswerable=True)
    if [gold.id for gold in golds] != [str(item["id"]) for item in predictions] or not golds:
        raise PredictionsError(
            f"expected one prediction for each of {len(golds):,} examples in their order, found "
            f"{len(predictions):,} others; tune on the split that was predicted"
        )
    odds = np.array([item["null_odds"] for item in predictions], np.float64)
    gains = np.zeros(len(golds))
    for row, (gold, item) in enumerate(zip(golds, predictions, strict=True)):
        answer = score_question(best_answer(item), gold, has_unanswerable=True)
        empty = score_question("", gold, has_unanswerable=True)
        gains[row] = answer.f1 - empty.f1
    order = np.argsort(odds, kind="stable")
    odds, gained = odds[order], np.cumsum(gains[order])
    is_last = np.append(odds[1:] != odds[:-1], True)  # equal odds are above a tau together
    odds, gained = odds[is_last], gained[is_last]
    best = int(np.argmax(gained))
    return float(odds[best]) if gained[best] > 0 else float(odds[0] - 1.0)


def apply_threshold(
    predictions: Sequence[Mapping[str, Any]], threshold: float
) -> list[dict[str, Any]]:
    """The predictions with the answers that this tau gives: "" where `null_odds` is above it."""
    return [
        {**item, "text": "" if item["null_odds"] > threshold else best_answer(item)}
        for item in predictions
    ]


def best_answer(prediction: Mapping[str, Any]) -> str:
    """The best of its n best that is not ""; "" if there is none."""
    return next((entry["text"] for entry in prediction["n_best"] if entry["text"]), "")


def _check_fit(plan: Plan, features: Features, outputs: npt.NDArray[np.float32]) -> None:
    if not (
        np.array_equal(plan.rows, features.rows)
        and np.array_equal(plan.sequence_lengths, features.lengths)
        and np.array_equal(plan.b_starts, features.b_starts)
    ):
        raise PredictionsError(
            f"the examples and the configuration make {len(plan.rows):,} windows that differ from "
            f"the {len(features.rows):,} of the features; decode with the examples, vocabulary and "
            "configuration that the features were built with"
        )
    expected = (len(features.input_ids), 2)
    if outputs.shape != expected:
        raise PredictionsError(
            f"expected outputs of shape {expected}, a start and an end logit for each token, found "
            f"{outputs.shape}"
        )
    if not np.isfinite(outputs).all():
        row = int(np.argmin(np.isfinite(outputs).all(axis=1)))
        raise PredictionsError(
            f"the outputs of token {row:,} are not finite: {outputs[row].tolist()}; the model has "
            "diverged, train it anew with a lower learning rate"
        )
