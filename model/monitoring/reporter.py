"""Progress of a training in the console, and the loggers of pretraining and fine-tuning."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from model.launch.distributed import ProcessGroup
from model.monitoring.formatting import format_percent, format_rounded_duration
from model.monitoring.throughput import ThroughputMeter, Work, peak_flops
from model.monitoring.training_log import (
    CurveWriter,
    EvaluationRecord,
    JsonLines,
    StepRecord,
    ThroughputRecord,
)
from model.training.amounts import Amounts, Unit, budget_unit
from model.training.progress import PROGRESS_FILE, ProgressFile
from pipelines.terminal import BARS_VARIABLE
from schemas.model_configs import BudgetConfig, PretrainConfig

_LOGGER = logging.getLogger(__name__)
_LINE_SECONDS = 15.0
_PACE_SECONDS = 120.0
_PACE_GAP_SECONDS = 0.5


class TrainingProgress:
    """Reports progress, scores and time left: to the launcher's bar, otherwise as log lines.

    Args:
        name: Name of the training, `pretrain.phase-1`.
        budget: Budget in steps, tokens or minutes.
        done: Work of earlier starts of the run.
        progress_file: File that the parent process reads. None: no file.
    """

    def __init__(
        self, name: str, *, budget: BudgetConfig, done: Amounts, progress_file: Path | None = None
    ) -> None:
        self._name, self._amounts = name, done
        self._unit, self._total = budget_unit(budget)
        self._file = ProgressFile(progress_file, job=name, unit=self._unit.removesuffix("s"))
        self._details: Sequence[str] = ()
        self._is_logged = True
        self._has_bar = BARS_VARIABLE in os.environ
        self._last_line = time.monotonic()
        # (time, amount) after each step. Starts after the first step, which may compile code.
        self._pace: deque[tuple[float, float]] = deque()
        self._write_file()

    def update(self, done: Amounts) -> None:
        """Show the work done so far, earlier starts included. Call it after each step."""
        self._amounts = dataclasses.replace(done)
        now, amount = time.monotonic(), done.in_unit(self._unit)
        if len(self._pace) > 1 and now - self._pace[-2][0] < _PACE_GAP_SECONDS:
            self._pace.pop()
        self._pace.append((now, amount))
        while len(self._pace) > 2 and now - self._pace[1][0] > _PACE_SECONDS:
            self._pace.popleft()
        self._is_logged = self._has_bar
        self._write_file()
        if not self._has_bar and now - self._last_line >= _LINE_SECONDS:
            self._log_status(now)

    def log_step(self, step: StepRecord, throughput: ThroughputRecord) -> None:
        """Show loss, accuracies and throughput until the next call."""
        details = [f"loss {step.loss:.2f}", f"MLM {format_percent(step.mlm_accuracy)}"]
        if step.nsp_accuracy is not None:
            details.append(f"NSP {format_percent(step.nsp_accuracy)}")
        details.append(f"{_round(throughput.tokens_per_second)} tokens/s")
        if throughput.model_flops_utilization is not None:
            details.append(f"{100 * throughput.model_flops_utilization:.0f} % MFU")
        self.set_details(details)

    def set_details(self, details: Sequence[str]) -> None:
        """Show details next to the progress, the most important first."""
        self._details = details

    def log_evaluation(self, evaluation: EvaluationRecord, *, caution: str = "") -> None:
        """Log the scores of an evaluation, and why they may say little."""
        parts = [
            f"held-out MLM loss {evaluation.held_out_mlm_loss:.3f}",
            f"perplexity {evaluation.perplexity:,.2f}",
            f"MLM {format_percent(evaluation.held_out_mlm_accuracy)}",
        ]
        if evaluation.held_out_nsp_accuracy is not None:
            parts.append(f"NSP {format_percent(evaluation.held_out_nsp_accuracy)}")
        if caution:
            parts.append(caution)
        self._log(f"step {evaluation.step:,}, {', '.join(parts)}")

    def _log(self, text: str) -> None:
        _LOGGER.info("%s: %s", self._name, text)

    def finish(self) -> None:
        """Do not log the last state: the step's line reports the result."""
        self._is_logged = True

    def close(self) -> None:
        """Log the last state unless it was logged."""
        if not self._is_logged:
            self._log_status(time.monotonic())

    def status(self) -> str:
        """Return progress, details and time left in one line."""
        return ", ".join(self._status_parts())

    def _status_parts(self) -> list[str]:
        left = self.seconds_left()
        end = [] if left is None else [f"{format_rounded_duration(left)} left"]
        return [self._format_position(), *self._details, *end]

    def _write_file(self) -> None:
        done = min(self._amounts.in_unit(self._unit), self._total)
        self._file.write(done, total=self._total, details=self._status_parts())

    def seconds_left(self) -> float | None:
        """Return the time left at the pace of the last two minutes; None before the second step.

        The pace includes evaluations and checkpoints.
        """
        left = self._total - self._amounts.in_unit(self._unit)
        if left <= 0:
            return 0.0
        if len(self._pace) < 2:
            return None
        (start, before), (end, after) = self._pace[0], self._pace[-1]
        return left * (end - start) / (after - before) if after > before else None

    def _format_position(self) -> str:
        steps = f"step {self._amounts.steps:,}"
        if self._unit == "steps":
            return f"{steps} of {self._total:,.0f}"
        done = _format_amount(self._amounts.in_unit(self._unit), self._unit)
        return f"{steps}, {done} of {_format_amount(self._total, self._unit)}"

    def _log_status(self, now: float) -> None:
        self._last_line, self._is_logged = now, True
        _LOGGER.info("%s: %s", self._name, self.status())


def _format_amount(value: float, unit: Unit) -> str:
    return f"{value:,.1f} min" if unit == "minutes" else f"{value:,.0f} tokens"


def _round(value: float) -> str:
    """Return a number with three significant digits: 41,200."""
    if value < 1:
        return f"{value:.2f}"
    return f"{round(value, min(0, 3 - len(str(int(value))))):,.0f}"


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
        self._main: tuple[CurveWriter, TrainingProgress] | None = None
        if group.is_main_process:
            self._main = (
                CurveWriter(curves, resume_step=done.steps),
                TrainingProgress(
                    name, budget=config.budget, done=done, progress_file=folder / PROGRESS_FILE
                ),
            )

    def on_step_end(self, done: Amounts, *, work: Work, waited: float) -> None:
        """Count a step."""
        self._meter.add(work, waited=waited)
        if self._main is not None:
            self._main[1].update(done)

    def log_step(self, record: StepRecord, *, seconds: float) -> None:
        """Log losses, and the throughput since the last call."""
        throughput = self._meter.record(record.step, seconds=seconds)
        if self._main is not None:
            writer, progress = self._main
            writer.write_step(record, throughput)
            progress.log_step(record, throughput)

    def log_evaluation(self, record: EvaluationRecord, *, caution: str = "") -> None:
        """Log an evaluation, and why its scores may say little."""
        if self._main is not None:
            writer, progress = self._main
            writer.write_evaluation(record)
            progress.log_evaluation(record, caution=caution)

    def flush(self) -> None:
        """Write the log to disk. Call it before each checkpoint."""
        if self._main is not None:
            self._main[0].sync()

    def close(self) -> None:
        """Log the last state and close the files."""
        if self._main is not None:
            writer, progress = self._main
            progress.close()
            writer.close()


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
            budget=BudgetConfig(max_steps=total),
            done=Amounts(steps=done),
            progress_file=folder / PROGRESS_FILE,
        )

    def on_step_end(self, steps: int, *, loss: float) -> None:
        """Show a step."""
        self._progress.set_details([f"loss {loss:.3f}"])
        self._progress.update(Amounts(steps=steps))

    def log_step(self, line: dict[str, Any]) -> None:
        """Add a line to the curve."""
        self._curve.append(line)

    def flush(self) -> None:
        """Write the curve to disk. Call it before each checkpoint."""
        self._curve.sync()

    def finish(self) -> None:
        """Leave the last state out of the log: the line of the step has the result."""
        self._progress.finish()

    def close(self) -> None:
        """Log the last state and close the curve."""
        self._progress.close()
        self._curve.sync()
        self._curve.close()
