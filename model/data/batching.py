"""Which instances a global batch has, which of them a rank takes, and how it cuts them up.

All is a function of (seed, configuration, position in the stream). The stream is endless: epoch
after epoch, each a shuffle of all instances (`permutation.stream_rows`). Batches are planned a
*window* at a time. A window is a run of the stream that is as long as its full batches: what would
not fill another one is left to the next window, which begins there. So no instance is lost, every
batch is full, and a state is two numbers: where the window begins, and which batch of it is next.

In the layouts `packed` and `padded` the batches are consecutive pieces of the window. In `bucketed`
the window is sorted by length first, and its batches come in shuffled order.
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
"""Instances of a global batch where the configuration gives neither them nor tokens."""

# Planning costs less an instance the more of them it is done for at once; measured: 16 thousand
# are as good as more. Of very small batches so many are not needed.
_PLANNED_INSTANCES, _PLANNED_TOKENS, _PLANNED_BATCHES = 1 << 14, 1 << 21, 256
_MULTIPLE = 8  # lengths that matrix products like


class Window(NamedTuple):
    """The batches of a run of the stream.

    Attributes:
        start, end: positions of its first instance and of the next window's.
        rows: the instances, batch after batch, int64.
        epochs: the pass over all instances that each of them belongs to, int64.
        bounds: batch k has rows[bounds[k] : bounds[k + 1]]; int64, shape (batches + 1,).
    """

    start: int
    end: int
    rows: Int64s
    epochs: Int64s
    bounds: Int64s


class BatchPlan:
    """The sequence of global batches of a run."""

    def __init__(
        self, instances: InstanceSet, *, batch: BatchConfig, seed: int, ranks: int = 1
    ) -> None:
        """Plan batches of these instances.

        Raises:
            ConfigError: a batch could have fewer instances than there are ranks.
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
        """The window that begins at this position of the stream."""
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
        """Rows, epochs, lengths and bounds of full batches, each as long a run as fits."""
        mean = self._instances.tokens / len(self._instances)
        count = int(1.02 * self._batches * budget / mean) + 1
        while True:  # how many instances are looked at changes nothing but the time it takes
            rows, epochs = self._stream(start, count)
            lengths = self._instances.lengths(rows)
            ends = offsets_of(lengths)
            bounds = [0]
            while len(bounds) <= self._batches and bounds[-1] < count:
                last = int(np.searchsorted(ends, ends[bounds[-1]] + budget, side="right")) - 1
                if last == count:
                    break  # the next instance, not looked at yet, may fit in too
                bounds.append(last)
            if len(bounds) > self._batches:
                total = bounds[-1]
                return rows[:total], epochs[:total], lengths[:total], np.array(bounds, np.int64)
            count += count // 4 + 1


def _even_bounds(lengths: Int64s, *, budget: int) -> Int64s:
    """Cut sorted instances into batches of nearly equal tokens, none above the budget."""
    ends = offsets_of(lengths)
    total, longest = int(ends[-1]), int(lengths[-1])
    # A batch has at most total / count + longest tokens.
    count = -(-total // (budget - longest))
    targets = np.arange(count + 1) * total // count
    bounds: Int64s = np.searchsorted(ends, targets, side="right") - 1
    return bounds


def _check_size(batch: BatchConfig, *, size: int, longest: int, ranks: int) -> None:
    """Every rank must have an instance of every batch."""
    if batch.global_batch_tokens is None:
        if size < ranks:
            raise ConfigError(
                f"batch.global_batch_size: expected at least one for each of the {ranks} "
                f"processes, "
                f"found {size}: raise it or use fewer "
                "processes"
            )
        return
    # Binned batches share what the window has: they may have half the budget, less two instances.
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
    """Which instances of a global batch a rank takes, the longest first.

    They are dealt out by falling length, there and back (0 1 2 2 1 0 0 1 2 ...): numbers of
    instances differ by one at most, numbers of tokens by no more than the longest has.

    Args:
        lengths: tokens of the batch's instances, shape (B,).
        rank, ranks: this process's number, and how many there are.

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
    """Places of a `bucketed` row: the longest instance rounded up to a multiple of 8."""
    return np.minimum(-(-longest // _MULTIPLE) * _MULTIPLE, row_length)


def micro_batch_bounds(lengths: Int64s, *, layout: Layout, limit: int, row_length: int) -> Int64s:
    """Cut a share into micro-batches: as few as may be, and of about equal size.

    Args:
        lengths: tokens of the instances, falling.
        layout: how they are laid out, which decides how much padding counts.
        limit: most positions of a micro-batch, padding counted; a longer instance goes alone.
        row_length: S of the layout `padded`, and the most of `bucketed`.

    Returns:
        int64 of shape (micro-batches + 1,): where they begin and end.
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
    # The same number of micro-batches with less in the largest, found by bisection.
    low, high = places // (len(bounds) - 1), limit
    # Below 64 positions to the last one, which halving would never get past.
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
