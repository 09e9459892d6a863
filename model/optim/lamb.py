"""LAMB, for very large batches (You et al. 2020, algorithm 2).

Adam's update with bias correction plus decay, scaled for each matrix by its trust ratio: the norm
of the matrix divided by that of the update. The ratio is 1 for parameters without decay (biases and
layer norms), as in the authors' TensorFlow code and NVIDIA's FusedLAMB, and if either norm is 0. A
parameter that stacks several matrices of the reference has one ratio per matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.optim.adam import Adam
from model.optim.gradient_norms import norms
from schemas.model_configs import OptimizerConfig

STACKED_MATRICES = {"attention.qkv.weight": 3, "attention.qkv.bias": 3}
"""Number of matrices stacked along dimension 0, by suffix of the parameter's name."""

# On the CPU, number of elements that are updated at once; they fit the caches.
_GROUP_ELEMENTS = 1 << 18


class _Matrix(NamedTuple):
    """Views of equal shape with one trust ratio: a parameter or a part of it."""

    weight: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor
    decays: bool


class Lamb(Adam):
    """LAMB: Adam's kernel, applied to zeros, computes the direction that trust ratios scale.

    On CUDA all matrices are updated at once; on the CPU a few at a time, in a small reused buffer.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig
    ) -> None:
        """See `model.optim.optimizer.build_optimizer`."""
        super().__init__(parameters, config)
        self._scratch = torch.empty(0, device=self._device)

    def _update(
        self,
        gradients: Mapping[str, Tensor],
        *,
        learning_rate: float,
        scale: Tensor | None,
        skipped: Tensor,
    ) -> None:
        limit = _GROUP_ELEMENTS if self._device.type == "cpu" else None
        for decays in (True, False):
            matrices = (m for m in self._matrices(gradients) if m.decays == decays)
            for group in _groups(matrices, limit=limit):
                updates = self._zeros(group)
                self._run_kernel(
                    updates,
                    [matrix.gradient for matrix in group],
                    first=[matrix.first for matrix in group],
                    second=[matrix.second for matrix in group],
                    learning_rate=-1.0,
                    weight_decay=0.0,
                    scale=scale,
                    skipped=skipped,
                )
                weights = [matrix.weight for matrix in group]
                if decays:
                    torch._foreach_add_(updates, weights, alpha=self.config.weight_decay)
                    ratios = _trust_ratios(weights, updates) * (1.0 - skipped)
                    torch._foreach_mul_(updates, list(ratios.unbind()))
                torch._foreach_add_(weights, updates, alpha=-learning_rate)

    def _matrices(self, gradients: Mapping[str, Tensor]) -> Iterator[_Matrix]:
        for name, gradient in gradients.items():
            weight, decays = self._parameters[name].detach(), self._decays[name]
            views = (weight, gradient, self._first[name], self._second[name])
            count = stacked_matrices(name)
            parts = zip(*(view.chunk(count) for view in views), strict=True)
            for w, g, m, v in parts if count > 1 else (views,):
                yield _Matrix(w, g, m, v, decays)

    def _zeros(self, group: list[_Matrix]) -> list[Tensor]:
        """Return zeros in the shapes of the group's weights, in a reused buffer."""
        # Each starts at a multiple of 16 floats, for aligned vector loads.
        sizes = [-(-matrix.weight.numel() // 16) * 16 for matrix in group]
        if self._scratch.numel() < sum(sizes):
            self._scratch = torch.empty(sum(sizes), device=self._device)
        flat = torch.split_with_sizes(self._scratch[: sum(sizes)].zero_(), sizes)
        return [
            part[: matrix.weight.numel()].view_as(matrix.weight)
            for part, matrix in zip(flat, group, strict=True)
        ]


def stacked_matrices(name: str) -> int:
    """Return the number of the reference's matrices in the parameter of this name."""
    return next((count for end, count in STACKED_MATRICES.items() if name.endswith(end)), 1)


def _trust_ratios(weights: list[Tensor], updates: list[Tensor]) -> Tensor:
    """Return the trust ratio of each weight, shape (n,)."""
    lengths, update_lengths = norms(weights), norms(updates)
    ratios = lengths / update_lengths
    return torch.where((lengths > 0) & (update_lengths > 0), ratios, 1.0)


def _groups(matrices: Iterable[_Matrix], *, limit: int | None) -> Iterator[list[_Matrix]]:
    """Split into runs of at most `limit` elements, or of one larger matrix."""
    group: list[_Matrix] = []
    size = 0
    for matrix in matrices:
        elements = matrix.weight.numel()
        if group and limit is not None and size + elements > limit:
            yield group
            group, size = [], 0
        group.append(matrix)
        size += elements
    if group:
        yield group
