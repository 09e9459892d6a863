"""What people see of a training while it goes on: lines, curves, event files, a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from model.data.batches import StepBatch
from model.processes.distributed import Ranks
from model.telling.accelerators import peak_flops
from model.telling.curves import CurveWriter, EvaluationRecord, StepRecord, read_curves
from model.telling.json_lines import JsonLines
from model.telling.percent import format_percent
from model.telling.pictures import draw_curves
from model.telling.progress import TrainingProgress, duration_text
from model.telling.speed import SpeedMeter, batch_flops
from model.training.amounts import Amounts
from model.training.artifact_files import CURVES_PICTURE
from pipelines.telling.progress import READING_FILE
from schemas.model_configs import BudgetConfig, ModelConfig, PretrainConfig


class PretrainingReport:
    """Writes the record of a phase; in all processes but the first, only takes part in sums."""

    def __init__(
        self,
        name: str,
        *,
        folder: Path,
        curves: Path,
        config: PretrainConfig,
        model: ModelConfig,
        vocab_size: int,
        ranks: Ranks,
        done: Amounts,
    ) -> None:
        """Open the files.

        Args:
            name: of the phase.
            folder: for the reading of how far it is.
            curves: folder for the record.
            config: of the phase.
            model, vocab_size: of what is trained, to count FLOPs.
            ranks: the processes of the run.
            done: what earlier starts of the run did.
        """
        self._name, self._curves, self._ranks = name, curves, ranks
        self._config, self._model, self._vocab_size = config, model, vocab_size
        peak = peak_flops(ranks.device, precision=config.precision)
        if ranks.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(ranks.device)
        self._writer = CurveWriter(curves, resume_step=done.steps, is_main=ranks.is_first)
        self._progress = TrainingProgress(
            name,
            budget=config.budget,
            done=done,
            is_main=ranks.is_first,
            readings=folder / READING_FILE,
        )
        self._meter = SpeedMeter(ranks, peak=peak, seconds=done.seconds)

    def note_step(self, done: Amounts, *, batch: StepBatch, waited: float) -> None:
        """Count a step."""
        objective = self._config.objective
        flops = batch_flops(
            self._model,
            vocab_size=self._vocab_size,
            batches=batch.micro_batches,
            next_sentence=objective == "mlm+nsp",
            causal=objective == "left-to-right",
        )
        places = sum(len(part.tokens.input_ids) for part in batch.micro_batches)
        self._meter.add(tokens=batch.tokens, places=places, flops=flops, waited=waited)
        self._progress.note_step(done)

    def write_line(self, line: StepRecord, *, seconds: float) -> None:
        """Add a line to the curves, and one of the speed since the line before."""
        speed = self._meter.record(line.step, seconds=seconds)
        self._writer.write_step(line, speed)
        self._progress.note_line(line, speed)

    def write_evaluation(self, record: EvaluationRecord) -> None:
        """Add what an evaluation found."""
        self._writer.write_evaluation(record)
        self._progress.note_evaluation(record)

    def warn(self, text: str) -> None:
        """Report a problem of the training at once."""
        self._progress.warn(text)

    def sync(self) -> None:
        """Have the record on the disk before a checkpoint says that it is there."""
        self._writer.sync()

    def draw(self) -> None:
        """Draw the picture of the whole phase."""
        self._writer.sync()
        if self._ranks.is_first:
            draw_curves(self._name, read_curves(self._curves), self._curves / CURVES_PICTURE)

    def close(self) -> None:
        """Say the last state, and close the files."""
        self._progress.close()
        self._writer.close()


class TrialReport:
    """Writes the curve of a trial. One that takes seconds says one line, at its end."""

    def __init__(self, name: str, *, folder: Path, curve: Path, done: int, total: int) -> None:
        """Open the files: `done` updates of `total` were made by earlier starts."""
        folder.mkdir(parents=True, exist_ok=True)
        self._curve = JsonLines(curve, last_step=done)
        self._progress = TrainingProgress(
            name,
            budget=BudgetConfig(max_steps=total),
            done=Amounts(steps=done),
            readings=folder / READING_FILE,
        )

    def note_step(self, done: int, *, loss: float) -> None:
        """Count a step."""
        self._progress.note_details([(0, f"loss {loss:.3f}")])
        self._progress.note_step(Amounts(steps=done))

    def write_line(self, line: dict[str, Any]) -> None:
        """Add a line to the curve."""
        self._curve.append(line)

    def sync(self) -> None:
        """Have the curve on the disk before a checkpoint says that it is there."""
        self._curve.sync()

    def end(self, metrics: dict[str, float], *, seconds: float) -> None:
        """Say what dev says."""
        found = ", ".join(f"{name} {format_percent(value)}" for name, value in metrics.items())
        text = found or "not scored"
        self._progress.finish(f"dev {text} ({duration_text(seconds)} of training)")

    def close(self) -> None:
        """Say the last state, and close the curve."""
        self._progress.close()
        self._curve.sync()
        self._curve.close()
