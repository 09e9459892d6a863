"""State of a phase in its work folder: numbers in checkpoints as JSON, and snapshots.

Snapshots are the models of the steps that the configuration names. They are written atomically,
before any checkpoint of the same or a later step. So a killed run that resumes after such a step
finds its snapshot, and one that resumes before it writes the snapshot again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from torch import nn

from model.bert import BertForPretraining
from model.data.batches import StepBatch
from model.hf_weights import save_model
from model.pretraining.job import TrainingJob
from model.training.artifact_files import snapshot_folder
from model.training.checkpoints import Checkpoints
from model.training.loop import StepMetrics, TrainingState
from model.training.progress import Amounts

RECENT_STEPS = 50
"""Steps whose mean loss tells whether a run diverges."""


@dataclass
class IntervalSums:
    """Sums since the last line of the curves; kept in checkpoints so that no line is lost."""

    steps: int = 0
    loss: float = 0.0
    gradient_norm: float = 0.0
    mlm_loss: float = 0.0
    mlm_correct: float = 0.0
    predictions: int = 0
    nsp_loss: float = 0.0
    nsp_correct: float = 0.0
    pairs: int = 0

    def add(self, batch: StepBatch, metrics: StepMetrics) -> None:
        """Count one step more."""
        mlm_loss, mlm_correct, nsp_loss, nsp_correct = metrics.sums
        self.steps += 1
        self.loss += metrics.loss
        self.gradient_norm += metrics.gradient_norm
        self.mlm_loss += mlm_loss
        self.mlm_correct += mlm_correct
        self.predictions += batch.predictions
        self.nsp_loss += nsp_loss
        self.nsp_correct += nsp_correct
        self.pairs += batch.pairs


class PhaseState(TrainingState):
    """State of a phase."""

    earlier_phases: Amounts = Field(default_factory=Amounts)
    """Amount of training in earlier phases, if the optimizer state is restored; the position in the
    learning rate schedule is the sum of it and of `done`."""

    instances: int = 0
    """Instances trained on in this phase, the position of the loader."""

    recent: list[float] = Field(default_factory=list)
    """Losses of the last steps, at most RECENT_STEPS."""

    lowest_mean: float | None = None
    """Lowest mean of RECENT_STEPS losses so far."""

    evaluation: dict[str, float] = Field(default_factory=dict)
    """Result of the last evaluation."""

    lowest_evaluation: dict[str, float] = Field(default_factory=dict)
    """`step` and `mlm_loss` of the evaluation with the lowest held-out loss."""

    interval: IntervalSums = Field(default_factory=IntervalSums)
    trained_on: list[str] = Field(default_factory=list)
    """Names of the devices of each start, without repeats."""

    is_finished: bool = False
    """True when the budget is reached and the last evaluation is done."""

    def record_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record an evaluation after a step."""
        self.evaluation = {"step": step, **metrics}
        if not self.lowest_evaluation or metrics["mlm_loss"] < self.lowest_evaluation["mlm_loss"]:
            self.lowest_evaluation = {"step": step, "mlm_loss": metrics["mlm_loss"]}

    def check_divergence(self, loss: float, *, max_rise: float) -> str:
        """Record a finite loss; return why the losses diverge, or ""."""
        self.recent = [*self.recent[-(RECENT_STEPS - 1) :], loss]
        if len(self.recent) < RECENT_STEPS:
            return ""
        mean = math.fsum(self.recent) / RECENT_STEPS
        if self.lowest_mean is None or mean < self.lowest_mean:
            self.lowest_mean = mean
        if max_rise and mean > self.lowest_mean + max_rise:
            return (
                f"the mean loss over {RECENT_STEPS} steps has risen from {self.lowest_mean:.3f} to "
                f"{mean:.3f}, by more than divergence_threshold = {max_rise:g}"
            )
        return ""


class Snapshots:
    """Snapshots of one job."""

    def __init__(self, job: TrainingJob) -> None:
        self.steps = job.config.kept_steps
        self._checkpoints = Checkpoints(f"{job.work}/snapshots", keep_last=len(self.steps) or 1)

    def keep(self, step: int, *, model: nn.Module, measured: Mapping[str, Any]) -> None:
        """Write the model of a step and its measurements (JSON values) to disk once.

        Raises:
            CheckpointError: It cannot be written.
        """
        if any(saved.step == step for saved in self._checkpoints.list()):
            return
        self._checkpoints.save(
            step, tensors={"model": model.state_dict()}, state={"measured": dict(measured)}
        )

    def measured(self) -> dict[str, dict[str, Any]]:
        """Return the measurements of each snapshot by step.

        Raises:
            CheckpointError: A snapshot is missing or damaged.
        """
        return {
            str(step): dict(self._checkpoints.at_step(step).state["measured"])
            for step in self.steps
        }

    def files(
        self, model: BertForPretraining, *, pad_token_id: int
    ) -> Iterator[tuple[str, dict[str, bytes]]]:
        """Yield the artifact folder of each snapshot, and its files in Hugging Face's layout.

        `model` takes the weights of one after another.

        Raises:
            CheckpointError: A snapshot is missing or damaged.
        """
        for step in self.steps:
            model.load_state_dict(self._checkpoints.at_step(step).tensors["model"])
            yield snapshot_folder(step), save_model(model, pad_token_id=pad_token_id)
