"""Data loader: an endless, reproducible sequence of batches of an artifact's instances.

A batch is a function of (seed, configuration, number of instances before it). Ranks do not
communicate: each computes the whole global batch and builds tensors of its share. One thread
prepares batches ahead. Worker processes are not needed, because NumPy works on whole batches and
mostly releases the interpreter lock.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from model.data.batches import PretrainingBatch, StepBatch
from model.data.collator import MicroBatchCollator
from model.data.dataset import InstanceDataset, InstanceRows, RowHeaders
from model.data.masks import apply_dynamic_masks, count_dynamic_masks
from model.data.sampler import rank_share, stream_rows
from pipelines.arrays import Int64s, offsets_of
from pipelines.instances.masking import VocabularyIds
from schemas.corpus_configs import MaskingConfig
from schemas.errors import ConfigError
from schemas.model_configs import BatchConfig

# Instances that are ordered, and that are read and masked at once: small batches share calls of
# NumPy. Affects only speed.
_PLANNED, _GROUP = 1 << 14, 1 << 11
_SORTED = 1 << 12  # instances that `eval_batches` sorts by length at once

Item = TypeVar("Item")


class PretrainingDataLoader:
    """Endless iterable of one `StepBatch` per training step.

    Every iterator starts at the given state and has its own thread, which ends when the iterator is
    closed.

    Args:
        dataset: Instances to load.
        batch: Size of the global batches.
        collator: Collator of this process's share of a batch.
        seed: Seed of the order of instances and of dynamic masks.
        vocabulary: Vocabulary of the instances.
        dynamic_masking: Configuration of masks that differ in each epoch. None: stored masks.
        rank, world_size: Rank of this process, and number of ranks.
        position: Number of instances to skip, those of earlier batches over all ranks.
        pin_memory: Put tensors into pinned memory, for asynchronous copies to a GPU.
        prefetch_factor: Number of batches that a thread prepares ahead; 0 for no thread.

    Raises:
        ConfigError: The batches are too small for the ranks.
    """

    def __init__(
        self,
        dataset: InstanceDataset,
        *,
        batch: BatchConfig,
        collator: MicroBatchCollator,
        seed: int,
        vocabulary: VocabularyIds,
        dynamic_masking: MaskingConfig | None = None,
        rank: int = 0,
        world_size: int = 1,
        position: int = 0,
        pin_memory: bool = False,
        prefetch_factor: int = 2,
    ) -> None:
        self._size = batch.global_batch_size
        if self._size < world_size:
            raise ConfigError(
                f"batch.global_batch_size: expected at least {world_size}, so that each of the "
                f"{world_size} processes has an instance of every batch, got {self._size}. Raise "
                "it or use fewer processes."
            )
        self._dataset, self._collator, self._vocabulary = dataset, collator, vocabulary
        self._seed = seed
        # `left-to-right` predicts every token and uses no masks.
        self._is_causal = collator.objective == "left-to-right"
        self._dynamic_masking = None if self._is_causal else dynamic_masking
        self._rank, self._world_size = rank, world_size
        self._position = position
        self._pin_memory = pin_memory
        self._prefetch_factor = prefetch_factor

    def __iter__(self) -> Generator[StepBatch]:
        batches = self._batches()
        return prefetch(batches, size=self._prefetch_factor) if self._prefetch_factor else batches

    def _batches(self) -> Generator[StepBatch]:
        group = self._size * max(1, _GROUP // self._size)
        planned = group * max(1, _PLANNED // group)
        for start in itertools.count(self._position, planned):
            rows, epochs = stream_rows(start, planned, size=len(self._dataset), seed=self._seed)
            for first in range(0, planned, group):
                yield from self._step_batches(
                    rows[first : first + group], epochs[first : first + group]
                )

    def _step_batches(self, rows: Int64s, epochs: Int64s) -> Iterator[StepBatch]:
        """Return the batches of these instances of the stream, a multiple of their size."""
        headers = self._dataset.headers(rows)
        batches = [slice(first, first + self._size) for first in range(0, len(rows), self._size)]
        shares = [
            batch.start
            + rank_share(headers.lengths[batch], rank=self._rank, world_size=self._world_size)
            for batch in batches
        ]
        order = np.concatenate(shares)
        own = self._with_masks(self._dataset.read(headers.take(order)), epochs[order])
        own_bounds = offsets_of([len(share) for share in shares])
        for batch, (first, end) in zip(batches, pairwise(own_bounds), strict=True):
            yield self._step_batch(headers.take(batch), epochs[batch], own=own.part(first, end))

    def _step_batch(self, headers: RowHeaders, epochs: Int64s, *, own: InstanceRows) -> StepBatch:
        """Return a global batch with the given headers and epochs, and this rank's share."""
        micro_batches = self._collator(own)
        if self._pin_memory:
            micro_batches = tuple(batch.pin_memory() for batch in micro_batches)
        has_pairs = self._collator.objective == "mlm+nsp"
        return StepBatch(
            micro_batches=micro_batches,
            predictions=self._count_predictions(headers, epochs, own=own),
            pairs=int(np.count_nonzero(headers.next_sentence_label >= 0)) if has_pairs else 0,
            lengths=headers.lengths,
        )

    def _with_masks(self, instances: InstanceRows, epochs: Int64s) -> InstanceRows:
        if self._dynamic_masking is None:
            return instances
        return apply_dynamic_masks(
            instances,
            epochs,
            seed=self._seed,
            vocabulary=self._vocabulary,
            config=self._dynamic_masking,
        )

    def _count_predictions(self, headers: RowHeaders, epochs: Int64s, *, own: InstanceRows) -> int:
        """Return the number of tokens to predict in the global batch."""
        if self._is_causal:
            return int((headers.lengths - 1).sum())
        if self._world_size == 1:
            return len(own.masked_ids)
        if self._dynamic_masking is None:
            return int(headers.masked_counts.sum())
        counts = count_dynamic_masks(headers, self._dynamic_masking)
        if counts is not None:
            return int(counts.sum())
        # The number of whole words that fit depends on the masks, so each rank draws all of them.
        return len(self._with_masks(self._dataset.read(headers), epochs).masked_ids)


def prefetch(items: Iterator[Item], *, size: int) -> Generator[Item]:
    """Yield items that a thread computes, up to `size` of them in advance."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="bertloom-prefetch")
    try:
        futures = deque(pool.submit(next, items, None) for _ in range(size))
        while (item := futures.popleft().result()) is not None:
            futures.append(pool.submit(next, items, None))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)


def eval_batches(
    dataset: InstanceDataset,
    *,
    rows: npt.NDArray[Any],
    collator: MicroBatchCollator,
) -> Iterator[PretrainingBatch]:
    """Yield each row once, with the stored masks, for evaluation.

    Rows are sorted by descending length in chunks of some thousands.
    """
    for start in range(0, len(rows), _SORTED):
        headers = dataset.headers(np.asarray(rows[start : start + _SORTED], np.int64))
        order = rank_share(headers.lengths, rank=0, world_size=1)
        yield from collator(dataset.read(headers.take(order)))
