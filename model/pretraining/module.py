"""Training module of a pretraining phase on top of `model.training.loop`."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import ExitStack, closing
from typing import Any

import torch
from torch import nn

from model.bert import BertForPretraining
from model.data.batches import PretrainingBatch, StepBatch
from model.optim import learning_rate
from model.pretraining.evaluation import HeldOutEvaluator, held_out_caution
from model.pretraining.job import TrainingJob
from model.pretraining.setup import PretrainingSetup, open_setup
from model.pretraining.state import IntervalSums, Snapshots
from model.training.artifact_files import CURVES_FOLDER
from model.training.checkpoints import Checkpoints
from model.training.distributed import ProcessGroup, init_distributed
from model.training.health import PAGE
from model.training.log import EvaluationRecord, PretrainingLogger, StepRecord
from model.training.loop import StepMetrics, Trainer, TrainingModule
from model.training.progress import budget_unit
from model.training.stopping import StopRequest
from model.training.throughput import batch_flops
from pipelines.seeds import key_for
from schemas.errors import DivergenceError


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
        training = PretrainingModule(job, setup, group=group)
        stack.callback(training.logger.close)
        trainer = Trainer(training, group=group, checkpoints=checkpoints, stop=stop)
        trainer.run()
        training.evaluate(trainer)
        setup.state.is_finished = True
        trainer.save()
        trainer.close()


class PretrainingModule(TrainingModule[StepBatch]):
    """Training module of a phase."""

    advice = (
        "Lower optimizer.learning_rate or lengthen schedule.warmup_ratio. "
        f"See {PAGE}#the-loss-becomes-nan"
    )

    def __init__(self, job: TrainingJob, setup: PretrainingSetup, *, group: ProcessGroup) -> None:
        config = setup.config
        self.name, self.config, self.setup, self.group = job.name, config, setup, group
        self.model: BertForPretraining = setup.model
        self.optimizer, self.is_resumed = setup.optimizer, setup.is_resumed
        self.checkpoint_config = config.checkpoints
        self.is_bf16, self.is_compiled = config.precision == "bf16", config.compile
        self.held_out = HeldOutEvaluator.open(job, group=group, setup=setup)
        self._caution = held_out_caution(job.instances.counters)
        self.snapshots = Snapshots(job)
        self.logger: PretrainingLogger = PretrainingLogger(
            job.name,
            folder=job.folder(),
            curves=job.folder() / CURVES_FOLDER,
            config=config,
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
        with closing(iter(self.setup.loader())) as batches:
            while not self._is_budget_reached():
                yield next(batches)

    def _is_budget_reached(self) -> bool:
        unit, amount = budget_unit(self.config.budget)
        return self.setup.state.done.in_unit(unit) >= amount

    def learning_rate(self) -> float:
        unit, amount = budget_unit(self.config.budget)
        before, done = self.setup.state.earlier_phases, self.setup.state.done
        return learning_rate(
            before.in_unit(unit) + done.in_unit(unit),
            total=before.in_unit(unit) + amount,
            peak=self.config.optimizer.learning_rate,
            schedule=self.config.schedule,
            unit=unit,
        )

    def dropout_key(self, number: int) -> int:
        step = self.setup.state.earlier_phases.steps + self.steps
        return key_for(self.config.seed, "dropout", step, self.group.rank, number)

    def training_step(
        self, model: nn.Module, micro_batch: PretrainingBatch, batch: StepBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss, and sums of losses and hits of masked tokens, then of next sentences."""
        output = model(micro_batch, batch.predictions, batch.pairs)
        sums = (
            output.mlm_loss_sum,
            output.mlm_correct,
            output.nsp_loss_sum,
            output.nsp_correct,
        )
        return output.loss, torch.stack(sums)

    def mean_loss(self, batch: StepBatch, sums: list[float]) -> float:
        return sums[0] / max(1, batch.predictions) + sums[2] / max(1, self._pairs(batch))

    def _pairs(self, batch: StepBatch) -> int:
        return batch.pairs if self.config.objective == "mlm+nsp" else 0

    def count_work(self, batch: StepBatch) -> tuple[int]:
        """Return the model FLOPs."""
        objective = self.config.objective
        flops = batch_flops(
            self.model.config,
            vocab_size=self.model.vocab_size,
            batches=batch.micro_batches,
            next_sentence=objective == "mlm+nsp",
            causal=objective == "left-to-right",
        )
        return (flops,)

    def count_step(self, batch: StepBatch) -> None:
        state = self.setup.state
        state.done.steps += 1
        state.done.tokens += batch.tokens
        state.instances += batch.instances

    def on_step_end(self, batch: StepBatch, metrics: StepMetrics) -> str:
        state = self.setup.state
        max_rise = self.config.divergence_threshold
        if reason := state.check_divergence(metrics.loss, max_rise=max_rise):
            return reason
        state.done.seconds = metrics.seconds
        state.interval.add(
            metrics.sums,
            loss=metrics.loss,
            gradient_norm=metrics.gradient_norm,
            predictions=batch.predictions,
            pairs=self._pairs(batch),
        )
        *_, flops = metrics.sums
        self.logger.on_step_end(state.done, tokens=batch.tokens, flops=flops, waited=metrics.waited)
        # Write the last line before the checkpoint of the last step, so that a run that resumes
        # from the checkpoint finds it.
        is_last = self._is_budget_reached()
        if is_last or self.steps % self.config.logging_steps == 0:
            self.logger.log_step(self._line(metrics.learning_rate), seconds=metrics.seconds)
            state.interval = IntervalSums()
        return ""

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

    def state_dict(self) -> dict[str, Any]:
        return self.setup.state.to_json()

    def batch_contents(self, batch: StepBatch) -> tuple[str, list[str]]:
        """Return shards, and rows in them."""
        rows = self.group.all_gather(
            [int(row) for part in batch.micro_batches for row in part.rows]
        )
        locations = (self.setup.instances.locate(row) for row in rows)
        return "instances", [f"{shard}:{row}" for shard, row in locations]

    def after_step(self, trainer: Trainer[StepBatch]) -> None:
        """Evaluate and save a snapshot, where they are due."""
        every = self.config.evaluation.eval_steps
        has_snapshot = self.steps in self.snapshots.steps
        if has_snapshot or (every and self.steps % every == 0):
            self.evaluate(trainer)
        if has_snapshot:
            with trainer.paused():
                self._save_snapshot()

    def evaluate(self, trainer: Trainer[StepBatch]) -> None:
        """Evaluate on held-out documents, unless this step was evaluated.

        Raises:
            DivergenceError: The held-out loss is not finite.
        """
        state = self.setup.state
        if self.held_out is None or state.evaluation.get("step") == self.steps:
            return
        with trainer.paused():
            metrics = self.held_out.evaluate(self.setup.model, is_bf16=self.is_bf16)
        if not math.isfinite(metrics["loss"]):
            raise DivergenceError(
                f"{self.name}: after step {self.steps} the loss on held-out documents is "
                f"{metrics['loss']}: training diverged, and the weights are not saved; "
                f"{trainer.last_checkpoint()}. {self.advice}"
            )
        state.record_evaluation(self.steps, metrics)
        record = EvaluationRecord(
            step=self.steps,
            tokens=state.done.tokens,
            held_out_mlm_loss=metrics["mlm_loss"],
            perplexity=metrics["perplexity"],
            held_out_mlm_accuracy=metrics["mlm_accuracy"],
            held_out_nsp_loss=metrics.get("nsp_loss"),
            held_out_nsp_accuracy=metrics.get("nsp_accuracy"),
        )
        self.logger.log_evaluation(record, caution=self._caution)

    def _save_snapshot(self) -> None:
        state = self.setup.state
        if self.group.is_main_process:
            measured = {"evaluation": state.evaluation, "tokens": state.done.tokens}
            self.snapshots.keep(self.steps, model=self.setup.model, measured=measured)
        self.group.barrier()
