"""Random batches, models and equivalent transformers models of every task type."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from support.batch_builder import VOCAB, small_config, write_files

from model.bert import BertModel, initialize_weights
from model.data.batches import TokenBatch
from model.finetuning.batches import TaskBatch
from model.finetuning.feature_tagger import FeatureTagger
from model.finetuning.saved_models import save_task_model
from model.finetuning.task_model import TaskModel
from model.finetuning.window_lstm import BiLSTM
from model.tasks.features import IGNORED
from pipelines.seeds import rng_for
from schemas.finetune_configs import LayerChoice, TaskTypeName
from schemas.model_configs import ModelConfig

AnyModel = TypeVar("AnyModel", TaskModel, FeatureTagger)
KINDS: tuple[TaskTypeName, ...] = ("classification", "regression", "choice", "span", "tagging")
CHOICES = 4
UNITS = 3
TAGGED = 5  # words of a unit
OUTPUTS: dict[TaskTypeName, int] = {
    "classification": 3, "regression": 1, "choice": 1, "span": 2, "tagging": 5,
}  # fmt: skip
LABELS: dict[TaskTypeName, tuple[str, ...]] = {
    "classification": ("no", "maybe", "yes"),
    "tagging": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
}
PEERS: dict[TaskTypeName, str] = {
    "classification": "SequenceClassification",
    "regression": "SequenceClassification",
    "choice": "MultipleChoice",
    "span": "QuestionAnswering",
    "tagging": "TokenClassification",
}


def task_lengths(kind: TaskTypeName, *, equal: bool = False) -> tuple[int, ...]:
    count = UNITS * CHOICES if kind == "choice" else UNITS
    return tuple(17 if equal else 11 + 7 * number % 23 for number in range(count))


def task_batch(kind: TaskTypeName, *, equal: bool = False, seed: int = 0) -> TaskBatch:
    """A batch that depends on kind and seed."""
    lengths = np.array(task_lengths(kind, equal=equal))
    starts = np.cumsum(lengths) - lengths
    ids, segments, places = (np.zeros(lengths.sum(), dtype=np.int64) for _ in range(3))
    positions: list[int] = []
    labels: list[Any] = []
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        rng = rng_for(seed, "test", kind, number)
        ids[start : start + length] = rng.integers(1, VOCAB, length)
        segments[start : start + length] = np.arange(length) > length // 2
        places[start : start + length] = np.arange(length)
        if kind == "tagging":
            chosen = np.sort(rng.choice(np.arange(1, length - 1), size=TAGGED, replace=False))
            positions += (start + chosen).tolist()
            labels += [*rng.integers(0, OUTPUTS[kind], TAGGED - 1).tolist(), IGNORED]
        elif kind == "span":
            labels.append(sorted(rng.integers(0, length, 2).tolist()))
        elif kind == "regression":
            labels.append(float(rng.uniform(0, 5)))
        elif kind == "classification":
            labels.append(int(rng.integers(0, OUTPUTS[kind])))
        elif number % CHOICES == 0:
            labels.append(int(rng.integers(0, CHOICES)))
    to_tensor = torch.from_numpy
    return TaskBatch(
        TokenBatch(
            to_tensor(ids),
            to_tensor(segments),
            to_tensor(places),
            to_tensor(starts),
            lengths,
        ),
        torch.tensor(labels, dtype=torch.float32 if kind == "regression" else torch.int64),
        torch.tensor(positions) if kind == "tagging" else None,
        np.arange(UNITS),
        np.full(UNITS, TAGGED) if kind == "tagging" else None,
    )


def units_of(batch: TaskBatch, kind: TaskTypeName, *, first: int, stop: int) -> TaskBatch:
    """Return some units of a packed batch as a new batch."""
    per_unit = CHOICES if kind == "choice" else 1
    tokens = batch.tokens
    rows = slice(first * per_unit, stop * per_unit)
    ends = np.append(0, np.cumsum(tokens.lengths))
    begin, end = int(ends[rows.start]), int(ends[rows.stop])
    positions, labels = batch.positions, batch.labels
    assert labels is not None
    if positions is None:
        labels = labels[first:stop]
    else:
        inside = (positions >= begin) & (positions < end)
        labels, positions = labels[inside], positions[inside] - begin
    part = TokenBatch(
        tokens.input_ids[begin:end],
        tokens.segment_ids[begin:end],
        tokens.position_ids[begin:end],
        tokens.starts[rows] - begin,
        tokens.lengths[rows],
    )
    counts = batch.position_counts
    return TaskBatch(
        part,
        labels,
        positions,
        batch.units[first:stop],
        None if counts is None else counts[first:stop],
    )


def terms_of(batch: TaskBatch) -> int:
    """Return the divisor of the summed loss: units, or labeled tokens."""
    assert batch.labels is not None
    if batch.positions is None:
        return len(batch.units)
    return int((batch.labels != IGNORED).sum())


def random_task_model(
    kind: TaskTypeName, *, config: ModelConfig | None = None, seed: int = 3, **fields: Any
) -> TaskModel:
    """A model whose biases and norms are random, too, so that none can hide; no dropout."""
    shape = config or small_config()
    provided = {"dropout": 0.0, **fields}
    model = TaskModel(
        shape, vocab_size=VOCAB, kind=kind, outputs=OUTPUTS[kind], seed=seed, **provided
    )
    return randomize(model, seed=seed)


def random_tagger(
    layers: LayerChoice = "concat-last-4",
    *,
    config: ModelConfig | None = None,
    dropout: float = 0.0,
    seed: int = 3,
) -> FeatureTagger:
    """A feature-based tagger whose biases and norms are random, too; no dropout."""
    shape = config or small_config(num_hidden_layers=5)
    encoder = BertModel(shape, vocab_size=VOCAB)
    drawn = torch.nn.ModuleDict({"bert": encoder})
    initialize_weights(drawn, initializer_range=shape.initializer_range, seed=seed)
    model = FeatureTagger(
        encoder,
        vocab_size=VOCAB,
        outputs=OUTPUTS["tagging"],
        layers=layers,
        lstm_hidden_size=12,
        dropout=dropout,
        seed=seed,
    )
    return randomize(model, seed=seed)


def randomize(model: AnyModel, *, seed: int) -> AnyModel:
    """Change biases, norms and the weights of the head."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
            if name == "classifier.weight":  # larger, so that predictions differ
                parameter.mul_(10)
    return model


def written(model: TaskModel | FeatureTagger, folder: Path, **about: Any) -> Path:
    """Save a model, and return its folder."""
    files = save_task_model(model, labels=LABELS.get(model.kind, ()), about=about)
    return write_files(files, folder)


def set_lstm(peer: torch.nn.LSTM, own: BiLSTM) -> None:
    """Copy the weights of two layers into torch's module."""
    with torch.no_grad():
        for name, value in peer.named_parameters():
            number = name.split("_l")[1][0]
            weights = dict(own[int(number)].named_parameters())
            value.copy_(weights[name.replace(f"_l{number}", "_l0")])


def peer_from(
    folder: Path, kind: TaskTypeName, *, auto: bool = False
) -> tuple[Any, dict[str, Any]]:
    """transformers' model of a folder, and what it says of the loading."""
    import transformers

    prefix = "AutoModelFor" if auto else "BertFor"
    with torch.random.fork_rng():
        peer, info = getattr(transformers, prefix + PEERS[kind]).from_pretrained(
            folder, output_loading_info=True, local_files_only=True, attn_implementation="eager"
        )
    return peer, info


def peer_answers(
    peer: Any, batch: TaskBatch, kind: TaskTypeName
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' logits, in our shape, and its loss."""
    tokens = batch.tokens
    lengths = tokens.lengths.tolist()
    shape = (len(lengths), max(lengths))
    ids, segments, mask = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    index = torch.zeros(len(tokens.input_ids), dtype=torch.int64)  # of our tokens in these rows
    for row, (start, length) in enumerate(zip(tokens.starts.tolist(), lengths, strict=True)):
        ids[row, :length] = tokens.input_ids[start : start + length]
        segments[row, :length] = tokens.segment_ids[start : start + length]
        mask[row, :length] = 1
        index[start : start + length] = row * shape[1] + torch.arange(length)
    inputs = {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}
    labels = batch.labels
    assert labels is not None
    if kind == "span":
        result = peer(**inputs, start_positions=labels[:, 0], end_positions=labels[:, 1])
        logits = torch.stack([result.start_logits, result.end_logits], dim=-1).flatten(0, 1)
        return logits[index], result.loss
    if kind == "tagging":
        spread = torch.full((ids.numel(),), IGNORED)
        spread[index[batch.positions]] = labels
        result = peer(**inputs, labels=spread.view(shape))
        return result.logits.flatten(0, 1)[index[batch.positions]], result.loss
    if kind == "choice":
        inputs = {name: value.view(UNITS, CHOICES, -1) for name, value in inputs.items()}
    result = peer(**inputs, labels=labels)
    return result.logits.squeeze(1) if kind == "regression" else result.logits, result.loss
