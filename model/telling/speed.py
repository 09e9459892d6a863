"""How much arithmetic a training step is, and how fast and how well the devices do it.

Model FLOPs are those that the mathematics asks for, whatever the code does: padding, what is
computed a second time to save memory, and scores that a causal mask throws away are not counted.
So two layouts of one batch are the same work, and utilisation compares them fairly (the measure is
that of PaLM, Chowdhery et al. 2022, appendix B).
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from model.data.batches import PretrainingBatch
from model.processes.distributed import Ranks
from model.telling.accelerators import Peak
from model.telling.curves import SpeedRecord
from schemas.model_configs import ModelConfig

_BACKWARD_FACTOR = 2  # each product has two gradients, as large as itself: inputs' and weights'


def forward_flops(
    model: ModelConfig,
    *,
    vocab_size: int,
    lengths: npt.NDArray[np.integer],
    predictions: int,
    pooled: int = 0,
    causal: bool = False,
) -> int:
    """FLOPs of the matrix products of one forward pass; a multiply-add is 2 FLOPs.

    With H hidden size, F feed-forward size, V vocabulary, n an instance's length, T the sum of n:

        each layer   2 * T * (4*H*H + 2*H*F)    query, key, value, output; both of the feed-forward
                     2 * 2*H * (sum of n*n)     scores and weighted sum; causal: n*(n+1)/2
        MLM head     2 * predictions * (H*H + H*V)
        pooler, NSP  2 * pooled * (H*H + 2*H)

    Look-ups of embeddings, norms, activations, softmax and dropout are left out: about 1 % in a
    model of BERT-Base's size, and none of it on the units that a device's peak is stated for.

    Args:
        model: the encoder's shape.
        vocab_size: V.
        lengths: real tokens of each instance, shape (B,).
        predictions: tokens that the MLM head predicts (P).
        pooled: instances that go through pooler and NSP head; 0 where the objective has no NSP.
        causal: tokens attend only to themselves and those before them.
    """
    n = lengths.astype(np.int64)
    hidden, feed_forward = model.hidden_size, model.feed_forward_size
    tokens = int(n.sum())
    attended = int((n * (n + 1) // 2).sum() if causal else (n * n).sum())
    layer = tokens * (4 * hidden * hidden + 2 * hidden * feed_forward) + attended * 2 * hidden
    mlm_head = predictions * hidden * (hidden + vocab_size)
    nsp_head = pooled * hidden * (hidden + 2)
    return 2 * (model.num_hidden_layers * layer + mlm_head + nsp_head)


def batch_flops(
    model: ModelConfig,
    *,
    vocab_size: int,
    batches: Iterable[PretrainingBatch],
    next_sentence: bool = True,
    causal: bool = False,
) -> int:
    """FLOPs of training on these micro-batches once; only shapes are read, so no device waits.

    Args:
        model: the encoder's shape.
        vocab_size: V.
        batches: one process's share of a step; its sum over processes is the step's.
        next_sentence: the objective has NSP, so every instance is pooled.
        causal: as in `forward_flops`.
    """
    forward = sum(
        forward_flops(
            model,
            vocab_size=vocab_size,
            lengths=batch.tokens.lengths,
            predictions=len(batch.masked_positions),
            pooled=len(batch.tokens.lengths) if next_sentence else 0,
            causal=causal,
        )
        for batch in batches
    )
    return forward * (1 + _BACKWARD_FACTOR)


def model_flops_utilisation(
    flops: float, *, seconds: float, processes: int, peak: Peak | None
) -> float | None:
    """Return the share of the devices' peak that went into model FLOPs, 0 to 1.

    Return None without a peak, and above 1: the peak of a busy machine is measured too low.

    Args:
        flops: done by all processes together.
        seconds: in which they were done.
        processes: each with a device of its own.
        peak: of one such device.
    """
    if peak is None or seconds <= 0:
        return None
    utilisation = flops / (seconds * processes * peak.flops)
    return utilisation if utilisation <= 1 else None


class SpeedMeter:
    """Measures training between the lines of the curves.

    Args:
        ranks: the processes of the run, each with a device of its own.
        peak: of such a device, see `model.telling.accelerators.peak_flops`.
        seconds: spent training before this start of the run.
    """

    def __init__(self, ranks: Ranks, *, peak: Peak | None, seconds: float = 0.0) -> None:
        self._ranks, self._peak = ranks, peak
        self._line_seconds = seconds
        self._tokens, self._own = 0, np.zeros(2)
        self._waited = 0.0

    def add(self, *, tokens: int, places: int, flops: int, waited: float) -> None:
        """Count a step.

        Args:
            tokens: real tokens of all processes.
            places: token positions of this one, padding counted.
            flops: model FLOPs of this one.
            waited: seconds until the loader gave this one its batch.
        """
        self._tokens += tokens
        self._own += (places, flops)
        self._waited += waited

    def record(self, step: int, *, seconds: float) -> SpeedRecord:
        """The speed since the record before, or since the start; begins to count anew.

        Every process has to call this after the same step.

        Args:
            step: updates so far.
            seconds: spent training so far, over all starts of the run.
        """
        taken = max(seconds - self._line_seconds, 1e-9)
        places, flops = self._ranks.add_up(self._own.tolist())
        record = SpeedRecord(
            step=step,
            seconds=seconds,
            tokens_per_second=self._tokens / taken,
            places_per_second=places / taken,
            peak_memory_bytes=peak_memory(self._ranks.device),
            loader_wait_share=min(1.0, self._waited / taken),
            model_flops_utilisation=model_flops_utilisation(
                flops, seconds=taken, processes=self._ranks.size, peak=self._peak
            ),
        )
        self._line_seconds = seconds
        self._tokens, self._own, self._waited = 0, np.zeros(2), 0.0
        return record


def peak_memory(device: torch.device) -> int:
    """Most bytes this process has held at once: on the GPU in tensors, else resident in the host.

    A GPU's peak can be begun anew with torch.cuda.reset_peak_memory_stats; the host's cannot.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes there, kB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
