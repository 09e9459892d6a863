"""Bidirectional LSTM layers that read each window of a batch separately.

On a frozen encoder they form the feature-based tagger (paper 5.3), on a fine-tuned one the last row
of Table 5.

Letters for shapes: R positions, I values per position, L units per LSTM direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from pipelines.seeds import key_for

_LAYERS = 2


class WindowLSTM(nn.LSTM):
    """Bidirectional layer initialized to zero: torch's initialization and its dropout between
    layers draw from the global generator."""

    def __init__(self, inputs: int, *, units: int) -> None:
        super().__init__(inputs, units, bidirectional=True, batch_first=True)

    def reset_parameters(self) -> None:
        """Set all weights to zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def draw(self, name: str, *, seed: int) -> None:
        """Draw weights uniformly within 1 / sqrt(units), like torch; set biases to 0, but to 1 for
        the forget gates (second of four), so that a new layer remembers (Jozefowicz et al.
        2015)."""
        bound, units = 1 / math.sqrt(self.hidden_size), self.hidden_size
        with torch.no_grad():
            for inner, parameter in self.named_parameters():
                generator = torch.Generator()
                key = key_for(seed, "weights", f"{name}.{inner}", *parameter.shape)
                generator.manual_seed(key)
                if parameter.ndim == 2:
                    parameter.uniform_(-bound, bound, generator=generator)
                elif inner.startswith("bias_ih"):  # the two biases are added
                    parameter.zero_()
                    parameter[units : 2 * units].fill_(1.0)
                else:
                    parameter.zero_()

    def over_windows(self, x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        """Return the outputs (R, 2 L) for positions (R, I), each window separately.

        Args:
            x: Vectors of the positions, window by window.
            window: Window of each position, ascending; int64 (R,).
        """
        _, of, counts = torch.unique_consecutive(window, return_inverse=True, return_counts=True)
        if not len(counts):
            return x.new_zeros((0, 2 * self.hidden_size))
        last = counts.cumsum(0) - 1
        here = torch.arange(len(x), device=x.device)
        mirrored = (2 * last - counts + 1)[of] - here  # index in the reversed window
        width = int(counts.max())
        is_real = torch.arange(width, device=x.device)[None, :] < counts[:, None]  # (B, W)
        forward = self._read(x, is_real, backward=False)
        backward = self._read(x[mirrored], is_real, backward=True)
        return torch.cat([forward, backward[mirrored]], dim=1)

    def _read(self, x: torch.Tensor, is_real: torch.Tensor, *, backward: bool) -> torch.Tensor:
        """Return the outputs (R, L) of one direction for positions (R, I) in reading order.

        Windows are padded at their ends. On a CPU this takes a quarter of the time of packed
        sequences, for which torch has no fused kernel (bench_bilstm).
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
    """Two stacked layers; zero until `draw` or a checkpoint sets them."""

    def __init__(self, inputs: int, *, units: int) -> None:
        sizes = (inputs, *[2 * units] * (_LAYERS - 1))
        super().__init__([WindowLSTM(size, units=units) for size in sizes])

    def draw(self, name: str, *, seed: int) -> None:
        """Initialize all weights; each depends only on seed, full name and shape."""
        for number, layer in enumerate(self):
            assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
            layer.draw(f"{name}.{number}", seed=seed)

    def forward(
        self, x: torch.Tensor, window: torch.Tensor, *, between: Sequence[nn.Module]
    ) -> torch.Tensor:
        """Return the outputs (R, 2 L) for positions (R, I), each window separately.

        Args:
            x, window: See `WindowLSTM.over_windows`.
            between: Function applied to the outputs of the first layer.
        """
        for layer, after in zip(self, (*between, nn.Identity()), strict=True):
            assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
            x = after(layer.over_windows(x, window))
        return x
