"""Batch sampler: instances of a global batch, their distribution to ranks, and micro-batches.

Everything is a function of (seed, configuration, position in the stream). The stream is endless:
one shuffle of all instances per epoch (`permutation.stream_rows`). Batches are planned per
*window*, a range of the stream that contains only full batches; the next window starts right after
it. So no
instance is lost, every batch is full, and the state is two numbers: the start of the window and the
next batch in it.

In the layouts `packed` and `padded`, batches are consecutive ranges of the window. In `bucketed`,
the window is sorted by length first, and its batches are shuffled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from model.data.instances import InstanceSet
from model.data.permutation import stream_rows
from pipelines.arrays import Int64s, offsets_of, ranges
from pipelines.seeds import key_for, random_bits
from schemas.errors import ConfigError
from schemas.model_configs import BatchConfig

Layout = Literal["packed", "bucketed", "padded"]

DEFAULT_INSTANCES = 256
"""Default number of instances in a global batch, if the configuration sets no size."""

# Plan many instances at once to amortize NumPy call overhead; more than 16 thousand do not help.
_PLANNED_INSTANCES, _PLANNED_TOKENS, _PLANNED_BATCHES = 1 << 14, 1 << 21, 256
_MULTIPLE = 8  # lengths for which matrix products are fast


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


class BatchPlan:
    """Sequence of the global batches of a run."""

    def __init__(
        self, instances: InstanceSet, *, batch: BatchConfig, seed: int, ranks: int = 1
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
        _check_size(batch, size=self._size, longest=instances.max_seq_length, ranks=ranks)
        if self._is_bucketed:
            self._batches = batch.bucket_batches
        elif batch.global_batch_tokens is not None:
            self._batches = min(
                _PLANNED_BATCHES, max(1, _PLANNED_TOKENS // batch.global_batch_tokens)
            )
        else:
            self._batches = min(_PLANNED_BATCHES, max(1, _PLANNED_INSTANCES // self._size))

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


def _check_size(batch: BatchConfig, *, size: int, longest: int, ranks: int) -> None:
    """Check that every rank has an instance of every batch."""
    if batch.global_batch_tokens is None:
        if size < ranks:
            raise ConfigError(
                f"batch.global_batch_size: expected at least one for each of the {ranks} "
                f"processes, "
                f"found {size}: raise it or use fewer "
                "processes"
            )
        return
    # Batches of `bucketed` have at least half the budget, minus two instances.
    least = (2 * ranks + 3 if batch.batching == "bucketed" else ranks) * longest
    if batch.global_batch_tokens < least:
        raise ConfigError(
            f"batch.global_batch_tokens: expected at least {least} for {ranks} processes, the "
            f"batching {batch.batching} and instances of up to {longest} tokens, so that each "
            f"process has "
            f"one of every batch; found {batch.global_batch_tokens}: raise it or use fewer "
            "processes"
        )


def share_of(lengths: Int64s, *, rank: int, ranks: int) -> Int64s:
    """Return a rank's share of a global batch, longest instance first.

    Instances are assigned by descending length in serpentine order (0 1 2 2 1 0 0 1 2 ...), so that
    shares differ by at most one instance, and in tokens by at most the longest instance.

    Args:
        lengths: Tokens of the batch's instances, shape (B,).
        rank, ranks: Rank of this process and number of ranks.

    Returns:
        int64 indices into the batch.
    """
    order = np.argsort(-lengths, kind="stable")
    if ranks == 1:
        return order
    turn, place = np.divmod(np.arange(len(lengths)), ranks)
    own: Int64s = order[np.where(turn % 2 == 0, place, ranks - 1 - place) == rank]
    return own


def padded_length(longest: npt.NDArray[Any] | int, *, row_length: int) -> Any:
    """Return the row length of `bucketed`: the longest instance rounded up to 8."""
    return np.minimum(-(-longest // _MULTIPLE) * _MULTIPLE, row_length)


def micro_batch_bounds(lengths: Int64s, *, layout: Layout, limit: int, row_length: int) -> Int64s:
    """Split a share into the minimum number of micro-batches of about equal size.

    Args:
        lengths: Tokens of the instances, descending.
        layout: Layout of the batch, which determines the padding.
        limit: Maximum positions of a micro-batch, padding included; a longer instance is alone.
        row_length: S of the layout `padded`, and the maximum of `bucketed`.

    Returns:
        Offsets of the micro-batches, int64 of shape (micro-batches + 1,).
    """
    ends = offsets_of(lengths)
    if layout == "packed":
        places = int(ends[-1])

        def last(start: int, most: int) -> int:
            return int(np.searchsorted(ends, ends[start] + most, side="right")) - 1

    else:
        widths = np.full(len(lengths), row_length)
        if layout == "bucketed":
            widths = padded_length(lengths, row_length=row_length)
        places = int(widths.sum())

        def last(start: int, most: int) -> int:
            return start + most // int(widths[start])

    bounds = _cut(last, most=limit, count=len(lengths))
    # Bisection: the same number of micro-batches with a smaller largest one.
    low, high = places // (len(bounds) - 1), limit
    # Stop below 64 positions.
    while len(bounds) > 2 and high - low > max(1, limit // 64):
        most = (low + high) // 2
        found = _cut(last, most=most, count=len(lengths))
        low, high = (low, most) if len(found) == len(bounds) else (most, high)
        bounds = found if high == most else bounds
    return np.array(bounds, np.int64)


def _cut(last: Callable[[int, int], int], *, most: int, count: int) -> list[int]:
    bounds = [0]
    while bounds[-1] < count:
        bounds.append(min(count, max(bounds[-1] + 1, last(bounds[-1], most))))
    return bounds
