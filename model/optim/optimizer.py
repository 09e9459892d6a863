"""Optimizers.

Each is Adam with decoupled weight decay (`model.optim.adam`) or an extension. All clip by global
norm and resume exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from torch import nn

from model.optim.adam import Adam
from model.optim.lamb import Lamb
from schemas.model_configs import OptimizerConfig

Optimizer = Adam
"""Interface of all optimizers: `step`, `zero_grad`, `state_dict`, `load_state_dict`."""


class _Builds(Protocol):
    def __call__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig
    ) -> Optimizer: ...


OPTIMIZERS: dict[str, _Builds] = {
    "bert-adam": partial(Adam, corrects_bias=False),
    "adamw": Adam,
    "lamb": Lamb,
}
"""Optimizer classes by `OptimizerConfig.name`."""


def build_optimizer(
    parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig
) -> Optimizer:
    """Build the optimizer that a configuration names.

    Args:
        parameters: Result of `named_parameters()`, contiguous float32 on the training device;
            parameters without `requires_grad` are ignored.
        config: Optimizer and its constants. Each step receives its learning rate.
    """
    return OPTIMIZERS[config.name](parameters, config)
