"""Notes on instances: held-out sets that are too small, labels that are all equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipelines.instances import HELD_OUT
from schemas.corpus_configs import InstancesConfig

MIN_HELD_OUT_INSTANCES, MIN_HELD_OUT_DOCUMENTS = 100, 20
"""Fewer instances, or instances of fewer documents, say little about a model."""


def instance_notes(config: InstancesConfig, counters: Mapping[str, int]) -> Iterator[str]:
    """Yield what a reader of the manifest should know, from the counters of the stage."""
    pairs = counters.get("instances", 0) - counters.get("without-segment-b", 0)
    random = counters.get("random-next", 0)
    if pairs and random in (0, pairs):
        label = "random" if random else "next"
        yield (
            f"next sentence prediction is constant: all {pairs:,} pairs have the label {label} "
            f"(random_next_prob {config.random_next_prob:g}; a random segment B needs a second "
            "document). Set pairing to none, for full sentences without a segment B, and train "
            "with objective: mlm"
        )
    documents = counters.get(f"{HELD_OUT}-documents-kept", 0)
    instances = counters.get(f"{HELD_OUT}-instances", 0)
    if config.held_out_fraction and is_too_small(instances, documents):
        yield (
            f"held out: {describe_sample(instances, documents)}, too few to evaluate a model "
            f"(expected at least {MIN_HELD_OUT_INSTANCES} instances of {MIN_HELD_OUT_DOCUMENTS} "
            f"documents). Increase held_out_fraction ({config.held_out_fraction:g}) or add "
            "documents"
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
