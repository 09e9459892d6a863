"""Loggers of pretraining and fine-tuning: curves, throughput and progress."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from model.formatting import format_percent
from model.training.amounts import Amounts
from model.training.curves import (
    CurveWriter,
    EvaluationRecord,
    JsonLines,
    StepRecord,
    ThroughputRecord,
)
from model.training.distributed import ProcessGroup
from model.training.progress import PROGRESS_FILE, TrainingProgress
from model.training.throughput import ThroughputMeter, Work, peak_flops
from schemas.model_configs import BudgetConfig, PretrainConfig

_LOGGER = logging.getLogger(__name__)


class PretrainingLogger:
    """Logs a phase. Processes other than the main one only take part in sums.

    Args:
        name: Name of the phase.
        folder: Folder of the job, for the progress file.
        curves: Folder of the log.
        config: Configuration of the phase.
        group: Processes of the run.
        done: Work of earlier starts of the run.
    """

    def __init__(
        self,
        name: str,
        *,
        folder: Path,
        curves: Path,
        config: PretrainConfig,
        group: ProcessGroup,
        done: Amounts,
    ) -> None:
        peak = peak_flops(group.device, precision="bf16" if config.precision == "bf16" else "fp32")
        if group.device.type == "cuda":  # the measurement of the peak does not count
            torch.cuda.reset_peak_memory_stats(group.device)
        self._meter = ThroughputMeter(group, peak=peak, seconds=done.seconds)
        self._name = name
        path = folder / PROGRESS_FILE if group.is_main_process else None
        self._progress = TrainingProgress(name, path=path, budget=config.budget, done=done)
        self._curves: CurveWriter | None = None
        if group.is_main_process:
            self._curves = CurveWriter(curves, resume_step=done.steps)

    def on_step_end(self, done: Amounts, *, work: Work, waited: float) -> None:
        """Count a step."""
        self._meter.add(work, waited=waited)
        self._progress.update(done)

    def log_step(self, record: StepRecord, *, seconds: float) -> None:
        """Log losses, and the throughput since the last call."""
        throughput = self._meter.record(record.step, seconds=seconds)
        if self._curves is not None:
            self._curves.write_step(record, throughput)
        self._progress.details = _describe_step(record, throughput)

    def log_evaluation(self, record: EvaluationRecord, *, caution: str = "") -> None:
        """Log an evaluation, and why its scores may say little."""
        if self._curves is not None:
            self._curves.write_evaluation(record)
            text = ", ".join(_describe_evaluation(record, caution=caution))
            _LOGGER.info("%s: step %s, %s", self._name, f"{record.step:,}", text)

    def flush(self) -> None:
        """Write the log to disk. Call it before each checkpoint."""
        if self._curves is not None:
            self._curves.sync()

    def close(self) -> None:
        """Close the files."""
        if self._curves is not None:
            self._curves.close()


def _describe_step(step: StepRecord, throughput: ThroughputRecord) -> list[str]:
    """Return loss, accuracies and throughput as texts."""
    texts = [f"loss {step.loss:.2f}", f"MLM {format_percent(step.mlm_accuracy)}"]
    if step.nsp_accuracy is not None:
        texts.append(f"NSP {format_percent(step.nsp_accuracy)}")
    texts.append(f"{throughput.tokens_per_second:,.0f} tokens/s")
    if throughput.model_flops_utilization is not None:
        texts.append(f"{100 * throughput.model_flops_utilization:.0f} % MFU")
    return texts


def _describe_evaluation(evaluation: EvaluationRecord, *, caution: str) -> list[str]:
    """Return loss, perplexity and accuracies as texts."""
    texts = [
        f"held-out MLM loss {evaluation.held_out_mlm_loss:.3f}",
        f"perplexity {evaluation.perplexity:,.2f}",
        f"MLM {format_percent(evaluation.held_out_mlm_accuracy)}",
    ]
    if evaluation.held_out_nsp_accuracy is not None:
        texts.append(f"NSP {format_percent(evaluation.held_out_nsp_accuracy)}")
    return [*texts, *filter(None, [caution])]


class TrialLogger:
    """Logs a fine-tuning trial.

    Args:
        name: Name of the trial.
        folder: Folder of the job, for the progress file; created if missing.
        curve: File of the training curve.
        done: Number of steps of earlier starts.
        total: Number of steps of the trial.
    """

    def __init__(self, name: str, *, folder: Path, curve: Path, done: int, total: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._curve = JsonLines(curve, resume_step=done)
        self._progress = TrainingProgress(
            name,
            path=folder / PROGRESS_FILE,
            budget=BudgetConfig(max_steps=total),
            done=Amounts(steps=done),
        )

    def on_step_end(self, steps: int, *, loss: float) -> None:
        """Show a step."""
        self._progress.details = [f"loss {loss:.3f}"]
        self._progress.update(Amounts(steps=steps))

    def log_step(self, line: dict[str, Any]) -> None:
        """Add a line to the curve."""
        self._curve.append(line)

    def flush(self) -> None:
        """Write the curve to disk. Call it before each checkpoint."""
        self._curve.sync()

    def close(self) -> None:
        """Close the curve."""
        self._curve.sync()
        self._curve.close()
