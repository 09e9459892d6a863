"""What people see of a training run while it goes on: lines, curves, event files, a picture."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

import torch

from model.data.batches import StepBatch
from model.pretraining.job import TrainingJob
from model.pretraining.setup import Start
from model.processes.distributed import Ranks
from model.training.accelerators import peak_flops
from model.training.curve_pictures import draw_curves
from model.training.curves import CurveWriter, EvaluationRecord, StepRecord, read_curves
from model.training.progress import TrainingProgress
from model.training.state import IntervalSums, StepSums, TrainingState, is_used_up
from model.training.throughput import SpeedMeter, batch_flops
from pipelines.telling.progress import READING_FILE

CURVES_FOLDER = "curves"
PICTURE_FILE = "curves.png"


class TrainingReport:
    """Writes the record of a run; in all processes but the first, only keeps the time."""

    def __init__(self, job: TrainingJob, start: Start, *, ranks: Ranks) -> None:
        config = job.config
        self._job, self._start, self._ranks = job, start, ranks
        self._folder = job.folder() / CURVES_FOLDER
        self._every = config.log_every_steps
        self._has_nsp = config.objective == "mlm+nsp"
        self._is_causal = config.objective == "left-to-right"
        peak = peak_flops(ranks.device, precision=config.precision)
        self.peak = peak
        if ranks.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(ranks.device)
        self._writer = CurveWriter(
            self._folder, resume_step=start.state.done.steps, is_main=ranks.is_first
        )
        self._progress = TrainingProgress(
            job.name,
            budget=config.budget,
            done=start.state.done,
            is_main=ranks.is_first,
            readings=job.folder() / READING_FILE,
        )
        self._meter = SpeedMeter(
            ranks.device, processes=ranks.size, peak=peak, seconds=start.state.done.seconds
        )
        self._rate = 0.0
        device = f"{ranks.size} x {peak.device if peak else ranks.device}, {config.precision}"
        if device not in start.state.trained_on:
            start.state.trained_on.append(device)

    @property
    def seconds(self) -> float:
        """Spent training in this phase, over all starts."""
        return self._meter.seconds

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Time in this block is not training."""
        return self._meter.paused()

    def flops(self, batch: StepBatch) -> int:
        """Model FLOPs of this process's share of a step."""
        model = self._start.model
        return batch_flops(
            model.config,
            vocab_size=model.vocab_size,
            batches=batch.micro_batches,
            next_sentence=self._has_nsp,
            causal=self._is_causal,
        )

    def note_step(
        self, state: TrainingState, found: StepSums, *, tokens: int, rate: float, waited: float
    ) -> None:
        """Count a step, and write a line where one is due."""
        self._meter.add(tokens=tokens, places=found.places, flops=found.flops, waited=waited)
        self._rate = rate
        self._progress.note_step(state.done)
        # The last line, too, is written here: a checkpoint of the last step comes after it, and a
        # run that goes on from that one finds it in the file.
        if state.done.steps % self._every == 0 or is_used_up(state, self._job.config.budget):
            self._write_line(state)

    def _write_line(self, state: TrainingState) -> None:
        line = self._step_record(state)
        speed = self._meter.record(state.done.steps)
        self._writer.write_step(line, speed)
        self._progress.note_line(line, speed)
        state.interval = IntervalSums()

    def _step_record(self, state: TrainingState) -> StepRecord:
        sums = state.interval
        return StepRecord(
            step=state.done.steps,
            tokens=state.done.tokens,
            epoch=state.instances / len(self._start.instances),
            loss=sums.loss / sums.steps,
            mlm_loss=sums.mlm_loss / max(1, sums.predictions),
            mlm_accuracy=sums.mlm_correct / max(1, sums.predictions),
            learning_rate=self._rate,
            gradient_norm=sums.gradient_norm / sums.steps,
            nsp_loss=sums.nsp_loss / sums.pairs if sums.pairs else None,
            nsp_accuracy=sums.nsp_correct / sums.pairs if sums.pairs else None,
        )

    def note_evaluation(self, state: TrainingState) -> None:
        """Write what an evaluation found."""
        found = state.evaluation
        record = EvaluationRecord(
            step=state.done.steps,
            tokens=state.done.tokens,
            held_out_mlm_loss=found["mlm_loss"],
            perplexity=found["perplexity"],
            held_out_mlm_accuracy=found["mlm_accuracy"],
            held_out_nsp_loss=found.get("nsp_loss"),
            held_out_nsp_accuracy=found.get("nsp_accuracy"),
        )
        self._writer.write_evaluation(record)
        self._progress.note_evaluation(record)

    def sync(self) -> None:
        """Have the record on the disk before a checkpoint says that it is there."""
        self._writer.sync()

    def end(self) -> None:
        """Draw the picture."""
        self._writer.sync()
        if self._ranks.is_first:
            draw_curves([(self._job.name, read_curves(self._folder))], self._folder / PICTURE_FILE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.close()
        self._writer.close()
