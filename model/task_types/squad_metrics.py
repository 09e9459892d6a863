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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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

    questions: int
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

    Raises:
        PredictionsError: The answers of a row are not known.
    """
    columns = ("id", "answers", "is_impossible")
    found = []
    rows = zip(*(examples.column(name).to_pylist() for name in columns), strict=True)
    for identity, answers, is_impossible in rows:
        if is_impossible is None:
            raise PredictionsError(
                f"question {identity}: its answers are not known, so nothing can be scored. Score "
                "a split with answers, such as dev; test sets are scored by their server"
            )
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
    """Score predictions, text by id, in the form of an official file.

    Raises:
        PredictionsError: There is no question, or two have the same id.
    """
    if not golds:
        raise PredictionsError("expected questions, found no question")
    counts = Counter(gold.id for gold in golds)
    repeated = next((identity for identity, count in counts.items() if count > 1), None)
    if repeated is not None:
        raise PredictionsError(f"expected questions with unique ids, got {repeated!r} twice")
    scores = [
        score_question(predictions[gold.id], gold, has_unanswerable=has_unanswerable)
        if gold.id in predictions
        else _NOTHING
        for gold in golds
    ]
    groups = {"": scores}
    if has_unanswerable:
        pairs = list(zip(golds, scores, strict=True))
        groups["has-answer-"] = [score for gold, score in pairs if gold.has_answer]
        groups["no-answer-"] = [score for gold, score in pairs if not gold.has_answer]
    metrics = {
        f"{group}{name}": sum(getattr(score, name) for score in members) / len(members)
        for group, members in groups.items()
        if members
        for name in QuestionScore._fields
    }
    return SquadScores(
        metrics,
        questions=len(golds),
        unanswered=tuple(gold.id for gold in golds if gold.id not in predictions),
        unknown=tuple(identity for identity in predictions if identity not in counts),
    )


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
    content = _read_object(url)
    for identity, text in content.items():
        if not isinstance(text, str):
            raise PredictionsError(
                f'{url}: question {identity}: expected text ("" for no answer), found '
                f"{text!r:.80}. Give a file with id and text, not one with n-best lists or odds"
            )
    return content


def read_no_answer_probabilities(url: str) -> dict[str, float]:
    """Read an official file of probabilities (or odds) of no answer: an object of id and number.

    Raises:
        PredictionsError: The file is not such an object, repeats an id, or has a number that is not
            finite.
        InputError: The file is missing or damaged.
    """
    content = _read_object(url)
    for identity, value in content.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise PredictionsError(
                f"{url}: question {identity}: expected a number, found {value!r:.80}. Give the "
                "file of probabilities or odds of no answer, not that of the answers"
            )
    return {identity: float(value) for identity, value in content.items()}


def _read_object(url: str) -> dict[str, Any]:
    content = read_json(url, error=PredictionsError)
    if not isinstance(content, dict):
        found = type(content).__name__
        raise PredictionsError(f"{url}: expected an object by question id, found a {found}")
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
        PredictionsError: Answers are not known, or a question has no probability.
    """
    golds = gold_answers(examples, has_unanswerable=True)
    lacking = [gold.id for gold in golds if gold.id not in no_answer]
    if lacking:
        raise PredictionsError(
            f"{len(lacking):,} of {len(golds):,} questions have no probability of no answer, first "
            f"{lacking[0]}: expected a number for each question of the file"
        )
    raw = {
        gold.id: score_question(predictions[gold.id], gold, has_unanswerable=True)
        for gold in golds
        if gold.id in predictions
    }
    kept = [
        QuestionScore(*[float(not gold.has_answer)] * 2)
        if gold.id in raw and no_answer[gold.id] > threshold
        else raw.get(gold.id, _NOTHING)
        for gold in golds
    ]
    figures: dict[str, float] = {}
    for prefix, wanted in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        group = [s for gold, s in zip(golds, kept, strict=True) if gold.has_answer in wanted]
        if group:
            figures[f"{prefix}exact"] = 100.0 * math.fsum(s.em for s in group) / len(group)
            figures[f"{prefix}f1"] = 100.0 * math.fsum(s.f1 for s in group) / len(group)
            figures[f"{prefix}total"] = len(group)
    for name, field in (("exact", "em"), ("f1", "f1")):
        scores = {identity: float(getattr(score, field)) for identity, score in raw.items()}
        best, at = _best(golds, scores, predictions, no_answer)
        figures |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return figures


def _best(
    golds: Sequence[Gold],
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float],
) -> tuple[float, float]:
    """Return the highest mean score over all thresholds, in percent, and its first threshold."""
    known = {gold.id: gold for gold in golds}
    # With "" for every question; one that was not answered is never right.
    best = current = float(sum(g.id in scores and not g.has_answer for g in golds))
    threshold = 0.0
    for identity in sorted(no_answer, key=lambda name: no_answer[name]):  # stable, as there
        if identity not in known or identity not in scores:
            continue
        if known[identity].has_answer:
            current += scores[identity]
        elif predictions[identity]:
            current -= 1.0
        if current > best:
            best, threshold = current, no_answer[identity]
    return 100.0 * best / len(golds), threshold
