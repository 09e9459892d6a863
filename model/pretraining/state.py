"""State of a phase in its work folder: numbers in checkpoints as JSON, and snapshots.

Snapshots are the models of the steps that the configuration names. They are written atomically,
before any checkpoint of the same or a later step. So a killed run that resumes after such a step
finds its snapshot, and one that resumes before it writes the snapshot again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from model.bert import BertForPretraining
from model.hf_weights import save_model
from model.pretraining.job import TrainingJob
from model.training.artifact_files import snapshot_folder
from model.training.checkpoints import Checkpoints
from model.training.progress import Amounts
from schemas.errors import CheckpointError

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

    def add(
        self,
        sums: Sequence[float],
        *,
        loss: float,
        gradient_norm: float,
        predictions: int,
        pairs: int,
    ) -> None:
        """Count one step more; `sums` are losses and hits of masked tokens, then of pairs."""
        self.steps += 1
        self.loss += loss
        self.gradient_norm += gradient_norm
        self.mlm_loss += sums[0]
        self.mlm_correct += sums[1]
        self.predictions += predictions
        self.nsp_loss += sums[2]
        self.nsp_correct += sums[3]
        self.pairs += pairs


@dataclass
class PhaseState:
    """State of a phase without its tensors.

    Attributes:
        done: Amount of training in this phase.
        earlier_phases: Amount in earlier phases, if the optimizer state is restored; the position
            in the learning rate schedule is the sum of both.
        instances: Instances trained on in this phase, the position of the loader.
        recent: Losses of the last steps, at most RECENT_STEPS.
        lowest_mean: Lowest mean of RECENT_STEPS losses so far.
        evaluation: Result of the last evaluation.
        lowest_evaluation: `step` and `mlm_loss` of the evaluation with the lowest held-out loss.
        trained_on: Names of the devices of each start, without repeats.
        is_finished: True when the budget is reached and the last evaluation is done.
    """

    done: Amounts = field(default_factory=Amounts)
    earlier_phases: Amounts = field(default_factory=Amounts)
    instances: int = 0
    recent: list[float] = field(default_factory=list)
    lowest_mean: float | None = None
    evaluation: dict[str, float] = field(default_factory=dict)
    lowest_evaluation: dict[str, float] = field(default_factory=dict)
    interval: IntervalSums = field(default_factory=IntervalSums)
    trained_on: list[str] = field(default_factory=list)
    is_finished: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any], *, where: str) -> PhaseState:
        """Return the state that `to_json` returned.

        Raises:
            CheckpointError: Another version wrote it.
        """
        try:
            nested: dict[str, Any] = {
                "done": Amounts(**data["done"]),
                "earlier_phases": Amounts(**data["earlier_phases"]),
                "interval": IntervalSums(**data["interval"]),
            }
            return cls(**{**data, **nested})
        except (TypeError, KeyError) as error:
            raise CheckpointError(
                f"{where}: expected the training state of this version of bertloom, found another "
                f"({error}). Finish the run with the version that began it, or delete its folder"
            ) from error

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
        """Write the model of a step and its measurements (JSON values) to disk, unless it is there.

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
