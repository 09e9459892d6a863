"""SQuAD 2.0 with probabilities of no answer: the figures of `evaluate-v2.0.py --na-prob-file`.

A question whose probability is above a threshold counts as answered with "". The best thresholds
are looked for on the questions themselves, as the official script looks for them: by rising
probability one question after the other gets its own answer in place of "", and of equal
probabilities each place between them is a candidate too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pyarrow as pa

from model.task_types.squad_metrics import Gold, QuestionScore, gold_answers, score_question
from model.tasks.files import read_json
from schemas.errors import PredictionsError

DEFAULT_THRESHOLD = 1.0
"""That of the official script: above every probability, so that each answer stands."""

_NOTHING = QuestionScore(0.0, 0.0)


def read_no_answer_probabilities(url: str) -> dict[str, float]:
    """Read an official file of probabilities (or odds) of no answer: a JSON object, id to number.

    Raises:
        PredictionsError: no JSON, no object, an id twice, or a value that is no finite number.
        InputError: the file is missing or damaged.
    """
    content = read_json(url, error=PredictionsError)
    if not isinstance(content, dict):
        raise PredictionsError(
            f"{url}: expected an object with the probability of no answer of each question id, "
            f"found a {type(content).__name__}"
        )
    for identity, value in content.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise PredictionsError(
                f"{url}: question {identity}: expected a number, found {value!r:.80}. Give the "
                "file of probabilities or odds of no answer, not that of the answers"
            )
    return {identity: float(value) for identity, value in content.items()}


def official_figures(
    examples: pa.Table,
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float],
    *,
    threshold: float = DEFAULT_THRESHOLD,
) -> dict[str, float]:
    """All that the official script prints, under its names.

    A question without a prediction counts 0 whatever its probability; the script stops at one.

    Args:
        examples: rows of SPAN_EXAMPLES with known answers.
        predictions: texts by id; "" says that there is no answer.
        no_answer: by id, the larger the surer that there is none; others than those of the
            examples count nothing.
        threshold: above it a question counts as answered with "".

    Returns:
        `exact`, `f1`, `total`, the same with `HasAns_` and `NoAns_` where there are such questions,
        `best_exact`, `best_f1` and their thresholds `best_exact_thresh`, `best_f1_thresh`. Scores
        are in percent.

    Raises:
        PredictionsError: answers are not known, or a question has no probability.
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
    """The highest mean score over all thresholds, in percent, and the first that gives it."""
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
