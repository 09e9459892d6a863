"""Bidirectional LSTM layers that read each window of a batch by itself.

On a frozen encoder they make the feature-based tagger (paper 5.3), on one that is fine-tuned the
last row of Table 5.

Letters for shapes: R places that are read, I values of each, L units of an LSTM's direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.utils import rnn

from pipelines.seeds import key_for

_LAYERS = 2


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
                    parameter.zero_()
                    parameter[units : 2 * units].fill_(1.0)
                else:
                    parameter.zero_()

    def over_windows(self, x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        """What it makes of the places (R, I) of each window by itself: (R, 2 L).

        Args:
            x: the places' vectors, window by window.
            window: int64 (R,), ascending: the window of each place.
        """
        counts = torch.unique_consecutive(window, return_counts=True)[1].cpu()
        if not len(counts):
            return x.new_zeros((0, 2 * self.hidden_size))
        rows = rnn.pad_sequence(
            list(torch.split(x, counts.tolist())), batch_first=True
        )  # (B, W, I)
        packed = rnn.pack_padded_sequence(rows, counts, batch_first=True, enforce_sorted=False)
        outputs, _ = rnn.pad_packed_sequence(self(packed)[0], batch_first=True)  # (B, W, 2 L)
        is_real = torch.arange(outputs.shape[1])[None, :] < counts[:, None]  # (B, W)
        chosen: torch.Tensor = outputs[is_real.to(x.device)]
        return chosen


class BiLSTM(nn.ModuleList):
    """Two such layers, one on the other; zero until `draw` or a checkpoint fills them."""

    def __init__(self, inputs: int, *, units: int) -> None:
        sizes = (inputs, *[2 * units] * (_LAYERS - 1))
        super().__init__([WindowLSTM(size, units=units) for size in sizes])

    def draw(self, name: str, *, seed: int) -> None:
        """Draw all weights, each a function of (seed, `name` and its own, its shape) alone."""
        for number, layer in enumerate(self):
            assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
            layer.draw(f"{name}.{number}", seed=seed)

    def forward(
        self, x: torch.Tensor, window: torch.Tensor, *, between: Sequence[nn.Module]
    ) -> torch.Tensor:
        """(R, 2 L) of the places (R, I) of each window by itself.

        Args:
            x, window: as in `WindowLSTM.over_windows`.
            between: what a layer's outputs go through before the next one reads them.
        """
        for layer, after in zip(self, (*between, nn.Identity()), strict=True):
            assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
            x = after(layer.over_windows(x, window))
        return x
