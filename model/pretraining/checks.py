"""Warnings of a phase of pretraining, from its state and from the phase that it starts from."""

from __future__ import annotations

import math

from model.pretraining.job import TrainingJob
from model.pretraining.state import PhaseState
from model.training.health import (
    TrainingWarning,
    check_evaluations,
    check_phases,
    check_unigram,
)
from schemas.model_configs import Objective


def find_warnings(job: TrainingJob, state: PhaseState) -> list[TrainingWarning | None]:
    """Check a finished phase; None stands for a passed check."""
    warnings = [find_unigram_warning(state, objective=job.config.objective)]
    if not state.evaluation:
        return warnings
    loss = state.evaluation["mlm_loss"]
    before = job.checkpoint.statistics if job.checkpoint is not None else {}
    loss_before = before.get("held_out", {}).get("mlm_loss")
    if loss_before is not None and before["objective"] == job.config.objective:
        phase = str(job.config.init_from_phase)
        warnings.append(check_phases(loss, loss_before, phase_before=phase))
    lowest = state.lowest_evaluation
    warnings.append(check_evaluations(loss, lowest["mlm_loss"], lowest_step=int(lowest["step"])))
    return warnings


def find_unigram_warning(state: PhaseState, *, objective: Objective) -> TrainingWarning | None:
    """Check the last held-out loss; without held-out instances, the last training losses."""
    if state.evaluation:
        loss, level = state.evaluation["mlm_loss"], state.evaluation["unigram_loss"]
    elif state.unigram_loss is not None:
        loss, level = math.fsum(state.recent_mlm) / len(state.recent_mlm), state.unigram_loss
    else:
        return None
    return check_unigram(loss, level, steps=state.done.steps, objective=objective)
