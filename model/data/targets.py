"""What a model is asked to predict of its instances: stored masks, masks of the epoch, or all.

Stored masks can be undone, since the table keeps what stood in each place. So one artifact serves
every objective and every masking, and with dynamic masks each epoch has others (Liu et al. 2019,
RoBERTa, 4.1) that are a function of (seed, epoch, instance) alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from model.data.instances import InstanceRows, RowHeaders
from model.data.permutation import keys_by_epoch
from pipelines.arrays import Int64s
from pipelines.instances.masking import VocabularyIds, mask_batch, prediction_counts
from pipelines.seeds import random_bits
from schemas.corpus_configs import MaskingConfig


def unmasked(instances: InstanceRows) -> InstanceRows:
    """The instances as they were before masking, with nothing to predict."""
    ids = instances.input_ids.copy()
    ids[_places(instances)] = instances.masked_ids
    return instances._replace(
        input_ids=ids,
        masked_positions=instances.masked_positions[:0],
        masked_ids=instances.masked_ids[:0],
        masked_offsets=np.zeros_like(instances.masked_offsets),
    )


def masked_anew(
    instances: InstanceRows,
    epochs: Int64s,
    *,
    seed: int,
    vocabulary: VocabularyIds,
    config: MaskingConfig,
) -> InstanceRows:
    """The instances with masks drawn for these epochs, int64 of shape (n,), in place of others."""
    original = unmasked(instances)
    masked = mask_batch(
        masking_keys(instances.rows, epochs, seed=seed),
        original.input_ids,
        offsets=original.offsets,
        segment_b_start=original.segment_b_start,
        vocabulary=vocabulary,
        config=config,
    )
    return original._replace(
        input_ids=masked.input_ids,
        masked_positions=masked.positions,
        masked_ids=masked.original_ids,
        masked_offsets=masked.offsets.astype(np.int64),
    )


def masking_keys(rows: Int64s, epochs: Int64s, *, seed: int) -> npt.NDArray[np.uint64]:
    """The key of each instance's masks in its epoch."""
    return random_bits(keys_by_epoch(epochs, seed=seed, purpose="dynamic-masking"), rows)


def next_tokens(instances: InstanceRows) -> InstanceRows:
    """The instances unmasked; every token but the first is to be predicted from the one before."""
    original = unmasked(instances)
    ids, offsets = original.input_ids, original.offsets
    lengths = np.diff(offsets)
    is_last = np.zeros(len(ids), np.bool_)
    is_last[offsets[1:] - 1] = True
    places = np.flatnonzero(~is_last)
    positions = places - np.repeat(offsets[:-1], lengths - 1)
    return original._replace(
        masked_positions=positions.astype(np.uint16),
        masked_ids=ids[places + 1],
        masked_offsets=offsets - np.arange(len(offsets)),
    )


def drawn_counts(headers: RowHeaders, config: MaskingConfig) -> Int64s | None:
    """How many tokens `masked_anew` chooses in each; None where that depends on the tokens."""
    if config.strategy == "none":
        return np.zeros(len(headers.rows), np.int64)
    if config.strategy != "wordpiece":
        return None  # words that do not fit into what is left of the budget are skipped
    candidates = headers.lengths - 2 - (headers.segment_b_start < headers.lengths)
    return np.minimum(prediction_counts(headers.lengths, config), candidates)


def _places(instances: InstanceRows) -> Int64s:
    """Index in input_ids of each masked position."""
    counts = np.diff(instances.masked_offsets)
    places: Int64s = np.repeat(instances.offsets[:-1], counts) + instances.masked_positions
    return places
