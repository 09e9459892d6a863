"""What passes from the loader to the model: token batches as flat tensors.

Letters used for shapes in `model`: B instances, T token positions of a batch, S positions of a
padded row, H hidden size, N heads, D = H / N, P predicted tokens, V vocabulary size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch


class TokenBatch(NamedTuple):
    """The tokens of some instances, end to end (packed) or in rows of equal length (padded).

    Attributes:
        input_ids: int64 of shape (T,).
        segment_ids: int64 of shape (T,): 0 in `[CLS] A [SEP]`, 1 in `B [SEP]`.
        position_ids: int64 of shape (T,): position in the instance, from 0.
        starts: int64 of shape (B,): index in T of each instance's first token, its [CLS].
        lengths: real tokens of each instance, shape (B,); on the host always, since the layout of
            the computation is decided by it.
        padded_length: S where instance i has the positions i*S .. (i+1)*S - 1, of which the first
            lengths[i] are real and the others hold [PAD]; then T = B*S. None where instances lie
            end to end without padding; then T = sum of lengths.
    """

    input_ids: torch.Tensor
    segment_ids: torch.Tensor
    position_ids: torch.Tensor
    starts: torch.Tensor
    lengths: npt.NDArray[np.int64]
    padded_length: int | None

    def to(self, device: torch.device | str) -> TokenBatch:
        """The same batch with its tensors on a device."""
        return self._replace(**_moved(self, device))


class PretrainingBatch(NamedTuple):
    """What one process works on at once: a micro-batch with its targets.

    Attributes:
        tokens: the instances.
        masked_positions: int64 of shape (P,): indices in T of the tokens to predict, ascending.
        masked_ids: int64 of shape (P,): what they are.
        next_sentence_labels: int64 of shape (B,): 0 next, 1 random, -100 (ignored) where there is
            no segment B.
        rows: numbers of the instances in their `InstanceSet`, int64 of shape (B,), on the host.
    """

    tokens: TokenBatch
    masked_positions: torch.Tensor
    masked_ids: torch.Tensor
    next_sentence_labels: torch.Tensor
    rows: npt.NDArray[np.int64]

    def to(self, device: torch.device | str) -> PretrainingBatch:
        """The same batch with its tensors on a device."""
        return self._replace(tokens=self.tokens.to(device), **_moved(self, device))


def _moved(batch: Any, device: torch.device | str) -> dict[str, Any]:
    fields = batch._asdict()
    return {
        name: value.to(device, non_blocking=True)
        for name, value in fields.items()
        if isinstance(value, torch.Tensor)
    }


class StepBatch(NamedTuple):
    """A global batch as one process sees it: its own micro-batches, and everybody's totals.

    The totals are what sums of losses are divided by, so that a step is the same however it is cut
    into micro-batches and processes.
    """

    micro_batches: tuple[PretrainingBatch, ...]
    """This process's share, at least one."""

    predictions: int
    """Tokens to predict in the whole global batch."""

    pairs: int
    """Instances of the whole global batch whose next_sentence_label is 0 or 1: those with a segment
    B, and none where the objective has no next sentence prediction."""

    instances: int
    """Instances of the whole global batch."""

    tokens: int
    """Real tokens of the whole global batch."""

    state: LoaderState
    """Where the loader stands after this batch."""


class LoaderState(NamedTuple):
    """Where a loader stands: it goes on with the next batch from here, on any number of ranks.

    Both numbers belong to the stream of instances that the seed and the batches' configuration
    make of an artifact; with others they mean nothing.
    """

    window: int = 0
    """Position in the endless shuffled stream of instances at which the window begins that the next
    batch is from (`model.data.batching`)."""

    batch: int = 0
    """Number of the next batch in that window."""

    def epoch(self, *, instances: int) -> float:
        """Passes over all instances up to the begin of the window."""
        return self.window / max(1, instances)
