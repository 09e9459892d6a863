"""Batch sampler: instances of global batches, and their distribution to ranks.

Everything is a function of (seed, configuration, position in the stream). The stream is endless:
one shuffle of all instances per epoch (`permutation.stream_rows`). Batches are planned per
*window*, a range of the stream that contains only full batches; the next window starts right after
it. So no instance is lost, every batch is full, and the state is two numbers: the start of the
window and the next batch in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.data.dataset import InstanceDataset
from model.data.permutation import stream_rows
from pipelines.arrays import Int64s
from schemas.errors import ConfigError
from schemas.model_configs import BatchConfig

# Plan many instances at once to amortize NumPy call overhead; more than 16 thousand do not help.
_PLANNED, _PLANNED_BATCHES = 1 << 14, 256


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
            ConfigError: A batch has fewer instances than ranks.
        """
        if batch.global_batch_size < world_size:
            raise ConfigError(
                f"batch.global_batch_size: expected at least {world_size}, so that each of the "
                f"{world_size} processes has an instance of every batch, got "
                f"{batch.global_batch_size}. Raise it or use fewer processes."
            )
        self._instances = instances
        self._seed = seed
        self._size = batch.global_batch_size
        self._batches = min(_PLANNED_BATCHES, max(1, _PLANNED // self._size))

    def window(self, start: int) -> Window:
        """Return the window that starts at a position of the stream."""
        count = self._batches * self._size
        rows, epochs = stream_rows(start, count, size=len(self._instances), seed=self._seed)
        bounds = np.arange(self._batches + 1) * self._size
        return Window(start, start + count, rows, epochs, bounds)


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
