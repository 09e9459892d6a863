"""Heads of the task types: input, shape of the outputs, and loss (paper, Figure 4).

Letters for shapes as in `model.data.batches`; U units, P tagged tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from model.data.batches import TokenBatch
from model.finetuning.batches import TaskBatch, TaskOutput, device_tensor
from model.tasks.features import IGNORED
from pipelines.arrays import Int64s
from schemas.finetune_configs import TaskTypeName


class Head(NamedTuple):
    """Dense layer on the encoder, with its loss."""

    reads: Literal["pooled", "tokens", "tagged"]
    """Input of the dense layer: the pooled vector of each sequence (B, H), all tokens (T, H), or
    the tagged tokens (P, H)."""

    loss: Callable[[torch.Tensor, TaskBatch, torch.Tensor], torch.Tensor]
    """Function of logits, batch and its labels that returns the summed loss, a scalar."""

    architecture: str
    """transformers' class of the model."""

    outputs: int | None = None
    """Number of outputs; None for one per label."""

    is_softmax: bool = False
    """True if the outputs are logits of a softmax."""

    has_dropout: bool = True
    """True if dropout applies to the input of the dense layer."""

    problem: str = ""
    """`problem_type` in config.json, for classes with several; "" for none."""

    shape: Callable[[torch.Tensor, TaskBatch], torch.Tensor] = lambda logits, _: logits
    """Function of the dense layer's outputs and the batch that returns the logits."""


def cross_entropy_sum(logits: torch.Tensor, batch: TaskBatch, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum of the cross-entropies of labels that are not IGNORED."""
    del batch
    return functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")


def squared_error_sum(logits: torch.Tensor, batch: TaskBatch, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum of squared errors."""
    del batch
    return functional.mse_loss(logits, labels, reduction="sum")


def span_loss_sum(logits: torch.Tensor, batch: TaskBatch, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum over sequences of the mean negative log-likelihood of start and end.

    The paper (4.2) uses their sum, run_squad.py (line 652) and transformers their mean. The softmax
    covers only the tokens of the sequence. run_squad.py and transformers include padding, so that
    their loss depends on the padding of a batch; without padding all three are equal.

    Args:
        logits: Start and end logits, float32 (T, 2).
        batch: Batch of the logits.
        labels: Positions in the sequence, int64 (B, 2). A label past the end of a sequence has an
            infinite loss.
    """
    lengths, width = batch.tokens.lengths, int(batch.tokens.lengths.max())
    # Rows of equal width; the softmax is 0 past the end of a sequence.
    is_real = np.arange(width) < lengths[:, None]  # (B, W)
    places = device_tensor(
        is_real * (host_starts(batch.tokens)[:, None] + np.arange(width)), logits.device
    )
    past_end = device_tensor(~is_real, logits.device)
    table = logits.index_select(0, places.view(-1)).view(len(lengths), width, 2)  # (B, W, 2)
    table = table.masked_fill(past_end.unsqueeze(2), -torch.inf)
    chosen = table.gather(1, labels.unsqueeze(1)).squeeze(1)  # (B, 2)
    return (torch.logsumexp(table, dim=1) - chosen).sum() / 2


def host_starts(tokens: TokenBatch) -> Int64s:
    """Return `tokens.starts` without waiting for a GPU."""
    starts: Int64s = np.cumsum(tokens.lengths) - tokens.lengths
    return starts


HEADS: dict[TaskTypeName, Head] = {
    # run_classifier.py, lines 590-611
    "classification": Head(
        "pooled",
        cross_entropy_sum,
        architecture="BertForSequenceClassification",
        problem="single_label_classification",
        is_softmax=True,
    ),
    "regression": Head(
        "pooled",
        squared_error_sum,
        architecture="BertForSequenceClassification",
        problem="regression",
        outputs=1,
        shape=lambda logits, _: logits.squeeze(1),
    ),
    # A vector C whose product with each sequence of a unit is its score (paper 4.4): (U, choices)
    "choice": Head(
        "pooled",
        cross_entropy_sum,
        architecture="BertForMultipleChoice",
        outputs=1,
        is_softmax=True,
        shape=lambda logits, batch: logits.view(len(batch.units), -1),
    ),
    # A start and an end vector (paper 4.2)
    "span": Head(
        "tokens",
        span_loss_sum,
        architecture="BertForQuestionAnswering",
        outputs=2,
        has_dropout=False,
    ),
    # The tagged tokens, no CRF (paper 5.3)
    "tagging": Head(
        "tagged",
        cross_entropy_sum,
        architecture="BertForTokenClassification",
        is_softmax=True,
    ),
}


def add_loss(
    logits: torch.Tensor, batch: TaskBatch, *, kind: TaskTypeName, scale: float
) -> TaskOutput:
    """Return logits with the loss of a batch, if it has labels.

    Args:
        logits: Logits of the head.
        batch: Batch of the logits.
        kind: Task type.
        scale: Factor of the summed loss: 1 / terms of the global batch (units, or labeled tokens
            for tagging), so that the losses of all micro-batches add up to its mean.
    """
    if batch.labels is None:
        return TaskOutput(logits, None)
    return TaskOutput(logits, HEADS[kind].loss(logits, batch, batch.labels) * scale)
