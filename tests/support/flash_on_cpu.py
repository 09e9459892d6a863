"""CUDA's flash attention for packed instances, computed on the CPU in plain operators.

Tests of the GPU's code paths use it where there is no GPU. It has no dropout.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


@functools.cache
def register_flash_on_cpu() -> torch.library.Library:
    """Register the operators for CPU tensors, once per process."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", _forward, "CPU")
    library.impl("_flash_attention_backward", _backward, "CPU")
    return library


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    _key_starts: Tensor,
    _longest: int,
    _longest_key: int,
    dropout: float,
    is_causal: bool,
    _returns_mask: bool,
    **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the context (T, N, D) and values that only `_backward` of the GPU reads."""
    assert dropout == 0.0
    context = torch.empty_like(query)
    for few in _instances(starts):
        q, k, v = (x[few].transpose(0, 1).float() for x in (query, key, value))  # (N, L, D)
        context[few] = (_probabilities(q, k, is_causal) @ v).transpose(0, 1).to(query.dtype)
    unused = query.new_empty(0)
    sums = query.new_empty((query.shape[1], len(query)), dtype=torch.float32)
    return context, sums, torch.empty(2, dtype=torch.uint64), unused, unused


def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _out: Tensor,
    _sums: Tensor,
    starts: Tensor,
    _key_starts: Tensor,
    _longest: int,
    _longest_key: int,
    _dropout: float,
    is_causal: bool,
    *_: Any,
    **__: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    grads = tuple(torch.empty_like(x) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5
    for few in _instances(starts):
        g, q, k, v = (x[few].transpose(0, 1).float() for x in (grad, query, key, value))
        p = _probabilities(q, k, is_causal)  # (N, L, L)
        of_p = g @ v.mT
        of_scores = p * (of_p - (of_p * p).sum(-1, keepdim=True)) * scale
        for target, own in zip(grads, (of_scores @ k, of_scores.mT @ q, p.mT @ g), strict=True):
            target[few] = own.transpose(0, 1).to(target.dtype)
    return grads[0], grads[1], grads[2]


def _probabilities(query: Tensor, key: Tensor, is_causal: bool) -> Tensor:
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1)


def _instances(starts: Tensor) -> Iterator[slice]:
    return itertools.starmap(slice, itertools.pairwise(starts.tolist()))
