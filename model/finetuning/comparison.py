"""Comparison of a grid's trials: best trial on dev, mean and standard deviation of restarts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from model.task_results import DEV, GridPoint, ScoredTrial, TrialResult
from schemas.errors import PredictionsError
from schemas.manifest import StageInput
from schemas.trial_names import AXES, grid_point, trial_entry


class Trial(NamedTuple):
    """Finished training."""

    name: str
    """Name such as `bs16-lr2e-05-ep3-r0`, prefixed with the entry's name if there are several."""

    artifact: StageInput
    result: TrialResult

    @property
    def point(self) -> str:
        """Name of the grid point, shared by its restarts."""
        return grid_point(self.name)


class Comparison(NamedTuple):
    """Trials in order."""

    best: list[Trial]
    """Trials from best to worst; equal ones in the order of `read_trials`."""

    points: tuple[GridPoint, ...]
    """Grid points in the order of the trials."""

    best_point: str
    """Name of the point with the highest mean."""

    @property
    def restarts(self) -> list[Trial]:
        """Trials of the best point."""
        return [trial for trial in self.best if trial.point == self.best_point]

    def scored_trials(
        self, scores: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    ) -> tuple[ScoredTrial, ...]:
        """Return the trials by name, given the scores of some on further splits."""
        return tuple(
            ScoredTrial(
                name=trial.name,
                **trial.result.cell.model_dump(),
                metrics={**trial.result.metrics, **scores.get(trial.name, {})},
            )
            for trial in sorted(self.best, key=lambda trial: trial.name)
        )


def read_trials(inputs: Mapping[str, StageInput]) -> list[Trial]:
    """Return the trials of a stage's inputs, by entry, batch, learning rate, epochs and restart.

    The order does not depend on the recipe's order, which is not part of any cache key.
    """
    trials = [
        Trial(name, artifact, TrialResult.from_statistics(artifact.statistics, where=name))
        for name, artifact in inputs.items()
    ]
    return sorted(trials, key=_order)


def _order(trial: Trial) -> tuple[Any, ...]:
    return (trial_entry(trial.name), *(getattr(trial.result.cell, axis) for axis in AXES))


def compare(trials: list[Trial], *, metric: str) -> Comparison:
    """Rank trials by a metric on dev (the larger the better).

    Raises:
        PredictionsError: A trial does not have the metric, because dev has no answers.
    """
    scores: dict[str, float] = {}
    for trial in trials:
        dev = trial.result.metrics.get(DEV, {})
        value = dev.get(metric)
        if value is None:
            raise PredictionsError(
                f"{trial.name}: no {metric} on dev, found {', '.join(dev) or 'no metrics'}: "
                "expected a dev split with answers to choose by"
            )
        scores[trial.name] = value
    best = sorted(trials, key=lambda trial: -scores[trial.name])  # stable: equal ones keep order
    grouped: dict[str, list[float]] = {}
    for trial in trials:
        grouped.setdefault(trial.point, []).append(scores[trial.name])
    points = tuple(_point(name, values) for name, values in grouped.items())
    means = {point.name: statistics.fmean(grouped[point.name]) for point in points}
    return Comparison(best, points, max(means, key=means.__getitem__))


def _point(name: str, values: list[float]) -> GridPoint:
    return GridPoint(
        name=name,
        mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else 0.0,
        runs=len(values),
    )
