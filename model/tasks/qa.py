"""Spans of a passage that answer a question: SQuAD 1.1 and 2.0 (paper 4.2, 4.3).

A unit is a window over a context (`model.tasks.qa_windows`); a question with a long context
has several. An ensemble averages the *logits* of its models, because answers are ranked by sums of
logits: probabilities are normalized per window and not comparable between windows.
"""

from __future__ import annotations

import json
import logging
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from model.tasks.features import Encoding, Features, check_outputs
from model.tasks.prediction_files import Prediction
from model.tasks.qa_windows import (
    Contexts,
    answer_spans,
    max_context,
    plan_windows,
    window_labels,
    window_sequences,
)
from model.tasks.row_terms import Float64s, RowTerms, mean_terms
from model.tasks.squad_metrics import (
    QuestionScore,
    best_answer,
    gold_answers,
    score_all,
    score_texts,
    texts_by_id,
)
from model.tasks.task import Task
from pipelines.arrays import Bools, Float32s, Int64s
from schemas.errors import PredictionsError
from schemas.finetune_configs import FeaturesConfig

_LOGGER = logging.getLogger(__name__)

NO_ANSWER_ODDS = 1e9
"""`null_odds` if no span can be an answer, so that "" is the only one."""


class Entry(NamedTuple):
    """One of the best answers of a question."""

    text: str
    """"" for no answer."""

    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """Sum of its logits."""
        return self.start_logit + self.end_logit


class _Candidates(NamedTuple):
    """Spans that may be answers, in pieces of the context."""

    first: Int64s
    last: Int64s
    start_logits: Float64s
    end_logits: Float64s


def _with_probabilities(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    scores = np.array([entry.score for entry in entries])
    exponents = np.exp(scores - scores.max())
    probabilities = (exponents / exponents.sum()).tolist()
    return [
        {**entry._asdict(), "probability": probability}
        for entry, probability in zip(entries, probabilities, strict=True)
    ]


def _in_window(
    logits: Float64s, *, b_start: int, first_piece: int, is_max: Bools, config: FeaturesConfig
) -> _Candidates:
    """Return the spans of one window in falling order of their starts, then ends.

    Args:
        logits: Start and end logits of the window's tokens, (T, 2).
        b_start: First token of the window's part of the context.
        first_piece: Piece of the context that this token is.
        is_max: Whether the window has most context of each of its pieces.
        config: Limits.
    """
    size = len(is_max)
    # Stable: of equal logits the earlier token comes first.
    starts, ends = (
        np.argsort(-logits[:, side], kind="stable")[: config.n_best_size] - b_start
        for side in (0, 1)
    )
    starts = starts[(starts >= 0) & (starts < size)]
    starts = starts[is_max[starts]]
    ends = ends[(ends >= 0) & (ends < size)]
    pieces = ends[None, :] - starts[:, None] + 1
    start, end = np.nonzero((pieces >= 1) & (pieces <= config.max_answer_length))
    first, last = starts[start], ends[end]
    start_logits, end_logits = logits[first + b_start, 0], logits[last + b_start, 1]
    return _Candidates(first + first_piece, last + first_piece, start_logits, end_logits)


def _n_best(
    row: int,
    candidates: _Candidates,
    *,
    null: Entry,
    contexts: Contexts,
    size: int,
    has_unanswerable: bool,
) -> tuple[list[Entry], float]:
    order = np.argsort(-(candidates.start_logits + candidates.end_logits), kind="stable")
    entries: list[Entry] = []
    seen: set[str] = set()
    best: Entry | None = None
    waiting = has_unanswerable
    for at in order.tolist():
        if len(entries) >= size and best is not None:
            break
        start_logit, end_logit = (
            float(candidates.start_logits[at]),
            float(candidates.end_logits[at]),
        )
        if waiting and start_logit + end_logit < null.score and len(entries) < size:
            entries.append(null)
            waiting = False
        text = _answer_text(contexts, row, int(candidates.first[at]), int(candidates.last[at]))
        if not text or text in seen:
            continue
        seen.add(text)
        entry = Entry(text, start_logit, end_logit)
        if best is None:
            best = entry  # taken even if "" fills an n best of one, or no tau could choose it
        elif len(entries) >= size:
            break
        entries.append(entry)
    if waiting or not entries:
        entries.append(null)
    return entries, NO_ANSWER_ODDS if best is None else null.score - best.score


def _answer_text(contexts: Contexts, row: int, first: int, last: int) -> str:
    """Return the text of pieces `first` .. `last` (included) of the context of an example.

    It has the original case, accents and white space, and may begin inside a word. Combining marks
    after its last character, which are dropped as accents, are part of it. Google's
    `get_final_text` searches the joined pieces in the words of the span instead.
    """
    context = int(contexts.of_row[row])
    text, origin = contexts.texts[context], int(contexts.offsets[context])
    start, end = int(contexts.piece_starts[origin + first]), int(contexts.piece_ends[origin + last])
    while end < len(text) and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return text[start:end].strip()


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
    """Return the prediction of each example (`model.tasks.task_types`).

    In each window the `n_best_size` highest starts are paired with the `n_best_size` highest ends.
    A pair is an answer if both are pieces of the context, the window has most context of the start,
    the end is not before it, and it has at most `max_answer_length` pieces. The answers with the
    highest sums in all windows are the best; equal texts count once. With `has_unanswerable`, "" is
    one of them, with its lowest score in any window, and the answer where `null_odds` is above 0.

    Args:
        examples: Examples of the features.
        features: Features for prediction, with their windows.
        outputs: Logits of start and end of each token of all windows, end to end, (T, 2).
        encoding: Limits and task.
    """
    plan = features.plan
    assert plan is not None  # noqa: S101  # for mypy: it is None in training alone
    check_outputs(outputs, task=encoding.task)
    is_max, piece_offsets = max_context(plan)
    windows_of = np.searchsorted(plan.rows, np.arange(len(plan.contexts.of_row) + 1))
    predictions = []
    for row, identity in enumerate(examples["id"].to_pylist()):
        nulls: list[Entry] = []
        candidates: list[_Candidates] = []
        for window in range(windows_of[row], windows_of[row + 1]):
            tokens = slice(features.offsets[window], features.offsets[window + 1])
            logits = outputs[tokens].astype(np.float64)
            nulls.append(Entry("", float(logits[0, 0]), float(logits[0, 1])))
            inside = _in_window(
                logits,
                b_start=int(features.b_starts[window]),
                first_piece=int(plan.starts[window]),
                is_max=is_max[piece_offsets[window] : piece_offsets[window + 1]],
                config=encoding.config,
            )
            candidates.append(inside)
        best = _best_answers(row, nulls, candidates, contexts=plan.contexts, encoding=encoding)
        predictions.append({"id": identity, **best})
    return predictions


def _best_answers(
    row: int,
    nulls: Sequence[Entry],
    candidates: Sequence[_Candidates],
    *,
    contexts: Contexts,
    encoding: Encoding,
) -> dict[str, Any]:
    """Return the prediction of an example without its id, given "" and the answers by window."""
    entries, null_odds = [Entry("", 0.0, 0.0)], NO_ANSWER_ODDS  # a context without pieces
    has_unanswerable = encoding.task.has_unanswerable
    if nulls:
        entries, null_odds = _n_best(
            row,
            _Candidates(*map(np.concatenate, zip(*candidates, strict=True))),
            null=min(nulls, key=lambda entry: entry.score),
            contexts=contexts,
            size=encoding.config.n_best_size,
            has_unanswerable=has_unanswerable,
        )
    prediction = {"null_odds": null_odds, "n_best": _with_probabilities(entries)}
    is_empty = has_unanswerable and null_odds > 0.0
    return {**prediction, "text": "" if is_empty else best_answer(prediction)}


def score(examples: pa.Table, predictions: Sequence[Prediction], *, task: Task) -> dict[str, float]:
    """Return exact match and F1 by the official rules: `em`, `f1`.

    With `has_unanswerable` also `has-answer-em`, `has-answer-f1`, `no-answer-em`,
    `no-answer-f1`. Questions without a prediction count 0; they and predictions of unknown ids
    are logged.

    Raises:
        PredictionsError: No prediction is of these questions.
    """
    golds = gold_answers(examples, has_unanswerable=task.has_unanswerable)
    texts, ids = texts_by_id(predictions), [gold.id for gold in golds]
    if texts and texts.keys().isdisjoint(ids):
        raise PredictionsError(
            f"{task.name}: none of {len(texts):,} answers is to a question of the examples, first "
            f"{min(texts)!r}. Score the file that was predicted"
        )
    for missing, problem in (
        ([name for name in ids if name not in texts], "questions have no prediction and count 0"),
        (texts.keys() - set(ids), "predictions match no question and are ignored"),
    ):
        if missing:
            _LOGGER.warning("%s: %d %s, first %s", task.title, len(missing), problem, min(missing))
    return score_texts(golds, texts)


def row_terms(
    examples: pa.Table, predictions: Sequence[Prediction], *, task: Task
) -> dict[str, RowTerms]:
    """Return exact match and F1 of each question."""
    golds = gold_answers(examples, has_unanswerable=task.has_unanswerable)
    scores = score_all(golds, texts_by_id(predictions))
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
    counts = Counter(texts)
    return {"text": min(counts, key=lambda text: (-counts[text], text))}


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
    files = {f"answers-{split}.json": _json({item["id"]: item["text"] for item in predictions})}
    if task.has_unanswerable:
        odds = {str(item["id"]): item["null_odds"] - threshold for item in predictions}
        files[f"null-odds-{split}.json"] = _json(odds)
    return files


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=0) + "\n").encode()
