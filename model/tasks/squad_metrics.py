"""Exact match and F1 by the official rules of SQuAD 1.1 and 2.0.

The rules are those of `evaluate-v1.1.py` and `evaluate-v2.0.py`, which the leaderboards use.
Answers are compared after lower-casing, removing ASCII punctuation and the articles a, an and the,
and joining the words by single spaces. F1 counts common words. The score of a prediction is its
best over all answers of the question.

One intended difference: `evaluate-v2.0.py` excludes questions without a prediction from the mean.
Here, as in 1.1, they count 0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from schemas.errors import PredictionsError

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


class Gold(NamedTuple):
    """Right answers of one question."""

    id: str
    answers: tuple[str, ...]
    """Answers to compare a prediction with; ("",) if there is no answer."""

    has_answer: bool
    """True if the file has an answer for the question."""

    may_be_empty: bool = False
    """True if "" can be right, as in 2.0."""


class QuestionScore(NamedTuple):
    """Scores of one question, from 0 to 1."""

    em: float
    f1: float


_NOTHING = QuestionScore(0.0, 0.0)


def normalize_answer(text: str) -> str:
    """Return the form in which answers are compared; it may be ""."""
    lowered = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lowered).split())


def gold_answers(examples: pa.Table, *, has_unanswerable: bool) -> list[Gold]:
    """Return the right answers of each row of SPAN_EXAMPLES.

    In 2.0, answers that are empty after normalization are ignored, and a question without answers
    has the answer "".
    """
    golds = []
    rows = zip(examples["id"].to_pylist(), examples["answers"].to_pylist(), strict=True)
    for identity, answers in rows:
        right = tuple(answers)
        if has_unanswerable:
            right = tuple(text for text in answers if normalize_answer(text)) or ("",)
        golds.append(Gold(identity, right, bool(answers), has_unanswerable))
    return golds


def score_question(text: str, gold: Gold) -> QuestionScore:
    """Return the best score of a prediction over the right answers."""
    predicted = normalize_answer(text)
    right = [normalize_answer(answer) for answer in gold.answers]
    em = max((float(predicted == answer) for answer in right), default=0.0)
    f1 = max((_f1(predicted, answer, gold.may_be_empty) for answer in right), default=0.0)
    return QuestionScore(em, f1)


def _f1(predicted: str, right: str, may_be_empty: bool) -> float:
    words, expected = predicted.split(), right.split()
    if may_be_empty and not (words and expected):
        return float(words == expected)
    common = sum((Counter(words) & Counter(expected)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def score_texts(golds: Sequence[Gold], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return `em` and `f1` of predictions, text by id, from 0 to 1.

    For 2.0 also those of the questions with and without an answer (`has-answer-em`,
    `no-answer-em`, ...).
    """
    scores = score_all(golds, predictions)
    groups = {"": scores}
    if any(gold.may_be_empty for gold in golds):
        pairs = list(zip(golds, scores, strict=True))
        groups["has-answer-"] = [score for gold, score in pairs if gold.has_answer]
        groups["no-answer-"] = [score for gold, score in pairs if not gold.has_answer]
    return {
        f"{prefix}{name}": sum(getattr(score, name) for score in members) / len(members)
        for prefix, members in groups.items()
        if members
        for name in QuestionScore._fields
    }


def score_all(golds: Sequence[Gold], predictions: Mapping[str, str]) -> list[QuestionScore]:
    """Return the score of each question, 0 without a prediction."""
    return [
        score_question(predictions[gold.id], gold) if gold.id in predictions else _NOTHING
        for gold in golds
    ]


def texts_by_id(predictions: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return predictions in the official form.

    Raises:
        PredictionsError: Two have the same id, or one has no text.
    """
    texts: dict[str, str] = {}
    for item in predictions:
        identity, text = str(item["id"]), item.get("text")
        if identity in texts:
            raise PredictionsError(
                f"two predictions have the id {identity!r}; expected one for each question"
            )
        if not isinstance(text, str):
            detail = f"{text!r:.60}" if "text" in item else f"only {', '.join(sorted(item))}"
            raise PredictionsError(
                f"the prediction of question {identity}: expected its text, found {detail}"
            )
        texts[identity] = text
    return texts


def best_threshold(examples: pa.Table, predictions: Sequence[Mapping[str, Any]]) -> float:
    """Return the threshold of `null_odds` with the highest F1 (SQuAD 2.0; paper 4.3).

    Each distinct threshold is tried. Of equally good ones it is the lowest.
    """
    golds = gold_answers(examples, has_unanswerable=True)
    odds = np.array([item["null_odds"] for item in predictions], np.float64)
    texts = {gold.id: best_answer(item) for gold, item in zip(golds, predictions, strict=True)}
    answered = score_all(golds, texts)
    empty = score_all(golds, dict.fromkeys(texts, ""))
    gains = np.array([one.f1 - other.f1 for one, other in zip(answered, empty, strict=True)])
    order = np.argsort(odds, kind="stable")
    odds, gained = odds[order], np.cumsum(gains[order])
    is_last = np.append(odds[1:] != odds[:-1], True)  # equal odds are above a threshold together
    odds, gained = odds[is_last], gained[is_last]
    best = int(np.argmax(gained))
    return float(odds[best]) if gained[best] > 0 else float(odds[0] - 1.0)


def best_answer(prediction: Mapping[str, Any]) -> str:
    """Return the best of its n best that is not ""; "" if all are."""
    return next((entry["text"] for entry in prediction["n_best"] if entry["text"]), "")
