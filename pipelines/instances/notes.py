"""Notes on instances: held-out sets that are too small, labels that are all equal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pipelines.instances import HELD_OUT
from schemas.corpus_configs import InstancesConfig

MIN_HELD_OUT_INSTANCES, MIN_HELD_OUT_DOCUMENTS = 100, 20
"""Fewer instances, or instances of fewer documents, say little about a model."""

_MARGIN = 1.5
"""Documents are held out by their ids, so a fraction of them is more or fewer documents."""

_MAX_FRACTION = 0.5

_NO_PAIRS = (
    "Set pairing to none, for full sentences without a segment B, and train with objective: mlm"
)


_MAX_GAIN, _STANDARD_ERRORS = 0.05, 2.5
"""Accuracy that the length of a pair may add to that of the most frequent label. In few pairs, more
than that can be noise."""


def instance_notes(
    config: InstancesConfig, counters: Mapping[str, int], *, guess_accuracy: float | None
) -> Iterator[str]:
    """Yield what a reader of the manifest should know.

    Args:
        config: Configuration of the stage.
        counters: Counters of the stage.
        guess_accuracy: `PairCounts.guess_accuracy` of the training pairs.
    """
    yield from _label_notes(config, counters, guess_accuracy=guess_accuracy)
    if not config.held_out_fraction:
        return
    documents = counters.get(f"{HELD_OUT}-documents-kept", 0)
    instances = counters.get(f"{HELD_OUT}-instances", 0)
    if is_too_small(instances, documents):
        advice = advise_fraction(counters, passes=config.dupe_factor)
        yield (
            f"held out: {describe_sample(instances, documents)}, too few to evaluate a model "
            f"(expected at least {MIN_HELD_OUT_INSTANCES} instances of {MIN_HELD_OUT_DOCUMENTS} "
            f"documents). {advice}"
        )


def is_too_small(instances: int, documents: int) -> bool:
    """Return whether held-out instances are too few to evaluate a model on."""
    return instances < MIN_HELD_OUT_INSTANCES or documents < MIN_HELD_OUT_DOCUMENTS


def describe_sample(instances: int, documents: int) -> str:
    """Format the size of a held-out set.

    >>> describe_sample(3, 1)
    '3 instances of 1 document'
    """
    sizes = ((instances, "instance"), (documents, "document"))
    return " of ".join(f"{size:,} {noun}{'' if size == 1 else 's'}" for size, noun in sizes)


def advise_fraction(counters: Mapping[str, int], *, passes: int) -> str:
    """Return which `held_out_fraction` holds out enough documents.

    Args:
        counters: Counters of `build-instances`.
        passes: Number of passes over the training documents.
    """
    documents, instances = (
        counters.get(name, 0) / passes + counters.get(f"{HELD_OUT}-{name}", 0)
        for name in ("documents-kept", "instances")
    )
    fraction = _MARGIN * max(
        MIN_HELD_OUT_DOCUMENTS / max(documents, 1), MIN_HELD_OUT_INSTANCES / max(instances, 1)
    )
    if fraction > _MAX_FRACTION:
        return "The corpus is too small for that: add documents"
    digits = 10 ** (1 - math.floor(math.log10(fraction)))
    return f"Set held_out_fraction to {math.ceil(fraction * digits) / digits:g} or more"


def _label_notes(
    config: InstancesConfig, counters: Mapping[str, int], *, guess_accuracy: float | None
) -> Iterator[str]:
    pairs = counters.get("instances", 0) - counters.get("without-segment-b", 0)
    random = counters.get("random-next", 0)
    if not pairs:
        return
    if 0 < random < pairs:
        most_frequent = max(random, pairs - random) / pairs
        noise = _STANDARD_ERRORS * 0.5 / math.sqrt(pairs)
        if guess_accuracy and guess_accuracy > most_frequent + max(_MAX_GAIN, noise):
            yield (
                f"next sentence prediction is easy: {100 * guess_accuracy:.0f} % of the labels "
                f"follow from the length of a pair, because documents are few. {_NO_PAIRS}"
            )
        return
    label = "random" if random else "next"
    reason = (
        f"random_next_prob is {config.random_next_prob:g}"
        if config.random_next_prob in (0.0, 1.0)
        else "a random segment B needs a second document"
    )
    yield (
        f"next sentence prediction is constant: all {pairs:,} pairs have the label {label} "
        f"({reason}). {_NO_PAIRS}"
    )
