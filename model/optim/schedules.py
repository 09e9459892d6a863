"""The learning rate over a budget.

As in google-research/bert optimization.py, lines 32-54: the decay runs over the whole budget, and
during the warm-up a straight line from 0 to the peak takes its place. So the first update has rate
0, and the rate falls a little where the warm-up ends, as the decay has begun by then.
"""

from __future__ import annotations

import math
from typing import Literal

from schemas.errors import ConfigError
from schemas.model_configs import ScheduleConfig

Unit = Literal["steps", "tokens", "minutes"]


def warmup_end(*, total: float, schedule: ScheduleConfig, unit: Unit = "steps") -> float:
    """Where the warm-up ends, in units of the budget; rounded down to whole steps or tokens.

    Args:
        total: the budget; `schedule.total_budget` takes its place where it is given.
        schedule: its `warmup_ratio` of the total.
        unit: what is counted; minutes are not rounded.
    """
    share = schedule.warmup_ratio * (
        total if schedule.total_budget is None else schedule.total_budget
    )
    return share if unit == "minutes" else float(int(share))


def learning_rate(
    position: float,
    *,
    total: float,
    peak: float,
    schedule: ScheduleConfig,
    unit: Unit = "steps",
) -> float:
    """The rate of the update that comes at a position of the budget.

    Args:
        position: steps, tokens or minutes done before this update, from 0; past the total the rate
            stays what it is at the end.
        total: the budget; `schedule.total_budget` takes its place where it is given.
        peak: `OptimizerConfig.learning_rate`.
        schedule: shape of warm-up and decay. With p the part of the total that is done, `linear` is
            `peak * (min_lr_ratio + (1 - min_lr_ratio) * (1 - p))`, `polynomial` with (1 - p)
            to the `power`, and `constant` the peak; `min_lr_ratio` does not apply to that.
        unit: what is counted, as in `warmup_end`.

    Raises:
        ConfigError: the total is not a positive number.
        ValueError: the position is negative or no number.
    """
    whole = total if schedule.total_budget is None else schedule.total_budget
    if not (whole > 0 and math.isfinite(whole)):
        raise ConfigError(
            f"schedule: expected a total that is finite and above 0, found {whole}. Set the budget "
            "or schedule.total_budget"
        )
    if not position >= 0:
        raise ValueError(f"position: expected {unit} done, from 0, found {position}")
    warmup = warmup_end(total=whole, schedule=schedule, unit=unit)
    if position < warmup:
        return peak * (position / warmup)
    if schedule.lr_scheduler_type == "constant":
        return peak
    left = max(0.0, 1.0 - position / whole)
    if schedule.lr_scheduler_type == "polynomial":
        left = left**schedule.power
    return peak * (schedule.min_lr_ratio + (1.0 - schedule.min_lr_ratio) * left)
