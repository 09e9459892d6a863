"""Batches that the loader gives to the model: flat tensors of tokens.

Letters used for shapes in `model`: B instances, T tokens of a batch, H hidden size, N heads,
D = H / N, P predicted tokens, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

IGNORE_INDEX = -100
"""Label without loss, as in `torch.nn.CrossEntropyLoss` and in transformers."""


def to_device(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy a tensor to a device; to a GPU from pinned memory, so that the host does not wait."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return pin(tensor).to(device, non_blocking=True)
    return tensor.to(device)


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor in pinned memory, copied if necessary."""
    return tensor if tensor.is_pinned() else tensor.pin_memory()


class TokenBatch(NamedTuple):
    """Tokens of some instances, end to end without padding.

    Attributes:
        input_ids: int64 of shape (T,).
        segment_ids: int64 of shape (T,): 0 in `[CLS] A [SEP]`, 1 in `B [SEP]`.
        position_ids: int64 of shape (T,): position in the instance, from 0.
        starts: int64 of shape (B,): index in T of each instance's first token, its [CLS].
        lengths: Tokens of each instance, shape (B,), T in total; always on the host, because it
            determines the layout of the computation.
    """

    input_ids: torch.Tensor
    segment_ids: torch.Tensor
    position_ids: torch.Tensor
    starts: torch.Tensor
    lengths: npt.NDArray[np.int64]

    def to(self, device: torch.device | str) -> TokenBatch:
        """Copy the tensors to a device."""
        return self._replace(**_map_tensors(self, lambda x: to_device(x, device)))

    def pin_memory(self) -> TokenBatch:
        """Copy the tensors to pinned memory."""
        return self._replace(**_map_tensors(self, pin))


class PretrainingBatch(NamedTuple):
    """Micro-batch with its targets.

    Attributes:
        tokens: Tokens of the instances.
        masked_positions: Indices in T of the tokens to predict, ascending; int64 of shape (P,).
        masked_ids: Ids of those tokens, int64 of shape (P,).
        next_sentence_labels: 0 next, 1 random, -100 (ignored) without segment B; int64 of shape
            (B,).
        rows: Numbers of the instances in their `InstanceDataset`, int64 of shape (B,), on the host.
    """

    tokens: TokenBatch
    masked_positions: torch.Tensor
    masked_ids: torch.Tensor
    next_sentence_labels: torch.Tensor
    rows: npt.NDArray[np.int64]

    def to(self, device: torch.device | str) -> PretrainingBatch:
        """Copy the tensors to a device."""
        tensors = _map_tensors(self, lambda x: to_device(x, device))
        return self._replace(tokens=self.tokens.to(device), **tensors)

    def pin_memory(self) -> PretrainingBatch:
        """Copy the tensors to pinned memory."""
        tensors = _map_tensors(self, pin)
        return self._replace(tokens=self.tokens.pin_memory(), **tensors)


def _map_tensors(
    batch: TokenBatch | PretrainingBatch, function: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, Any]:
    fields = batch._asdict().items()
    return {name: function(value) for name, value in fields if isinstance(value, torch.Tensor)}


class StepBatch(NamedTuple):
    """Global batch of one step: the micro-batches of one process, and the totals of all processes.

    Sums of losses are divided by the totals, so that a step does not depend on its split into
    micro-batches and processes.

    Attributes:
        micro_batches: Micro-batches of this process, at least one.
        predictions: Number of tokens to predict in the global batch.
        pairs: Number of instances of the global batch with a next sentence label of 0 or 1; 0 if
            the objective has no next sentence prediction.
        lengths: Tokens of each instance of the global batch, int64.
    """

    micro_batches: tuple[PretrainingBatch, ...]
    predictions: int
    pairs: int
    lengths: npt.NDArray[np.int64]

    @property
    def tokens(self) -> int:
        """Number of tokens in the global batch."""
        return int(self.lengths.sum())
