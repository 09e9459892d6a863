"""Unigram baseline: the loss of a model that knows the frequencies of tokens and nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from model.data.dataset import InstanceDataset
from model.data.targets import next_tokens, restore_tokens
from pipelines.instances.masking import VocabularyIds
from schemas.model_configs import Objective

Costs = npt.NDArray[np.float64]

_INSTANCES = 2_000
_PSEUDO_COUNT = 0.1
"""Count of a token that the sample lacks. A whole count would give rare tokens of a large
vocabulary too much weight and make the baseline worse than the true frequencies."""


def count_labels(
    instances: InstanceDataset, *, vocabulary: VocabularyIds, objective: Objective
) -> npt.NDArray[np.int64]:
    """Count the tokens that training may ask for in a sample of the training instances.

    Masks fall on any token but [CLS] and [SEP], so every other token of an instance counts, also
    one that is not masked. The sample is spread evenly over all instances.

    Returns:
        int64 of shape (vocab_size,).
    """
    size = min(len(instances), _INSTANCES)
    sample = instances.gather(np.arange(size) * len(instances) // size)
    if objective == "left-to-right":
        return np.bincount(next_tokens(sample).masked_ids, minlength=vocabulary.vocab_size)
    counts = np.bincount(restore_tokens(sample).input_ids, minlength=vocabulary.vocab_size)
    counts[[vocabulary.cls_id, vocabulary.sep_id]] = 0
    return counts


def token_costs(counts: npt.NDArray[np.int64]) -> Costs:
    """Return -log(frequency) of every token in nats, float64 of shape (vocab_size,)."""
    smoothed = counts + _PSEUDO_COUNT
    costs: Costs = -np.log(smoothed / smoothed.sum())
    return costs
