"""Random micro-batches, models and the equivalent transformers models for tests of the heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.data.batches import PretrainingBatch, TokenBatch
from model.encoder.heads import BertForPretraining
from pipelines.arrays import ranges
from pipelines.seeds import rng_for
from schemas.model_configs import ModelConfig, Objective

VOCAB = 1000
LENGTHS = (19, 31, 12, 24)


def small_config(preset: str = "tiny", **fields: Any) -> ModelConfig:
    """A preset without dropout."""
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return ModelConfig.model_validate({"preset": preset, **without, **fields})


def random_batch(lengths: tuple[int, ...] = LENGTHS, *, first: int = 0) -> PretrainingBatch:
    """Instances that depend on their numbers alone, from `first`; the last has no segment B."""
    counts = np.array(lengths, dtype=np.int64)
    starts = np.cumsum(counts) - counts
    ids, segments = (np.zeros(counts.sum(), dtype=np.int64) for _ in range(2))
    masked, targets = [], []
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        rng = rng_for(0, "test", first + number)
        ids[start : start + length] = rng.integers(1, VOCAB, length)
        segments[start : start + length] = np.arange(length) > length // 2
        chosen = np.sort(rng.choice(np.arange(1, length - 1), size=3, replace=False))
        masked.append(start + chosen)
        targets.append(rng.integers(1, VOCAB, 3))
    labels = np.arange(len(lengths)) % 2
    labels[-1] = -100
    to_tensor = torch.from_numpy
    tokens = TokenBatch(
        to_tensor(ids),
        to_tensor(segments),
        to_tensor(ranges(0, counts)),
        to_tensor(starts),
        counts,
    )
    return PretrainingBatch(
        tokens,
        to_tensor(np.concatenate(masked)),
        to_tensor(np.concatenate(targets)),
        to_tensor(labels),
        np.arange(len(lengths)),
    )


def random_model(
    config: ModelConfig | None = None, *, objective: Objective = "mlm+nsp", seed: int = 3
) -> BertForPretraining:
    """A model whose biases and norms are random, too, so that none can hide."""
    model = BertForPretraining(
        config or small_config(), vocab_size=VOCAB, objective=objective, seed=seed
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def write_files(files: dict[str, bytes], folder: Path) -> Path:
    """Put files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def peer_inputs(batch: PretrainingBatch) -> dict[str, torch.Tensor]:
    """The same instances in padded rows, as transformers takes them."""
    tokens = batch.tokens
    lengths, starts = tokens.lengths.tolist(), tokens.starts.tolist()
    shape = (len(lengths), max(lengths))
    ids, segments, mask = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    labels = torch.full(shape, -100)
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        ids[row, :length] = tokens.input_ids[start : start + length]
        segments[row, :length] = tokens.segment_ids[start : start + length]
        mask[row, :length] = 1
        inside = (batch.masked_positions >= start) & (batch.masked_positions < start + length)
        labels[row, batch.masked_positions[inside] - start] = batch.masked_ids[inside]
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": mask,
        "labels": labels,
    }
