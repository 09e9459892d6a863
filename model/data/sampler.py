"""Batch sampler: instances of global batches, and their distribution to ranks.

Everything is a function of (seed, configuration, position in the stream). The stream is endless:
one shuffle of all instances per epoch (`permutation.stream_rows`). Batches are planned per
*window*, a range of the stream that contains only full batches; the next window starts right after
it. So no instance is lost, every batch is full, and the state is two numbers: the start of the
window and the next batch in it.

In the layouts `packed` and `padded`, batches are consecutive ranges of the window. In `bucketed`,
the window is sorted by length first, and its batches are shuffled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.data.dataset import InstanceDataset
from model.data.permutation import stream_rows
from pipelines.arrays import Int64s, offsets_of, ranges
from pipelines.seeds import key_for, random_bits
from schemas.errors import ConfigError
from schemas.model_configs import BatchConfig

DEFAULT_INSTANCES = 256
"""Default number of instances in a global batch, if the configuration sets no size."""

# Plan many instances at once to amortize NumPy call overhead; more than 16 thousand do not help.
_PLANNED, _PLANNED_TOKENS, _PLANNED_BATCHES = 1 << 14, 1 << 21, 256


class Window(NamedTuple):
    """Batches of a range of the stream.

    Attributes:
        start, end: Stream positions of its first instance and of the next window.
        rows: Instances, batch after batch, int64.
        epochs: Epoch of each instance, int64.
        bounds: Batch k is rows[bounds[k] : bounds[k + 1]]; int64 of shape (batches + 1,).
    """

    start: int
    end: int
    rows: Int64s
    epochs: Int64s
    bounds: Int64s


class BatchSampler:
    """Sequence of the global batches of a run."""

    def __init__(
        self, instances: InstanceDataset, *, batch: BatchConfig, seed: int, world_size: int = 1
    ) -> None:
        """Prepare to plan batches of these instances.

        Raises:
            ConfigError: A batch could have fewer instances than ranks.
        """
        self._instances = instances
        self._seed = seed
        self._is_bucketed = batch.batching == "bucketed"
        self._tokens = batch.global_batch_tokens
        self._size = batch.global_batch_size or DEFAULT_INSTANCES
        _check_size(batch, size=self._size, longest=instances.max_seq_length, world_size=world_size)
        if self._is_bucketed:
            self._batches = batch.bucket_batches
        else:
            planned = _PLANNED_TOKENS // self._tokens if self._tokens else _PLANNED // self._size
            self._batches = min(_PLANNED_BATCHES, max(1, planned))

    def window(self, start: int) -> Window:
        """Return the window that starts at a position of the stream."""
        if self._tokens is not None:
            rows, epochs, lengths, bounds = self._by_tokens(start, budget=self._tokens)
        else:
            rows, epochs = self._stream(start, self._batches * self._size)
            lengths = self._instances.lengths(rows) if self._is_bucketed else rows[:0]
            bounds = np.arange(self._batches + 1) * self._size
        end = start + len(rows)
        if not self._is_bucketed:
            return Window(start, end, rows, epochs, bounds)
        order = np.argsort(lengths, kind="stable")
        if self._tokens is not None:
            bounds = _even_bounds(lengths[order], budget=self._tokens)
        key = np.array(key_for(self._seed, "batch-order", start), np.uint64)
        turns = np.argsort(random_bits(key, np.arange(len(bounds) - 1)), kind="stable")
        sizes = np.diff(bounds)[turns]
        order = order[ranges(bounds[turns], sizes)]
        return Window(start, end, rows[order], epochs[order], offsets_of(sizes))

    def _stream(self, start: int, count: int) -> tuple[Int64s, Int64s]:
        return stream_rows(start, count, size=len(self._instances), seed=self._seed)

    def _by_tokens(self, start: int, *, budget: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return rows, epochs, lengths and bounds of full batches, as long as fits."""
        mean = self._instances.tokens / len(self._instances)
        count = int(1.02 * self._batches * budget / mean) + 1
        while True:  # the number of planned instances affects only speed
            rows, epochs = self._stream(start, count)
            lengths = self._instances.lengths(rows)
            ends = offsets_of(lengths)
            bounds = [0]
            while len(bounds) <= self._batches and bounds[-1] < count:
                last = int(np.searchsorted(ends, ends[bounds[-1]] + budget, side="right")) - 1
                if last == count:
                    break  # the next instance, outside this chunk, may fit too
                bounds.append(last)
            if len(bounds) > self._batches:
                total = bounds[-1]
                return rows[:total], epochs[:total], lengths[:total], np.array(bounds, np.int64)
            count += count // 4 + 1


def _even_bounds(lengths: Int64s, *, budget: int) -> Int64s:
    """Split sorted instances into batches with nearly equal tokens within the budget."""
    ends = offsets_of(lengths)
    total, longest = int(ends[-1]), int(lengths[-1])
    # A batch has at most total / count + longest tokens.
    count = -(-total // (budget - longest))
    targets = np.arange(count + 1) * total // count
    bounds: Int64s = np.searchsorted(ends, targets, side="right") - 1
    return bounds


def _check_size(batch: BatchConfig, *, size: int, longest: int, world_size: int) -> None:
    """Check that every rank has an instance of every batch."""
    if batch.global_batch_tokens is None:
        name, minimum, value = "global_batch_size", world_size, size
    else:
        # Batches of `bucketed` have at least half the budget, minus two instances.
        instances = 2 * world_size + 3 if batch.batching == "bucketed" else world_size
        name, minimum = "global_batch_tokens", instances * longest
        value = batch.global_batch_tokens
    if value < minimum:
        raise ConfigError(
            f"batch.{name}: expected at least {minimum}, so that each of the {world_size} "
            f"processes has an instance (up to {longest} tokens) of every batch, got {value}. "
            "Raise it or use fewer processes."
        )


def rank_share(lengths: Int64s, *, rank: int, world_size: int) -> Int64s:
    """Return a rank's share of a global batch, longest instance first.

    Instances are assigned by descending length in serpentine order (0 1 2 2 1 0 0 1 2 ...), so that
    shares differ by at most one instance, and in tokens by at most the longest instance.

    Args:
        lengths: Tokens of the batch's instances, shape (B,).
        rank, world_size: Rank of this process and number of ranks.

    Returns:
        int64 indices into the batch.
    """
    order = np.argsort(-lengths, kind="stable")
    if world_size == 1:
        return order
    turn, seat = np.divmod(np.arange(len(lengths)), world_size)
    share: Int64s = order[np.where(turn % 2 == 0, seat, world_size - 1 - seat) == rank]
    return share
