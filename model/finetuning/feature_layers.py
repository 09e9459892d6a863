"""What the feature-based tagger puts on an encoder: a mix of its layers, and LSTM layers.

Letters for shapes as in `model.data.batches`; K layers put together, L units of an LSTM's
direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import torch
from torch import nn
from torch.nn.utils import rnn

from pipelines.seeds import key_for
from schemas.errors import ConfigError
from schemas.task_configs import LayerChoice


class LayerMix(nn.Module):
    """Vectors of words from the encoder's layers."""

    def __init__(self, choice: LayerChoice, *, layers: int, hidden_size: int) -> None:
        super().__init__()
        self.taken = _taken(choice, layers=layers)
        self.is_weighted = choice.startswith("weighted-sum")
        self.size = hidden_size * (len(self.taken) if choice == "concat-last-4" else 1)
        if self.is_weighted:  # gamma * sum of softmax(weights) * layer (Peters et al. 2018)
            self.weights = nn.Parameter(torch.zeros(len(self.taken)))
            self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[torch.Tensor], positions: torch.Tensor) -> torch.Tensor:
        """`layers`, each (T, H), at `positions` (P,): (P, H), or (P, 4 H) where concatenated."""
        found = [layers[number].index_select(0, positions).float() for number in self.taken]
        if not self.is_weighted:
            return torch.cat(found, dim=1)
        shares = torch.softmax(self.weights, dim=0)  # (K,)
        stacked = torch.stack(found)  # (K, P, H)
        return self.gamma * torch.einsum("k,kph->ph", shares, stacked)


def _taken(choice: LayerChoice, *, layers: int) -> tuple[int, ...]:
    """Numbers of the layers that are read; 0 is the embeddings, `layers` the last block's output.

    Raises:
        ConfigError: the encoder has too few.
    """
    if choice not in get_args(LayerChoice):
        known = ", ".join(get_args(LayerChoice))
        raise ConfigError(f"layers: no choice {choice!r}; choose from {known}")
    needed = 4 if choice.endswith("last-4") else 2 if choice == "second-to-last" else 1
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


class WindowLSTM(nn.LSTM):
    """One bidirectional layer that starts at zero: torch's start draws from the global
    generator, as its dropout between layers does."""

    def __init__(self, inputs: int, *, units: int) -> None:
        super().__init__(inputs, units, bidirectional=True, batch_first=True)

    def reset_parameters(self) -> None:
        """Set all weights to zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def draw(self, name: str, *, seed: int) -> None:
        """Weights uniform within 1 / sqrt(units), as torch's own start; biases 0, but 1 for the
        forget gates, which come second of four, so that a new layer remembers (Jozefowicz et al.
        2015)."""
        bound, units = 1 / math.sqrt(self.hidden_size), self.hidden_size
        with torch.no_grad():
            for inner, parameter in self.named_parameters():
                generator = torch.Generator()
                key = key_for(seed, "weights", f"{name}.{inner}", *parameter.shape)
                generator.manual_seed(key)
                if parameter.ndim == 2:
                    parameter.uniform_(-bound, bound, generator=generator)
                elif inner.startswith("bias_ih"):  # there are two biases, which are added up
                    parameter[units : 2 * units].fill_(1.0)

    def over_windows(self, x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        """What it makes of the words (P, I) of each window by itself: (P, 2 L).

        Args:
            x: the words' vectors, window by window.
            window: int64 (P,), ascending: the window of each word.
        """
        counts = torch.unique_consecutive(window, return_counts=True)[1].cpu()
        if not len(counts):
            return x.new_zeros((0, 2 * self.hidden_size))
        rows = rnn.pad_sequence(
            list(torch.split(x, counts.tolist())), batch_first=True
        )  # (B, W, I)
        packed = rnn.pack_padded_sequence(rows, counts, batch_first=True, enforce_sorted=False)
        outputs, _ = rnn.pad_packed_sequence(self(packed)[0], batch_first=True)  # (B, W, 2 L)
        is_word = torch.arange(outputs.shape[1])[None, :] < counts[:, None]  # (B, W)
        chosen: torch.Tensor = outputs[is_word.to(x.device)]
        return chosen
