"""Data loader: an endless, reproducible sequence of batches of an artifact's instances.

A batch is a function of (seed, configuration, position in the stream): `model.data.batching`
selects its instances, `model.data.targets` its targets, and `model.data.layouts` builds the
tensors. Ranks do
not communicate: each computes the whole global batch and builds tensors of its share. One thread
prepares batches ahead. Worker processes are not needed, because NumPy works on whole batches and
mostly releases the interpreter lock.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from model.data.batches import LoaderState, PretrainingBatch, StepBatch
from model.data.batching import BatchPlan, Layout, Window, micro_batch_bounds, share_of
from model.data.instances import InstanceRows, InstanceSet, RowHeaders
from model.data.layouts import lay_out
from model.data.prefetch import Prefetcher
from model.data.targets import drawn_counts, masked_anew, next_tokens
from pipelines.arrays import Int64s, offsets_of
from pipelines.instances.masking import VocabularyIds
from schemas.corpus_configs import MaskingConfig
from schemas.errors import ConfigError, InstanceDataError
from schemas.model_configs import BatchConfig, Objective

# Instances that are read and masked at once: several small batches share NumPy calls. Affects only
# speed.
_GROUP = 1 << 11
_FIXED_CHUNK = 1 << 12  # instances that `fixed_batches` sorts by length at once


class Loader:
    """Endless iterable of one `StepBatch` per training step.

    Every iterator starts at the given state and has its own thread. The `state` of a batch resumes
    after it. Close the loader or the iterator to stop the thread.
    """

    def __init__(
        self,
        instances: InstanceSet,
        *,
        batch: BatchConfig,
        seed: int,
        vocabulary: VocabularyIds,
        pad_id: int,
        objective: Objective,
        masking: str,
        dynamic_masking: MaskingConfig,
        row_length: int,
        rank: int = 0,
        ranks: int = 1,
        state: LoaderState = LoaderState(),  # noqa: B008 - immutable
        pin_memory: bool = False,
        prefetch: int = 2,
    ) -> None:
        """Prepare to load without reading instances.

        Args:
            instances: Instances to load.
            batch: Size and layout of the batches.
            seed: Seed of the order of instances and of dynamic masks.
            vocabulary: Vocabulary of the instances.
            pad_id: Id of [PAD].
            objective: `mlm+nsp`; `mlm`, without next sentence labels; or `left-to-right`.
            masking: `stored` masks, or `dynamic` ones that differ in each epoch.
            dynamic_masking: Configuration of `dynamic`.
            row_length: Row length of the layout `padded`, at least the longest instance.
            rank, ranks: Rank of this process, and number of ranks.
            state: Start state.
            pin_memory: Put tensors into pinned memory, for asynchronous copies to a GPU.
            prefetch: Number of batches that a thread prepares ahead; 0 for no thread.

        Raises:
            ConfigError: The batches are too small for the ranks, or the rows for the instances.
            InstanceDataError: The vocabulary does not match.
        """
        _check_rows(instances, vocabulary=vocabulary, row_length=row_length)
        if not 0 <= rank < ranks:
            raise ConfigError(f"expected a rank of 0 to {ranks - 1}, found {rank}")
        self._instances = instances
        self._plan = BatchPlan(instances, batch=batch, seed=seed, ranks=ranks)
        self._layout: Layout = batch.batching
        self._micro_batch_tokens = batch.per_device_max_tokens
        self._seed = seed
        self._vocabulary = vocabulary
        self._pad_id = pad_id
        self._objective = objective
        # `left-to-right` predicts every token and uses no masks.
        draws = masking == "dynamic" and objective != "left-to-right"
        self._draws = dynamic_masking if draws else None
        self._row_length = row_length
        self._rank, self._ranks = rank, ranks
        self._state = state
        self._pin_memory = pin_memory
        self._prefetch = prefetch
        self._open: weakref.WeakSet[Prefetcher[StepBatch]] = weakref.WeakSet()

    def __iter__(self) -> Iterator[StepBatch]:
        if not self._prefetch:
            return self._batches()
        prefetcher = Prefetcher(self._batches(), ahead=self._prefetch)
        self._open.add(prefetcher)
        return prefetcher

    def close(self) -> None:
        """Stop the threads of all iterators."""
        for prefetcher in list(self._open):
            prefetcher.close()

    def _batches(self) -> Iterator[StepBatch]:
        start, number = self._state
        while True:
            window = self._plan.window(start)
            count = len(window.bounds) - 1
            if not 0 <= number < count:
                raise ConfigError(
                    f"the loader's state names batch {number} of a window of {count}: it is of "
                    "other instances or another batch configuration"
                )
            group = max(1, _GROUP * count // len(window.rows))
            for first in range(number, count, group):
                yield from self._step_batches(window, first, min(first + group, count))
            start, number = window.end, 0

    def _step_batches(self, window: Window, first: int, end: int) -> Iterator[StepBatch]:
        """Return batches first .. end-1 of the window."""
        cuts = window.bounds[first : end + 1] - window.bounds[first]
        own_rows = slice(window.bounds[first], window.bounds[end])
        headers, epochs = self._instances.headers(window.rows[own_rows]), window.epochs[own_rows]
        shares = [
            begin + share_of(headers.lengths[begin:end], rank=self._rank, ranks=self._ranks)
            for begin, end in pairwise(cuts)
        ]
        order = np.concatenate(shares)
        own = self._with_masks(self._instances.read(headers.take(order)), epochs[order])
        own_cuts = offsets_of(np.array([len(share) for share in shares]))
        last = len(window.bounds) - 2
        for number in range(end - first):
            batch = slice(cuts[number], cuts[number + 1])
            is_last = first + number == last
            yield self._step_batch(
                headers.take(batch),
                epochs[batch],
                own=own.part(own_cuts[number], own_cuts[number + 1]),
                state=LoaderState(window.end, 0)
                if is_last
                else LoaderState(window.start, first + number + 1),
            )

    def _step_batch(
        self, headers: RowHeaders, epochs: Int64s, *, own: InstanceRows, state: LoaderState
    ) -> StepBatch:
        """Return a global batch with the given headers and epochs, and this rank's share."""
        if self._objective == "left-to-right":  # few batches at once: these arrays are large
            own = next_tokens(own)
        bounds = micro_batch_bounds(
            np.diff(own.offsets),
            layout=self._layout,
            limit=self._micro_batch_tokens,
            row_length=self._row_length,
        )
        has_pairs = self._objective == "mlm+nsp"
        micro_batches = lay_out(
            own,
            bounds,
            layout=self._layout,
            row_length=self._row_length,
            pad_id=self._pad_id,
            has_pairs=has_pairs,
        )
        if self._pin_memory:
            micro_batches = tuple(map(_pinned, micro_batches))
        return StepBatch(
            micro_batches=micro_batches,
            predictions=self._predictions(headers, epochs, own=own),
            pairs=int(np.count_nonzero(headers.next_sentence_label >= 0)) if has_pairs else 0,
            instances=len(headers.rows),
            tokens=int(headers.lengths.sum()),
            state=state,
        )

    def _with_masks(self, instances: InstanceRows, epochs: Int64s) -> InstanceRows:
        if self._draws is None:
            return instances
        return masked_anew(
            instances, epochs, seed=self._seed, vocabulary=self._vocabulary, config=self._draws
        )

    def _predictions(self, headers: RowHeaders, epochs: Int64s, *, own: InstanceRows) -> int:
        """Return the number of tokens to predict in the global batch."""
        if self._ranks == 1:
            return len(own.masked_ids)
        if self._objective == "left-to-right":
            return int((headers.lengths - 1).sum())
        if self._draws is None:
            return int(headers.masked_counts.sum())
        counts = drawn_counts(headers, self._draws)
        if counts is not None:
            return int(counts.sum())
        # The number of whole words that fit depends on the masks, so each rank draws all of them.
        return len(self._with_masks(self._instances.read(headers), epochs).masked_ids)


def fixed_batches(
    instances: InstanceSet,
    *,
    rows: npt.NDArray[Any],
    objective: Objective,
    vocabulary: VocabularyIds,
    pad_id: int,
    layout: Layout,
    row_length: int,
    per_device_max_tokens: int,
) -> Iterator[PretrainingBatch]:
    """Yield each row once, with the stored masks, for evaluation.

    Args:
        instances: Instances to load from.
        rows: Numbers of the instances; each block of some thousands is sorted by descending length.
        objective, vocabulary, pad_id, row_length: See `Loader`.
        layout: Layout of the batches.
        per_device_max_tokens: Maximum positions of a batch, padding included; a longer instance is
            alone.

    Raises:
        ConfigError, InstanceDataError: See `Loader`.
    """
    _check_rows(instances, vocabulary=vocabulary, row_length=row_length)
    for begin in range(0, len(rows), _FIXED_CHUNK):
        headers = instances.headers(np.asarray(rows[begin : begin + _FIXED_CHUNK], np.int64))
        headers = headers.take(share_of(headers.lengths, rank=0, ranks=1))
        found = instances.read(headers)
        yield from lay_out(
            next_tokens(found) if objective == "left-to-right" else found,
            micro_batch_bounds(
                headers.lengths, layout=layout, limit=per_device_max_tokens, row_length=row_length
            ),
            layout=layout,
            row_length=row_length,
            pad_id=pad_id,
            has_pairs=objective == "mlm+nsp",
        )


def _check_rows(instances: InstanceSet, *, vocabulary: VocabularyIds, row_length: int) -> None:
    if vocabulary.vocab_size != instances.vocab_size:
        raise InstanceDataError(
            f"the instances have a vocabulary of {instances.vocab_size:,} pieces, the one given "
            f"has {vocabulary.vocab_size:,}: give the vocabulary they were built with"
        )
    if row_length < instances.max_seq_length:
        raise ConfigError(
            f"rows of {row_length} places cannot hold instances of up to "
            f"{instances.max_seq_length} tokens: use longer rows or shorter instances"
        )


def _pinned(batch: PretrainingBatch) -> PretrainingBatch:
    tokens = batch.tokens
    return batch._replace(
        tokens=tokens._replace(
            input_ids=tokens.input_ids.pin_memory(),
            segment_ids=tokens.segment_ids.pin_memory(),
            position_ids=tokens.position_ids.pin_memory(),
            starts=tokens.starts.pin_memory(),
        ),
        masked_positions=batch.masked_positions.pin_memory(),
        masked_ids=batch.masked_ids.pin_memory(),
        next_sentence_labels=batch.next_sentence_labels.pin_memory(),
    )
