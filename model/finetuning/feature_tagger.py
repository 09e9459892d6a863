"""Feature-based tagger (paper 5.3, Table 7): a BiLSTM on layers of a frozen encoder.

The encoder has no dropout. Its layers are combined in one of six ways; two bidirectional LSTM
layers and a dense layer read the result.

The LSTM reads the first word piece of each word, one step per word, like the LSTM taggers in the
paper's table. The other pieces have no label, and the encoder has already mixed them into the first
piece. The LSTM reads only the words that are tagged in a window and never crosses windows, so in
documents longer than a window its context is shorter than the encoder's.

Letters for shapes as in `model.data.batches`; K combined layers, L units per LSTM direction.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import nn

from model.attention import Dropout, seed_dropout
from model.bert import BertModel, Dense, initialize_weights
from model.finetuning.batches import TaskBatch, TaskOutput
from model.finetuning.task_model import add_loss
from model.finetuning.window_lstm import BiLSTM, lay_out_windows
from schemas.errors import ConfigError
from schemas.finetune_configs import MIN_LAYERS, LayerChoice, TaskTypeName


class LayerMix(nn.Module):
    """Combination of the encoder's layers into word vectors."""

    def __init__(self, choice: LayerChoice, *, layers: int, hidden_size: int) -> None:
        super().__init__()
        self.taken = _taken(choice, layers=layers)
        self.is_weighted = choice.startswith("weighted-sum")
        self.size = hidden_size * (len(self.taken) if choice == "concat-last-4" else 1)
        if self.is_weighted:  # gamma * sum of softmax(weights) * layer (Peters et al. 2018)
            self.weights = nn.Parameter(torch.zeros(len(self.taken)))
            self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, layers: torch.Tensor) -> torch.Tensor:
        """Combine the layers `taken` (P, K, H): (P, H), or (P, 4 H) if concatenated."""
        if not self.is_weighted:
            return layers.flatten(1)
        shares = torch.softmax(self.weights, dim=0)  # (K,)
        return self.gamma * torch.einsum("k,pkh->ph", shares, layers)


def _taken(choice: LayerChoice, *, layers: int) -> tuple[int, ...]:
    """Return the numbers of the layers to read; 0 is the embeddings, `layers` the last block.

    Raises:
        ConfigError: The encoder has too few layers.
    """
    needed = MIN_LAYERS[choice]
    if layers < needed:
        raise ConfigError(
            f"layers: {choice} needs an encoder of at least {needed} layers, this one has "
            f"{layers}: choose last, weighted-sum-all or embeddings, or take a larger encoder"
        )
    if choice == "embeddings":
        return (0,)
    if choice == "weighted-sum-all":
        return tuple(range(1, layers + 1))
    if choice == "second-to-last":
        return (layers - 1,)
    return tuple(range(layers + 1 - needed, layers + 1))


class FeatureTagger(nn.Module):
    """Frozen encoder, two bidirectional LSTM layers, and a dense layer.

    Dropout applies before, between and after the LSTM layers. The LSTM computes in float32, also
    under autocast.

    Attributes:
        bert: Encoder; requires no gradients and is always in evaluation mode.
        mix: Combination of its layers; has trained weights only for the weighted sums.
        lstm: Two bidirectional LSTM layers.
        classifier: Dense layer on 2 L values per word.
        kind, outputs, config, vocab_size, is_causal: See `model.finetuning.task_model.TaskModel`.
        layers, lstm_hidden_size: Constructor arguments.

    Raises:
        ConfigError: The encoder has fewer layers than `layers` needs.
    """

    kind: TaskTypeName = "tagging"

    def __init__(
        self,
        encoder: BertModel,
        *,
        vocab_size: int,
        outputs: int,
        layers: LayerChoice = "concat-last-4",
        lstm_hidden_size: int = 768,
        dropout: float = 0.1,
        is_causal: bool = False,
        seed: int = 0,
    ) -> None:
        """Build a new tagger on an encoder.

        Args:
            encoder: Encoder; its weights become constants.
            vocab_size: Number of word pieces of the encoder.
            outputs: Number of tags.
            layers: Layers of the encoder to read (Table 7).
            lstm_hidden_size: L.
            dropout: Dropout rate around the LSTM layers.
            is_causal: Whether the encoder is causal.
            seed: Seed of the weights of LSTM and classifier.
        """
        super().__init__()
        config = self.config = encoder.config
        self.vocab_size = vocab_size
        self.outputs = outputs
        self.layers: LayerChoice = layers
        self.lstm_hidden_size = lstm_hidden_size
        self.is_causal = is_causal
        self.mix = LayerMix(layers, layers=config.num_hidden_layers, hidden_size=config.hidden_size)
        self.bert = encoder.requires_grad_(False)
        self.lstm = BiLSTM(self.mix.size, units=lstm_hidden_size)
        self.dropouts = nn.ModuleList([Dropout(dropout) for _ in range(len(self.lstm) + 1)])
        self.classifier = Dense(2 * lstm_hidden_size, outputs)
        drawn = nn.ModuleDict({"classifier": self.classifier})
        initialize_weights(drawn, initializer_range=config.initializer_range, seed=seed)
        self.lstm.draw("lstm", seed=seed)
        seed_dropout(self, 0)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Set the mode; the encoder stays in evaluation mode."""
        super().train(mode)
        self.bert.eval()
        return self

    def forward(self, batch: TaskBatch, *, scale: float = 1.0) -> TaskOutput:
        """Return the logits of the tagged words (P, outputs), and the loss if the batch has labels.

        Args:
            batch: Windows on the model's device, with ascending `positions`.
            scale: Factor of the summed loss: 1 / labeled words of the global batch.
        """
        counts = batch.position_counts
        assert counts is not None  # noqa: S101  # for mypy
        encoded = self.encode(batch) if batch.encoded is None else batch.encoded
        with torch.autocast(encoded.device.type, enabled=False):
            x = self.mix(encoded)  # (P, H), or (P, 4 H)
            counts = counts[counts > 0]
            windows = lay_out_windows(
                np.cumsum(counts) - counts, counts, positions=len(x), device=x.device
            )
            before, *between, after = self.dropouts
            x = after(self.lstm(before(x), windows, between=between))  # (P, 2 L)
            logits = self.classifier(x)  # (P, outputs)
        return add_loss(logits, batch, kind="tagging", scale=scale)

    def encode(self, batch: TaskBatch) -> torch.Tensor:
        """Return the layers that `mix` combines at the tagged words, float32 (P, K, H).

        They are constants of a training, whose encoder is frozen and has no dropout.
        """
        assert batch.positions is not None  # noqa: S101  # for mypy
        with torch.no_grad():
            layers = self.bert(batch.tokens, all_layers=True).layers
            taken = [layers[number].index_select(0, batch.positions) for number in self.mix.taken]
            return torch.stack(taken, dim=1).float()
