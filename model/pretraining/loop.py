"""Training module of a pretraining phase on top of `model.training.loop`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import torch
from torch import nn

from model.data.batches import PretrainingBatch, StepBatch
from model.launch.distributed import ProcessGroup, init_distributed
from model.launch.stopping import StopRequest
from model.monitoring.reporter import PretrainingLogger
from model.monitoring.training_log import EvaluationRecord, StepRecord
from model.optim.schedules import learning_rate
from model.pretraining.checks import find_unigram_warning
from model.pretraining.evaluation import HeldOut
from model.pretraining.job import TrainingJob
from model.pretraining.setup import PretrainingSetup, open_setup
from model.pretraining.snapshots import Snapshots
from model.pretraining.state import (
    RECENT_STEPS,
    IntervalSums,
    is_used_up,
    schedule_position,
    used_share,
)
from model.pretraining.unigram import count_labels, unigram_loss
from model.training.artifact_files import CURVES_FOLDER
from model.training.checkpoints import Checkpoints
from model.training.health import PAGE, is_unigram_check_due
from model.training.loop import StepFound, Trainer, Training
from pipelines.seeds import key_for
from schemas.errors import ConfigError


def train(job: TrainingJob, *, stop: StopRequest) -> None:
    """Train to the end of the budget, from the newest checkpoint of the job if there is one.

    Under torchrun this is called in every process. At the end the newest checkpoint is finished.

    Raises:
        InstanceDataError, ConfigError, CheckpointError: before the first step, if something does
            not fit; CheckpointError also when a checkpoint cannot be written.
        DivergenceError: the loss is not finite or keeps rising.
        TrainingError: it was asked to stop, and has written a checkpoint.
    """
    config = job.config
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    with ExitStack() as stack:
        group = stack.enter_context(init_distributed(config))
        checkpoints = Checkpoints(
            f"{job.work}/checkpoints", keep_last=config.checkpoints.save_total_limit
        )
        if group.is_main_process:
            stack.enter_context(checkpoints.lock())
        group.barrier()
        setup = open_setup(job, group=group, checkpoints=checkpoints)
        if setup.state.is_finished:
            return
        training = Pretraining(job, setup, group=group)
        stack.callback(training.logger.close)
        trainer = Trainer(training, group=group, checkpoints=checkpoints, stop=stop)
        trainer.run()
        best_loss = trainer.evaluate()
        setup.state.is_finished = True
        training.logger.plot()
        trainer.save(loss=best_loss)
        trainer.close()


class Pretraining(Training[StepBatch]):
    """Training module of a phase."""

    is_read_late = True
    advice = (
        "Lower optimizer.learning_rate or lengthen schedule.warmup_ratio. "
        f"See {PAGE}#the-loss-becomes-nan"
    )

    def __init__(self, job: TrainingJob, setup: PretrainingSetup, *, group: ProcessGroup) -> None:
        config = setup.config
        self.name, self.config, self.setup, self.group = job.name, config, setup, group
        self.model: nn.Module = setup.model
        self.optimizer, self.is_resumed = setup.optimizer, setup.is_resumed
        self.checkpoint_config = config.checkpoints
        self.is_bf16, self.is_compiled = config.precision == "bf16", config.compile
        self.held_out = HeldOut.open(job, group=group, setup=setup)
        if config.keep == "best" and self.held_out is None:
            raise ConfigError(
                f"{job.name}: keep is best: expected held-out instances to choose by, found none. "
                f"Raise build_instances.{config.instances}.held_out_fraction, or set keep to last"
            )
        if self.held_out is None:
            counts = count_labels(
                setup.instances, vocabulary=setup.vocabulary, objective=config.objective
            )
            setup.state.unigram_loss = unigram_loss(counts)
        self.snapshots = Snapshots(job)
        self.logger = PretrainingLogger(
            job.name,
            folder=job.folder(),
            curves=job.folder() / CURVES_FOLDER,
            config=config,
            model=setup.model.config,
            vocab_size=setup.model.vocab_size,
            group=group,
            done=setup.state.done,
        )

    @property
    def steps(self) -> int:
        return self.setup.state.done.steps

    @property
    def seconds(self) -> float:
        return self.setup.state.done.seconds

    def batches(self) -> Generator[StepBatch]:
        """See `Training.batches`."""
        state = self.setup.state
        with closing(self.setup.loader(state.loader)) as loader:
            batches = iter(loader)
            while not is_used_up(state, self.config.budget):
                yield next(batches)

    def rate(self) -> float:
        """See `Training.rate`."""
        position, total, unit = schedule_position(self.setup.state, self.config.budget)
        return learning_rate(
            position,
            total=total,
            peak=self.config.optimizer.learning_rate,
            schedule=self.config.schedule,
            unit=unit,
        )

    def dropout_key(self, number: int) -> int:
        """See `Training.dropout_key`."""
        step = self.setup.state.carried.steps + self.steps
        return key_for(self.config.seed, "dropout", step, self.group.rank, number)

    def loss(
        self, model: nn.Module, micro_batch: PretrainingBatch, batch: StepBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of losses and hits: those of masked tokens, then of next sentences."""
        output = model(micro_batch, batch.predictions, batch.pairs)
        sums = (
            output.mlm_loss_sum,
            output.mlm_correct,
            output.nsp_loss_sum,
            output.nsp_correct,
        )
        return output.loss, torch.stack(sums)

    def mean_loss(self, batch: StepBatch, sums: list[float]) -> float:
        """See `Training.mean_loss`."""
        return sums[0] / max(1, batch.predictions) + sums[2] / max(1, self._pairs(batch))

    def _pairs(self, batch: StepBatch) -> int:
        return batch.pairs if self.config.objective == "mlm+nsp" else 0

    def rise(self, loss: float) -> str:
        """See `Training.rise`."""
        return self.setup.state.note_loss(loss, max_rise=self.config.divergence_threshold)

    def count_step(self, batch: StepBatch) -> None:
        """See `Training.count_step`."""
        state = self.setup.state
        state.done.steps += 1
        state.done.tokens += batch.tokens
        state.instances += batch.instances
        state.loader = batch.state

    def note_step(self, batch: StepBatch, found: StepFound) -> None:
        """See `Training.note_step`."""
        state = self.setup.state
        state.done.seconds = found.seconds
        state.interval.add(
            found.sums,
            loss=found.loss,
            gradient_norm=found.gradient_norm,
            predictions=batch.predictions,
            pairs=self._pairs(batch),
        )
        state.recent_mlm = [
            *state.recent_mlm[-(RECENT_STEPS - 1) :],
            found.sums[0] / max(1, batch.predictions),
        ]
        self.logger.on_step_end(state.done, batch=batch, waited=found.waited)
        # Write the last line before the checkpoint of the last step, so that a run that resumes
        # from the checkpoint finds it.
        is_last = is_used_up(state, self.config.budget)
        if is_last or self.steps % self.config.logging_steps == 0:
            self.logger.log_step(self._line(found.rate), seconds=found.seconds)
            state.interval = IntervalSums()
            if self.held_out is None:
                self._report_unigram_level()

    def _line(self, rate: float) -> StepRecord:
        state, sums = self.setup.state, self.setup.state.interval
        return StepRecord(
            step=state.done.steps,
            tokens=state.done.tokens,
            epoch=state.instances / len(self.setup.instances),
            loss=sums.loss / sums.steps,
            mlm_loss=sums.mlm_loss / max(1, sums.predictions),
            mlm_accuracy=sums.mlm_correct / max(1, sums.predictions),
            learning_rate=rate,
            gradient_norm=sums.gradient_norm / sums.steps,
            nsp_loss=sums.nsp_loss / sums.pairs if sums.pairs else None,
            nsp_accuracy=sums.nsp_correct / sums.pairs if sums.pairs else None,
        )

    def state(self) -> dict[str, Any]:
        """See `Training.state`."""
        return self.setup.state.to_json()

    def learnt_from(self, batch: StepBatch) -> tuple[str, list[str]]:
        """See `Training.learnt_from`: shards and rows in them."""
        rows = self.group.all_gather(
            [int(row) for part in batch.micro_batches for row in part.rows]
        )
        places = (self.setup.instances.place(row) for row in rows)
        return "instances", [f"{shard}:{row}" for shard, row in places]

    def evaluation_is_due(self) -> bool:
        """See `Training.evaluation_is_due`."""
        every = self.config.evaluation.eval_steps
        return (bool(every) and self.steps % every == 0) or self.steps in self.snapshots.steps

    def evaluate(self) -> Mapping[str, float] | None:
        """See `Training.evaluate`."""
        if self.held_out is None or self.setup.state.evaluation.get("step") == self.steps:
            return None
        return self.held_out.evaluate(self.setup.model, is_bf16=self.is_bf16)

    def note_evaluation(self, found: Mapping[str, float]) -> bool:
        """See `Training.note_evaluation`."""
        state = self.setup.state
        state.note_evaluation(self.steps, found)
        is_best = self.config.keep == "best" and (
            state.best_loss is None or found["loss"] < state.best_loss
        )
        if is_best:
            state.best_loss = found["loss"]
        record = EvaluationRecord(
            step=self.steps,
            tokens=state.done.tokens,
            held_out_mlm_loss=found["mlm_loss"],
            perplexity=found["perplexity"],
            held_out_mlm_accuracy=found["mlm_accuracy"],
            held_out_nsp_loss=found.get("nsp_loss"),
            held_out_nsp_accuracy=found.get("nsp_accuracy"),
        )
        self.logger.log_evaluation(record)
        self._report_unigram_level()
        return is_best

    def _report_unigram_level(self) -> None:
        """Warn once, during training, about a loss at the level of word frequencies."""
        state, budget = self.setup.state, self.config.budget
        if state.is_unigram_reported or is_used_up(state, budget):  # the artifact tells the end
            return
        if not is_unigram_check_due(budget_share=used_share(state, budget), steps=self.steps):
            return
        if (warning := find_unigram_warning(state, objective=self.config.objective)) is not None:
            state.is_unigram_reported = True
            self.logger.warn(warning.text)

    def keep_snapshot(self) -> None:
        """See `Training.keep_snapshot`."""
        if self.steps not in self.snapshots.steps:
            return
        state = self.setup.state
        if self.group.is_main_process:
            measured = {"evaluation": state.evaluation, "tokens": state.done.tokens}
            self.snapshots.keep(self.steps, model=self.setup.model, measured=measured)
        self.group.barrier()

    def sync(self) -> None:
        """See `Training.sync`."""
        self.logger.flush()
