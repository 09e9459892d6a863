"""The training of one trial: epochs of shuffled batches, updates, checkpoints on the way.

As in pretraining (`model.pretraining.loop`) all that a step does follows from configuration,
inputs and the
number of the step: order of the data, dropout and new weights are keyed, never drawn from a state.
So a trial that was killed and goes on from a checkpoint repeats the steps it lost to the bit.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import torch

from model.encoder.dropout import seed_dropout
from model.finetuning.jobs import CURVE_FILE, TrialJob
from model.finetuning.phases import Phase, TrialState, phases_of, steps_of
from model.finetuning.progress import TrialProgress
from model.finetuning.results import write_results
from model.finetuning.setup import TrialSetup, open_trial
from model.finetuning.task_batching import TaskStep
from model.optim.optimizer import Optimizer, build_optimizer
from model.optim.schedules import learning_rate
from model.processes.stopping import StopRequest
from model.training.checkpoints import Checkpoints, LoadedCheckpoint
from model.training.json_lines import JsonLines
from pipelines.seeds import key_for
from pipelines.telling.progress import READING_FILE
from schemas.errors import CheckpointError, ConfigError, DivergenceError, TrainingError
from schemas.model_configs import ScheduleConfig

_SHOWN_EXAMPLES = 8
_CURVE_LINES = 500  # of a trial, about
_LAST_SAVE_SECONDS = 60.0
"""A training that ends this long after its last checkpoint leaves another: dev is still to come."""


def train_trial(job: TrialJob, *, stop: StopRequest) -> dict[str, Any]:
    """Train a trial to its end, from its newest checkpoint if there is one, and answer dev.

    The files of the artifact are in `job.results()` then.

    Returns:
        `statistics`, `counters` and `notes`, as in `StageOutput`.

    Raises:
        ExamplesError, ConfigError, CheckpointError, VocabularyError: before the first step, if
            something does not fit; CheckpointError also when a checkpoint cannot be written.
        DivergenceError: the loss is not finite.
        TrainingError: it was asked to stop, and has written a checkpoint.
    """
    if job.config.threads:
        torch.set_num_threads(job.config.threads)
    device = choose_device(job.config.device)
    checkpoints = Checkpoints(f"{job.work}/checkpoints", keep_last=job.config.checkpoints.keep_last)
    readings = job.folder() / READING_FILE
    with checkpoints.lock(), TrialProgress(job.name, readings=readings) as progress:
        training = TrialTraining(open_trial(job), device=device, checkpoints=checkpoints)
        training.run(stop, progress=progress)
        try:
            return write_results(
                training.start, device=device, done=training.state, stop=stop, progress=progress
            )
        except TrainingError:
            if stop.reason:
                training.save()
            raise
        finally:
            del training
            if device.type == "cuda":  # the process lives on, and others may want the memory
                torch.cuda.empty_cache()


def choose_device(name: str) -> torch.device:
    """The device of a configuration's `auto`, `cpu` or `cuda`.

    Raises:
        ConfigError: a GPU is asked for, and there is none.
    """
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ConfigError("expected a GPU for device: cuda, found none: set device to cpu or auto")
    return torch.device("cuda" if name != "cpu" and has_gpu else "cpu")


class TrialTraining:
    """A trial in progress."""

    def __init__(
        self, start: TrialSetup, *, device: torch.device, checkpoints: Checkpoints
    ) -> None:
        """Go on from the newest of the checkpoints, if there is one."""
        self.start, self.job, self.config = start, start.job, start.job.config
        self.device, self.checkpoints = device, checkpoints
        self.model = start.model.to(device)
        self.phases = phases_of(start)
        self.total = sum(phase.steps for phase in self.phases)
        self.state = TrialState()
        self._schedule = ScheduleConfig(decay="linear", warmup_share=self.config.warmup_share)
        self.optimizer = self._new_optimizer()
        self._last_saved: int | None = None
        latest = checkpoints.latest()
        if latest is not None:
            self._resume(latest)
        self._saved_at = time.monotonic()

    def run(self, stop: StopRequest, *, progress: TrialProgress) -> None:
        """Step by step through all phases."""
        folder = self.job.folder()
        folder.mkdir(parents=True, exist_ok=True)
        curve = JsonLines(folder / CURVE_FILE, last_step=self.state.steps)
        try:
            progress.begin(done=self.state.steps, total=self.total)
            self.model.train()
            while self.state.phase < len(self.phases):
                phase = self.phases[self.state.phase]
                for step in steps_of(phase, self.start, done=self.state.step):
                    self._check_stop(stop)
                    began = time.perf_counter()
                    loss, rate = self._update(phase, step)
                    self.state.seconds += time.perf_counter() - began
                    self._note(phase, step, loss=loss, rate=rate, curve=curve)
                    progress.note(done=self.state.steps, loss=loss)
                    if self._is_due():
                        curve.sync()
                        self.save()
                self._end_phase(phase)
            if time.monotonic() - self._saved_at > _LAST_SAVE_SECONDS:
                self.save()
        finally:
            curve.sync()
            curve.close()

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this step."""
        steps = self.state.steps
        if not steps or self._last_saved == steps:
            return
        self.checkpoints.save(
            steps,
            tensors={
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_tensors(),
            },
            state=asdict(self.state),
        )
        self._last_saved = steps
        self._saved_at = time.monotonic()

    # One step

    def _update(self, phase: Phase, step: TaskStep) -> tuple[float, float]:
        """One update of the weights; the batch's mean loss, and the rate."""
        config = self.config
        rate = learning_rate(
            self.state.step,
            total=phase.steps,
            peak=config.learning_rate,
            schedule=self._schedule,
        )
        scale = 1.0 / step.count if step.count else 0.0
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for number, micro_batch in enumerate(step.micro_batches):
            key = key_for(
                config.seed,
                "task-dropout",
                config.restart,
                phase.name,
                self.state.step,
                number,
            )
            seed_dropout(self.model, key)
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=config.precision == "bf16"
            ):
                output = self.model(micro_batch.to(self.device), scale=scale)
            output.loss.backward()
            total += output.loss_sum
        norm = float(self.optimizer.step(learning_rate=rate))
        self.optimizer.zero_grad()
        loss = float(total) * scale
        if not (math.isfinite(loss) and math.isfinite(norm)):
            what = f"the loss is {loss}" if not math.isfinite(loss) else f"its gradient is {norm}"
            raise self._divergence(what, phase, step)
        return loss, rate

    def _divergence(self, what: str, phase: Phase, step: TaskStep) -> DivergenceError:
        rows = phase.split.features.rows[step.units]
        names = [str(phase.split.examples["id"][int(row)]) for row in rows]
        shown = ", ".join(names[:_SHOWN_EXAMPLES])
        more = f" and {len(names) - _SHOWN_EXAMPLES} more" if len(names) > _SHOWN_EXAMPLES else ""
        error = DivergenceError(
            f"{self.job.name}, step {self.state.steps + 1}: {what}. The batch had the examples "
            f"{shown}{more} of {phase.name}. Lower learning_rate, or lengthen warmup_share"
        )
        error.add_note("all examples of the batch: " + " ".join(names))
        return error

    # Between steps

    def _note(
        self, phase: Phase, step: TaskStep, *, loss: float, rate: float, curve: JsonLines
    ) -> None:
        state = self.state
        state.step += 1
        state.examples += len(step.units)
        state.tokens += step.tokens
        state.loss += loss
        state.losses += 1
        if state.step == phase.steps or state.steps % max(1, self.total // _CURVE_LINES) == 0:
            curve.append(
                {
                    "step": state.steps,
                    "split": phase.name,
                    "epoch": round(state.step / phase.batches, 6),
                    "loss": state.loss / state.losses,
                    "rate": rate,
                }
            )
            state.loss, state.losses = 0.0, 0

    def _end_phase(self, phase: Phase) -> None:
        """What follows begins with new moments."""
        state = self.state
        state.phase, state.before, state.step = state.phase + 1, state.before + phase.steps, 0
        if state.phase < len(self.phases):
            self.optimizer = self._new_optimizer()

    def _is_due(self) -> bool:
        checkpoints = self.config.checkpoints
        every = checkpoints.every_steps
        if every and self.state.steps % every == 0:
            return True
        return time.monotonic() - self._saved_at > 60 * checkpoints.every_minutes

    def _check_stop(self, stop: StopRequest) -> None:
        if not stop.reason:
            return
        steps = self.state.steps
        self.save()
        raise TrainingError(
            f"{self.job.name}: stopped after step {steps} of {self.total} ({stop.reason}); the "
            "next run goes on from there"
        )

    def _resume(self, latest: LoadedCheckpoint) -> None:
        where = latest.saved.url
        try:
            self.state = TrialState(**latest.state)
            self.model.load_state_dict(latest.tensors["model"])
        except (RuntimeError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{where}: the checkpoint does not fit the model: {error}. Delete the folder to "
                "begin anew"
            ) from error
        self.optimizer.load_state_tensors(latest.tensors["optimizer"], where=where)
        self._last_saved = self.state.steps

    def _new_optimizer(self) -> Optimizer:
        config = self.config.optimizer.model_copy(
            update={"learning_rate": self.config.learning_rate}
        )
        return build_optimizer(self.model.named_parameters(), config)
