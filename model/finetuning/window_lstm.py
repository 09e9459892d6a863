"""Bidirectional LSTM layers that read each window of a batch separately.

On a frozen encoder they form the feature-based tagger (paper 5.3), on a fine-tuned one the last row
of Table 5.

Letters for shapes: R positions of all windows, I values per position, L units per LSTM direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence

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

    def over_windows(self, x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Return the outputs (R, 2 L) for positions (R, I), each window separately.

        Args:
            x: Positions of all windows, end to end.
            lengths: Number of positions of each window, at least 1.
        """
        if not lengths:
            return x.new_zeros((0, 2 * self.hidden_size))
        windows = list(torch.split(x, list(lengths)))
        # A CPU reads padded rows about three times as fast as packed ones (bench_bilstm).
        return self.read_packed(windows) if x.is_cuda else self.read_padded(windows)

    def read_packed(self, windows: list[torch.Tensor]) -> torch.Tensor:
        """Return the outputs by torch's packed sequences, for which CUDA has a fused kernel."""
        packed, _ = self(pack_sequence(windows, enforce_sorted=False))
        padded, _ = pad_packed_sequence(packed, batch_first=True)
        return torch.cat(_cut_rows(padded, windows))

    def read_padded(self, windows: list[torch.Tensor]) -> torch.Tensor:
        """Return the outputs by padded rows, one direction after the other."""
        backwards = [window.flip(0) for window in windows]
        outputs = zip(self._read(windows, ""), self._read(backwards, "_reverse"), strict=True)
        return torch.cat([torch.cat([one, other.flip(0)], dim=1) for one, other in outputs])

    def _read(self, windows: list[torch.Tensor], suffix: str) -> list[torch.Tensor]:
        """Return the outputs (length, L) of one direction for windows (length, I) in its order."""
        start = windows[0].new_zeros((1, len(windows), self.hidden_size))
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        outputs, _, _ = torch.lstm(
            pad_sequence(windows, batch_first=True),
            (start, start),
            [getattr(self, name + suffix) for name in names],
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=self.training,
            bidirectional=False,
            batch_first=True,
        )
        return _cut_rows(outputs, windows)


def _cut_rows(padded: torch.Tensor, windows: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the rows without padding. `unpad_sequence` makes a GPU wait, because it uses masks."""
    return [row[: len(window)] for row, window in zip(padded, windows, strict=True)]


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
        self, x: torch.Tensor, lengths: Sequence[int], *, between: Sequence[nn.Module]
    ) -> torch.Tensor:
        """Return the outputs (R, 2 L) for positions (R, I), each window separately.

        Args:
            x, lengths: See `WindowLSTM.over_windows`.
            between: Function applied to the outputs of the first layer.
        """
        for layer, after in zip(self, (*between, nn.Identity()), strict=True):
            assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
            x = after(layer.over_windows(x, lengths))
        return x
