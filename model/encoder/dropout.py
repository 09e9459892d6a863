"""Keyed dropout that is fast on a CPU (Srivastava et al. 2014).

torch's CPU dropout draws one Bernoulli number per element from the global generator, which takes
longer than the other pointwise operations of a transformer block. Here every `Dropout` has its own
generator, and each 64-bit draw decides four elements, which is 1.4 to 1.6 times as fast
(`benchmarks/bench_kernels.py`). An element is dropped if 16 random bits are below
`round(rate * 65536)`, so the rate is exact to 2**-17.

On CUDA, torch's kernels draw from the device's generator, and `seed_dropout` seeds only that one.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from model.encoder.compilation import eager
from pipelines.seeds import key_for

_LEVELS = 1 << 16  # values of 16 random bits
_LOWEST = -(1 << 15)
_LOWEST_64 = -(1 << 63)


class Dropout(nn.Module):
    """Sets each element to 0 with probability `rate` and scales the others by 1 / (1 - rate).

    Does nothing in evaluation mode or with rate 0. Draws on the CPU depend only on the key given to
    `seed_dropout`, the module's name and the number of earlier draws.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator = torch.Generator()
        self.generator.manual_seed(0)

    @property
    def dropped_levels(self) -> int:
        """Number of 16-bit values (of 65,536) that mean drop; at most 65,535."""
        return min(round(self.rate * _LEVELS), _LEVELS - 1)

    @property
    def scale(self) -> float:
        """Factor of kept elements on the CPU, which preserves the mean."""
        return _LEVELS / (_LEVELS - self.dropped_levels)

    @property
    def active(self) -> bool:
        """Return whether forward passes currently drop elements."""
        return self.training and self.rate > 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`, of any shape, with dropout."""
        if not self.active:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.rate, training=True)
        dropped: torch.Tensor = x * self.draw_scaled(x.shape)
        return dropped

    def add(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        *,
        rows: torch.Tensor | None = None,
        num_rows: int = 0,
    ) -> torch.Tensor:
        """Return residual + dropout(x) of the same shape, in one pass on the CPU.

        If `x` has only some `rows` of a tensor of `num_rows` rows, a CPU draws for all of them, so
        that the result of a row does not depend on which others there are.
        """
        if not self.active:
            return residual + x
        if x.device.type != "cpu":
            return residual + functional.dropout(x, self.rate, training=True)
        if rows is None:
            scaled = self.draw_scaled(x.shape)
        else:
            all_rows = self.draw_scaled(torch.Size([num_rows, *x.shape[1:]]))
            scaled = all_rows.index_select(0, rows)
        return torch.addcmul(residual, x, scaled)

    @eager  # a compiled graph cannot hold a generator
    def draw_scaled(self, shape: torch.Size) -> torch.Tensor:
        """Return float32 of the shape: 0 with probability `rate`, otherwise `scale`."""
        return self.draw_kept(shape).mul_(self.scale)

    def draw_kept(self, shape: torch.Size) -> torch.Tensor:
        """Return float32 of the shape: 0 with probability `rate`, otherwise 1. CPU only."""
        size = math.prod(shape)
        bits = torch.empty(-(-size // 4), dtype=torch.int64)
        # Without bounds, random_ leaves the sign bit 0, which would keep every fourth element.
        bits.random_(_LOWEST_64, None, generator=self.generator)
        kept = torch.empty(shape)
        lowest_kept = _LOWEST + self.dropped_levels
        # The comparison writes floats itself: torch converts booleans to floats more slowly.
        torch.ge(bits.view(torch.int16)[:size], lowest_kept, out=kept.view(-1))
        return kept

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def seed_dropout(model: nn.Module, key: int) -> None:
    """Make every dropout draw of the following forward passes a function of `key` (64 bits).

    On a CPU, each `Dropout` in `model` is seeded with the key and its name, so that new modules do
    not change the draws of others; torch's CPU generator uses 32 bits of a seed. A model on CUDA
    draws from the default generator of its device, which is seeded with the key. The CPU's global
    generator is never touched.
    """
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.is_cuda:
        with torch.cuda.device(parameter.device):
            torch.cuda.manual_seed(key)
        return
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            module.generator.manual_seed(key_for(key, "dropout", _plain(name)))


def _plain(name: str) -> str:
    """Return a module's name without the prefixes of torch.compile and DistributedDataParallel."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "module"))
