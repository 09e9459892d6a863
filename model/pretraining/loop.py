"""The training loop of one phase: global batches in, updates out, checkpoints on the way.

What a step does follows from (configuration, inputs, step) alone: batches, masks and dropout are
keyed, never drawn from a state. So a run that is killed and goes on from a checkpoint repeats the
steps it lost to the bit, on the same device with as many threads and processes.
"""

from __future__ import annotations

import contextlib
import math
import time
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from model.data.batches import StepBatch
from model.encoder.dropout import seed_dropout
from model.optim.schedules import learning_rate
from model.pretraining.evaluation import HeldOut
from model.pretraining.job import TrainingJob
from model.pretraining.report import TrainingReport
from model.pretraining.setup import Start, open_start
from model.processes.distributed import Ranks, joined_ranks
from model.processes.stopping import StopRequest
from model.training.checkpoints import Checkpoints
from model.training.state import StepSums, is_used_up, schedule_place
from pipelines.seeds import key_for
from schemas.errors import DivergenceError, TrainingError

_SHOWN_ROWS = 8


def train(job: TrainingJob, *, stop: StopRequest) -> None:
    """Train to the end of the budget, from the newest checkpoint of the job if there is one.

    Under torchrun this is called in every process. At the end the newest checkpoint is finished.

    Raises:
        InstancesError, ConfigError, CheckpointError: before the first step, if something does not
            fit; CheckpointError also when a checkpoint cannot be written.
        DivergenceError: the loss is not finite or keeps rising.
        TrainingError: it was asked to stop, and has written a checkpoint.
    """
    config = job.config
    if config.threads:
        torch.set_num_threads(config.threads)
    with ExitStack() as stack:
        ranks = stack.enter_context(joined_ranks(config))
        checkpoints = Checkpoints(f"{job.work}/checkpoints", keep_last=config.checkpoints.keep_last)
        if ranks.is_first:
            stack.enter_context(checkpoints.lock())
        ranks.wait()
        start = open_start(job, ranks=ranks, checkpoints=checkpoints)
        if not start.state.is_finished:
            report = stack.enter_context(TrainingReport(job, start, ranks=ranks))
            Training(job, start, ranks=ranks, checkpoints=checkpoints, report=report).run(stop)


class Training:
    """A phase in progress."""

    def __init__(
        self,
        job: TrainingJob,
        start: Start,
        *,
        ranks: Ranks,
        checkpoints: Checkpoints,
        report: TrainingReport,
    ) -> None:
        self.job, self.config = job, job.config
        self.ranks, self.checkpoints, self.report = ranks, checkpoints, report
        self.model, self.optimizer, self.state = start.model, start.optimizer, start.state
        self.start = start
        self.wrapped = _wrap(start.model, job=job, ranks=ranks)
        self.held_out = HeldOut.open(job, ranks=ranks, start=start)
        self._saved_at = time.monotonic()
        self._last_saved = start.state.done.steps if start.is_resumed else None
        self._stops = False

    def run(self, stop: StopRequest) -> None:
        """Step by step to the end of the budget."""
        with self.start.loader(self.state.loader) as loader:
            batches = iter(loader)
            while not is_used_up(self.state, self.config.budget):
                self._check_stop(stop)
                began = time.perf_counter()
                batch = next(batches)
                waited = time.perf_counter() - began
                found = self._step(batch, waited=waited, stop=stop)
                self._after_step(checkpoint_is_due=found.checkpoint_is_due)
        self._evaluate()
        self.state.is_finished = True
        self.report.end()
        self._save(score=self.state.evaluation.get("loss"))

    # One step

    def _step(self, batch: StepBatch, *, waited: float, stop: StopRequest) -> StepSums:
        config, state = self.config, self.state
        place, total, unit = schedule_place(state, config.budget)
        rate = learning_rate(
            place,
            total=total,
            peak=config.optimizer.learning_rate,
            schedule=config.schedule,
            unit=unit,
        )
        sums = self._gradients(batch)
        norm = float(self.optimizer.step(learning_rate=rate))
        self.optimizer.zero_grad()
        found = self._totals(sums, batch, norm=norm, stop=stop)
        problem = state.note_loss(found.loss, max_rise=config.max_loss_rise)
        if not problem and not math.isfinite(norm):
            problem = f"the gradient's norm is {norm}"
        if problem:
            raise self._divergence(problem, batch)
        state.done.steps += 1
        state.done.tokens += batch.tokens
        state.done.seconds = found.seconds
        state.instances += batch.instances
        state.loader = batch.state
        state.interval.add(found)
        self.report.note_step(state, found, tokens=batch.tokens, rate=rate, waited=waited)
        return found

    def _gradients(self, batch: StepBatch) -> torch.Tensor:
        """Accumulate the gradients of this process's share; sums of losses and hits, (4,)."""
        last = len(batch.micro_batches) - 1
        sums = torch.zeros(4, dtype=torch.float64, device=self.ranks.device)
        for index, micro_batch in enumerate(batch.micro_batches):
            step = self.state.carried.steps + self.state.done.steps
            key = key_for(self.config.seed, "dropout", step, self.ranks.rank, index)
            seed_dropout(self.model, key)
            with self._gradients_shared(index == last):
                with self._autocast():
                    output = self.wrapped(
                        micro_batch.to(self.ranks.device), batch.predictions, batch.pairs
                    )
                # DistributedDataParallel takes the mean over processes; what is wanted is the sum.
                (output.loss * self.ranks.size).backward()
            sums += torch.stack(
                [
                    output.mlm_loss_sum,
                    output.mlm_correct,
                    output.nsp_loss_sum,
                    output.nsp_correct,
                ]
            ).to(torch.float64)
        return sums

    def _gradients_shared(self, is_last: bool) -> AbstractContextManager[Any]:
        if is_last or not isinstance(self.wrapped, DistributedDataParallel):
            return contextlib.nullcontext()
        no_sync: AbstractContextManager[Any] = self.wrapped.no_sync()
        return no_sync

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(
            self.ranks.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"
        )

    def _totals(
        self, sums: torch.Tensor, batch: StepBatch, *, norm: float, stop: StopRequest
    ) -> StepSums:
        """What all processes found, and what the first one's clock says: one exchange a step."""
        mlm_loss, mlm_correct, nsp_loss, nsp_correct = sums.tolist()  # waits for the device
        due = self.config.checkpoints.every_minutes * 60 < time.monotonic() - self._saved_at
        clock = [self.report.seconds, float(due)] if self.ranks.is_first else [0.0, 0.0]
        places = sum(len(part.tokens.input_ids) for part in batch.micro_batches)
        flops = float(self.report.flops(batch))
        asked = float(bool(stop.reason))
        own = [mlm_loss, mlm_correct, nsp_loss, nsp_correct, *clock, asked, float(places), flops]
        totals = self.ranks.add_up(own)
        if totals[6]:
            self._stops = True
            stop.ask("another process of the training was asked to stop")
        pairs = batch.pairs if self.config.objective == "mlm+nsp" else 0
        return StepSums(
            loss=totals[0] / max(1, batch.predictions) + totals[2] / max(1, pairs),
            gradient_norm=norm,
            mlm_loss=totals[0],
            mlm_correct=totals[1],
            predictions=batch.predictions,
            nsp_loss=totals[2],
            nsp_correct=totals[3],
            pairs=pairs,
            seconds=totals[4],
            checkpoint_is_due=bool(totals[5]),
            places=int(totals[7]),
            flops=int(totals[8]),
        )

    def _divergence(self, problem: str, batch: StepBatch) -> DivergenceError:
        # All processes are here: losses and norms are the same in each.
        rows = self.ranks.gather([int(row) for part in batch.micro_batches for row in part.rows])
        places = [self.start.instances.place(row) for row in rows[:_SHOWN_ROWS]]
        shown = ", ".join(f"{shard}:{row}" for shard, row in places)
        more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
        error = DivergenceError(
            f"{self.job.name}, step {self.state.done.steps + 1}: {problem}. The batch had the "
            f"instances {shown}{more}; {self._kept()}. Lower optimizer.learning_rate or lengthen "
            "schedule.warmup_share"
        )
        error.add_note("all instances of the batch: " + " ".join(map(str, rows)))
        return error

    def _kept(self) -> str:
        if self._last_saved is None:
            return "there is no checkpoint yet"
        return (
            f"the last good checkpoint is that of step {self._last_saved} in {self.checkpoints.url}"
        )

    # Between steps

    def _after_step(self, *, checkpoint_is_due: bool) -> None:
        steps, config = self.state.done.steps, self.config
        evaluates = config.evaluation.every_steps
        if evaluates and steps % evaluates == 0:
            best = self.state.best_loss
            self._evaluate()
            if self.state.best_loss != best:
                self._save(score=self.state.best_loss)
                return
        every = config.checkpoints.every_steps
        if (every and steps % every == 0) or checkpoint_is_due:
            self._save(score=None)

    def _check_stop(self, stop: StopRequest) -> None:
        # Several processes stop where all know of it, at the exchange after a step: one that was
        # asked since then would wait at its checkpoint for others that are in the next step.
        if not (self._stops or (self.ranks.size == 1 and stop.reason)):
            return
        steps = self.state.done.steps
        if self._last_saved != steps and steps:
            self._save(score=None)
        raise TrainingError(
            f"{self.job.name}: stopped after step {steps} ({stop.reason}); the checkpoint in "
            f"{self.checkpoints.url} is kept, and the next run goes on from it"
        )

    def _evaluate(self) -> None:
        state = self.state
        if self.held_out is None or state.evaluation.get("step") == state.done.steps:
            return
        with self.report.paused():
            found = self.held_out.evaluate(self.model, autocast=self._autocast)
        if not math.isfinite(found["loss"]):
            raise DivergenceError(
                f"{self.job.name}: after step {state.done.steps} the loss on held-out documents is "
                f"{found['loss']}: the last updates have spoilt the weights, which are not saved; "
                f"{self._kept()}. Lower optimizer.learning_rate or lengthen schedule.warmup_share"
            )
        state.evaluation = {"step": state.done.steps, **found}
        if state.best_loss is None or found["loss"] < state.best_loss:
            state.best_loss = found["loss"]
        self.report.note_evaluation(state)

    def _save(self, *, score: float | None) -> None:
        with self.report.paused():
            self.report.sync()
            if self.ranks.is_first:
                self.checkpoints.save(
                    self.state.done.steps,
                    tensors={
                        "model": self.model.state_dict(),
                        "optimizer": self.optimizer.state_tensors(),
                    },
                    state=self.state.to_json(),
                    score=score,
                )
            self.ranks.wait()
        self._last_saved = self.state.done.steps
        self._saved_at = time.monotonic()


def _wrap(model: nn.Module, *, job: TrainingJob, ranks: Ranks) -> nn.Module:
    wrapped: nn.Module = model
    if job.config.compile:
        wrapped = torch.compile(model, dynamic=True)  # type: ignore[assignment]
    if ranks.size > 1:
        ids = [ranks.device.index] if ranks.device.type == "cuda" else None
        wrapped = DistributedDataParallel(wrapped, device_ids=ids)
    return wrapped
