"""Batches of features as the model reads them.

Letters as in `model.data.batches` and `model.task_types.features`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from model.data.batches import TokenBatch


class TaskBatch(NamedTuple):
    """Some units of a split.

    Attributes:
        tokens: their sequences, B = units x per_unit.
        labels: classification, choice int64 (U,); regression float32 (U,); span int64 (U, 2),
            places in the sequence; tagging int64 (P,), IGNORED where not scored; None to predict.
        positions: tagging: int64 (P,), indices in T of the tokens that are tagged; else None.
        units: numbers of the units in their `Features`, int64 (U,), on the host.
    """

    tokens: TokenBatch
    labels: torch.Tensor | None
    positions: torch.Tensor | None
    units: npt.NDArray[np.int64]

    def to(self, device: torch.device | str) -> TaskBatch:
        """The same batch with its tensors on a device."""
        return self._replace(
            tokens=self.tokens.to(device),
            labels=None if self.labels is None else self.labels.to(device),
            positions=None if self.positions is None else self.positions.to(device),
        )


class TaskOutput(NamedTuple):
    """What a model makes of a batch.

    Attributes:
        logits: float32, by kind: (U, labels), (U,), (U, choices), (T, 2), (P, labels).
        loss: scalar, the batch's share of the global batch's loss, to be differentiated; None
            without labels.
        loss_sum: scalar, detached: the sum of which `loss` is that times the scale; None likewise.
    """

    logits: torch.Tensor
    loss: torch.Tensor | None
    loss_sum: torch.Tensor | None
