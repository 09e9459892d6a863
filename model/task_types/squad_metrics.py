"""Exact match and F1 by the official rules of SQuAD 1.1 and 2.0, and files of predictions.

The rules are those of `evaluate-v1.1.py` and `evaluate-v2.0.py`, which the leaderboards use. Two
answers are compared after lower-casing, leaving out ASCII punctuation and the articles a, an and
the, and joining what is left by single spaces. F1 counts words in common. A prediction is worth the
best it gets with any of the question's answers.

One difference, on purpose: `evaluate-v2.0.py` leaves questions without a prediction out of the
mean. Here, as in 1.1, they count 0, and are counted.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from model.tasks.files import read_json, write_json
from schemas.errors import PredictionsError

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


class Gold(NamedTuple):
    """What is right for one question."""

    id: str
    answers: tuple[str, ...]
    """Those a prediction is compared with; ("",) where "" is right."""

    has_answer: bool
    """Whether the file has an answer for it."""


class QuestionScore(NamedTuple):
    """Of one question; each 0 .. 1."""

    em: float
    f1: float


class SquadScores(NamedTuple):
    """Of all questions of a file."""

    metrics: dict[str, float]
    """Shares of 1: `em`, `f1`, and for 2.0 where there are such questions `has-answer-em`,
    `has-answer-f1`, `no-answer-em`, `no-answer-f1`."""

    questions: int
    unanswered: tuple[str, ...]
    """Ids of questions without a prediction; they count 0."""

    unknown: tuple[str, ...]
    """Ids of predictions to which there is no question; they count nothing."""


def normalize_answer(text: str) -> str:
    """The form in which answers are compared; "" if nothing of it is left."""
    lowered = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lowered).split())


def gold_answers(examples: pa.Table, *, has_unanswerable: bool) -> list[Gold]:
    """The right answers of each row of SPAN_EXAMPLES.

    In 2.0 an answer of which nothing is left when normalised is none, and a question without
    answers has the answer "".

    Raises:
        PredictionsError: the answers of a row are not known, so that nothing can be scored.
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
    """What a prediction is worth: its best over the right answers."""
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
    """Score predictions, text by id, as an official file has them.

    Raises:
        PredictionsError: there is no question, or two have the same id.
    """
    ids = {gold.id for gold in golds}
    if not golds or len(ids) < len(golds):
        repeated = [
            identity for identity, count in Counter(g.id for g in golds).items() if count > 1
        ]
        found = f"{repeated[0]!r} twice" if repeated else "no question"
        raise PredictionsError(
            f"expected questions with an id of their own, found {found}; predictions can only be "
            "matched by id. Correct the examples"
        )
    nothing = QuestionScore(0.0, 0.0)
    scores = [
        score_question(predictions[gold.id], gold, has_unanswerable=has_unanswerable)
        if gold.id in predictions
        else nothing
        for gold in golds
    ]
    return SquadScores(
        mean_scores(golds, scores, has_unanswerable=has_unanswerable),
        questions=len(golds),
        unanswered=tuple(gold.id for gold in golds if gold.id not in predictions),
        unknown=tuple(identity for identity in predictions if identity not in ids),
    )


def mean_scores(
    golds: Sequence[Gold], scores: Sequence[QuestionScore], *, has_unanswerable: bool
) -> dict[str, float]:
    """Means over all questions, and for 2.0 over those with and those without an answer."""
    groups = {"": list(scores)}
    if has_unanswerable:
        pairs = list(zip(golds, scores, strict=True))
        groups["has-answer-"] = [score for gold, score in pairs if gold.has_answer]
        groups["no-answer-"] = [score for gold, score in pairs if not gold.has_answer]
    return {
        f"{group}{name}": sum(getattr(score, name) for score in members) / len(members)
        for group, members in groups.items()
        if members
        for name in QuestionScore._fields
    }


def texts_by_id(predictions: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Our predictions in the official form.

    One whose text is None is left out: the question was not answered.

    Raises:
        PredictionsError: two have the same id, or one has no text.
    """
    found: dict[str, str] = {}
    seen: set[str] = set()
    for item in predictions:
        identity = str(item["id"])
        if identity in seen:
            raise PredictionsError(
                f"two predictions have the id {identity!r}; expected one for each question"
            )
        seen.add(identity)
        text = item.get("text", 0)
        if text is not None and not isinstance(text, str):
            said = repr(text)[:60] if "text" in item else f"only {', '.join(sorted(item))}"
            raise PredictionsError(
                f"the prediction of question {identity}: expected its text, found {said}"
            )
        if text is not None:
            found[identity] = text
    return found


def read_predictions(url: str) -> dict[str, str]:
    """Read an official file of predictions: a JSON object, id to text, compressed or not.

    Args:
        url: a path or any fsspec URL.

    Raises:
        PredictionsError: no JSON, no object, an id twice, or a value that is no text.
        InputError: the file is missing or damaged.
    """
    content = read_json(url, error=PredictionsError)
    if not isinstance(content, dict):
        raise PredictionsError(
            f"{url}: expected an object with the text of each question id, found a "
            f"{type(content).__name__}. Give a file as run_squad.py or write_predictions makes it"
        )
    for identity, text in content.items():
        if not isinstance(text, str):
            raise PredictionsError(
                f'{url}: question {identity}: expected text ("" for no answer), found '
                f"{text!r:.80}. Give a file with id and text, not one with n-best lists or odds"
            )
    return content


def write_predictions(predictions: Mapping[str, str], url: str) -> None:
    """Write the file that the official scripts and servers take; compressed if named .gz."""
    write_json(dict(predictions), url)
