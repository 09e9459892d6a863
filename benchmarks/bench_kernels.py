"""Own kernels on a CPU next to the plain PyTorch form that they replace.

    python -m benchmarks.bench_kernels [--threads 1] [--repeat 15] [--part NAME ...]

Each part times forward and backward of both sides in turn, by processor time, and prints the median
of the ratios. A kernel stays only if it is at least 1.15 times as fast, and its docstring says the
figure. Shapes are those of a micro-batch of 4,096 tokens of `mini` (H=256, 4 heads) and of `base`
(H=768, 12 heads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bench_pretraining import packing_lengths
from benchmarks.timing import cpu_seconds, parser_for, ratio, take_turns
from model.encoder.attention import SelfAttention
from model.encoder.attention_layout import attention_layout
from model.encoder.dropout import Dropout
from schemas.model_configs import ModelConfig

TOKENS = 4_096
RATE = 0.1
CPU = torch.device("cpu")
Step = Callable[[], object]
Sides = Iterator[tuple[str, Step, Step]]
"""Name of a case, our step, the plain step."""


def config_of(preset: str) -> ModelConfig:
    return ModelConfig.model_validate({"preset": preset})


def backward(function: Callable[[], Tensor]) -> Tensor:
    """Run forward and backward."""
    output = function()
    output.backward(torch.ones_like(output))
    return output


class _NoDense(nn.Linear):
    """Stands for the dense layers around attention, which both sides have in common."""

    def __init__(self, *_: int) -> None:
        nn.Module.__init__(self)

    def forward(self, input: Tensor) -> Tensor:
        return input


def attention() -> Sides:
    """Groups of instances, against one padded call of scaled_dot_product_attention."""
    full = np.full(TOKENS // 128, 128)
    mixed = packing_lengths(None, count=12)
    for preset in ("mini", "base"):
        for fill, lengths in (("full 128", full), ("mixed 512", mixed)):
            for rate in (RATE, 0.0):
                config = config_of(preset).model_copy(update={"attention_probs_dropout_prob": rate})
                ours = SelfAttention(config, is_causal=False, dense=_NoDense)
                x = torch.randn(int(lengths.sum()), 3 * config.hidden_size, requires_grad=True)
                layout = attention_layout(
                    lengths,
                    heads=ours.heads,
                    device=CPU,
                    flash=False,
                    has_dropout=rate > 0,
                )
                yield (
                    f"{preset}, {fill}, dropout {rate:g}",
                    partial(backward, partial(ours, x, layout)),
                    partial(backward, partial(plain_attention, ours, x, lengths, rate)),
                )


def plain_attention(
    module: SelfAttention, x: Tensor, lengths: npt.NDArray[np.int64], rate: float
) -> Tensor:
    longest = int(lengths.max())
    real = torch.arange(longest) < torch.from_numpy(lengths)[:, None]  # (B, L)
    rows = x
    if not bool(real.all()):
        padded = rows.new_zeros(*real.shape, rows.shape[1])
        padded[real] = rows
        rows = padded
    query, key, value = rows.view(*real.shape, 3, module.heads, -1).permute(2, 0, 3, 1, 4)
    mask = None if bool(real.all()) else real[:, None, None, :]
    context = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=rate
    )
    return context.transpose(1, 2).flatten(2)[real]  # (T, H)


def dropout() -> Sides:
    """`Dropout.add` against functional.dropout."""
    for preset in ("mini", "base"):
        shape = (TOKENS, config_of(preset).hidden_size)
        x, residual = torch.randn(shape, requires_grad=True), torch.randn(shape)
        yield (
            preset,
            partial(backward, partial(Dropout(RATE).add, x, residual)),
            partial(backward, lambda x=x, r=residual: r + functional.dropout(x, RATE)),
        )


PARTS: dict[str, Callable[[], Sides]] = {
    "attention": attention,
    "dropout": dropout,
}


def main() -> None:
    parser = parser_for(__doc__, repeat=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", nargs="*", choices=[*PARTS], default=[*PARTS])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {arguments.threads} threads, processor time")
    for part in arguments.part:
        for name, ours, plain in PARTS[part]():
            sides = {"ours": partial(cpu_seconds, ours), "plain": partial(cpu_seconds, plain)}
            own, other = take_turns(sides, repeat=arguments.repeat, warmup=2).values()
            times = f"{median(own) * 1e3:9.1f} ms, plain {median(other) * 1e3:9.1f} ms"
            print(f"{part:10} {name:30} {times}: {ratio(own, other)}", flush=True)


if __name__ == "__main__":
    main()
