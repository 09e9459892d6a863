"""Dropout whose draws belong to a key, and are cheap on a CPU (Srivastava et al. 2014).

torch's own CPU dropout draws one Bernoulli number an element from the global generator, which takes
longer than the rest of a transformer block's pointwise work. Here every `Dropout` has a generator
of its own, and each 64-bit draw decides four elements. An element is dropped where 16 random bits
are below `round(rate * 65536)`, so the rate is exact to 2**-17.

On CUDA the draws are those of torch's kernels, which take them from the device's generator:
`seed_dropout` seeds that one too.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from pipelines.seeds import key_for

_LEVELS = 1 << 16  # values of 16 random bits
_LOWEST = -(1 << 15)
_LOWEST_64 = -(1 << 63)


class Dropout(nn.Module):
    """Sets each element to 0 with probability `rate` and scales the others by 1 / (1 - rate).

    In evaluation mode, or with rate 0, nothing is drawn and nothing changed. Draws on the CPU are a
    function of the key given to `seed_dropout`, the module's name and how often it drew since.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator = torch.Generator()
        self.generator.manual_seed(0)

    @property
    def dropped_levels(self) -> int:
        """Of the 65,536 values of 16 random bits, those that drop; at least one is left to keep."""
        return min(round(self.rate * _LEVELS), _LEVELS - 1)

    @property
    def scale(self) -> float:
        """What kept elements are multiplied by on the CPU: so much that means stay as they are."""
        return _LEVELS / (_LEVELS - self.dropped_levels)

    @property
    def active(self) -> bool:
        """Whether forward passes draw anything now."""
        return self.training and self.rate > 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` of any shape, with dropout."""
        if not self.active:
            return x
        if x.is_cuda:
            return functional.dropout(x, self.rate, training=True)
        dropped: torch.Tensor = x * self.draw_scaled(x)
        return dropped

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """residual + dropout(x), in one pass on the CPU; both have the same shape."""
        if not self.active:
            return residual + x
        if x.is_cuda:
            return residual + functional.dropout(x, self.rate, training=True)
        return torch.addcmul(residual, x, self.draw_scaled(x))

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # a compiled graph cannot hold a generator
    def draw_scaled(self, like: torch.Tensor) -> torch.Tensor:
        """float32 of the same shape: 0 with probability `rate`, otherwise `scale`."""
        return self.draw_kept(like.shape).mul_(self.scale)

    def draw_kept(self, shape: torch.Size) -> torch.Tensor:
        """float32 of the shape: 0 with probability `rate`, otherwise 1. On the CPU only."""
        size = math.prod(shape)
        bits = torch.empty(-(-size // 4), dtype=torch.int64)
        # Without bounds random_ leaves the sign bit 0, and every fourth element would be kept.
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

    Each `Dropout` in `model` is seeded with the key and its own name, so that modules can be added
    without changing the draws of others; torch's CPU generator uses 32 bits of such a seed. Where
    parameters of the model are on CUDA devices, torch's generator of each such device is seeded
    with the key, since its kernels draw from no other. The CPU's global generator is never touched.
    """
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            module.generator.manual_seed(key_for(key, "dropout", _plain(name)))
    for device in {parameter.device for parameter in model.parameters() if parameter.is_cuda}:
        with torch.cuda.device(device):
            torch.cuda.manual_seed(key_for(key, "dropout"))


def _plain(name: str) -> str:
    """A module's name without what torch.compile and DistributedDataParallel put into it."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "module"))
