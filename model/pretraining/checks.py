"""Warnings of a phase of pretraining, from its state and from the phase that it starts from."""

from __future__ import annotations

import math
from collections.abc import Mapping

from model.pretraining.job import TrainingJob
from model.pretraining.state import PhaseState
from model.training.health import (
    TrainingWarning,
    check_evaluations,
    check_held_out_size,
    check_phases,
    check_unigram,
)
from pipelines.instances import HELD_OUT
from pipelines.instances.notes import advise_fraction, describe_sample, is_too_small
from schemas.model_configs import Objective


def find_warnings(job: TrainingJob, state: PhaseState) -> list[TrainingWarning | None]:
    """Check a finished phase; None stands for a passed check."""
    warnings = [find_unigram_warning(state, objective=job.config.objective)]
    if not state.evaluation:
        return warnings
    warnings.append(find_held_out_warning(job))
    loss = state.evaluation["mlm_loss"]
    before = job.checkpoint.statistics if job.checkpoint is not None else {}
    loss_before = before.get("held_out", {}).get("mlm_loss")
    if loss_before is not None and before["objective"] == job.config.objective:
        phase = str(job.config.init_from_phase)
        warnings.append(check_phases(loss, loss_before, phase_before=phase))
    lowest = state.lowest_evaluation
    warnings.append(check_evaluations(loss, lowest["mlm_loss"], lowest_step=int(lowest["step"])))
    return warnings


def held_out_caution(counters: Mapping[str, int]) -> str:
    """Return the size of a held-out set that is too small, for wherever its metrics are shown.

    Args:
        counters: Counters of the instances.

    Returns:
        Text such as `only 3 instances of 1 document`; "" for a set that is large enough.
    """
    size = _held_out_size(counters)
    return f"only {describe_sample(*size)}" if is_too_small(*size) else ""


def find_held_out_warning(job: TrainingJob) -> TrainingWarning | None:
    """Check the number of held-out instances and documents, and advise how to get more."""
    counters = job.instances.counters
    dropped = counters.get("documents-dropped-held-out", 0)
    passes = max(1, dropped // max(1, counters.get(f"{HELD_OUT}-documents-in", 0)))
    advice = advise_fraction(counters, passes=passes)
    return check_held_out_size(
        *_held_out_size(counters), advice=f"build_instances.{job.config.instances}: {advice}"
    )


def _held_out_size(counters: Mapping[str, int]) -> tuple[int, int]:
    """Return the number of held-out instances and of their documents."""
    return (
        counters.get(f"{HELD_OUT}-instances", 0),
        counters.get(f"{HELD_OUT}-documents-kept", 0),
    )


def find_unigram_warning(state: PhaseState, *, objective: Objective) -> TrainingWarning | None:
    """Check the last held-out loss; without held-out instances, the last training losses."""
    if state.evaluation:
        loss, level = state.evaluation["mlm_loss"], state.evaluation["unigram_loss"]
    elif state.unigram_loss is not None:
        loss, level = math.fsum(state.recent_mlm) / len(state.recent_mlm), state.unigram_loss
    else:
        return None
    return check_unigram(loss, level, steps=state.done.steps, objective=objective)
