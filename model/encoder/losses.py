"""The two pretraining losses, as sums.

The masked LM loss is a fused decoder: it computes logits, softmax and all gradients for one chunk
of predicted tokens at a time, so that the full logits of shape (P, V) are never in memory. On a CPU
it is about as fast as the plain form (1.1 times, `benchmarks/bench_kernels.py`). Letters for shapes
as in `model.data.batches`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100
"""Label of rows without loss, as in `torch.nn.CrossEntropyLoss`."""

_CHUNK_BYTES = {"cpu": 1 << 25}
"""Logits in memory at once, by device. On a CPU, glibc reuses blocks up to 32 MiB without returning
them to the system; page faults of larger blocks would cost more than the softmax."""

_CHUNK_BYTES_ELSEWHERE = 1 << 29

_ROWS_PER_BLOCK = {"cpu": 32}
"""Elements of the float32 softmax computed at once: 4 MiB, which fit the caches of a CPU."""

_ROWS_PER_BLOCK_ELSEWHERE = 2048

_ALIGNMENT = {"cpu": 1}
_ALIGNMENT_ELSEWHERE = 64
"""Rows of logits start at multiples of this many elements, which tensor cores need (30,522 tokens
take 30,528 elements)."""


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


def next_sentence_loss(logits: Tensor, labels: Tensor, *, scale: float) -> LossSums:
    """Cross entropy of pairs (reference: run_pretraining.py, lines 285-305).

    Args:
        logits: shape (B, 2).
        labels: int64 of shape (B,): 0 next, 1 random, -100 where there is no segment B.
        scale: factor of the sum in `loss`.
    """
    total = functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    correct = (logits.detach().argmax(1) == labels).sum()  # never true of an ignored row
    return LossSums(total * scale, total.detach(), correct)


def tied_decoder_loss(
    hidden: Tensor,
    weight: Tensor,
    *,
    bias: Tensor,
    labels: Tensor,
    scale: float,
    chunk_rows: int | None = None,
) -> LossSums:
    """Return the cross entropy of `hidden @ weight.T + bias`, computed in chunks.

    The forward pass also computes the gradients, from the softmax of each chunk, and the backward
    pass returns them: a second backward through the same graph raises RuntimeError. Under autocast,
    matrix products use its type and everything else float32. Under `torch.no_grad` only the sums
    are computed.

    Args:
        hidden: Shape (P, H); P may be 0.
        weight: Word embeddings, shape (V, H).
        bias: Shape (V,).
        labels: int64 of shape (P,), 0 .. V-1, or -100 for rows to ignore.
        scale: Factor of the sum in `loss`.
        chunk_rows: Number of rows per chunk. Default: by size.
    """
    needs_gradients = torch.is_grad_enabled()
    sums: tuple[Tensor, ...] = _TiedDecoderLoss.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, labels, scale, chunk_rows, needs_gradients
    )
    return LossSums(*sums)


class _TiedDecoderLoss(torch.autograd.Function):
    """See `tied_decoder_loss`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        scale: float,
        chunk_rows: int | None,
        needs_gradients: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wanted = [needs_gradients and needed for needed in ctx.needs_input_grad[:3]]
        decoder = _Decoder(hidden, weight, bias, labels=labels, scale=scale, wanted=wanted)
        decoder.run(chunk_rows)
        nll_sum, correct = decoder.sums()
        ctx.gradients = decoder.gradients()
        ctx.mark_non_differentiable(nll_sum, correct)
        return nll_sum * scale, nll_sum, correct

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError(
                "tied_decoder_loss keeps its gradients for one backward, and this is the second "
                "through the same graph; run the forward again"
            )
        factor = outputs[0]
        # Free on a CPU, and saves a pass over the embeddings.
        if factor.device.type != "cpu" or factor.item() != 1.0:
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(factor)
        return (*gradients, None, None, None, None)


def _chunk_rows(rows: int, vocab_size: int, *, like: Tensor) -> int:
    """Return the rows per chunk, so that all chunks have about the same size."""
    limit = _CHUNK_BYTES.get(like.device.type, _CHUNK_BYTES_ELSEWHERE)
    if like.dtype in (torch.bfloat16, torch.float16):
        limit *= 2  # each chunk converts and adds the gradient of the weight
    most = max(1, limit // (vocab_size * like.element_size()))
    chunks = max(1, math.ceil(rows / most))
    return max(1, math.ceil(rows / chunks))


class _Decoder:
    """Sums and gradients accumulated over the chunks.

    With p the softmax of a row, w its scale (0 if ignored) and e the one-hot vector of its label,
    the gradient of the row's logits is w (p - e). The part with e is sparse and is added through
    the labels at the end.
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        *,
        labels: Tensor,
        scale: float,
        wanted: Sequence[bool],
    ) -> None:
        device = hidden.device.type
        kind = hidden.dtype
        if torch.is_autocast_enabled(device):
            kind = torch.get_autocast_dtype(device)
        self._exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        self._inputs = hidden, weight, bias
        self._wanted = wanted
        self._hidden = hidden.to(kind)  # (P, H)
        self._weight = weight.to(kind)  # (V, H)
        self._bias = bias.to(self._exact)  # (V,)
        self._labels = labels
        self._targets = labels.clamp(min=0)  # ignored rows need some index, too
        self._row_scale = (labels != IGNORED).to(self._exact) * scale  # (P,)
        self._nll = self._row_scale.new_empty(len(labels))
        self._best = torch.empty_like(labels)
        self._hidden_gradient = torch.empty_like(self._hidden) if wanted[0] else None
        self._weight_gradient: Tensor | None = None
        self._bias_gradient = torch.zeros_like(self._bias) if wanted[2] else None

    def run(self, chunk_rows: int | None) -> None:
        """Process all rows."""
        rows, vocab_size = len(self._labels), len(self._weight)
        step = chunk_rows or _chunk_rows(rows, vocab_size, like=self._hidden)
        alignment = _ALIGNMENT.get(self._hidden.device.type, _ALIGNMENT_ELSEWHERE)
        stride = -(-vocab_size // alignment) * alignment
        logits = self._hidden.new_empty((min(step, rows), stride))[:, :vocab_size]
        with torch.autocast(self._hidden.device.type, enabled=False):
            for start in range(0, rows, step):
                self._add_chunk(slice(start, min(start + step, rows)), logits)

    def _add_chunk(self, rows: slice, buffer: Tensor) -> None:
        hidden = self._hidden[rows]
        logits = torch.mm(hidden, self._weight.t(), out=buffer[: len(hidden)])  # (chunk, V)
        self._softmax(logits, rows)
        if self._hidden_gradient is not None:
            torch.mm(logits, self._weight, out=self._hidden_gradient[rows])  # (chunk, H)
        if not self._wanted[1]:
            return
        scaled = hidden * self._row_scale[rows, None].to(hidden.dtype)
        if self._weight_gradient is None:
            self._weight_gradient = torch.mm(logits.t(), scaled).to(self._exact)  # (V, H)
        elif logits.dtype == self._exact:
            so_far = self._weight_gradient
            torch.addmm(so_far, logits.t(), scaled, out=so_far)
        else:
            self._weight_gradient += torch.mm(logits.t(), scaled)

    def _softmax(self, logits: Tensor, rows: slice) -> None:
        """Turn the logits of a chunk into probabilities and add up losses and correct rows.

        `softmax` does not return its normalizer, so it is recovered from the most probable token,
        whose probability is at least 1 / V.
        """
        step = _ROWS_PER_BLOCK.get(logits.device.type, _ROWS_PER_BLOCK_ELSEWHERE)
        for start in range(0, len(logits), step):
            block = logits[start : start + step]
            here = slice(rows.start + start, rows.start + start + len(block))
            exact = block.to(self._exact).add_(self._bias)  # (block, V)
            highest, best = exact.max(dim=1)
            of_label = exact.gather(1, self._targets[here, None]).squeeze(1)
            probabilities = torch.softmax(exact, dim=1)
            of_best = probabilities.gather(1, best[:, None]).squeeze(1)
            self._nll[here] = highest - of_best.log() - of_label
            self._best[here] = best
            if self._bias_gradient is not None:
                self._bias_gradient += self._row_scale[here] @ probabilities
            if self._wanted[0] or self._wanted[1]:
                block.copy_(probabilities)

    def sums(self) -> tuple[Tensor, Tensor]:
        """Return the sum of losses, and the number of correct rows."""
        nll_sum = self._nll.masked_fill(self._labels == IGNORED, 0.0).sum()
        correct = (self._best == self._labels).sum()  # never true of an ignored row
        return nll_sum, correct

    def gradients(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of hidden, weight and bias, each in its tensor's type."""
        hidden, weight, bias = self._inputs
        scales = self._row_scale[:, None]
        of_hidden, of_weight, of_bias = None, None, None
        if self._hidden_gradient is not None:
            difference = self._hidden_gradient.to(self._exact) - weight[self._targets]
            of_hidden = difference.mul_(scales).to(hidden.dtype)
        if self._wanted[1]:
            of_weight = self._weight_gradient
            if of_weight is None:
                of_weight = torch.zeros_like(weight, dtype=self._exact)
            of_weight.index_add_(0, self._targets, self._hidden.to(self._exact) * -scales)
            of_weight = of_weight.to(weight.dtype)
        if self._bias_gradient is not None:
            of_bias = self._bias_gradient.index_add_(0, self._targets, -self._row_scale)
            of_bias = of_bias.to(bias.dtype)
        return of_hidden, of_weight, of_bias
