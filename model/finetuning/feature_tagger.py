"""The feature-based tagger (paper 5.3, Table 7): a BiLSTM on layers of an encoder that stays as is.

The encoder is frozen and never drops anything. Its layers are put together in one of six ways, two
bidirectional LSTM layers read them, and a dense layer tags.

The LSTM reads the first word pieces of the words alone: one step a word, so that its reach is
counted in words as that of the LSTM taggers in the paper's table, and the other pieces, which have
no label, cost no steps; what they say is in the first piece's vector already, for the encoder sees
all of them. It reads the words that are tagged in a window and no others, and never runs from one
window into the next. So in documents longer than a window its reach ends where the next window's
words begin. The encoder's does not.

Letters for shapes as in `model.data.batches`; L units of an LSTM's direction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import save as save_tensors
from torch import nn
from torch.nn import functional

from model.encoder.bert import BertModel, Dense, initialize_weights
from model.encoder.checkpoint_layout import shown
from model.encoder.dropout import Dropout, seed_dropout
from model.encoder.hf_config import hf_config, model_config
from model.encoder.hf_folder import CONFIG_FILE, WEIGHTS_FILE, read_config, read_weights, some_of
from model.encoder.hf_weights import check_size, from_hf_state, hf_state
from model.finetuning.batches import TaskBatch, TaskOutput
from model.finetuning.feature_layers import LayerMix, WindowLSTM
from model.finetuning.task_model import fill_parameters, start_task_model
from model.task_types.features import IGNORED
from schemas.errors import CheckpointError, ConfigError, TrainingError
from schemas.model_configs import ModelConfig
from schemas.task_configs import Kind, LayerChoice

ABOUT_KEY = "bertloom"
SHAPE_KEY = "bertloom_feature_tagger"
"""Keys of config.json: what was said of the model, and what only this class has."""

_LSTM_LAYERS = 2
_ENCODER = "bert."


class FeatureTagger(nn.Module):
    """A frozen encoder, two bidirectional LSTM layers, and a dense layer.

    Dropout is before, between and after the LSTM layers. The LSTM computes in float32 under
    autocast, too.

    Attributes:
        bert: the encoder; requires no gradients and is always in evaluation mode.
        mix: puts its layers together; has trained weights for the weighted sums alone.
        lstm: two bidirectional LSTM layers.
        classifier: dense, on 2 L values a word.
        kind, outputs, config, vocab_size, is_causal: as of `model.finetuning.task_model.TaskModel`.
        layers, lstm_size: as given.

    Raises:
        ConfigError: the encoder has fewer layers than `layers` needs.
    """

    kind: Kind = "tagging"

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        outputs: int,
        layers: LayerChoice = "concat-last-4",
        lstm_size: int = 768,
        dropout: float = 0.1,
        is_causal: bool = False,
        seed: int = 0,
        encoder: BertModel | None = None,
    ) -> None:
        """Make a new tagger.

        Args:
            config: shape of the encoder.
            vocab_size: word pieces.
            outputs: tags.
            layers: which layers of the encoder (Table 7).
            lstm_size: L.
            dropout: around the LSTM layers.
            is_causal: whether the encoder is.
            seed: decides all new weights.
            encoder: to be used as it is; None draws a new one.
        """
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.outputs = outputs
        self.layers: LayerChoice = layers
        self.lstm_size = lstm_size
        self.is_causal = is_causal
        self.mix = LayerMix(layers, layers=config.layers, hidden_size=config.hidden_size)
        self.bert = encoder or BertModel(config, vocab_size=vocab_size, is_causal=is_causal)
        sizes = (self.mix.size, 2 * lstm_size)
        self.lstm = nn.ModuleList([WindowLSTM(size, units=lstm_size) for size in sizes])
        self.dropouts = nn.ModuleList([Dropout(dropout) for _ in range(_LSTM_LAYERS + 1)])
        self.classifier = Dense(2 * lstm_size, outputs)
        self._draw(seed, draws_encoder=encoder is None)
        self.bert.requires_grad_(False)
        seed_dropout(self, 0)
        self.train()

    def _draw(self, seed: int, *, draws_encoder: bool) -> None:
        drawn: dict[str, nn.Module] = {"classifier": self.classifier}
        if draws_encoder:
            drawn["bert"] = self.bert
        initialize_weights(
            nn.ModuleDict(drawn), initializer_range=self.config.initializer_range, seed=seed
        )
        for number, layer in enumerate(self.lstm):
            assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
            layer.draw(f"lstm.{number}", seed=seed)

    def train(self, mode: bool = True) -> Self:
        """As every module's, but the encoder stays in evaluation mode."""
        super().train(mode)
        self.bert.eval()
        return self

    def forward(self, batch: TaskBatch, *, scale: float = 1.0) -> TaskOutput:
        """Logits of the tagged words (P, outputs), and the loss if the batch has labels.

        Args:
            batch: windows, on the model's device; their `positions` ascend.
            scale: what the sum of losses is multiplied by: 1 / labelled words of the whole batch.

        Raises:
            TrainingError: the batch has no positions, or a sequence is too long for the encoder.
        """
        positions = self._checked_positions(batch)
        with torch.no_grad():
            encoded = self.bert(batch.tokens, all_layers=True)
        with torch.autocast(positions.device.type, enabled=False):
            x = self.mix(encoded.layers, positions)  # (P, H), or (P, 4 H)
            starts = batch.tokens.starts
            window = torch.searchsorted(starts, positions, right=True) - 1  # (P,)
            x = self.dropouts[0](x)
            for layer, dropout in zip(self.lstm, list(self.dropouts)[1:], strict=True):
                assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
                x = dropout(layer.over_windows(x, window))  # (P, 2 L)
            logits = self.classifier(x)  # (P, outputs)
        if batch.labels is None:
            return TaskOutput(logits, None, None)
        total = functional.cross_entropy(
            logits, batch.labels, ignore_index=IGNORED, reduction="sum"
        )
        return TaskOutput(logits, total * scale, total.detach())

    def _checked_positions(self, batch: TaskBatch) -> torch.Tensor:
        if batch.positions is None:
            raise TrainingError("a batch without positions: expected one of a tagging task")
        longest = batch.tokens.padded_length or int(batch.tokens.lengths.max())
        if longest > self.config.max_position_embeddings:
            raise TrainingError(
                f"a sequence of {longest} tokens, padding included: the encoder has "
                f"{self.config.max_position_embeddings} positions; make features with a "
                "max_seq_length up to that"
            )
        return batch.positions


class StartedFeatureTagger(NamedTuple):
    """A tagger ready to be trained, and what a user should know of it, a sentence each."""

    model: FeatureTagger
    notes: tuple[str, ...]


class TunedFeatureTagger(NamedTuple):
    """A trained tagger read back, the names of its outputs, and what was said of it."""

    model: FeatureTagger
    labels: tuple[str, ...]
    about: dict[str, Any]


def start_feature_tagger(
    folder_url: str,
    *,
    outputs: int,
    layers: LayerChoice,
    lstm_size: int,
    dropout: float,
    seed: int,
) -> StartedFeatureTagger:
    """A tagger on the encoder of a checkpoint in Hugging Face's layout.

    Args:
        folder_url: the checkpoint's folder, a local path or any fsspec URL; it may be of a
            pretrained or a fine-tuned model. A causal encoder stays causal.
        outputs: tags.
        layers, lstm_size, dropout: see `FeatureTagger`.
        seed: decides the weights of LSTM and classifier.

    Raises:
        CheckpointError: there is none, it cannot be read, or it is no BERT that is had here.
        ConfigError: the encoder has fewer layers than `layers` needs.
    """
    started = start_task_model(
        folder_url, kind="tagging", outputs=outputs, dropout=dropout, seed=seed
    )
    encoder = started.model
    model = FeatureTagger(
        encoder.config,
        vocab_size=encoder.vocab_size,
        outputs=outputs,
        layers=layers,
        lstm_size=lstm_size,
        dropout=dropout,
        is_causal=encoder.is_causal,
        seed=seed,
        encoder=encoder.bert,
    )
    return StartedFeatureTagger(model, started.notes)


def save_feature_tagger(
    model: FeatureTagger, *, labels: Sequence[str], about: Mapping[str, Any], pad_token_id: int = 0
) -> dict[str, bytes]:
    """The files of a tagger by name. Equal models give equal bytes.

    transformers' `BertModel` loads the encoder from them; the rest is read by
    `load_feature_tagger` alone.

    Args:
        model: to be saved.
        labels: the tags in the order of the outputs.
        about: JSON values for config.json, under "bertloom".
        pad_token_id: id of [PAD].

    Raises:
        CheckpointError: not one label for each output, or `about` is not JSON.
    """
    if len(set(labels)) != model.outputs or len(labels) != model.outputs:
        raise CheckpointError(
            f"labels {tuple(labels)} for {model.outputs} outputs: expected as many different ones"
        )
    described = {
        **hf_config(
            model.config,
            vocab_size=model.vocab_size,
            objective="left-to-right" if model.is_causal else "mlm+nsp",
            pad_token_id=pad_token_id,
        ),
        "architectures": ["BertModel"],
        "id2label": {str(number): name for number, name in enumerate(labels)},
        "label2id": {name: number for number, name in enumerate(labels)},
        ABOUT_KEY: {"method": "features", **about},
        SHAPE_KEY: {
            "layers": model.layers,
            "lstm_size": model.lstm_size,
            "dropout": model.dropouts[0].rate,
        },
    }
    try:
        config = json.dumps(described, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"about: {error}: expected JSON values alone") from error
    tensors = hf_state(_encoder_parameters(model)) | _own_parameters(model)
    weights = save_tensors(dict(sorted(tensors.items())), metadata={"format": "pt"})
    return {CONFIG_FILE: config.encode(), WEIGHTS_FILE: weights}


def load_feature_tagger(folder_url: str) -> TunedFeatureTagger:
    """A trained tagger from its folder, a local path or any fsspec URL.

    The pooler, which it has no use for, is not saved; it is 0 here.

    Raises:
        CheckpointError: there is none, it cannot be read, or it is no feature-based tagger.
    """
    folder = folder_url.rstrip("/")
    described, where = read_config(folder)
    shape, about = described.get(SHAPE_KEY), described.get(ABOUT_KEY)
    if not isinstance(shape, dict) or not isinstance(about, dict):
        raise CheckpointError(
            f"{where}: no {SHAPE_KEY} or no {ABOUT_KEY}: expected a tagger that method: features "
            "made"
        )
    config, vocab_size, objective = model_config(described, where=where)
    state, weights_url = read_weights(folder)
    check_size(state, config, vocab_size=vocab_size, where=weights_url)
    labels = _labels(described, where=where)
    is_causal = objective == "left-to-right"
    # Its weights are zero, not drawn: all of them are in the file.
    encoder = BertModel(config, vocab_size=vocab_size, is_causal=is_causal)
    try:
        model = FeatureTagger(
            config,
            vocab_size=vocab_size,
            outputs=len(labels),
            layers=shape["layers"],
            lstm_size=int(shape["lstm_size"]),
            dropout=float(shape["dropout"]),
            is_causal=is_causal,
            encoder=encoder,
        )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"{where}: {SHAPE_KEY} is not that of a tagger: {error!r}") from error
    shapes = {f"{_ENCODER}{name}": value.shape for name, value in encoder.named_parameters()}
    theirs = {name: value for name, value in state.items() if name.startswith(_ENCODER)}
    found = from_hf_state(theirs, shapes, where=weights_url)
    found |= _own_tensors(model, state, where=weights_url)
    fill_parameters(model, found)
    return TunedFeatureTagger(model, labels, about)


def _encoder_parameters(model: FeatureTagger) -> dict[str, torch.Tensor]:
    """The encoder's but for the pooler, which nothing reads."""
    return {
        name: value
        for name, value in model.named_parameters()
        if name.startswith(_ENCODER) and not name.startswith("bert.pooler.")
    }


def _own_parameters(model: FeatureTagger) -> dict[str, torch.Tensor]:
    """All but the encoder's, on the CPU."""
    return {
        name: value.detach().cpu().contiguous()
        for name, value in model.named_parameters()
        if not name.startswith(_ENCODER)
    }


def _own_tensors(
    model: FeatureTagger, state: Mapping[str, torch.Tensor], *, where: str
) -> dict[str, torch.Tensor]:
    expected = {name: value.shape for name, value in _own_parameters(model).items()}
    given = {name: value for name, value in state.items() if not name.startswith(_ENCODER)}
    if set(given) != set(expected):
        raise CheckpointError(
            f"{where}: {some_of(set(given) ^ set(expected))}: missing or not known: expected the "
            f"tensors of a tagger with {model.layers}; the two files are not of one model"
        )
    for name, value in given.items():
        if value.shape != expected[name] or value.dtype != torch.float32:
            raise CheckpointError(
                f"{where}: {name} is {value.dtype} {tuple(value.shape)}, expected float32 "
                f"{tuple(expected[name])}: the two files are not of one model"
            )
    return given


def _labels(described: Mapping[str, Any], *, where: str) -> tuple[str, ...]:
    names = described.get("id2label")
    if not isinstance(names, dict) or set(names) != {str(at) for at in range(len(names))}:
        raise CheckpointError(
            f"{where}: id2label is {shown(names)}, expected a name for each output"
        )
    return tuple(str(names[str(number)]) for number in range(len(names)))
