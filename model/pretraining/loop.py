"""Training of a pretraining phase on top of `model.training.loop`."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing

import torch

from model.bert import BertForPretraining
from model.data.batches import PretrainingBatch, StepBatch
from model.optim import learning_rate
from model.pretraining.evaluation import HeldOutEvaluator, held_out_caution
from model.pretraining.job import TrainingJob
from model.pretraining.setup import IntervalSums, PretrainingSetup, open_setup
from model.training.artifact_files import CURVES_FOLDER
from model.training.distributed import init_distributed
from model.training.health import PAGE
from model.training.log import (
    CurveWriter,
    EvaluationRecord,
    StepRecord,
    describe_evaluation,
    describe_step,
)
from model.training.loop import StepMetrics, Trainer
from model.training.progress import PROGRESS_FILE, TrainingProgress
from model.training.stopping import StopRequest
from model.training.throughput import ThroughputMeter, peak_flops, step_flops
from pipelines.seeds import key_for
from schemas.errors import DivergenceError

_LOGGER = logging.getLogger(__name__)


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
        if group.is_main_process:
            stack.enter_context(job.checkpoints().lock())
        group.barrier()
        setup = open_setup(job, group=group)
        if setup.state.is_finished:
            return
        trainer = PretrainingTrainer(setup, stop=stop)
        stack.callback(trainer.close)
        trainer.run()
        trainer.evaluate()
        setup.state.is_finished = True
        trainer.save()
        trainer.release_model()


class PretrainingTrainer(Trainer[StepBatch]):
    """Trainer of a phase."""

    model: BertForPretraining
    advice = (
        "Lower optimizer.learning_rate or lengthen schedule.warmup_ratio. "
        f"See {PAGE}#the-loss-becomes-nan"
    )

    def __init__(self, setup: PretrainingSetup, *, stop: StopRequest) -> None:
        job, config, group, done = setup.job, setup.config, setup.group, setup.state.done
        self.config, self.setup, self.state = config, setup, setup.state
        self.held_out = HeldOutEvaluator.open(setup)
        self._curves: CurveWriter | None = None
        if group.is_main_process:
            self._curves = CurveWriter(job.folder() / CURVES_FOLDER, resume_step=done.steps)
        path = job.folder() / PROGRESS_FILE if group.is_main_process else None
        super().__init__(
            job.name,
            model=setup.model,
            optimizer=setup.optimizer,
            state=setup.state,
            group=group,
            checkpoints=setup.checkpoints,
            checkpoint_config=config.checkpoints,
            stop=stop,
            log=self._curves,
            progress=TrainingProgress(job.name, path=path, budget=config.budget, done=done),
            is_bf16=config.precision == "bf16",
            is_compiled=config.compile,
        )
        self._caution = held_out_caution(job.instances.counters)
        peak = peak_flops(group.device, precision="bf16" if self.is_bf16 else "fp32")
        self._meter = ThroughputMeter(group, peak=peak, seconds=done.seconds)

    def batches(self) -> Generator[StepBatch]:
        with closing(iter(self.setup.loader())) as batches:
            while not self._is_budget_reached():
                yield next(batches)

    def _is_budget_reached(self) -> bool:
        budget = self.config.budget
        return self.done.in_unit(budget.unit) >= budget.size

    def learning_rate(self) -> float:
        unit = self.config.budget.unit
        before = self.state.earlier_phases.in_unit(unit)
        return learning_rate(
            before + self.done.in_unit(unit),
            total=before + self.config.budget.size,
            peak=self.config.optimizer.learning_rate,
            schedule=self.config.schedule,
            unit=unit,
        )

    def dropout_key(self, number: int) -> int:
        step = self.state.earlier_phases.steps + self.done.steps
        return key_for(self.config.seed, "dropout", step, self.group.rank, number)

    def compute_loss(
        self, micro_batch: PretrainingBatch, batch: StepBatch
    ) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        """Return the loss, and sums of losses and hits of masked tokens, then of next sentences."""
        loss, *sums = self.wrapped_model(micro_batch, batch.predictions, batch.pairs)
        return loss, sums

    def on_step_end(self, batch: StepBatch, metrics: StepMetrics) -> str:
        state = self.state
        state.instances += len(batch.lengths)
        max_rise = self.config.divergence_threshold
        if reason := state.check_divergence(metrics.loss, max_rise=max_rise):
            return reason
        state.interval.add(batch, metrics)
        self._meter.add(batch.tokens, flops=self._flops(batch), waited=metrics.waited)
        # Write the last line before the checkpoint of the last step, so that a run that resumes
        # from the checkpoint finds it.
        is_last = self._is_budget_reached()
        if is_last or self.done.steps % self.config.logging_steps == 0:
            self._log_step(self._line(metrics.learning_rate))
            state.interval = IntervalSums()
        return ""

    def _flops(self, batch: StepBatch) -> int:
        objective = self.config.objective
        return step_flops(
            self.model.config,
            vocab_size=self.model.vocab_size,
            lengths=batch.lengths,
            predictions=batch.predictions,
            pooled=len(batch.lengths) if objective == "mlm+nsp" else 0,
            causal=objective == "left-to-right",
        )

    def _log_step(self, record: StepRecord) -> None:
        """Log losses, and the throughput since the last record."""
        throughput = self._meter.record(record.step, seconds=self.done.seconds)
        self.progress.details = describe_step(record, throughput)
        if self._curves is not None:
            self._curves.write(record)
            self._curves.write(throughput)

    def _line(self, rate: float) -> StepRecord:
        sums = self.state.interval
        return StepRecord(
            step=self.done.steps,
            tokens=self.done.tokens,
            epoch=self.state.instances / len(self.setup.instances),
            loss=sums.loss / sums.steps,
            mlm_loss=sums.mlm_loss / max(1, sums.predictions),
            mlm_accuracy=sums.mlm_correct / max(1, sums.predictions),
            learning_rate=rate,
            gradient_norm=sums.gradient_norm / sums.steps,
            nsp_loss=sums.nsp_loss / sums.pairs if sums.pairs else None,
            nsp_accuracy=sums.nsp_correct / sums.pairs if sums.pairs else None,
        )

    def batch_contents(self, batch: StepBatch) -> tuple[str, list[str]]:
        """Return shards, and rows in them."""
        rows = self.group.all_gather(
            [int(row) for part in batch.micro_batches for row in part.rows]
        )
        locations = (self.setup.instances.locate(row) for row in rows)
        return "instances", [f"{shard}:{row}" for shard, row in locations]

    def after_step(self) -> None:
        """Evaluate and save a snapshot, where they are due."""
        every = self.config.evaluation.eval_steps
        has_snapshot = self.done.steps in self.config.kept_steps
        if has_snapshot or (every and self.done.steps % every == 0):
            self.evaluate()
        if has_snapshot:
            with self.paused():
                self._save_snapshot()

    def evaluate(self) -> None:
        """Evaluate on held-out documents, unless this step was evaluated.

        Raises:
            DivergenceError: The held-out loss is not finite.
        """
        if self.held_out is None or self.state.evaluation.get("step") == self.done.steps:
            return
        with self.paused():
            metrics = self.held_out.evaluate(self.model, is_bf16=self.is_bf16)
        if not math.isfinite(metrics["loss"]):
            raise DivergenceError(
                f"{self.name}: after step {self.done.steps} the loss on held-out documents is "
                f"{metrics['loss']}: training diverged, and the weights are not saved; "
                f"{self.last_checkpoint()}. {self.advice}"
            )
        self.state.record_evaluation(self.done.steps, metrics)
        record = EvaluationRecord(
            step=self.done.steps,
            tokens=self.done.tokens,
            held_out_mlm_loss=metrics["mlm_loss"],
            perplexity=metrics["perplexity"],
            held_out_mlm_accuracy=metrics["mlm_accuracy"],
            held_out_nsp_loss=metrics.get("nsp_loss"),
            held_out_nsp_accuracy=metrics.get("nsp_accuracy"),
        )
        if self._curves is not None:
            self._curves.write(record)
            texts = filter(None, [*describe_evaluation(record), self._caution])
            _LOGGER.info("%s: step %s, %s", self.name, f"{record.step:,}", ", ".join(texts))

    def _save_snapshot(self) -> None:
        """Write the model of this step and its measurements, unless an earlier start did.

        Snapshots are written before any checkpoint of the same or a later step. So a killed run
        that resumes after such a step finds its snapshot.
        """
        if self.group.is_main_process:
            step, snapshots = self.done.steps, self.setup.job.snapshots()
            if step not in [info.step for info in snapshots.list()]:
                measured = {"evaluation": self.state.evaluation, "tokens": self.done.tokens}
                snapshots.save(
                    step,
                    tensors={"model": self.model.state_dict()},
                    state={"measured": measured},
                )
        self.group.barrier()
