"""Learning rates at points computed by hand, and next to transformers'."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.optimization import (
    get_constant_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_polynomial_decay_schedule_with_warmup,
)

from model.optim import learning_rate
from schemas.model_configs import ScheduleConfig

PAPER = ScheduleConfig()  # linear, 1 % warm-up


def _paper(step: float) -> float:
    return learning_rate(step, total=1_000_000, peak=1e-4, schedule=PAPER)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),  # the first update changes no weight
        (1, 1e-8),
        (9_999, 9.999e-5),
        (10_000, 9.9e-5),  # the decay has been running since step 0
        (100_000, 9e-5),
        (1_000_001, 0.0),
    ],
)
def test_the_papers_schedule(step: int, rate: float) -> None:
    assert _paper(step) == pytest.approx(rate, rel=1e-9, abs=1e-18)


def test_nvidias_recipe_for_lamb() -> None:
    phase_1 = ScheduleConfig(lr_scheduler_type="polynomial", power=0.5, warmup_ratio=0.2843)
    at = [
        learning_rate(i, total=7038, peak=6e-3, schedule=phase_1) for i in (0, 1000, 2000, 5278.5)
    ]  # the warm-up ends at 2000.9, rounded down
    assert at == pytest.approx([0, 3e-3, 6e-3 * (5038 / 7038) ** 0.5, 3e-3], rel=1e-12)


def test_two_phases_share_one_schedule() -> None:
    schedule = ScheduleConfig(total_budget=1000.0)
    for step in (0, 5, 10, 500, 899):
        rate = learning_rate(step, total=900, peak=1.0, schedule=schedule)
        assert rate == learning_rate(step, total=1000, peak=1.0, schedule=ScheduleConfig())
    assert learning_rate(900, total=900, peak=1.0, schedule=schedule) == pytest.approx(0.1)


def test_warm_up_of_a_time_budget_is_not_rounded() -> None:
    minutes: dict[str, Any] = {"total": 10.0, "peak": 1.0, "schedule": PAPER, "unit": "minutes"}
    assert learning_rate(0.05, **minutes) == pytest.approx(0.5)
    assert learning_rate(5.0, **minutes) == pytest.approx(0.5)
    # 1 % of 10 steps rounds to 0.
    assert learning_rate(0, total=10, peak=1.0, schedule=PAPER) == 1.0


def _transformers_rates(make: Any, steps: int, **options: Any) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = make(optimizer, **options)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize(
    ("schedule", "make", "options", "steps"),
    [
        ({"warmup_ratio": 0.0}, get_linear_schedule_with_warmup, {}, 25),
        ({"warmup_ratio": 0.25}, get_linear_schedule_with_warmup, {}, 5),  # during the warm-up
        (
            {"lr_scheduler_type": "constant", "warmup_ratio": 0.25},
            get_constant_schedule_with_warmup,
            {},
            25,
        ),
        (
            {
                "lr_scheduler_type": "polynomial",
                "power": 3.0,
                "warmup_ratio": 0.0,
                "min_lr_ratio": 0.2,
            },
            get_polynomial_decay_schedule_with_warmup,
            {"power": 3.0, "lr_end": 0.1},
            25,
        ),
    ],
)
def test_equals_transformers_where_they_do_the_same(
    schedule: dict[str, Any], make: Any, options: dict[str, float], steps: int
) -> None:
    warmup = {"num_warmup_steps": int(20 * schedule["warmup_ratio"])}
    if make is not get_constant_schedule_with_warmup:
        warmup["num_training_steps"] = 20
    expected = _transformers_rates(make, steps, **warmup, **options)
    config = ScheduleConfig.model_validate(schedule)
    rates = [learning_rate(i, total=20, peak=0.5, schedule=config) for i in range(steps)]
    assert rates == pytest.approx(expected, rel=1e-12)
