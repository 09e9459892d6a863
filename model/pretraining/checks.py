"""Warnings of a phase of pretraining, from its state and from the phase that it starts from."""

from __future__ import annotations

from collections.abc import Mapping

from model.pretraining.job import TrainingJob
from model.pretraining.state import PhaseState
from model.training.health import TrainingWarning, check_end, check_unigram
from pipelines.instances import HELD_OUT
from pipelines.instances.notes import describe_sample, is_too_small


def find_warnings(job: TrainingJob, state: PhaseState) -> list[TrainingWarning | None]:
    """Check a finished phase; None stands for a passed check."""
    if not state.evaluation:
        return []
    loss, lowest = state.evaluation["mlm_loss"], state.lowest_evaluation
    earlier = {f"after step {lowest['step']:,.0f}": lowest["mlm_loss"]}
    before = job.checkpoint.statistics if job.checkpoint is not None else {}
    loss_before = before.get("held_out", {}).get("mlm_loss")
    if loss_before is not None and before["objective"] == job.config.objective:
        earlier[f"at the end of {job.config.init_from_phase}"] = loss_before
    return [check_unigram(loss, state.evaluation["unigram_loss"]), check_end(loss, earlier)]


def held_out_caution(counters: Mapping[str, int]) -> str:
    """Return the size of a held-out set that is too small, for wherever its metrics are shown.

    Args:
        counters: Counters of the instances.

    Returns:
        Text such as `only 3 instances of 1 document`; "" for a set that is large enough.
    """
    size = (
        counters.get(f"{HELD_OUT}-instances", 0),
        counters.get(f"{HELD_OUT}-documents-kept", 0),
    )
    return f"only {describe_sample(*size)}" if is_too_small(*size) else ""
