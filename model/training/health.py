"""Warnings about trainings that went wrong: from figures to a sentence that names the problem.

A false alarm costs more trust than silence, so every threshold leaves a margin for noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PAGE = "docs/troubleshooting.md"
SECTIONS: dict[str, str] = {
    "unigram-loss": "my-loss-stays-at-7",
    "phase-ends-worse": "perplexity-rises",
    "one-answer": "the-classifier-gives-one-answer",
}
"""Section of the page by kind of warning."""

UNIGRAM_MARGIN = 0.1
"""Nats below the unigram level that count as noise: the frequencies come from a sample."""

MAX_RATIO = 1.2
"""Final perplexity of a phase over an earlier one. Equally good models differ by some percent
where phases have different held-out sets."""

MIN_WRONG = 5
"""Dev answers that one constant answer must miss. A good model gives one answer too where nearly
all right answers are the same."""


class TrainingWarning(NamedTuple):
    """A problem of a training."""

    kind: str
    """Key of `SECTIONS`."""

    text: str
    """Sentence with the figures, and where to read on."""


def read_warnings(statistics: Mapping[str, Any]) -> list[TrainingWarning]:
    """Return the warnings in the statistics of an artifact."""
    return [TrainingWarning(**entry) for entry in statistics.get("warnings", ())]


def warnings_json(warnings: Sequence[TrainingWarning | None]) -> list[dict[str, str]]:
    """Return warnings as statistics hold them; None stands for a passed check."""
    return [warning._asdict() for warning in warnings if warning is not None]


def check_unigram(loss: float, unigram_loss: float) -> TrainingWarning | None:
    """Compare the final held-out loss with that of a model that knows word frequencies only.

    Args:
        loss: Mean over predicted tokens, in nats.
        unigram_loss: Mean over the same tokens of -log(frequency of the token).
    """
    if loss < unigram_loss - UNIGRAM_MARGIN:
        return None
    better = "no better" if loss >= unigram_loss else "not clearly better"
    return _warning(
        "unigram-loss",
        f"The held-out loss ({loss:.2f}) is {better} than that of word frequencies alone "
        f"({unigram_loss:.2f})",
    )


def check_end(loss: float, earlier: Mapping[str, float]) -> TrainingWarning | None:
    """Compare the final held-out loss of a phase with earlier losses.

    Args:
        loss: Final loss, in nats.
        earlier: Losses by when they were measured, such as `after step 400`.
    """
    moment = min(earlier, key=lambda name: earlier[name])
    if loss - earlier[moment] <= math.log(MAX_RATIO):
        return None
    return _warning(
        "phase-ends-worse",
        f"Held-out perplexity is {_perplexity(loss)} at the end; it was "
        f"{_perplexity(earlier[moment])} {moment}",
    )


def check_answers(
    predicted: Mapping[str, int], expected: Mapping[str, int]
) -> TrainingWarning | None:
    """Warn if all predictions are equal and the right answers differ.

    Args:
        predicted: Number of dev predictions by answer.
        expected: Number of right dev answers by answer.
    """
    if len(predicted) != 1:
        return None
    [answer] = predicted
    if sum(expected.values()) - expected.get(answer, 0) < MIN_WRONG:
        return None
    names = {"": "no answer", "O": "O, no entity"}
    return _warning(
        "one-answer", f"The model gives one answer only on dev: {names.get(answer, answer)}"
    )


def summarize_restarts(restarts: Sequence[Sequence[TrainingWarning]]) -> list[TrainingWarning]:
    """Return one warning per kind, with the number of restarts that have it."""
    by_kind: dict[str, list[str]] = {}
    for warning in (warning for warnings in restarts for warning in warnings):
        by_kind.setdefault(warning.kind, []).append(warning.text)
    count = len(restarts)
    return [
        TrainingWarning(
            kind, texts[0] if count == 1 else f"{len(texts)} of {count} restarts: {texts[0]}"
        )
        for kind, texts in by_kind.items()
    ]


def _perplexity(loss: float) -> str:
    return f"{math.exp(min(loss, 700.0)):,.1f}"  # exp(710) is more than a float holds


def _warning(kind: str, text: str) -> TrainingWarning:
    return TrainingWarning(kind, f"{text}. See {PAGE}#{SECTIONS[kind]}")
