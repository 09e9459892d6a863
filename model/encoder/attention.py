"""Self-attention over instances that lie end to end (Vaswani et al. 2017, 3.2).

Dense layers see flat tokens. Only attention separates instances.

On the CPU, instances of similar length form a group, computed as one batched matrix product per
head. A group of one instance, or of consecutive instances of equal length, is read without a copy.
On CUDA in half precision, one flash kernel for variable lengths computes all instances; otherwise
one padded call of `scaled_dot_product_attention`. Padding does not take part in attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from model.encoder.attention_layout import AttentionLayout, InstanceGroup
from model.encoder.compilation import eager
from model.encoder.dropout import Dropout
from schemas.model_configs import ModelConfig

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
