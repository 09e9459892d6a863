"""Exact match and F1 by the official rules of SQuAD 1.1 and 2.0, and the official files.

The rules are those of `evaluate-v1.1.py` and `evaluate-v2.0.py`, which the leaderboards use.
Answers are compared after lower-casing, removing ASCII punctuation and the articles a, an and the,
and joining the words by single spaces. F1 counts common words. The score of a prediction is its
best over all answers of the question.

One intended difference: `evaluate-v2.0.py` excludes questions without a prediction from the mean.
Here, as in 1.1, they count 0.

`official_figures` are those of `evaluate-v2.0.py --na-prob-file`: a question whose probability of
no answer is above a threshold counts as answered with "". The best thresholds are tuned on the same
questions, also between equal probabilities.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from model.tasks.files import read_json
from schemas.errors import PredictionsError

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

DEFAULT_THRESHOLD = 1.0
"""Threshold of the official script: above every probability, so that no answer is replaced."""


class Gold(NamedTuple):
    """Right answers of one question."""

    id: str
    answers: tuple[str, ...]
    """Answers to compare a prediction with; ("",) if there is no answer."""

    has_answer: bool
    """True if the file has an answer for the question."""


class QuestionScore(NamedTuple):
    """Scores of one question, from 0 to 1."""

    em: float
    f1: float


_NOTHING = QuestionScore(0.0, 0.0)


class SquadScores(NamedTuple):
    """Scores of all questions of a file."""

    metrics: dict[str, float]
    """`em` and `f1` from 0 to 1; for 2.0 also of the questions with and without an answer
    (`has-answer-em`, `no-answer-em`, ...)."""

    unanswered: tuple[str, ...]
    """Ids of questions without a prediction; they count 0."""

    unknown: tuple[str, ...]
    """Ids of predictions without a question; they are ignored."""


def normalize_answer(text: str) -> str:
    """Return the form in which answers are compared; it may be ""."""
    lowered = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lowered).split())


def gold_answers(examples: pa.Table, *, has_unanswerable: bool) -> list[Gold]:
    """Return the right answers of each row of SPAN_EXAMPLES.

    In 2.0, answers that are empty after normalization are ignored, and a question without answers
    has the answer "".
    """
    found = []
    rows = zip(examples["id"].to_pylist(), examples["answers"].to_pylist(), strict=True)
    for identity, answers in rows:
        right = tuple(answers)
        if has_unanswerable:
            right = tuple(text for text in answers if normalize_answer(text)) or ("",)
        found.append(Gold(identity, right, bool(answers)))
    return found


def score_question(text: str, gold: Gold, *, has_unanswerable: bool) -> QuestionScore:
    """Return the best score of a prediction over the right answers."""
    predicted = normalize_answer(text)
    right = [normalize_answer(answer) for answer in gold.answers]
    em = max((float(predicted == answer) for answer in right), default=0.0)
    f1 = max(
        (_f1(predicted, answer, has_unanswerable=has_unanswerable) for answer in right),
        default=0.0,
    )
    return QuestionScore(em, f1)


def _f1(predicted: str, right: str, *, has_unanswerable: bool) -> float:
    found, expected = predicted.split(), right.split()
    if has_unanswerable and not (found and expected):
        return float(found == expected)
    common = sum((Counter(found) & Counter(expected)).values())
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def score_texts(
    golds: Sequence[Gold], predictions: Mapping[str, str], *, has_unanswerable: bool
) -> SquadScores:
    """Score predictions, text by id, in the form of an official file."""
    known = {gold.id for gold in golds}
    scores = score_all(golds, predictions, has_unanswerable=has_unanswerable)
    prefixes = ("", "has-answer-", "no-answer-") if has_unanswerable else ("",)
    return SquadScores(
        {
            f"{prefix}{name}": sum(getattr(score, name) for score in members) / len(members)
            for prefix, members in _groups(golds, scores, prefixes)
            for name in QuestionScore._fields
        },
        unanswered=tuple(gold.id for gold in golds if gold.id not in predictions),
        unknown=tuple(identity for identity in predictions if identity not in known),
    )


def score_all(
    golds: Sequence[Gold], predictions: Mapping[str, str], *, has_unanswerable: bool
) -> list[QuestionScore]:
    """Return the score of each question, 0 without a prediction."""
    return [
        score_question(predictions[gold.id], gold, has_unanswerable=has_unanswerable)
        if gold.id in predictions
        else _NOTHING
        for gold in golds
    ]


def _groups(
    golds: Sequence[Gold], scores: Sequence[QuestionScore], prefixes: Sequence[str]
) -> Iterator[tuple[str, list[QuestionScore]]]:
    """Yield the scores of all questions, of those with and of those without an answer, each with
    its prefix and without empty groups."""
    for prefix, has_answer in zip(prefixes, ((True, False), (True,), (False,)), strict=False):
        pairs = zip(golds, scores, strict=True)
        if members := [score for gold, score in pairs if gold.has_answer in has_answer]:
            yield prefix, members


def texts_by_id(predictions: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return predictions in the official form, without those whose text is None (not answered).

    Raises:
        PredictionsError: Two have the same id, or one has no text.
    """
    texts: dict[str, str | None] = {}
    for item in predictions:
        identity = str(item["id"])
        if identity in texts:
            raise PredictionsError(
                f"two predictions have the id {identity!r}; expected one for each question"
            )
        text = item.get("text", 0)
        if text is not None and not isinstance(text, str):
            found = f"{text!r:.60}" if "text" in item else f"only {', '.join(sorted(item))}"
            raise PredictionsError(
                f"the prediction of question {identity}: expected its text, found {found}"
            )
        texts[identity] = text
    return {identity: text for identity, text in texts.items() if text is not None}


def read_predictions(url: str) -> dict[str, str]:
    """Read an official file of predictions: a JSON object of id and text, compressed or not.

    Raises:
        PredictionsError: The file is not such an object, or repeats an id.
        InputError: The file is missing or damaged.
    """
    expected = 'text ("" for no answer)'
    hint = "a file with id and text, not one with n-best lists or odds"
    return _read_object(url, lambda value: isinstance(value, str), expected, hint)


def read_no_answer_probabilities(url: str) -> dict[str, float]:
    """Read an official file of probabilities (or odds) of no answer: an object of id and number.

    Raises:
        PredictionsError: The file is not such an object, repeats an id, or has a number that is not
            finite.
        InputError: The file is missing or damaged.
    """

    def is_valid(value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value)

    hint = "the file of probabilities or odds of no answer, not that of the answers"
    content = _read_object(url, is_valid, "a number", hint)
    return {identity: float(value) for identity, value in content.items()}


def _read_object(
    url: str, is_valid: Callable[[Any], bool], expected: str, hint: str
) -> dict[str, Any]:
    content = read_json(url, error=PredictionsError)
    if not isinstance(content, dict):
        found = type(content).__name__
        raise PredictionsError(f"{url}: expected an object by question id, found a {found}")
    for identity, value in content.items():
        if not is_valid(value):
            raise PredictionsError(
                f"{url}: question {identity}: expected {expected}, found {value!r:.80}. Give {hint}"
            )
    return content


def official_figures(
    examples: pa.Table,
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float],
    *,
    threshold: float = DEFAULT_THRESHOLD,
) -> dict[str, float]:
    """Return all figures that the official script prints, under its names.

    A question without a prediction counts 0, regardless of its probability; the script fails.

    Args:
        examples: Rows of SPAN_EXAMPLES with known answers.
        predictions: Texts by id; "" for no answer.
        no_answer: Probability of no answer by id; ids of other questions are ignored.
        threshold: A question with a higher probability counts as answered with "".

    Returns:
        `exact`, `f1`, `total`, the same with `HasAns_` and `NoAns_` where there are such questions,
        `best_exact`, `best_f1` and their thresholds `best_exact_thresh`, `best_f1_thresh`. Scores
        are in percent.

    Raises:
        PredictionsError: A question has no probability.
    """
    golds = gold_answers(examples, has_unanswerable=True)
    lacking = [gold.id for gold in golds if gold.id not in no_answer]
    if lacking:
        raise PredictionsError(
            f"{len(lacking):,} of {len(golds):,} questions have no probability of no answer, first "
            f"{lacking[0]}: expected a number for each question of the file"
        )
    scores = score_all(golds, predictions, has_unanswerable=True)
    kept = [
        QuestionScore(*[float(not gold.has_answer)] * 2)
        if gold.id in predictions and no_answer[gold.id] > threshold
        else score
        for gold, score in zip(golds, scores, strict=True)
    ]
    figures: dict[str, float] = {}
    for prefix, group in _groups(golds, kept, ("", "HasAns_", "NoAns_")):
        figures[f"{prefix}exact"] = 100.0 * math.fsum(score.em for score in group) / len(group)
        figures[f"{prefix}f1"] = 100.0 * math.fsum(score.f1 for score in group) / len(group)
        figures[f"{prefix}total"] = len(group)
    rows = {gold.id: row for row, gold in enumerate(golds) if gold.id in predictions}
    # Stable, as there: equal probabilities stay in the order of the file.
    order = [rows[name] for name in sorted(no_answer, key=no_answer.__getitem__) if name in rows]
    for name, field in (("exact", "em"), ("f1", "f1")):
        # With "" for every question; one that was not answered is never right.
        best = current = float(sum(not golds[row].has_answer for row in order))
        at = 0.0
        for row in order:
            gold = golds[row]
            if gold.has_answer:
                current += getattr(scores[row], field)
            else:
                current -= float(predictions[gold.id] != "")
            if current > best:
                best, at = current, no_answer[gold.id]
        figures[f"best_{name}"] = 100.0 * best / len(golds)
        figures[f"best_{name}_thresh"] = at
    return figures


def best_threshold(examples: pa.Table, predictions: Sequence[Mapping[str, Any]]) -> float:
    """Return the threshold of `null_odds` with the highest F1 (SQuAD 2.0; paper 4.3).

    Each distinct threshold is tried. Of equally good ones it is the lowest.
    """
    golds = gold_answers(examples, has_unanswerable=True)
    odds = np.array([item["null_odds"] for item in predictions], np.float64)
    texts = {gold.id: best_answer(item) for gold, item in zip(golds, predictions, strict=True)}
    answered = score_all(golds, texts, has_unanswerable=True)
    empty = score_all(golds, dict.fromkeys(texts, ""), has_unanswerable=True)
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
