"""Optimizers of torch with clipping, their state by names of parameters, and learning rates.

A new optimizer is a `torch.optim.Optimizer`, an entry in `OPTIMIZERS`, and its name in
`OptimizerConfig`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from schemas.errors import CheckpointError
from schemas.model_configs import BudgetUnit, OptimizerConfig, ScheduleConfig

STEP_WITHOUT_BIAS_CORRECTION = float(2**62)
"""At this step, 1 - beta ** step is exactly 1.0 for every float beta < 1."""

STACKED_MATRICES = {"attention.qkv.weight": 3}
"""Number of matrices stacked along dimension 0, by suffix of the parameter's name."""


class _Eager(torch.optim.Optimizer):
    """Optimizer whose methods do not load torch's compiler.

    torch's decorators, which exclude these methods from compilation, import it at the first call.
    That takes as long as importing torch. Only blocks of the model are ever compiled.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(_Eager, torch.optim.AdamW):
    """AdamW of torch."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class BertAdam(AdamW):
    """AdamW without bias correction (google-research/bert optimization.py, lines 137, 146-151)."""

    def __init__(self, params: Iterable[dict[str, Any]], **options: Any) -> None:
        super().__init__(params, **options)
        for parameter in (p for group in self.param_groups for p in group["params"]):
            self.state[parameter] = {
                "step": torch.tensor(STEP_WITHOUT_BIAS_CORRECTION, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


class Lamb(_Eager):
    """LAMB, for very large batches (You et al. 2020, algorithm 2).

    Adam's update with bias correction plus decay, scaled for each matrix by its trust ratio: the
    norm of the matrix divided by that of the update. The ratio is 1 for parameters without decay
    (biases and layer norms), as in the authors' TensorFlow code and NVIDIA's FusedLAMB, and if
    either norm is 0. A parameter that stacks several matrices has one ratio per matrix. Parameters
    need names.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        del closure
        for group in self.param_groups:
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                if parameter.grad is not None:
                    self._update(name, parameter, group)

    def _update(self, name: str, parameter: nn.Parameter, group: Mapping[str, Any]) -> None:
        update = self._adam_update(parameter, betas=group["betas"], eps=group["eps"])
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
            count = next((n for end, n in STACKED_MATRICES.items() if name.endswith(end)), 1)
            for weight, part in zip(parameter.chunk(count), update.chunk(count), strict=True):
                part.mul_(_trust_ratio(weight, part))
        parameter.add_(update, alpha=-group["lr"])

    def _adam_update(
        self, parameter: nn.Parameter, *, betas: tuple[float, float], eps: float
    ) -> Tensor:
        """Update the moments of a parameter; return the direction of Adam's update."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        gradient, (beta1, beta2) = parameter.grad, betas
        state["step"] += 1
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        step = state["step"].item()
        root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt_()
        direction: Tensor = (state["exp_avg"] / (1 - beta1**step)).div_(root.add_(eps))
        return direction


def _trust_ratio(weight: Tensor, update: Tensor) -> Tensor:
    """Return |weight| / |update|, and 1 if a norm is 0; no synchronization."""
    length, update_length = weight.norm(), update.norm()
    return torch.where((length > 0) & (update_length > 0), length / update_length, 1.0)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "bert-adam": partial(BertAdam, fused=True),
    "adamw": partial(AdamW, fused=True),
    "lamb": Lamb,
}
"""Optimizer classes by `OptimizerConfig.name`."""


def has_decay(name: str) -> bool:
    """Return whether a parameter is a weight, no bias or layer norm (optimization.py, line 65)."""
    lowered = name.lower()
    return "bias" not in lowered and "norm" not in lowered


def build_optimizer(
    parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig
) -> Optimizer:
    """Build the optimizer that a configuration names.

    Args:
        parameters: Result of `named_parameters()` on the training device; parameters without
            `requires_grad` are ignored.
        config: Optimizer and its constants. Each step receives its learning rate.
    """
    trained = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
    groups = [
        {
            "params": [(name, p) for name, p in trained if has_decay(name) == decays],
            "weight_decay": config.weight_decay if decays else 0.0,
        }
        for decays in (True, False)
    ]
    optimizer = OPTIMIZERS[config.name](
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
    )
    return Optimizer(optimizer, max_grad_norm=config.max_grad_norm)


_NUMBER_TYPES = {int: torch.int64, float: torch.float64}
"""Types of tensors that stand for numbers in a state. torch's own counters are float32."""


class Optimizer:
    """A torch optimizer with clipping and with its state as tensors by name.

    Args:
        optimizer: Optimizer whose parameters have names.
        max_grad_norm: Maximum global norm of the gradients; 0: no limit.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, max_grad_norm: float) -> None:
        self._optimizer = optimizer
        self._max_grad_norm = max_grad_norm
        self._parameters: dict[str, nn.Parameter] = {}
        for group in optimizer.param_groups:
            self._parameters |= zip(group["param_names"], group["params"], strict=True)

    def step(self, *, learning_rate: float) -> Tensor:
        """Clip the gradients and update the weights.

        Args:
            learning_rate: Learning rate, at least 0; 0 updates only the state.

        Returns:
            Global norm of all gradients before clipping, a scalar on the parameters' device; no
            synchronization. If it is not finite, the weights may not be either, and the caller
            should stop.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        norm = self._clip_gradients()
        self._optimizer.step()
        return norm

    def _clip_gradients(self) -> Tensor:
        parameters = list(self._parameters.values())
        if self._max_grad_norm:
            return nn.utils.clip_grad_norm_(parameters, self._max_grad_norm)
        return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        self._optimizer.zero_grad()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state for an exact resume: the tensors themselves, by `KEY.PARAMETER`.

        Keys are those of the torch optimizer, such as `step`, `exp_avg` and `exp_avg_sq`.
        Parameters that had no gradient yet have no state.

        Raises:
            TypeError: The optimizer keeps something else than tensors and numbers.
        """
        return {
            f"{key}.{name}": _as_tensor(value, f"{key}.{name}")
            for name, parameter in self._parameters.items()
            for key, value in self._optimizer.state.get(parameter, {}).items()
            if value is not None
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor], *, where: str) -> None:
        """Copy a state from any device; on error, nothing is changed.

        Args:
            tensors: Result of `state_dict()` of the same optimizer with the same parameters.
            where: Origin for error messages, such as the checkpoint's folder.

        Raises:
            CheckpointError: Tensors are missing, unexpected, or have another shape.
        """
        states: dict[str, dict[str, Any]] = {}
        keys: dict[int, set[str]] = {}  # Adafactor has other keys for matrices than for vectors
        for full_name, tensor in tensors.items():
            key, _, name = full_name.partition(".")
            shape = self._parameters[name].shape if name in self._parameters else None
            if shape is None or not _fits(tensor.shape, shape):
                raise _mismatch(where, full_name, expected=shape, actual=tensor.shape)
            is_number = tensor.ndim == 0 and tensor.dtype in _NUMBER_TYPES.values()
            states.setdefault(name, {})[key] = tensor.item() if is_number else tensor.clone()
            keys.setdefault(len(shape), set()).add(key)
        for name, state in states.items():
            shape = self._parameters[name].shape
            for key in keys[len(shape)] - state.keys():
                raise _mismatch(where, f"{key}.{name}", expected=shape, actual=None)
        numbers = enumerate(self._parameters)  # torch's, too
        by_number = {number: states[name] for number, name in numbers if name in states}
        groups = self._optimizer.state_dict()["param_groups"]
        # A step on the CPU stays there; torch moves the other tensors.
        self._optimizer.load_state_dict({"state": by_number, "param_groups": groups})


def _as_tensor(value: object, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if type(value) not in _NUMBER_TYPES:
        raise TypeError(
            f"optimizer state {name}: expected a tensor, an int or a float, got {value!r}"
        )
    return torch.tensor(value, dtype=_NUMBER_TYPES[type(value)])


def _fits(state: torch.Size, parameter: torch.Size) -> bool:
    """Return whether a state has a number, or a row or column of them, for each value."""
    return not state or (
        len(state) == len(parameter)
        and all(size in (1, of) for size, of in zip(state, parameter, strict=True))
    )


def _mismatch(
    where: str, name: str, *, expected: torch.Size | None, actual: torch.Size | None
) -> CheckpointError:
    """Return the error for a tensor; None stands for no such tensor."""
    shapes = [
        "no tensor" if shape is None else f"shape {tuple(shape)}" for shape in (expected, actual)
    ]
    return CheckpointError(
        f"{where}: optimizer state {name}: expected {shapes[0]}, got {shapes[1]}. Resume with the "
        "model that wrote it, or start with optimizer_state: reset."
    )


def learning_rate(
    position: float,
    *,
    total: float,
    peak: float,
    schedule: ScheduleConfig,
    unit: BudgetUnit = "steps",
) -> float:
    """Return the learning rate of the update at a position of the budget.

    As in google-research/bert optimization.py, lines 32-54, the decay covers the whole budget, and
    a linear warm-up from 0 to the peak replaces it at the start. The first update has rate 0, and
    the rate drops slightly at the end of the warm-up.

    Args:
        position: Steps, tokens or minutes before this update, at least 0; past the total, the rate
            stays at its final value.
        total: Budget; `schedule.total_budget` overrides it.
        peak: `OptimizerConfig.learning_rate`.
        schedule: Shape of warm-up and decay. With p the completed fraction of the total, `linear`
            is `peak * (min_lr_ratio + (1 - min_lr_ratio) * (1 - p))`, `polynomial` has (1 - p) to
            the `power`, and `constant` is the peak without `min_lr_ratio`.
        unit: Unit of the budget. The warm-up ends at a whole number of steps or tokens.
    """
    whole = total if schedule.total_budget is None else schedule.total_budget
    warmup = schedule.warmup_ratio * whole
    if unit != "minutes":
        warmup = float(int(warmup))
    if position < warmup:
        return peak * (position / warmup)
    if schedule.lr_scheduler_type == "constant":
        return peak
    left = max(0.0, 1.0 - position / whole)
    if schedule.lr_scheduler_type == "polynomial":
        left = left**schedule.power
    return peak * (schedule.min_lr_ratio + (1.0 - schedule.min_lr_ratio) * left)
