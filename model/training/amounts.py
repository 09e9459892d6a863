"""Amounts of training, and budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.model_configs import BudgetConfig

Unit = Literal["steps", "tokens", "minutes"]


@dataclass
class Amounts:
    """Amount of training in each unit of budgets; seconds are those of `loop.Stopwatch`."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def in_unit(self, unit: Unit) -> float:
        return {"steps": self.steps, "tokens": self.tokens, "minutes": self.seconds / 60}[unit]


def budget_unit(budget: BudgetConfig) -> tuple[Unit, float]:
    """Return the unit and the size of a budget."""
    if budget.max_steps is not None:
        return "steps", float(budget.max_steps)
    if budget.max_tokens is not None:
        return "tokens", float(budget.max_tokens)
    return "minutes", budget.max_minutes or 0.0
