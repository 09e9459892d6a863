"""Warnings of a trial, from its predictions on dev."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from model.finetuning.setup import DEV, TRAIN, TrialSetup
from model.task_types.by_name import TASK_TYPES
from model.task_types.task_type import Prediction
from model.training.health import TrainingWarning, check_answers, check_chance


def find_warnings(
    setup: TrialSetup, predictions: Sequence[Prediction], metrics: Mapping[str, float]
) -> list[TrainingWarning]:
    """Check for constant predictions, then for a score at chance.

    A model from scratch is not checked: it is the baseline of pretraining and often scores at
    chance.

    Args:
        setup: Setup of the trial.
        predictions: Predictions on dev.
        metrics: Their scores; empty if the dev answers are not known.
    """
    if not metrics or setup.job.config.model is not None:
        return []
    dev = setup.splits[DEV].examples
    warning = _check_answers(setup, predictions, dev) or _check_chance(setup, dev, metrics)
    return [warning] if warning is not None else []


def _check_answers(
    setup: TrialSetup, predictions: Sequence[Prediction], dev: pa.Table
) -> TrainingWarning | None:
    task_type = TASK_TYPES[setup.task.type]
    predicted, right = (
        Counter(answer for row in rows for answer in task_type.list_answers(row))
        for rows in (predictions, dev.to_pylist())
    )
    return check_answers(predicted, right)


def _check_chance(
    setup: TrialSetup, dev: pa.Table, metrics: Mapping[str, float]
) -> TrainingWarning | None:
    task, task_type = setup.task, TASK_TYPES[setup.task.type]
    answer = task_type.majority_answer(setup.splits[TRAIN].examples, task=task, labels=setup.labels)
    constant = task_type.score(dev, task_type.majority_predictions(dev, answer), task=task)
    metric = task.metrics[0]
    return check_chance(metric, metrics[metric], constant_score=constant[metric], examples=len(dev))
