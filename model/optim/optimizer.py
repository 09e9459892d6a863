"""Optimisers: how gradients become updates of the weights.

Each is Adam with decoupled weight decay, as `model.optim.adam` does it in one pass, or with
something added; all clip by global norm and can be saved and resumed to the bit.
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
"""What all have in common: `step`, `zero_grad`, `state_tensors`, `load_state_tensors`."""


class _Builds(Protocol):
    def __call__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig
    ) -> Optimizer: ...


OPTIMIZERS: dict[str, _Builds] = {
    "bert-adam": partial(Adam, corrects_bias=False),
    "adamw": Adam,
    "lamb": Lamb,
}
"""By `OptimizerConfig.name`."""


def build_optimizer(
    parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig
) -> Optimizer:
    """The optimiser a configuration names.

    Args:
        parameters: as from `named_parameters()`, on the device they will be trained on; those that
            require no gradient are left out.
        config: which optimiser, and its constants. The learning rate is given to each step.

    Raises:
        TrainingError: none is trained, one is not contiguous float32, a name or tensor comes
            twice, or they are on several devices.
    """
    return OPTIMIZERS[config.name](parameters, config)
