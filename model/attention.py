"""Self-attention over packed instances (Vaswani et al. 2017, 3.2), its layout, and dropout.

Dense layers see flat tokens. Only attention separates instances.

On the CPU, instances of similar length form a group, computed as one batched matrix product per
head. A group of one instance, or of consecutive instances of equal length, is read without a copy.
On CUDA in half precision, one flash kernel for variable lengths computes all instances; otherwise
one padded call of `scaled_dot_product_attention`. Padding does not take part in attention.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from model.data.batches import to_device
from pipelines.arrays import offsets_of
from pipelines.seeds import key_for
from schemas.model_configs import ModelConfig

P = ParamSpec("P")
R = TypeVar("R")


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Exclude a function from compilation, like `torch.compiler.disable`.

    torch's decorator loads the compiler, which takes as long as torch itself, also in processes
    that compile nothing.
    """
    excluded: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not excluded:
            excluded.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return excluded[0](*args, **kwargs)

    return call


_LEVELS = 1 << 16  # values of 16 random bits
_LOWEST = -(1 << 15)
_LOWEST_64 = -(1 << 63)


class Dropout(nn.Module):
    """Sets each element to 0 with probability `rate` and scales the others by 1 / (1 - rate).

    Does nothing in evaluation mode or with rate 0. Draws on the CPU depend only on the key given to
    `seed_dropout`, the module's name and the number of earlier draws.

    torch's CPU dropout (Srivastava et al. 2014) draws one Bernoulli number per element from the
    global generator, which takes longer than the other pointwise operations of a transformer block.
    Here every `Dropout` has its own generator, and each 64-bit draw decides four elements, which is
    1.4 to 1.6 times as fast (`benchmarks/bench_kernels.py`). An element is dropped if 16 random
    bits are below `round(rate * 65536)`, so the rate is exact to 2**-17.

    On CUDA, torch's kernels draw from the device's generator, and `seed_dropout` seeds only that.
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


_GROUP_COST = 10_000
"""Overhead of one more group, in attention scores that take the same time."""

_GROUP_SCORES = 1 << 20
"""Maximum number of attention scores per group with dropout, whose probabilities stay in the caches
of a CPU. Without dropout, torch's flash kernel reads any number of scores in small blocks."""


class InstanceGroup(NamedTuple):
    """Instances that are computed together, each in a row of length L.

    Attributes:
        rows: Number of instances, b.
        length: Length of the longest instance, L.
        first: Index in T of the first token if the instances are contiguous and all have L tokens;
            otherwise -1. The fields below are set only if it is -1.
        tokens: Token at each position, int64 of shape (b * L,); past the end of an instance, its
            first token.
        places: Positions that hold a token, ascending; int64 of shape (n,).
        place_tokens: Tokens at `places`, int64 of shape (n,).
        past_end: float32 of shape (b, 1, L): -inf past the end of an instance, otherwise 0; None if
            all instances have the same length.
    """

    rows: int
    length: int
    first: int
    tokens: torch.Tensor | None = None
    places: torch.Tensor | None = None
    place_tokens: torch.Tensor | None = None
    past_end: torch.Tensor | None = None


class AttentionLayout(NamedTuple):
    """Layout of a batch, built once per forward pass for all layers.

    Attributes:
        groups: All instances: in groups on the CPU, in one group on a GPU; empty with the flash
            kernel.
        place_of_token: Position of each token in the concatenation of all groups, int64 of shape
            (T,); None if the order is the same.
        boundaries: Offsets of instances, int32 of shape (B + 1,) on the device.
        longest: Tokens of the longest instance.
    """

    groups: tuple[InstanceGroup, ...]
    place_of_token: torch.Tensor | None
    boundaries: torch.Tensor
    longest: int


def plan_groups(
    lengths: npt.NDArray[np.int64], *, heads: int, has_dropout: bool
) -> list[npt.NDArray[np.int64]]:
    """Return groups of instances of similar length: their numbers, ascending in each group.

    Instances join a group from the longest down until the padding that they add costs as much as
    starting another group.
    """
    max_scores = _GROUP_SCORES if has_dropout else sys.maxsize
    order = np.argsort(-lengths, kind="stable")
    groups: list[npt.NDArray[np.int64]] = []
    begin, wasted, scores = 0, 0, 0
    for number, length in enumerate(lengths[order].tolist()):
        area = heads * int(lengths[order[begin]]) ** 2
        wasted += area - heads * length * length
        scores += area
        if number > begin and (wasted > _GROUP_COST or scores > max_scores):
            groups.append(np.sort(order[begin:number]))
            begin, wasted, scores = number, 0, heads * length * length
    groups.append(np.sort(order[begin:]))
    return groups


@eager  # shapes here depend on data, and the work is that of numpy
def attention_layout(
    lengths: npt.NDArray[np.int64],
    *,
    heads: int,
    device: torch.device,
    flash: bool,
    has_dropout: bool,
) -> AttentionLayout:
    """Return the layout of packed instances of these lengths.

    With `flash` it has only boundaries, otherwise only groups. `has_dropout` says whether attention
    drops probabilities.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    ends = offsets_of(lengths)
    starts = ends[:-1]
    boundaries = torch.from_numpy((ends if flash else ends[:1]).astype(np.int32))
    groups: tuple[InstanceGroup, ...] = ()
    if not flash:
        # A GPU computes padding faster than it starts kernels for more groups.
        plan = [np.arange(len(lengths))]
        if device.type == "cpu":
            plan = plan_groups(lengths, heads=heads, has_dropout=has_dropout)
        groups = tuple(_group(starts[numbers], lengths[numbers], device) for numbers in plan)
    return AttentionLayout(
        groups,
        _places_of_tokens(groups, tokens=int(ends[-1]), device=device),
        to_device(boundaries, device),
        int(lengths.max()),
    )


def _places_of_tokens(
    groups: tuple[InstanceGroup, ...], *, tokens: int, device: torch.device
) -> torch.Tensor | None:
    if not groups or (groups[0].tokens is None and groups[0].rows * groups[0].length == tokens):
        return None
    places = torch.zeros(tokens, dtype=torch.int64, device=device)
    done = 0
    for group in groups:
        size = group.rows * group.length
        if group.places is None or group.place_tokens is None:
            places[group.first : group.first + size] = torch.arange(
                done, done + size, device=device
            )
        else:
            places[group.place_tokens] = done + group.places
        done += size
    return places


def _group(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], device: torch.device
) -> InstanceGroup:
    rows, length = len(lengths), int(lengths.max())
    # On a GPU every batch has all fields, so that compiled code fits batches of any fill.
    is_cpu = device.type == "cpu"
    if is_cpu and (lengths == length).all() and (np.diff(starts) == length).all():
        return InstanceGroup(rows, length, int(starts[0]))
    real = np.arange(length) < lengths[:, None]  # (b, L)
    tokens = starts[:, None] + np.where(real, np.arange(length), 0)  # (b, L)
    places = np.flatnonzero(real)
    past_end = None
    if not (is_cpu and real.all()):
        past_end = torch.from_numpy(np.where(real, np.float32(0), np.float32(-np.inf)))
        past_end = to_device(past_end[:, None, :], device)  # (b, 1, L)
    return InstanceGroup(
        rows,
        length,
        -1,
        to_device(torch.from_numpy(tokens.ravel()), device),
        to_device(torch.from_numpy(places), device),
        to_device(torch.from_numpy(tokens.ravel()[places]), device),
        past_end,
    )


_CACHED_SCORES = 1 << 18
"""Attention scores computed at once on the CPU: 1 MiB in float32, so that about four such arrays
fit the caches of a core."""


class SelfAttention(nn.Module):
    """Multi-head attention within each instance, and the dense layer after it.

    With `is_causal`, a token attends only to earlier tokens and itself.
    """

    def __init__(self, config: ModelConfig, *, is_causal: bool, dense: type[nn.Linear]) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.is_causal = is_causal
        self.qkv = dense(config.hidden_size, 3 * config.hidden_size)
        self.output = dense(config.hidden_size, config.hidden_size)
        self.dropout = Dropout(config.attention_probs_dropout_prob)

    def forward(
        self, x: torch.Tensor, layout: AttentionLayout, *, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the output (T, H) for `x` (T, H); with `rows` (R,), only theirs (R, H)."""
        qkv = self.qkv(x)  # (T, 3H)
        if not layout.groups:
            context = self._flash(qkv, layout)
        elif qkv.device.type == "cpu" and self.dropout.active:
            context = _with_dropout(qkv, layout, self.dropout, self.heads, self.is_causal)
        else:
            rate = self.dropout.rate if self.dropout.active else 0.0
            attend = _grouped_on_cpu if qkv.device.type == "cpu" else _grouped
            context = attend(qkv, layout, rate, self.heads, self.is_causal)
        if rows is not None:
            context = context.index_select(0, rows)
        output: torch.Tensor = self.output(context)
        return output

    def _flash(self, qkv: torch.Tensor, layout: AttentionLayout) -> torch.Tensor:
        query, key, value = qkv.view(len(qkv), 3, self.heads, -1).unbind(1)  # (T, N, D) each
        ends, longest = layout.boundaries, layout.longest
        # The kernel of torch.nn.attention.varlen, which has no dropout (torch 2.13).
        context = torch.ops.aten._flash_attention_forward(
            *(query, key, value, ends, ends, longest, longest),
            *(self.dropout.rate if self.dropout.active else 0.0, self.is_causal, False),
        )[0]
        flat: torch.Tensor = context.flatten(1)  # (T, H)
        return flat


def _grouped(
    qkv: torch.Tensor, layout: AttentionLayout, rate: float, heads: int, is_causal: bool
) -> torch.Tensor:
    outputs = []
    for group in layout.groups:
        rows = _rows_of(qkv, group)  # (bL, 3H)
        rows = rows.view(group.rows, group.length, 3, heads, -1)
        query, key, value = rows.permute(2, 0, 3, 1, 4)  # (b, N, L, D) each
        # Padding comes last, so that causal attention never sees it.
        mask = None if is_causal or group.past_end is None else group.past_end
        context = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if mask is None else mask.unsqueeze(1).to(query.dtype),
            dropout_p=rate,
            is_causal=is_causal,
        )
        outputs.append(context.transpose(1, 2).flatten(0, 1).flatten(1))  # (bL, H)
    if layout.place_of_token is None:
        return outputs[0]
    return torch.cat(outputs).index_select(0, layout.place_of_token)  # (T, H)


# Groups on the CPU differ between batches, and each would be recompiled.
_grouped_on_cpu = eager(_grouped)


def _rows_of(x: torch.Tensor, group: InstanceGroup) -> torch.Tensor:
    """Return the rows of a group's positions: a view where they are contiguous, otherwise a copy.

    Positions past the end of an instance have the values of its first token.
    """
    if group.tokens is not None:
        return x.index_select(0, group.tokens)
    size = group.rows * group.length
    # The gradient of a slice is another pass over `x`.
    return x if size == len(x) else x[group.first : group.first + size]


def _put_rows(target: torch.Tensor, rows: torch.Tensor, group: InstanceGroup) -> None:
    """Write the rows of a group's positions (bL, X) to its tokens in `target` (T, X)."""
    if group.places is None or group.place_tokens is None:
        target[group.first : group.first + group.rows * group.length] = rows
    elif group.past_end is None:
        target.index_copy_(0, group.place_tokens, rows)
    else:
        target.index_copy_(0, group.place_tokens, rows.index_select(0, group.places))


@eager  # holds a generator, and groups differ from batch to batch
def _with_dropout(
    qkv: torch.Tensor, layout: AttentionLayout, dropout: Dropout, heads: int, is_causal: bool
) -> torch.Tensor:
    arguments = (qkv, layout, dropout, heads, is_causal)
    context: torch.Tensor = _AttentionWithDropout.apply(*arguments)  # type: ignore[no-untyped-call]
    return context


class _AttentionWithDropout(torch.autograd.Function):
    """Attention with dropout of its probabilities, on the CPU: (T, 3H) to (T, H).

    torch's flash kernel for CPUs has no dropout. This is 1.5 to 3.3 times as fast as one padded
    call of `scaled_dot_product_attention` with dropout (`benchmarks/bench_kernels.py`). The
    gradient needs qkv and one number per score: the probability, negated where it was dropped.
    """

    @staticmethod
    def forward(
        ctx: Any,
        qkv: torch.Tensor,
        layout: AttentionLayout,
        dropout: Dropout,
        heads: int,
        is_causal: bool,
    ) -> torch.Tensor:
        hidden = qkv.shape[1] // 3
        context = torch.empty(len(qkv), hidden, dtype=qkv.dtype)
        signed = []
        with torch.autocast("cpu", enabled=False):
            for group in layout.groups:
                by_head = _heads_of(qkv, group, parts=3, heads=heads)  # (3, Nb, L, D)
                rows, marked = _group_context(by_head, group, dropout, is_causal)
                rows = rows.view(heads, group.rows * group.length, -1).transpose(0, 1)
                _put_rows(context, rows.reshape(-1, hidden), group)
                signed.append(marked)
        ctx.save_for_backward(qkv, *signed)
        ctx.constants = (layout, heads, dropout.scale)
        return context

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        qkv, *signed = ctx.saved_tensors
        layout, heads, scale = ctx.constants
        grad_qkv = torch.empty_like(qkv)
        with torch.autocast("cpu", enabled=False):
            for group, marked in zip(layout.groups, signed, strict=True):
                heads_of_qkv = _heads_of(qkv, group, parts=3, heads=heads)
                (grad_rows,) = _heads_of(grad, group, parts=1, heads=heads)  # (Nb, L, D)
                if group.past_end is not None:
                    # Outputs of positions past the end were discarded.
                    by_instance = grad_rows.view(heads, group.rows, group.length, -1)
                    by_instance.masked_fill_(group.past_end.transpose(1, 2) < 0, 0)
                grads = _group_gradients(heads_of_qkv, marked, grad_rows, scale)
                rows = grads.view(3 * heads, group.rows * group.length, -1)  # (3N, bL, D)
                _put_rows(grad_qkv, rows.transpose(0, 1).reshape(-1, qkv.shape[1]), group)
        return grad_qkv, None, None, None, None


def _heads_of(x: torch.Tensor, group: InstanceGroup, *, parts: int, heads: int) -> torch.Tensor:
    """Copy (T, parts * H) to the group's (parts, Nb, L, D), with contiguous rows per head."""
    rows = _rows_of(x, group).view(group.rows * group.length, parts * heads, -1)  # (bL, kN, D)
    by_head = rows.transpose(0, 1).contiguous()  # (kN, bL, D)
    return by_head.view(parts, heads * group.rows, group.length, -1)


def _group_context(
    qkv: torch.Tensor, group: InstanceGroup, dropout: Dropout, is_causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return context (Nb, L, D) and probabilities (Nb, L, L), dropped ones negated."""
    query, key, value = qkv
    heads, length, depth = query.shape  # Nb, L, D
    unseen = _unseen(group, heads, is_causal, dtype=qkv.dtype)
    context = torch.empty_like(query)
    marked = torch.empty(heads, length, length)
    for few in _slices(heads, length):
        scores = _scaled_bmm(query[few], key[few].transpose(1, 2), depth**-0.5)  # (h, L, L)
        if unseen is not None:
            scores += unseen if is_causal else unseen[few]
        probabilities = torch.softmax(scores, dim=-1, dtype=torch.float32)
        signs = dropout.draw_kept(scores.shape).sub_(0.5)
        torch.copysign(probabilities, signs, out=marked[few])
        kept = torch.clamp_min(marked[few], 0, out=signs).to(qkv.dtype)
        _scaled_bmm(kept, value[few], dropout.scale, out=context[few])
    return context, marked


def _unseen(
    group: InstanceGroup, heads: int, is_causal: bool, *, dtype: torch.dtype
) -> torch.Tensor | None:
    """Return -inf where masked, otherwise 0: (L, L), (Nb, 1, L), or None without mask."""
    if is_causal:
        # Padding comes last, so that causal attention never sees it.
        return torch.full((group.length, group.length), -torch.inf, dtype=dtype).triu_(1)
    if group.past_end is None:
        return None
    return group.past_end.repeat(heads // group.rows, 1, 1).to(dtype)


def _group_gradients(
    qkv: torch.Tensor, marked: torch.Tensor, grad: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return the gradient of qkv (3, Nb, L, D) for that of the context (Nb, L, D)."""
    grads = torch.empty_like(qkv)
    heads, length, depth = grad.shape  # Nb, L, D
    root = depth**-0.5
    for few in _slices(heads, length):
        query, key, value = qkv[:, few]
        signed = marked[few]
        kept = signed.clamp_min(0)  # (h, L, L)
        _scaled_bmm(kept.to(grad.dtype).transpose(1, 2), grad[few], scale, out=grads[2, few])
        grad_kept = _scaled_bmm(grad[few], value.transpose(1, 2), scale).float()  # (h, L, L)
        # Negative probabilities were dropped, so they did not contribute to the context.
        torch.ops.aten.threshold_backward.grad_input(grad_kept, signed, 0, grad_input=grad_kept)
        probabilities = torch.abs(signed, out=kept)
        scores = torch._softmax_backward_data(grad_kept, probabilities, -1, torch.float32)
        grad_scores = scores.to(qkv.dtype)
        _scaled_bmm(grad_scores, key, root, out=grads[0, few])
        _scaled_bmm(grad_scores.transpose(1, 2), query, root, out=grads[1, few])
    return grads


def _slices(heads: int, length: int) -> list[slice]:
    """Slices of Nb attention matrices that fit the cache."""
    size = max(1, _CACHED_SCORES // (length * length))
    return [slice(start, start + size) for start in range(0, heads, size)]


def _scaled_bmm(
    left: torch.Tensor, right: torch.Tensor, scale: float, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return scale * left @ right for each matrix of a batch, in one kernel."""
    if out is None:
        out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    return torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)
