"""The two pretraining losses, as sums. Letters for shapes as in `model.data.batches`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100
"""Label of rows without loss, as in `torch.nn.CrossEntropyLoss`."""

_ALIGNMENT = {"cpu": 1}
_ALIGNMENT_ELSEWHERE = 64
"""Number of logits per row is a multiple of this, which tensor cores need: 30,528 for 30,522."""


class LossSums(NamedTuple):
    """Sums over the rows that have a label.

    Attributes:
        loss: Sum of the negative log-likelihoods times the scale, to be differentiated.
        nll_sum: Sum of the negative log-likelihoods in nats, detached, float32 (float64 for
            float64 inputs).
        correct: Number of rows whose label has the largest logit (first of equal ones), int64.
    """

    loss: Tensor
    nll_sum: Tensor
    correct: Tensor


def cross_entropy_sums(logits: Tensor, labels: Tensor, *, scale: float) -> LossSums:
    """Return the cross entropy of logits (rows, classes).

    Args:
        logits: Logits of any floating point type; the sums are computed in float32 or float64.
        labels: int64 of shape (rows,); -100 for rows to ignore.
        scale: Factor of the sum in `loss`.
    """
    exact = logits if logits.dtype == torch.float64 else logits.float()
    total = functional.cross_entropy(exact, labels, ignore_index=IGNORED, reduction="sum")
    correct = (logits.detach().argmax(1) == labels).sum()  # never true of an ignored row
    return LossSums(total * scale, total.detach(), correct)


def tied_decoder_loss(
    hidden: Tensor, weight: Tensor, *, bias: Tensor, labels: Tensor, scale: float
) -> LossSums:
    """Return the cross entropy of `hidden @ weight.T + bias`.

    Args:
        hidden: Shape (P, H); P may be 0.
        weight: Word embeddings, shape (V, H).
        bias: Shape (V,).
        labels: int64 of shape (P,), 0 .. V-1, or -100 for rows to ignore.
        scale: Factor of the sum in `loss`.
    """
    padding = -len(weight) % _ALIGNMENT.get(hidden.device.type, _ALIGNMENT_ELSEWHERE)
    if padding:
        weight = functional.pad(weight, (0, 0, 0, padding))
        bias = functional.pad(bias, (0, padding), value=float("-inf"))  # of probability 0
    return cross_entropy_sums(functional.linear(hidden, weight, bias), labels, scale=scale)
