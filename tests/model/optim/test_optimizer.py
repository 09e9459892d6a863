"""Optimizers next to formulas in float64, and next to torch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from model import optim
from model.optim import OPTIMIZERS, STEP_WITHOUT_BIAS_CORRECTION, Optimizer, build_optimizer
from schemas.errors import CheckpointError
from schemas.model_configs import OptimizerConfig

Array = npt.NDArray[np.float64]
SHAPES = {
    "embeddings.word_embeddings.weight": (37, 16),
    "layers.0.attention.qkv.weight": (48, 16),
    "layers.0.attention.qkv.bias": (48,),
    "layers.0.feed_forward.weight": (16, 64),
    "layers.0.output_norm.weight": (16,),
    "heads.bias": (5,),
}
DECAYED = [name for name in SHAPES if "bias" not in name and "norm" not in name]
RATES = [0.0, *(0.01 * (1 - i / 30) for i in range(19))]


def _weights(seed: int = 1) -> dict[str, nn.Parameter]:
    draw = np.random.default_rng(seed)
    return {
        name: nn.Parameter(torch.from_numpy(draw.normal(0, 0.5, shape).astype(np.float32)))
        for name, shape in SHAPES.items()
    }


def _gradients(step: int, *, size: float = 0.02) -> dict[str, Array]:
    draw = np.random.default_rng([7, step])
    # Exact in float32, so that both sides start from the same numbers.
    return {
        name: draw.normal(0, size * (1 + step % 3), shape).astype(np.float32).astype(np.float64)
        for name, shape in SHAPES.items()
    }


def _give(parameters: dict[str, nn.Parameter], gradients: dict[str, Array]) -> None:
    for name, gradient in gradients.items():
        parameters[name].grad = torch.from_numpy(gradient.astype(np.float32))


def _config(name: str, **fields: Any) -> OptimizerConfig:
    return OptimizerConfig.model_validate({"name": name, "weight_decay": 0.1, **fields})


class _Reference:
    """The update in float64, written down from the formulas."""

    def __init__(self, weights: dict[str, nn.Parameter], config: OptimizerConfig) -> None:
        self.config = config
        self.weights = {name: w.detach().numpy().astype(np.float64) for name, w in weights.items()}
        self.first = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.second = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.steps = 0

    def step(self, gradients: dict[str, Array], rate: float) -> float:
        c = self.config
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        clip = min(1.0, c.max_grad_norm / norm) if c.max_grad_norm else 1.0
        self.steps += 1
        for name, gradient in gradients.items():
            w, g = self.weights[name], gradient * clip
            m = self.first[name] = c.adam_beta1 * self.first[name] + (1 - c.adam_beta1) * g
            v = self.second[name] = c.adam_beta2 * self.second[name] + (1 - c.adam_beta2) * g**2
            if c.name != "bert-adam":
                m, v = m / (1 - c.adam_beta1**self.steps), v / (1 - c.adam_beta2**self.steps)
            update = m / (np.sqrt(v) + c.adam_epsilon)
            if name in DECAYED:
                update = update + c.weight_decay * w
                if c.name == "lamb":
                    update = self._scaled(name, w, update)
            self.weights[name] = w - rate * update
        return norm

    def _scaled(self, name: str, weight: Array, update: Array) -> Array:
        thirds = 3 if "qkv" in name else 1  # query, key and value are separate matrices
        parts = zip(np.split(weight, thirds), np.split(update, thirds), strict=True)
        ratios = [(np.linalg.norm(w), np.linalg.norm(u), u) for w, u in parts]
        return np.concatenate([(w / u if w and u else 1.0) * part for w, u, part in ratios])


def _assert_close(actual: torch.Tensor, expected: Array, *, rel: float) -> None:
    """Within `rel` of the tensor's largest value."""
    error = np.abs(actual.detach().numpy().astype(np.float64) - expected).max()
    assert error <= rel * np.abs(expected).max()


@pytest.mark.parametrize("clip", [0.0, 0.7, 1e3])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_twenty_steps_follow_the_formulas(name: str, clip: float) -> None:
    config = _config(name, max_grad_norm=clip)
    parameters = _weights()
    before = {key: value.detach().clone() for key, value in parameters.items()}
    reference = _Reference(parameters, config)
    optimizer = build_optimizer(parameters.items(), config)
    for step, rate in enumerate(RATES):
        gradients = _gradients(step)
        _give(parameters, gradients)
        norm = optimizer.step(learning_rate=rate)
        optimizer.zero_grad()
        assert norm.item() == pytest.approx(reference.step(gradients, rate), rel=1e-6)
        if step == 0:  # the first update has rate 0
            assert all(torch.equal(parameters[key], before[key]) for key in before)
    state = optimizer.state_dict()
    rel = 4e-6 if clip == 0.7 else 1e-6  # torch clips to max_grad_norm minus 1e-6
    for key in SHAPES:
        _assert_close(parameters[key], reference.weights[key], rel=rel)
        _assert_close(state[f"exp_avg.{key}"], reference.first[key], rel=rel)
        _assert_close(state[f"exp_avg_sq.{key}"], reference.second[key], rel=rel)
        assert not torch.equal(parameters[key], before[key])
        assert parameters[key].grad is None


def test_no_bias_correction_is_exact() -> None:
    """The kernel computes 1 - beta ** step in double precision; it must be 1.0, not near it."""
    for beta in (0.0, 0.9, 0.999, math.nextafter(1.0, 0.0)):
        assert 1.0 - beta**STEP_WITHOUT_BIAS_CORRECTION == 1.0
    assert torch.tensor(STEP_WITHOUT_BIAS_CORRECTION).item() == STEP_WITHOUT_BIAS_CORRECTION


def test_lamb_moves_a_matrix_of_zeros() -> None:
    weight = nn.Parameter(torch.zeros(4, 4))
    optimizer = build_optimizer([("w", weight)], _config("lamb"))
    weight.grad = torch.full((4, 4), 0.01)
    optimizer.step(learning_rate=0.5)
    torch.testing.assert_close(weight.detach(), torch.full((4, 4), -0.5), rtol=1e-3, atol=0)


class _Counting(torch.optim.Optimizer):
    """Optimizer with numbers in its state, one without a value, and a tensor per column."""

    def __init__(self, params: Any, *, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter] or {"count": 0, "scale": 1.0, "unused": None}
                self.state[parameter] = state
                state["count"] += 1
                state["scale"] *= 0.9
                means = parameter.grad.mean(0, keepdim=True)
                state["means"] = state.get("means", 0) + means
                assert type(state["count"]) is int
                factor = group["lr"] * state["scale"] / state["count"]
                parameter.sub_(parameter.grad + state["means"], alpha=factor)


_FURTHER = {
    "sgd": lambda params, lr, betas, eps: torch.optim.SGD(params, lr=lr, momentum=betas[0]),
    "plain": lambda params, lr, betas, eps: torch.optim.SGD(params, lr=lr),
    "adafactor": lambda params, lr, betas, eps: torch.optim.Adafactor(params, lr=lr),
    "nadam": lambda params, lr, betas, eps: torch.optim.NAdam(params, lr=lr, betas=betas, eps=eps),
    "rprop": lambda params, lr, betas, eps: torch.optim.Rprop(params, lr=lr),
    "counting": lambda params, lr, betas, eps: _Counting(params, lr=lr),
}


@pytest.mark.parametrize("name", [*OPTIMIZERS, *_FURTHER])
def test_resumed_optimizer_continues_exactly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further torch optimizer needs one entry."""
    if name in _FURTHER:
        monkeypatch.setitem(optim.OPTIMIZERS, name, _FURTHER[name])
    config = _config("adamw").model_copy(update={"name": name})

    def run(optimizer: Optimizer, parameters: dict[str, nn.Parameter], steps: range) -> None:
        for step in steps:
            _give(parameters, _gradients(step))
            optimizer.step(learning_rate=RATES[step])

    whole, halves = _weights(), _weights()
    run(build_optimizer(whole.items(), config), whole, range(20))
    first = build_optimizer(halves.items(), config)
    run(first, halves, range(9))
    saved = {key: tensor.clone() for key, tensor in first.state_dict().items()}
    second = build_optimizer(halves.items(), config)
    second.load_state_dict(saved, where="here")
    run(second, halves, range(9, 20))
    assert all(torch.equal(whole[key], halves[key]) for key in SHAPES)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_norm_reports_gradients_that_are_not_finite(bad: float, clip: float) -> None:
    """1e30 is finite, but its square is not in float32."""
    parameters = _weights()
    optimizer = build_optimizer(parameters.items(), _config("adamw", max_grad_norm=clip))
    gradients = _gradients(1)
    gradients["layers.0.feed_forward.weight"][3, 5] = bad
    _give(parameters, gradients)
    assert not math.isfinite(optimizer.step(learning_rate=0.01).item())


def test_frozen_and_unused_parameters_stay() -> None:
    parameters = _weights()
    frozen, unused = "heads.bias", "layers.0.feed_forward.weight"
    parameters[frozen].requires_grad_(False)
    optimizer = build_optimizer(parameters.items(), _config("bert-adam"))
    assert f"exp_avg.{frozen}" not in optimizer.state_dict()
    before = {key: parameters[key].detach().clone() for key in SHAPES}
    _give(parameters, {k: g for k, g in _gradients(0).items() if k not in (frozen, unused)})
    optimizer.step(learning_rate=0.1)
    assert {key for key in SHAPES if torch.equal(parameters[key], before[key])} == {frozen, unused}


@pytest.mark.parametrize(
    ("key", "tensor"),
    [
        ("exp_avg_sq.heads.bias", None),  # missing
        ("exp_avg.pooler.weight", torch.zeros(2)),
        ("momentum.heads.bias", torch.zeros(5)),  # of another optimizer
        ("exp_avg.heads.bias", torch.zeros(6)),
    ],
)
def test_state_that_does_not_fit_is_refused(key: str, tensor: torch.Tensor | None) -> None:
    optimizer = build_optimizer(_weights().items(), _config("bert-adam"))
    before = {key: tensor.clone() for key, tensor in optimizer.state_dict().items()}
    state = {key: torch.ones_like(tensor) for key, tensor in before.items()}
    state.pop(key, None)
    if tensor is not None:
        state[key] = tensor
    with pytest.raises(CheckpointError, match="run/step-7"):
        optimizer.load_state_dict(state, where="run/step-7")
    after = optimizer.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_cuda_follows_the_cpu(name: str) -> None:
    here = _weights()
    there = {key: nn.Parameter(value.detach().cuda()) for key, value in here.items()}
    config = _config(name, max_grad_norm=0.7)
    optimizers = [build_optimizer(p.items(), config) for p in (here, there)]
    for step, rate in enumerate(RATES):
        _give(here, _gradients(step))
        for key, gradient in _gradients(step).items():
            there[key].grad = torch.from_numpy(gradient.astype(np.float32)).cuda()
        for optimizer in optimizers:
            optimizer.step(learning_rate=rate)
    for key in SHAPES:
        torch.testing.assert_close(here[key], there[key].cpu(), rtol=1e-5, atol=1e-6)
