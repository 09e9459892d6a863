"""Checkpoints in Hugging Face's layout: config.json and model.safetensors, written and read.

Written files load in transformers unchanged, with the vocabulary's files next to them. Any BERT
checkpoint of this layout can be read: old or new names, with or without heads, in one file or
several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from model.bert import BertForPretraining
from model.hf_config import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    HFConfig,
    check_layout,
    hf_config,
    read_part,
    some_of,
)
from schemas.errors import CheckpointError
from schemas.model_configs import ModelConfig, Objective

_NAMES = {
    "bert.embeddings.word": "bert.embeddings.word_embeddings",
    "bert.embeddings.position": "bert.embeddings.position_embeddings",
    "bert.embeddings.segment": "bert.embeddings.token_type_embeddings",
    "bert.embeddings.norm": "bert.embeddings.LayerNorm",
    "bert.pooler": "bert.pooler.dense",
    "mlm_head.dense": "cls.predictions.transform.dense",
    "mlm_head.norm": "cls.predictions.transform.LayerNorm",
    "nsp_head": "cls.seq_relationship",
    # Heads of fine-tuned models (`model.finetuning.saved_models`).
    "classifier": "classifier",
    "qa_outputs": "qa_outputs",
}
"""Hugging Face's names by ours, for modules outside the layers."""

_LAYER_NAMES = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
"""The same within a layer, but for `attention.qkv`, which is three modules there."""

_QKV = ("query", "key", "value")
_WORDS = "bert.embeddings.word_embeddings.weight"
_OUTPUT_BIAS = "cls.predictions.bias"
_TIED = {"cls.predictions.decoder.weight": _WORDS, "cls.predictions.decoder.bias": _OUTPUT_BIAS}
_OLD_LEAVES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
_OPTIONAL = {"bert.pooler": "pooler", "mlm_head": "masked LM head", "nsp_head": "NSP head"}
"""Prefixes of our names of modules that a checkpoint may omit as a whole."""


class HFCheckpoint(NamedTuple):
    """Contents of a checkpoint, with weights of the size that its config.json gives.

    Attributes:
        config: Shape of the encoder.
        described, where: config.json, and its URL.
        state, weights_url: Tensors by Hugging Face's current names, and a URL for messages.
    """

    config: ModelConfig
    described: HFConfig
    where: str
    state: dict[str, Tensor]
    weights_url: str


class LoadedModel(NamedTuple):
    """Model that starts from a checkpoint.

    Attributes:
        model: Model with the checkpoint's weights.
        initialized: Names of newly initialized parameters, which the checkpoint does not have.
        notes: Sentences that a user should read.
    """

    model: BertForPretraining
    initialized: tuple[str, ...]
    notes: tuple[str, ...]


def save_model(model: BertForPretraining, *, pad_token_id: int = 0) -> dict[str, bytes]:
    """Return the files of a model by name. Equal models have equal bytes."""
    described = hf_config(
        model.config,
        vocab_size=model.vocab_size,
        objective=model.objective,
        pad_token_id=pad_token_id,
    )
    config = json.dumps(described, indent=2, sort_keys=True) + "\n"
    tensors = hf_state(dict(model.named_parameters()))
    # transformers rejects files without this entry.
    weights = save_tensors(tensors, metadata={"format": "pt"})
    return {CONFIG_FILE: config.encode(), WEIGHTS_FILE: weights}


def hf_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors by Hugging Face's names, on the CPU, sorted by name.

    Like transformers, omits the decoder, which is tied to the word embeddings and to
    `cls.predictions.bias`.

    Args:
        state: Names and tensors of a `BertForPretraining`.
    """
    converted: dict[str, Tensor] = {}
    for name, tensor in state.items():
        parts = _hf_names(name)
        for part, piece in zip(parts, tensor.detach().chunk(len(parts)), strict=True):
            # Copy slices: safetensors files cannot hold views of shared memory.
            converted[part] = piece.cpu().contiguous() if len(parts) == 1 else piece.cpu().clone()
    return dict(sorted(converted.items()))


def from_hf_state(
    state: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], *, where: str
) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by our names, in float32.

    Args:
        state: Tensors of the checkpoint by Hugging Face's current names.
        shapes: Expected shapes by our names.
        where: URL of the checkpoint, for messages.

    Returns:
        A tensor for each of `shapes`; pooler, masked LM head and NSP head may each be missing.

    Raises:
        CheckpointError: A tensor is unknown, missing, or has an unexpected shape or type.
    """
    remaining = dict(state)
    _drop_tied(remaining, where=where)
    converted: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, shape in shapes.items():
        parts = _hf_names(name)
        tensors = {part: remaining.pop(part) for part in parts if part in remaining}
        if len(tensors) < len(parts):
            missing += [part for part in parts if part not in tensors]
            continue
        expected = torch.Size((shape[0] // len(parts), *shape[1:]))
        pieces = [
            _checked(tensor, expected, name=part, where=where) for part, tensor in tensors.items()
        ]
        converted[name] = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
    if remaining:
        raise CheckpointError(
            f"{where}: {some_of(remaining)}: no such tensor in a BERT model of this "
            f"config.json: expected the encoder, cls.predictions and cls.seq_relationship alone. "
            "Remove what is not BERT's, or correct config.json"
        )
    _check_whole(shapes, converted, missing, where=where)
    return converted


def read_checkpoint(folder_url: str) -> HFCheckpoint:
    """Read a checkpoint from its folder, a local path or any fsspec URL.

    Raises:
        MissingInputError: There is no checkpoint.
        CheckpointError: It cannot be read, it is not a BERT that bertloom supports, or its weights
            are not finite.
    """
    folder = folder_url.rstrip("/")
    where, weights_url = f"{folder}/{CONFIG_FILE}", f"{folder}/{WEIGHTS_FILE}"
    described = check_layout(folder)
    config = described.shape
    state = _tensors(read_part(folder, WEIGHTS_FILE), where=weights_url)
    _check_size(state, config, vocab_size=described.vocab_size, where=weights_url)
    _check_finite(state, where=weights_url)
    return HFCheckpoint(config, described, where, state, weights_url)


def _tensors(content: bytes, *, where: str) -> dict[str, Tensor]:
    try:
        return _renamed(load_tensors(content), where=where)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{where}: no safetensors file, or a damaged one: {error}. Fetch it again"
        ) from error


def _check_size(
    state: Mapping[str, Tensor], config: ModelConfig, *, vocab_size: int, where: str
) -> None:
    """Check that the weights have the size that config.json gives, before a model is allocated.

    Raises:
        CheckpointError: The sizes differ, or the encoder is missing.
    """
    embeddings, layer = "bert.embeddings", "bert.encoder.layer."
    last = f"{layer}{config.num_hidden_layers - 1}.intermediate.dense.weight"
    hidden = config.hidden_size
    for name, shape in (
        (f"{embeddings}.word_embeddings.weight", (vocab_size, hidden)),
        (f"{embeddings}.position_embeddings.weight", (config.max_position_embeddings, hidden)),
        (f"{embeddings}.token_type_embeddings.weight", (config.type_vocab_size, hidden)),
        (last, (config.feed_forward_size, hidden)),
    ):
        if name not in state:
            raise CheckpointError(
                f"{where}: no {name}: expected every encoder tensor that config.json describes"
            )
        _checked(state[name], torch.Size(shape), name=name, where=where)


def _check_finite(state: Mapping[str, Tensor], *, where: str) -> None:
    """Reject weights that are NaN or infinite.

    Raises:
        CheckpointError: A tensor has such a value; names the tensor.
    """
    for name, tensor in state.items():
        if not tensor.is_floating_point():
            continue
        values = tensor.to(torch.float32)
        # The sum is a fast check, but may overflow for finite values.
        if values.sum().isfinite() or values.isfinite().all():
            continue
        count = int((~values.isfinite()).sum())
        raise CheckpointError(
            f"{where}: {name}: expected finite weights, got NaN or infinity in {count:,} of "
            f"{values.numel():,}. Download the checkpoint again, or use an earlier one."
        )


def load_pretrained(folder_url: str, *, objective: Objective, seed: int) -> LoadedModel:
    """Return a model with the weights of a checkpoint in Hugging Face's layout.

    Args:
        folder_url: Folder of the checkpoint, a local path or any fsspec URL.
        objective: Objective of the following training; may differ from that of the checkpoint.
        seed: Seed of heads that the checkpoint does not have; they equal those of a new model with
            this seed.

    Raises:
        CheckpointError: The checkpoint is missing, unreadable, or not a supported BERT.
    """
    read = read_checkpoint(folder_url)
    before, where, weights_url = read.described.objective, read.where, read.weights_url
    model = BertForPretraining(
        read.config, vocab_size=read.described.vocab_size, objective=objective, seed=seed
    )
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    converted = from_hf_state(read.state, shapes, where=weights_url)
    model.load_state_dict(converted, strict=False)  # heads may be missing
    initialized = tuple(name for name in shapes if name not in converted)
    notes = [
        f"{weights_url}: {what} not in checkpoint, newly initialized with seed {seed}"
        for begin, what in _OPTIONAL.items()
        if any(name.startswith(f"{begin}.") for name in initialized)
    ]
    if (before == "left-to-right") != (objective == "left-to-right"):
        sight = "causal" if before == "left-to-right" else "bidirectional"
        notes.append(f"{where}: {sight} checkpoint, training continues with objective {objective}")
    return LoadedModel(model, initialized, tuple(notes))


def _hf_names(name: str) -> tuple[str, ...]:
    """Return Hugging Face's names of a parameter, in order of its first dimension."""
    if name == "mlm_head.output_bias":
        return (_OUTPUT_BIAS,)
    module, _, leaf = name.rpartition(".")
    if module in _NAMES:
        return (f"{_NAMES[module]}.{leaf}",)
    if module.startswith("bert.layers."):
        number, _, inner = module.removeprefix("bert.layers.").partition(".")
        layer = f"bert.encoder.layer.{number}"
        if inner == "attention.qkv":
            return tuple(f"{layer}.attention.self.{part}.{leaf}" for part in _QKV)
        if inner in _LAYER_NAMES:
            return (f"{layer}.{_LAYER_NAMES[inner]}.{leaf}",)
    return (name,)  # a head of fine-tuning


def _renamed(state: Mapping[str, Tensor], *, where: str) -> dict[str, Tensor]:
    """Return the tensors by current names, without buffers."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        today = name
        if name.startswith(("embeddings.", "encoder.", "pooler.")):  # saved from the encoder alone
            today = f"bert.{name}"
        for old, new in _OLD_LEAVES.items():
            if today.endswith(old):
                today = today.removesuffix(old) + new
        if today in _BUFFERS:
            continue
        if today in renamed:
            raise CheckpointError(
                f"{where}: two tensors are {today}, one of them named {name}: remove one"
            )
        renamed[today] = tensor
    return renamed


def _drop_tied(renamed: dict[str, Tensor], *, where: str) -> None:
    """Remove the decoder after checking that its tensors equal those that it is tied to."""
    for name, source in _TIED.items():
        if name not in renamed:
            continue
        tensor = renamed.pop(name)
        if source not in renamed:  # of the bias, some versions wrote this one alone
            renamed[source] = tensor
        elif not torch.equal(tensor.float(), renamed[source].float()):
            raise CheckpointError(
                f"{where}: {name} differs from {source}: expected them equal, since BERT's decoder "
                "is tied to its word embeddings; an untied decoder is not supported"
            )


def _checked(tensor: Tensor, shape: torch.Size, *, name: str, where: str) -> Tensor:
    if tensor.shape != shape:
        raise CheckpointError(
            f"{where}: {name} has shape {tuple(tensor.shape)}, expected {tuple(shape)} by "
            "config.json: the two files are not of one model"
        )
    if not tensor.is_floating_point():
        raise CheckpointError(
            f"{where}: {name} is {str(tensor.dtype).removeprefix('torch.')}, expected floating "
            "point: quantised weights cannot be trained; take the model they were made from"
        )
    return tensor.to(torch.float32)


def _check_whole(
    shapes: Mapping[str, torch.Size],
    converted: Mapping[str, Tensor],
    missing: list[str],
    *,
    where: str,
) -> None:
    """Check that only whole heads are missing."""
    absent = tuple(
        begin for begin in _OPTIONAL if not any(name.startswith(begin) for name in converted)
    )
    needed = [name for name in shapes if not name.startswith(absent)]
    lost = [part for name in needed for part in _hf_names(name) if part in missing]
    if lost:
        raise CheckpointError(
            f"{where}: no {some_of(lost)}: expected every tensor of the encoder that "
            "config.json describes, and each head complete or absent"
        )
