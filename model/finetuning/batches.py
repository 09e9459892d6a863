"""Global batches of features, split into micro-batches of packed sequences.

Letters for shapes as in `model.tasks.features` and `model.data.batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from model.data.batches import TokenBatch, pin, to_device
from model.data.collator import token_batches
from model.data.sampler import permute
from model.tasks.features import IGNORED, Features
from pipelines.arrays import Int64s, offsets_of, ranges
from pipelines.seeds import key_for


class TaskBatch(NamedTuple):
    """Micro-batch of units of a split.

    Attributes:
        tokens: Sequences of the units, B = units x per_unit.
        labels: classification, choice int64 (U,); regression float32 (U,); span int64 (U, 2),
            positions in the sequence; tagging int64 (P,), IGNORED if not scored; None for
            prediction.
        positions: For tagging, indices in T of the tagged tokens, int64 (P,); otherwise None.
        units: Numbers of the units in their `Features`, int64 (U,), on the host.
        position_counts: For tagging, number of tagged tokens of each unit, int64 (U,), on the host.
        encoded: Layers of a frozen encoder at the tagged tokens, float32 (P, K, H), or None.
    """

    tokens: TokenBatch
    labels: torch.Tensor | None
    positions: torch.Tensor | None
    units: npt.NDArray[np.int64]
    position_counts: npt.NDArray[np.int64] | None = None
    encoded: torch.Tensor | None = None

    def to(self, device: torch.device | str) -> TaskBatch:
        """Copy the tensors to a device."""
        return self._replace(
            tokens=self.tokens.to(device), **self._map_targets(lambda x: to_device(x, device))
        )

    def pin_memory(self) -> TaskBatch:
        """Copy the tensors to pinned memory."""
        return self._replace(tokens=self.tokens.pin_memory(), **self._map_targets(pin))

    def _map_targets(self, function: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
        targets = {"labels": self.labels, "positions": self.positions, "encoded": self.encoded}
        return {name: function(value) for name, value in targets.items() if value is not None}


def device_tensor(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy an array to a device, see `to_device`."""
    return to_device(torch.from_numpy(array), device)


class TaskOutput(NamedTuple):
    """Output of a model for a batch.

    Attributes:
        logits: float32, by kind: (U, labels), (U,), (U, choices), (T, 2), (P, labels).
        loss: Scalar share of the global batch's loss, to be differentiated; None without labels.
    """

    logits: torch.Tensor
    loss: torch.Tensor | None


@dataclass(frozen=True, kw_only=True)
class TaskStep:
    """Global batch: the data of one training step."""

    micro_batches: tuple[TaskBatch, ...]
    """Micro-batches, at least one."""

    count: int
    """Number of terms in the global batch's loss: units, or labeled tokens for tagging. The mean
    loss is the sum over all micro-batches divided by it."""

    tokens: int
    """Number of tokens in the global batch."""

    @property
    def scale(self) -> float:
        """Weight of one term in the batch's loss; 0 without terms."""
        return 1.0 / self.count if self.count else 0.0

    def pin_memory(self) -> TaskStep:
        """Copy the tensors to pinned memory."""
        return replace(self, micro_batches=tuple(part.pin_memory() for part in self.micro_batches))

    @property
    def units(self) -> Int64s:
        """Return the numbers of the units, in order."""
        return np.concatenate([part.units for part in self.micro_batches])


def epoch_order(units: int, *, seed: int, restart: int, phase: str, epoch: int) -> Int64s:
    """Return all units in the order of one epoch: a full shuffle.

    A shuffle buffer is not enough: google-research/bert buffers 100 examples, and MNLI's file is
    sorted.

    Args:
        units: Number of units.
        seed, restart: Seed and restart of the training.
        phase: `train` or `augmentation`.
        epoch: Epoch, from 0.

    Returns:
        A permutation of 0 .. units-1, int64.
    """
    if not units:
        return np.empty(0, np.int64)
    key = key_for(seed, "task-order", restart, phase, epoch)
    return permute(np.arange(units), units, key=key)


def task_batches(
    features: Features, order: Int64s, *, batch: int, per_device_max_tokens: int
) -> Iterator[TaskStep]:
    """Yield global batches of `batch` units in the given order; the last one may be smaller.

    Args:
        features: Features of a split.
        order: Numbers of units, such as from `epoch_order`.
        batch: Units per global batch.
        per_device_max_tokens: Maximum tokens of a micro-batch; a longer unit is alone.
    """
    for begin in range(0, len(order), batch):
        units = order[begin : begin + batch]
        yield lay_out_units(features, units, per_device_max_tokens=per_device_max_tokens)


def lay_out_units(features: Features, units: Int64s, *, per_device_max_tokens: int) -> TaskStep:
    """Return one global batch of these units; see `task_batches`."""
    per_unit = features.per_unit
    chosen = (units[:, None] * per_unit + np.arange(per_unit)).ravel()  # sequences
    sources = features.offsets[chosen]
    lengths = features.offsets[chosen + 1] - sources
    bounds = group_bounds(lengths.reshape(-1, per_unit).sum(axis=1), limit=per_device_max_tokens)
    tokens, starts = token_batches(
        features.input_ids[ranges(sources, lengths)],
        lengths=lengths,
        b_starts=features.b_starts[chosen],
        bounds=bounds * per_unit,
    )
    rows, counts, positions = units, None, None
    if features.position_offsets is not None and features.positions is not None:
        firsts = features.position_offsets[units]
        counts = features.position_offsets[units + 1] - firsts
        rows = ranges(firsts, counts)
        positions = features.positions[rows] + np.repeat(starts, counts)
    row_bounds = bounds if counts is None else offsets_of(counts)[bounds]
    encoded = None if features.encoded is None else features.encoded[rows]
    labels: npt.NDArray[Any] | None = None if features.labels is None else features.labels[rows]
    if labels is not None and labels.dtype == np.float64:
        labels = labels.astype(np.float32)
    parts = []
    for number, part in enumerate(tokens):
        own = slice(row_bounds[number], row_bounds[number + 1])
        own_units = slice(bounds[number], bounds[number + 1])
        parts.append(
            TaskBatch(
                tokens=part,
                labels=None if labels is None else torch.from_numpy(labels[own]),
                positions=None if positions is None else torch.from_numpy(positions[own]),
                encoded=None if encoded is None else torch.from_numpy(encoded[own]),
                units=units[own_units],
                position_counts=None if counts is None else counts[own_units],
            )
        )
    count = len(units)
    if features.kind == "tagging" and labels is not None:
        count = int(np.count_nonzero(labels != IGNORED))
    return TaskStep(micro_batches=tuple(parts), count=count, tokens=int(lengths.sum()))


def group_bounds(sizes: Int64s, *, limit: int) -> Int64s:
    """Return bounds of consecutive groups with a total size up to a limit: group k has the units
    bounds[k] .. bounds[k + 1] - 1, at least one."""
    ends = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < len(sizes):
        before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
        fitting = int(np.searchsorted(ends, before + limit, side="right"))
        bounds.append(max(fitting, bounds[-1] + 1))
    return np.array(bounds, np.int64)
