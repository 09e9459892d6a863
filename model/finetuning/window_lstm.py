"""Bidirectional LSTM layers that read each window of a batch separately.

CUDA computes both directions of all windows in one call on packed sequences. On a CPU, for which
torch has no fused kernel for them, padded rows take 15 to 65 % of their time (bench_bilstm).

On a frozen encoder they form the feature-based tagger (paper 5.3), on a fine-tuned one the last row
of Table 5.

Letters for shapes: B windows, W positions of the longest, R positions of all, I values per
position, L units per LSTM direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from model.finetuning.batches import device_tensor
from pipelines.arrays import Int64s
from pipelines.seeds import key_for

_LAYERS = 2


class Windows(NamedTuple):
    """Windows of a batch as rows of equal length, for the forward and the backward direction.

    Attributes:
        shape: B windows and W positions of the longest one.
        rows: Position in R of each place of the rows, int64 (2, B W); 0 in padding, which comes
            last.
        places: Place of each position, int64 (2, R); 0 for positions of no window.
    """

    shape: tuple[int, int]
    rows: torch.Tensor
    places: torch.Tensor


class PackedWindows(NamedTuple):
    """Windows of a batch in the order of torch's `PackedSequence`: by step, longest window first.

    Attributes:
        rows: Position in R of each packed row, int64 (n,).
        places: Packed row of each position, int64 (R,); 0 for positions of no window.
        sizes: Number of windows that have each step, int64 (W,), on the host.
    """

    rows: torch.Tensor
    places: torch.Tensor
    sizes: torch.Tensor


def lay_out_windows(
    starts: Int64s, lengths: Int64s, *, positions: int, device: torch.device
) -> Windows | PackedWindows:
    """Return the layout of windows. It is computed on the host, so that a GPU is not waited for.

    Args:
        starts: First position of each window, (B,).
        lengths: Number of its positions, at least 1, (B,).
        positions: R.
        device: Device of the tensors.
    """
    lay_out = pack_windows if device.type == "cuda" else pad_windows
    return lay_out(starts, lengths, positions=positions, device=device)


def pack_windows(
    starts: Int64s, lengths: Int64s, *, positions: int, device: torch.device
) -> PackedWindows:
    """Return the layout of windows as a packed sequence; see `lay_out_windows`."""
    order = np.argsort(-lengths, kind="stable")
    steps = np.arange(int(lengths.max(initial=0)))[:, None]  # (W, 1)
    is_real = steps < lengths[order]  # (W, B)
    rows = (starts[order] + steps)[is_real]
    places = np.zeros(positions, np.int64)
    places[rows] = np.arange(len(rows))
    sizes = torch.from_numpy(is_real.sum(axis=1))
    return PackedWindows(device_tensor(rows, device), device_tensor(places, device), sizes)


def pad_windows(
    starts: Int64s, lengths: Int64s, *, positions: int, device: torch.device
) -> Windows:
    """Return the layout of windows as padded rows; see `lay_out_windows`."""
    width = int(lengths.max(initial=0))
    steps = np.arange(width)
    is_real = steps < lengths[:, None]  # (B, W)
    order = np.stack([is_real * steps, is_real * (lengths[:, None] - 1 - steps)])
    rows = (is_real * starts[:, None] + order).reshape(2, -1)  # (2, B W)
    places = np.zeros((2, positions), np.int64)
    real = np.flatnonzero(is_real)
    for own, target in zip(rows, places, strict=True):
        target[own[real]] = real
    return Windows(
        (len(lengths), width), device_tensor(rows, device), device_tensor(places, device)
    )


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

    def over_windows(self, x: torch.Tensor, windows: Windows | PackedWindows) -> torch.Tensor:
        """Return the outputs (R, 2 L) for positions (R, I), each window separately."""
        if not windows.rows.numel():
            return x.new_zeros((0, 2 * self.hidden_size))
        if isinstance(windows, PackedWindows):
            packed = PackedSequence(x.index_select(0, windows.rows), windows.sizes)
            read: torch.Tensor = self(packed)[0].data
            return read.index_select(0, windows.places)
        directions = zip(("", "_reverse"), windows.rows, windows.places, strict=True)
        outputs = []
        for suffix, rows, places in directions:
            padded = x.index_select(0, rows).view(*windows.shape, -1)  # (B, W, I)
            of_rows = self._read(padded, suffix).flatten(0, 1)  # (B W, L)
            outputs.append(of_rows.index_select(0, places))
        return torch.cat(outputs, dim=1)

    def _read(self, x: torch.Tensor, suffix: str) -> torch.Tensor:
        """Return the outputs (B, W, L) of one direction for rows (B, W, I) in its order."""
        start = x.new_zeros((1, len(x), self.hidden_size))
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        outputs, _, _ = torch.lstm(
            x,
            (start, start),
            [getattr(self, name + suffix) for name in names],
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=self.training,
            bidirectional=False,
            batch_first=True,
        )
        read: torch.Tensor = outputs
        return read


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
        self, x: torch.Tensor, windows: Windows | PackedWindows, *, between: Sequence[nn.Module]
    ) -> torch.Tensor:
        """Return the outputs (R, 2 L) for positions (R, I), each window separately.

        Args:
            x, windows: See `WindowLSTM.over_windows`.
            between: Function applied to the outputs of the first layer.
        """
        for layer, after in zip(self, (*between, nn.Identity()), strict=True):
            assert isinstance(layer, WindowLSTM)  # noqa: S101  # a ModuleList forgets
            x = after(layer.over_windows(x, windows))
        return x
