"""Training of one fine-tuning trial on top of `model.training.loop`."""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch

from model.data.loader import prefetch
from model.finetuning.batches import TaskBatch, TaskStep
from model.finetuning.feature_tagger import FeatureTagger
from model.finetuning.jobs import CURVE_FILE, TrialJob
from model.finetuning.prediction import compute_outputs
from model.finetuning.results import write_results
from model.finetuning.setup import (
    DEV,
    Phase,
    Split,
    TrialSetup,
    TrialState,
    open_trial,
    phases_of,
    steps_of,
)
from model.optim import Optimizer, build_optimizer, learning_rate
from model.training.checkpoints import Checkpoints
from model.training.distributed import ProcessGroup
from model.training.health import PAGE
from model.training.log import JsonLines
from model.training.loop import StepMetrics, Trainer, resume_from_checkpoint
from model.training.progress import PROGRESS_FILE, TrainingProgress
from model.training.stopping import StopRequest
from pipelines.arrays import Float32s
from pipelines.seeds import key_for
from schemas.errors import TrainingError
from schemas.model_configs import BudgetConfig, ScheduleConfig

_CURVE_LINES = 500  # of a trial, about
_PREFETCHED_STEPS = 2
_LAST_SAVE_SECONDS = 60.0
"""Seconds since the last checkpoint after which the end of a training writes another one, before
the prediction of dev."""


def train_trial(job: TrialJob, *, stop: StopRequest) -> dict[str, Any]:
    """Train a trial to its end, from its newest checkpoint if any, and predict dev.

    Writes the files of the artifact to `job.results()`.

    Returns:
        `statistics`, `counters` and `notes`, as in `StageOutput`.

    Raises:
        TaskDataError, ConfigError, CheckpointError, VocabularyError: Before the first step, if
            inputs are invalid; CheckpointError also if a checkpoint cannot be written.
        DivergenceError: The loss is not finite.
        TrainingError: The training was asked to stop, and has written a checkpoint.
    """
    if job.config.num_threads:
        torch.set_num_threads(job.config.num_threads)
    checkpoints = Checkpoints(
        f"{job.work}/checkpoints", keep_last=job.config.checkpoints.save_total_limit
    )
    with checkpoints.lock():
        setup = open_trial(job)
        if isinstance(setup.model, FeatureTagger):
            setup = encode_splits(setup, setup.model, stop=stop)
        trainer = FineTuningTrainer(setup, checkpoints=checkpoints, stop=stop)
        with closing(trainer):
            trainer.run()
            trainer.save_if_needed(older_than=_LAST_SAVE_SECONDS)
            try:
                return write_results(setup, state=trainer.state, stop=stop)
            except TrainingError:
                if stop.reason:
                    trainer.save_if_needed()
                raise
            finally:
                del trainer
                if setup.device.type == "cuda":  # free memory for other trials of this process
                    torch.cuda.empty_cache()


def encode_splits(setup: TrialSetup, model: FeatureTagger, *, stop: StopRequest) -> TrialSetup:
    """Return a trial whose training data has the outputs of its frozen encoder.

    The encoder reads the data once, not in each epoch. A file in the trial's folder holds the
    outputs, because those of a large encoder exceed the memory; it vanishes with the process.

    Raises:
        TrainingError: A stop was requested.
    """
    folder = setup.job.folder()
    folder.mkdir(parents=True, exist_ok=True)
    splits = dict(setup.splits)
    for name, (examples, features) in setup.splits.items():
        if name == DEV:
            continue
        options = setup.prediction_options(f"encode {name}", stop=stop)
        new_array = functools.partial(_new_file_array, folder=folder)
        encoded = compute_outputs(model.encode, features, options, new_array=new_array)
        splits[name] = Split(examples, replace(features, encoded=encoded))
    return replace(setup, splits=splits)


def _new_file_array(shape: tuple[int, ...], *, folder: Path) -> Float32s:
    file = TemporaryFile(dir=folder)  # noqa: SIM115  # the array closes it
    return np.memmap(file, np.float32, mode="w+", shape=shape)


class FineTuningTrainer(Trainer[TaskStep]):
    """Trainer of a trial."""

    advice = f"Lower learning_rate, or lengthen warmup_ratio. See {PAGE}#the-loss-becomes-nan"

    def __init__(self, setup: TrialSetup, *, checkpoints: Checkpoints, stop: StopRequest) -> None:
        """Resume from the newest checkpoint, if any."""
        self.setup, self.config, job = setup, setup.job.config, setup.job
        self.phases = phases_of(setup)
        self.total_steps: int = sum(phase.steps for phase in self.phases)
        self._schedule = ScheduleConfig(
            lr_scheduler_type="linear", warmup_ratio=self.config.warmup_ratio
        )
        optimizer = self._new_optimizer()
        self.state = resume_from_checkpoint(
            checkpoints, model=setup.model, optimizer=optimizer, state=TrialState()
        )
        done, folder = self.state.done, job.folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._curve = JsonLines(folder / CURVE_FILE, resume_step=done.steps)
        budget = BudgetConfig(max_steps=self.total_steps)
        super().__init__(
            job.name,
            model=setup.model,
            optimizer=optimizer,
            state=self.state,
            group=ProcessGroup(0, 1, setup.device),
            checkpoints=checkpoints,
            checkpoint_config=self.config.checkpoints,
            stop=stop,
            log=self._curve,
            progress=TrainingProgress(
                job.name, path=folder / PROGRESS_FILE, budget=budget, done=done
            ),
            is_bf16=setup.is_bf16,
        )

    def _new_optimizer(self) -> Optimizer:
        config = self.config.optimizer.model_copy(
            update={"learning_rate": self.config.learning_rate}
        )
        return build_optimizer(self.setup.model.named_parameters(), config)

    def batches(self) -> Generator[TaskStep]:
        """Yield the remaining batches of all phases, each with a new optimizer state."""
        for phase in self.phases:
            if phase.start and self.done.steps == phase.start:
                self.optimizer = self._new_optimizer()
            with closing(self._batches_of(phase)) as batches:
                yield from batches

    def _batches_of(self, phase: Phase) -> Generator[TaskStep]:
        """Return the remaining batches of a phase; for a GPU, a thread prepares and pins them."""
        steps = steps_of(phase, self.setup, done=self.done.steps - phase.start)
        if self.group.device.type != "cuda":
            return steps
        return prefetch((step.pin_memory() for step in steps), size=_PREFETCHED_STEPS)

    def _phase_of(self, step: int) -> Phase:
        """Return the phase of a step, from 1."""
        return next(phase for phase in self.phases if step <= phase.end)

    def learning_rate(self) -> float:
        phase = self._phase_of(self.done.steps + 1)
        return learning_rate(
            self.done.steps - phase.start,
            total=phase.steps,
            peak=self.config.learning_rate,
            schedule=self._schedule,
        )

    def dropout_key(self, number: int) -> int:
        phase = self._phase_of(self.done.steps + 1)
        seed, restart = self.config.seed, self.config.restart
        step = self.done.steps - phase.start
        return key_for(seed, "task-dropout", restart, phase.name, step, number)

    def compute_loss(
        self, micro_batch: TaskBatch, batch: TaskStep
    ) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        return self.wrapped_model(micro_batch, scale=batch.scale).loss, ()

    def on_step_end(self, batch: TaskStep, metrics: StepMetrics) -> str:
        state, step = self.state, self.done.steps
        phase = self._phase_of(step)
        state.examples += len(batch.units)
        state.loss += metrics.loss
        state.losses += 1
        is_last = step == phase.end
        if is_last or step % max(1, self.total_steps // _CURVE_LINES) == 0:
            self._curve.append(
                {
                    "step": step,
                    "split": phase.name,
                    "epoch": round((step - phase.start) / phase.batches, 6),
                    "loss": state.loss / state.losses,
                    "rate": metrics.learning_rate,
                }
            )
            state.loss, state.losses = 0.0, 0
        self.progress.details = [f"loss {metrics.loss:.3f}"]
        return ""

    def batch_contents(self, batch: TaskStep) -> tuple[str, list[str]]:
        split = self._phase_of(self.done.steps).split
        rows = split.features.rows[batch.units]
        return "examples", [str(split.examples["id"][int(row)]) for row in rows]
