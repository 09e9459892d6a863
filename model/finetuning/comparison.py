"""Comparison of a grid's trials: best trial on dev, mean and standard deviation of restarts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from model.training.health import TrainingWarning, read_warnings
from schemas.errors import PredictionsError
from schemas.manifest import StageInput
from schemas.trial_names import AXES, grid_point, trial_entry


class Trial(NamedTuple):
    """Finished training."""

    name: str
    """Name such as `bs16-lr2e-05-ep3-r0`, prefixed with the entry's name if there are several."""

    given: StageInput

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """`batch`, `learning_rate`, `epochs` and `restart`."""
        found: dict[str, Any] = self.given.statistics["cell"]
        return found

    @property
    def point(self) -> str:
        """Name of the grid point, shared by its restarts."""
        return grid_point(self.name)

    @property
    def method(self) -> str:
        return str(self.given.statistics["method"])

    @property
    def model(self) -> dict[str, Any]:
        """Shape of the model."""
        return dict(self.given.statistics["model"])

    @property
    def cut(self) -> dict[str, Any]:
        """Reductions of its data and steps (`model.tasks.reduced_data`)."""
        return dict(self.given.statistics.get("cut", {}))

    @property
    def threshold(self) -> float:
        return float(self.given.statistics.get("threshold", 0.0))

    @property
    def is_cased(self) -> bool:
        """True if the vocabulary is cased."""
        return not self.given.statistics["lowercase"]

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Scores by split, then by metric."""
        found: dict[str, dict[str, float]] = self.given.statistics["metrics"]
        return found

    @property
    def warnings(self) -> list[TrainingWarning]:
        """Problems of the training."""
        return read_warnings(self.given.statistics)


class Comparison(NamedTuple):
    """Trials in order."""

    best: list[Trial]
    """Trials from best to worst; equal ones in the order of `read_trials`."""

    points: list[dict[str, Any]]
    """`name`, `mean`, `sd` (of a sample; 0 for one run) and `runs`, in the order of the trials."""

    best_point: str
    """Name of the point with the highest mean."""

    @property
    def restarts(self) -> list[Trial]:
        """Trials of the best point."""
        return [trial for trial in self.best if trial.point == self.best_point]

    def statistics(
        self, restarts: Mapping[str, Mapping[str, dict[str, float]]] | None = None
    ) -> dict[str, Any]:
        """Return JSON values, with trials sorted by name.

        Args:
            restarts: Scores on further splits by trial.
        """
        more = restarts or {}
        trials = sorted(self.best, key=lambda trial: trial.name)
        return {
            "cells": [
                {
                    "name": trial.name,
                    **trial.hyper_parameters,
                    "metrics": {**trial.metrics, **more.get(trial.name, {})},
                }
                for trial in trials
            ],
            "points": self.points,
            "best": self.best[0].name,
            "best_point": self.best_point,
        }


def read_trials(inputs: Mapping[str, StageInput]) -> list[Trial]:
    """Return the trials of a stage's inputs, by entry, batch, learning rate, epochs and restart.

    The order does not depend on the recipe's order, which is not part of any cache key.
    """
    return sorted((Trial(name, given) for name, given in inputs.items()), key=_order)


def _order(trial: Trial) -> tuple[Any, ...]:
    values = trial.hyper_parameters
    return (trial_entry(trial.name), *(values[axis] for axis in AXES))


def compare(trials: list[Trial], *, metric: str) -> Comparison:
    """Rank trials by a metric on dev (the larger the better).

    Raises:
        PredictionsError: A trial does not have the metric, because dev has no answers.
    """
    scores = {}
    for trial in trials:
        dev = trial.metrics.get("dev", {})
        if metric not in dev:
            raise PredictionsError(
                f"{trial.name}: no {metric} on dev, found {', '.join(dev) or 'no metrics'}: "
                "expected a dev split with answers to choose by"
            )
        scores[trial.name] = dev[metric]
    best = sorted(
        trials, key=lambda trial: -scores[trial.name]
    )  # stable: keeps the order of equal trials
    grouped: dict[str, list[float]] = {}
    for trial in trials:
        grouped.setdefault(trial.point, []).append(scores[trial.name])
    points = [_point(name, values) for name, values in grouped.items()]
    top = max(points, key=lambda point: point["mean"])
    return Comparison(best, points, str(top["name"]))


def _point(name: str, values: list[float]) -> dict[str, Any]:
    return {
        "name": name,
        "mean": statistics.fmean(values),
        "sd": statistics.stdev(values) if len(values) > 1 else 0.0,
        "runs": len(values),
    }
