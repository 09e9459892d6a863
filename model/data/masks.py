"""Prediction targets of instances: stored masks, dynamic masks, or all tokens.

Stored masks can be undone, because the table has the original ids. So one artifact serves every
objective and masking. Dynamic masks differ in each epoch (Liu et al. 2019, RoBERTa, 4.1) and are a
function of (seed, epoch, instance).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from model.data.dataset import InstanceRows, RowHeaders
from model.data.sampler import keys_by_epoch
from pipelines.arrays import Int64s
from pipelines.instances.masking import VocabularyIds, mask_batch, prediction_counts
from pipelines.seeds import random_bits
from schemas.corpus_configs import MaskingConfig


def restore_tokens(instances: InstanceRows) -> InstanceRows:
    """Return the instances before masking, without targets."""
    headers, ids = instances.headers, instances.input_ids.copy()
    starts = np.repeat(instances.offsets[:-1], headers.masked_counts)
    ids[starts + instances.masked_positions] = instances.masked_ids
    return InstanceRows(
        headers._replace(masked_counts=np.zeros_like(headers.masked_counts)),
        ids,
        instances.masked_positions[:0],
        instances.masked_ids[:0],
    )


def apply_dynamic_masks(
    instances: InstanceRows,
    epochs: Int64s,
    *,
    seed: int,
    vocabulary: VocabularyIds,
    config: MaskingConfig,
) -> InstanceRows:
    """Return the instances with new masks for these epochs, int64 of shape (n,)."""
    original = restore_tokens(instances)
    headers = original.headers
    masked = mask_batch(
        masking_keys(headers.rows, epochs, seed=seed),
        original.input_ids,
        offsets=original.offsets,
        segment_b_start=headers.segment_b_start,
        vocabulary=vocabulary,
        config=config,
    )
    counts = np.diff(masked.offsets).astype(np.int64)
    return InstanceRows(
        headers._replace(masked_counts=counts),
        masked.input_ids,
        masked.positions,
        masked.original_ids,
    )


def masking_keys(rows: Int64s, epochs: Int64s, *, seed: int) -> npt.NDArray[np.uint64]:
    """Return the key of each instance's masks in its epoch."""
    return random_bits(keys_by_epoch(epochs, seed=seed, purpose="dynamic-masking"), rows)


def next_tokens(instances: InstanceRows) -> InstanceRows:
    """Return the unmasked instances; every token but the first is predicted from the left."""
    original = restore_tokens(instances)
    ids, offsets, counts = original.input_ids, original.offsets, original.headers.lengths - 1
    is_last = np.zeros(len(ids), np.bool_)
    is_last[offsets[1:] - 1] = True
    indices = np.flatnonzero(~is_last)
    return InstanceRows(
        original.headers._replace(masked_counts=counts),
        ids,
        (indices - np.repeat(offsets[:-1], counts)).astype(np.uint16),
        ids[indices + 1],
    )


def count_dynamic_masks(headers: RowHeaders, config: MaskingConfig) -> Int64s | None:
    """Return how many tokens `apply_dynamic_masks` selects per instance.

    None: it depends on the tokens.
    """
    if config.strategy != "wordpiece":
        return None  # words that exceed the remaining budget are skipped
    candidates = headers.lengths - 2 - (headers.segment_b_start < headers.lengths)
    return np.minimum(prediction_counts(headers.lengths, config), candidates)
