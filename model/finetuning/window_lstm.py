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
        _, of, counts = torch.unique_consecutive(window, return_inverse=True, return_counts=True)
        if not len(counts):
            return x.new_zeros((0, 2 * self.hidden_size))
        last = counts.cumsum(0) - 1
        here = torch.arange(len(x), device=x.device)
        mirrored = (2 * last - counts + 1)[of] - here  # each place's in its window read backwards
        width = int(counts.max())
        is_real = torch.arange(width, device=x.device)[None, :] < counts[:, None]  # (B, W)
        forward = self._read(x, is_real, backward=False)
        backward = self._read(x[mirrored], is_real, backward=True)
        return torch.cat([forward, backward[mirrored]], dim=1)

    def _read(self, x: torch.Tensor, is_real: torch.Tensor, *, backward: bool) -> torch.Tensor:
        """What one direction makes of the places (R, I) in the order that it reads them in: (R, L).

        Windows are filled up at their ends, which no real place is read after. On a CPU this takes
        a quarter of the time of packed sequences, which no fused kernel reads (bench_bilstm).
        """
        rows = x.new_zeros((*is_real.shape, x.shape[1])).masked_scatter(is_real[:, :, None], x)
        start = x.new_zeros((1, len(rows), self.hidden_size))
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(self, name + "_reverse" * backward) for name in names]
        outputs, _, _ = torch.lstm(
            rows,
            (start, start),
            weights,
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=self.training,
            bidirectional=False,
            batch_first=True,
        )  # (B, W, L)
        chosen: torch.Tensor = outputs[is_real]
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
