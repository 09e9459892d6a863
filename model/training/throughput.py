"""Throughput of training: time of steps, model FLOPs, peak FLOPs of devices, and utilization.

Model FLOPs are those of the equations, regardless of the implementation: padding, recomputed
activations and scores that a causal mask discards do not count. Utilization is that of PaLM
(Chowdhery et al. 2022, appendix B).
"""

from __future__ import annotations

import re
import resource
import sys
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from model.attention import seed_dropout
from model.bert import BertForPretraining
from model.data.batches import PretrainingBatch
from model.data.collator import token_batches
from model.optim import build_optimizer
from model.training.distributed import ProcessGroup, choose_device, choose_precision
from schemas.model_configs import ModelConfig, PretrainConfig

Precision = Literal["fp32", "bf16"]
Format = Literal["bf16", "tf32", "fp32"]


class _DataSheet(NamedTuple):
    """TFLOP/s of dense matrix products with fp32 sums, from NVIDIA's data sheets."""

    bf16: float
    tf32: float
    fp32: float


# Keys match the full name from torch.cuda.get_device_name: MIG slices and laptop GPUs have other
# peaks.
_DATA_SHEETS: dict[str, _DataSheet] = {
    r"NVIDIA B200": _DataSheet(2250.0, 1100.0, 75.0),
    r"NVIDIA H200": _DataSheet(989.5, 494.5, 67.0),
    r"NVIDIA H100 80GB HBM3": _DataSheet(989.5, 494.5, 67.0),
    r"(NVIDIA )?A100-\w+-\d+GB|NVIDIA A100 80GB PCIe": _DataSheet(312.0, 156.0, 19.5),
    r"NVIDIA L4": _DataSheet(121.0, 60.0, 30.3),
    r"NVIDIA GeForce RTX 4090": _DataSheet(165.2, 82.6, 82.6),
}


def peak_flops(device: torch.device, *, precision: Precision) -> float | None:
    """Return the peak FLOPs per second of a GPU with a known data sheet, None for other devices.

    Args:
        device: Device to look up.
        precision: Precision of training. `fp32` is tf32 where torch.backends.cuda.matmul's
            fp32_precision permits it.
    """
    if device.type != "cuda":
        return None
    is_tf32 = precision == "fp32" and torch.backends.cuda.matmul.fp32_precision == "tf32"
    return listed_peak(torch.cuda.get_device_name(device), "tf32" if is_tf32 else precision)


def listed_peak(name: str, number_format: Format) -> float | None:
    """Return the peak FLOPs per second in the data sheet of a device, None if it has none."""
    for pattern, sheet in _DATA_SHEETS.items():
        if re.fullmatch(pattern, name):
            return float(getattr(sheet, number_format)) * 1e12
    return None


def step_flops(
    model: ModelConfig,
    *,
    vocab_size: int,
    lengths: npt.NDArray[np.integer],
    predictions: int,
    pooled: int = 0,
    causal: bool = False,
) -> int:
    """Return the FLOPs of the matrix products of a training step; a multiply-add is 2 FLOPs.

    With hidden size H, feed-forward size F, vocabulary size V, instance length n, sum of lengths T,
    those of the forward pass are:

        each layer   2 * T * (4*H*H + 2*H*F)    query, key, value, output; feed-forward
                     2 * 2*H * (sum of n*n)     scores and weighted sum; causal: n*(n+1)/2
        MLM head     2 * predictions * (H*H + H*V)
        pooler, NSP  2 * pooled * (H*H + 2*H)

    The backward pass has twice as many: each product has two gradients of its size, of inputs and
    of weights. Embeddings, norms, activations, softmax and dropout are not counted: about 1 % for
    BERT-Base.

    Args:
        model: Shape of the encoder.
        vocab_size: V.
        lengths: Number of tokens of each instance without padding, shape (B,).
        predictions: Number of tokens that the MLM head predicts (P).
        pooled: Number of instances that the pooler and NSP head read. 0 without NSP.
        causal: Tokens attend only to themselves and earlier tokens.
    """
    n = lengths.astype(np.int64)
    hidden, feed_forward = model.hidden_size, model.feed_forward_size
    tokens = int(n.sum())
    attended = int((n * (n + 1) // 2).sum() if causal else (n * n).sum())
    layer = tokens * (4 * hidden * hidden + 2 * hidden * feed_forward) + attended * 2 * hidden
    mlm_head = predictions * hidden * (hidden + vocab_size)
    nsp_head = pooled * hidden * (hidden + 2)
    forward = 2 * (model.num_hidden_layers * layer + mlm_head + nsp_head)
    return 3 * forward


class ThroughputRecord(NamedTuple):
    """Throughput since the last line: a line of `timing.jsonl`.

    Attributes:
        step: Last step of the measurement.
        seconds: Training time since the phase began, over all starts
            (`model.training.loop.Stopwatch`).
        tokens_per_second: Tokens per second, over all processes.
        peak_memory_bytes: Peak memory of this process: of its GPU, or of the host without a GPU.
        loader_wait_share: Fraction of the time in which the model waited for its next batch.
        model_flops_utilization: Model FLOPs per second over the peak of the devices. None: the peak
            is unknown.
    """

    step: int
    seconds: float
    tokens_per_second: float
    peak_memory_bytes: int
    loader_wait_share: float
    model_flops_utilization: float | None = None


class ThroughputMeter:
    """Measures throughput between lines of the log.

    Args:
        group: Processes of the run, each with one device.
        peak: Peak FLOPs per second of one device; None if unknown.
        seconds: Training time of earlier starts of the run.
    """

    def __init__(self, group: ProcessGroup, *, peak: float | None, seconds: float = 0.0) -> None:
        self._group, self._peak = group, peak
        if group.device.type == "cuda":  # the peak of the setup does not count
            torch.cuda.reset_peak_memory_stats(group.device)
        self._start_seconds = seconds
        self._tokens, self._flops, self._waited = 0, 0.0, 0.0

    def add(self, tokens: int, *, flops: float, waited: float) -> None:
        """Count a step of all processes, and the seconds that this one waited for its batch."""
        self._tokens += tokens
        self._flops += flops
        self._waited += waited

    def record(self, step: int, *, seconds: float) -> ThroughputRecord:
        """Return the throughput since the last record.

        Args:
            step: Number of steps.
            seconds: Training time over all starts of the run.
        """
        duration = max(seconds - self._start_seconds, 1e-9)
        record = ThroughputRecord(
            step=step,
            seconds=seconds,
            tokens_per_second=self._tokens / duration,
            peak_memory_bytes=peak_memory(self._group.device),
            loader_wait_share=min(1.0, self._waited / duration),
            model_flops_utilization=self._peak
            and self._flops / (duration * self._group.world_size * self._peak),
        )
        self._start_seconds = seconds
        self._tokens, self._flops, self._waited = 0, 0.0, 0.0
        return record


def peak_memory(device: torch.device) -> int:
    """Return the peak memory of this process in bytes: tensors on a GPU, otherwise resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, kB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


_MASKED_SHARE = 0.15


def measure_step_seconds(
    config: PretrainConfig, *, vocab_size: int, instances: int, seq_length: int, seconds: float
) -> float:
    """Return the mean time of an optimizer step of a phase on random tokens, in seconds.

    Args:
        config: Phase with a `model`; its objective is MLM.
        vocab_size: Number of word pieces.
        instances: Number of instances of the global batch.
        seq_length: Length of the instances, in tokens.
        seconds: Time to measure for; at least one step is measured.
    """
    from torch.utils.benchmark import Timer  # lazy: trainings do not need it

    assert config.model is not None  # noqa: S101
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    model = BertForPretraining(config.model, vocab_size=vocab_size, objective="mlm")
    model.to(device).train()
    optimizer = build_optimizer(model.named_parameters(), config.optimizer)
    batch = _random_batch(instances, seq_length, vocab_size).to(device)

    def step() -> None:
        seed_dropout(model, 0)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(batch, len(batch.masked_ids), instances).loss
        loss.backward()
        optimizer.step(learning_rate=1e-4)
        optimizer.zero_grad()

    step()  # slower than the others; the timer does not count its own first step, either
    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=seconds).mean)


def _random_batch(num_rows: int, seq_length: int, vocab_size: int) -> PretrainingBatch:
    rng = np.random.default_rng(0)
    lengths = np.full(num_rows, seq_length)
    num_tokens = num_rows * seq_length
    masked = np.flatnonzero(rng.random(num_tokens) < _MASKED_SHARE)
    (tokens,), _ = token_batches(
        rng.integers(0, vocab_size, num_tokens),
        lengths=lengths,
        b_starts=lengths,
        bounds=np.array([0, num_rows]),
    )
    return PretrainingBatch(
        tokens,
        masked_positions=torch.from_numpy(masked),
        masked_ids=torch.from_numpy(rng.integers(0, vocab_size, len(masked))),
        next_sentence_labels=torch.zeros(num_rows, dtype=torch.int64),
        rows=np.arange(num_rows),
    )
