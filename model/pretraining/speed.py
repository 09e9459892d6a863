"""Speed of pretraining steps on this machine, from steps on random tokens."""

from __future__ import annotations

import time

import numpy as np
import torch

from model.data.batches import PretrainingBatch, TokenBatch
from model.encoder.dropout import seed_dropout
from model.encoder.heads import BertForPretraining
from model.optim import build_optimizer
from model.training.distributed import choose_device, choose_precision
from pipelines.arrays import offsets_of
from schemas.model_configs import PretrainConfig

_MASKED_SHARE = 0.15
_WARM_UP_STEPS = 2


def measure_step_seconds(
    config: PretrainConfig, *, vocab_size: int, instances: int, seq_length: int, seconds: float
) -> float:
    """Return the mean time of an optimizer step of a phase, in seconds.

    Args:
        config: Phase with a `model`; its objective is MLM.
        vocab_size: Number of word pieces.
        instances: Number of instances of the global batch.
        seq_length: Length of the instances, in tokens.
        seconds: Time to measure for; at least one step is measured.
    """
    assert config.model is not None  # noqa: S101
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    model = (
        BertForPretraining(config.model, vocab_size=vocab_size, objective="mlm").to(device).train()
    )
    optimizer = build_optimizer(model.named_parameters(), config.optimizer)
    batch = _random_batch(instances, seq_length, vocab_size).to(device)
    begin, steps = 0.0, -_WARM_UP_STEPS
    while steps < 1 or time.perf_counter() - begin < seconds:
        if steps == 0:
            begin = _now(device)
        seed_dropout(model, steps + _WARM_UP_STEPS)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(batch, len(batch.masked_ids), instances).loss
        loss.backward()
        optimizer.step(learning_rate=1e-4)
        optimizer.zero_grad()
        steps += 1
    return (_now(device) - begin) / steps


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _random_batch(num_rows: int, seq_length: int, vocab_size: int) -> PretrainingBatch:
    rng = np.random.default_rng(0)
    lengths = np.full(num_rows, seq_length)
    num_tokens = num_rows * seq_length
    masked = np.flatnonzero(rng.random(num_tokens) < _MASKED_SHARE)
    tokens = TokenBatch(
        input_ids=torch.from_numpy(rng.integers(0, vocab_size, num_tokens)),
        segment_ids=torch.zeros(num_tokens, dtype=torch.int64),
        position_ids=torch.arange(seq_length).repeat(num_rows),
        starts=torch.from_numpy(offsets_of(lengths)[:-1]),
        lengths=lengths,
    )
    return PretrainingBatch(
        tokens,
        torch.from_numpy(masked),
        torch.from_numpy(rng.integers(0, vocab_size, len(masked))),
        torch.zeros(num_rows, dtype=torch.int64),
        np.arange(num_rows),
    )
