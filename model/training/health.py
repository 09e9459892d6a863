"""Warnings about trainings that go wrong: from figures to a sentence that names the problem.

A false alarm costs more trust than silence, so every threshold leaves a margin for noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.instances.notes import (
    MIN_HELD_OUT_DOCUMENTS,
    MIN_HELD_OUT_INSTANCES,
    describe_sample,
    is_too_small,
)

Kind = str

PAGE = "docs/troubleshooting.md"
SECTIONS: dict[Kind, str] = {
    "unigram-loss": "my-loss-stays-at-7",
    "perplexity-between-phases": "perplexity-rises-in-the-second-phase",
    "perplexity-within-phase": "perplexity-rises-within-a-phase",
    "small-held-out-set": "there-are-few-held-out-documents",
    "one-answer": "the-classifier-gives-one-answer",
    "chance": "fine-tuning-is-no-better-than-chance",
}
"""Section of the page by kind of warning."""

MIN_BUDGET_SHARE = 0.75
MIN_STEPS = 20_000
"""Share of a phase's budget, or updates, after which a loss at the unigram level is a problem. BERT
begins at that level: it learns word frequencies first, and in short phases for some time."""

UNIGRAM_MARGIN = 0.1
"""Nats below the unigram level that count as noise: the frequencies come from a sample."""

RATIO_BETWEEN_PHASES = 1.2
"""Perplexity over that of the phase before. The phases have different held-out sets, so equally
good models differ by some percent."""

RATIO_WITHIN_PHASE = 1.1
"""Perplexity over the lowest of the same phase. Both are measured on the same held-out set."""

MIN_EXAMPLES = 20
"""Minimum number of dev examples for a comparison with chance."""

MIN_WRONG = 5
"""Dev answers that one constant answer must miss. A good model gives one answer too where nearly
all right answers are the same."""

_STANDARD_ERRORS = 2.0
_CORRELATIONS = frozenset({"matthews", "pearson", "spearman"})


class TrainingWarning(NamedTuple):
    """A problem of a training."""

    kind: Kind
    """Key of `SECTIONS`."""

    text: str
    """Sentence with the figures, and where to read on."""


def read_warnings(statistics: Mapping[str, Any]) -> list[TrainingWarning]:
    """Return the warnings in the statistics of an artifact."""
    return [TrainingWarning(**entry) for entry in statistics.get("warnings", ())]


def warnings_json(warnings: Sequence[TrainingWarning | None]) -> list[dict[str, str]]:
    """Return warnings as statistics hold them."""
    return [warning._asdict() for warning in warnings if warning is not None]


def is_unigram_check_due(*, budget_share: float, steps: int) -> bool:
    """Return whether a phase has trained long enough to leave the unigram level."""
    return budget_share >= MIN_BUDGET_SHARE or steps >= MIN_STEPS


def check_unigram(
    loss: float, unigram_loss: float, *, steps: int, objective: str
) -> TrainingWarning | None:
    """Compare a language-model loss with that of a model that knows word frequencies only.

    Args:
        loss: Mean over predicted tokens, in nats.
        unigram_loss: Mean over the same tokens of -log(frequency of the token).
        steps: Updates of the weights so far.
        objective: Objective of the phase.
    """
    if loss < unigram_loss - UNIGRAM_MARGIN:
        return None
    name = "left-to-right" if objective == "left-to-right" else "masked-LM"
    better = "no better" if loss >= unigram_loss else "not clearly better"
    return _warning(
        "unigram-loss",
        f"The {name} loss ({loss:.2f}) is {better} than that of word frequencies alone "
        f"({unigram_loss:.2f}) after {steps:,} steps",
    )


def check_phases(loss: float, loss_before: float, *, phase_before: str) -> TrainingWarning | None:
    """Compare the final held-out loss of a phase with that of the phase that it starts from."""
    if loss - loss_before <= math.log(RATIO_BETWEEN_PHASES):
        return None
    return _warning(
        "perplexity-between-phases",
        f"Held-out perplexity rises from {_perplexity(loss_before)} in {phase_before} to "
        f"{_perplexity(loss)} in this phase, each on the held-out set of that phase",
    )


def check_evaluations(
    loss: float, lowest_loss: float, *, lowest_step: int
) -> TrainingWarning | None:
    """Compare the final held-out loss of a phase with the lowest of its evaluations."""
    if loss - lowest_loss <= math.log(RATIO_WITHIN_PHASE):
        return None
    return _warning(
        "perplexity-within-phase",
        f"Held-out perplexity ends at {_perplexity(loss)}; it was {_perplexity(lowest_loss)} after "
        f"step {lowest_step:,}",
    )


def check_held_out_size(instances: int, documents: int, *, advice: str) -> TrainingWarning | None:
    """Compare the size of a held-out set with the minimum for meaningful scores.

    Args:
        instances: Number of held-out instances.
        documents: Number of held-out documents.
        advice: How to get more.
    """
    if not is_too_small(instances, documents):
        return None
    return _warning(
        "small-held-out-set",
        f"Held-out metrics are of {describe_sample(instances, documents)} only. They say little "
        f"below {MIN_HELD_OUT_INSTANCES} instances of {MIN_HELD_OUT_DOCUMENTS} documents. {advice}",
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


def check_chance(
    metric: str, score: float, *, constant_score: float, examples: int
) -> TrainingWarning | None:
    """Compare a dev score with that of the most frequent training answer given to every example.

    Scores within two standard errors of it are no better: a share is taken to vary as a binomial
    one does, a correlation by 1 / sqrt(examples).
    """
    if examples < MIN_EXAMPLES:
        return None
    shares = (score, constant_score)
    variance = 1.0 if metric in _CORRELATIONS else max(share * (1 - share) for share in shares)
    if score - constant_score > _STANDARD_ERRORS * math.sqrt(variance / examples):
        return None
    return _warning(
        "chance",
        f"Dev {metric} {100 * score:.1f} is not clearly better than {100 * constant_score:.1f}, "
        f"the score of one constant answer ({examples:,} examples)",
    )


def summarize_restarts(
    restarts: Sequence[Sequence[TrainingWarning]],
) -> list[TrainingWarning]:
    """Return one warning per kind, with the number of restarts that have it."""
    by_kind: dict[Kind, list[str]] = {}
    for warnings in restarts:
        for warning in warnings:
            by_kind.setdefault(warning.kind, []).append(warning.text)
    if len(restarts) == 1:
        return [TrainingWarning(kind, text) for kind, [text] in by_kind.items()]
    return [
        TrainingWarning(kind, f"{len(texts)} of {len(restarts)} restarts: {texts[0]}")
        for kind, texts in by_kind.items()
    ]


def _perplexity(loss: float) -> str:
    return f"{math.exp(min(loss, 700.0)):,.1f}"  # exp(710) is more than a float holds


def _warning(kind: Kind, text: str) -> TrainingWarning:
    return TrainingWarning(kind, f"{text}. See {PAGE}#{SECTIONS[kind]}")
