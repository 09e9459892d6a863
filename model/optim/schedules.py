"""Learning rate schedules.

As in google-research/bert optimization.py, lines 32-54, the decay covers the whole budget, and a
linear warm-up from 0 to the peak replaces it at the start. So the first update has rate 0, and the
rate drops slightly at the end of the warm-up.
"""

from __future__ import annotations

from typing import Literal

from schemas.model_configs import ScheduleConfig

Unit = Literal["steps", "tokens", "minutes"]


def learning_rate(
    position: float,
    *,
    total: float,
    peak: float,
    schedule: ScheduleConfig,
    unit: Unit = "steps",
) -> float:
    """Return the learning rate of the update at a position of the budget.

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
