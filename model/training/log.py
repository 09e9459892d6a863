"""Logs of pretraining and fine-tuning: JSON lines, TensorBoard events and progress.

`curves.jsonl` depends only on the configuration, so equal runs write equal bytes. `timing.jsonl`
depends on the machine.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from model.formatting import format_percent
from model.training.artifact_files import CURVES_FILE, EVENTS_FOLDER, TIMINGS_FILE
from model.training.distributed import ProcessGroup
from model.training.progress import PROGRESS_FILE, Amounts, TrainingProgress
from model.training.throughput import ThroughputMeter, ThroughputRecord, peak_flops
from schemas.model_configs import BudgetConfig, PretrainConfig

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_LOGGER = logging.getLogger(__name__)


class StepRecord(NamedTuple):
    """Losses of training: a line of kind `train` in `curves.jsonl`.

    Losses (in nats) and accuracies (0 to 1) are of the global batch, or means over the steps since
    the last line.

    Attributes:
        step: Number of optimizer steps, from 1.
        tokens: Number of tokens read.
        epoch: Number of passes over all instances.
        loss: Sum of the losses of the objective.
        mlm_loss: Mean loss per predicted token; with `objective: left-to-right`, per next token.
        mlm_accuracy: Fraction of predicted tokens that are right.
        learning_rate: Learning rate of the step.
        gradient_norm: Euclidean norm of the gradient of all weights, before clipping.
        nsp_loss: Mean loss per instance with a segment B. None: the objective has no NSP.
        nsp_accuracy: Fraction of these instances that are classified right.
    """

    step: int
    tokens: int
    epoch: float
    loss: float
    mlm_loss: float
    mlm_accuracy: float
    learning_rate: float
    gradient_norm: float
    nsp_loss: float | None = None
    nsp_accuracy: float | None = None


class EvaluationRecord(NamedTuple):
    """Losses on held-out documents: a line of kind `held-out` in `curves.jsonl`.

    Attributes:
        step, tokens: Number of optimizer steps, and of tokens trained on, before the evaluation.
        perplexity: Exponential of `held_out_mlm_loss`.
        held_out_...: See `StepRecord`.
    """

    step: int
    tokens: int
    held_out_mlm_loss: float
    perplexity: float
    held_out_mlm_accuracy: float
    held_out_nsp_loss: float | None = None
    held_out_nsp_accuracy: float | None = None


class JsonLines:
    """Appends JSON objects to a file, one per line, sorted by step.

    Every line is flushed, so that a killed process loses none.

    Args:
        path: Local file; created if missing.
        resume_step: Last step to keep. Lines of later steps, and of a damaged one and after, are
            deleted.

    Attributes:
        earlier: Lines up to `resume_step`.
    """

    def __init__(self, path: Path, *, resume_step: int) -> None:
        path.touch()
        self.earlier, end = _read_lines(path.read_bytes(), last_step=resume_step)
        if (size := path.stat().st_size) > end:
            _LOGGER.info(
                "%s: resuming after step %d; deleting %d bytes of later or incomplete lines",
                path,
                resume_step,
                size - end,
            )
            os.truncate(path, end)
        self._file = path.open("ab")

    def append(self, values: dict[str, Any]) -> None:
        """Write a line and flush it; equal values give equal bytes."""
        line = json.dumps(values, allow_nan=False)
        self._file.write(f"{line}\n".encode())
        self._file.flush()

    def sync(self) -> None:
        """Write all lines to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _read_lines(data: bytes, *, last_step: int) -> tuple[list[dict[str, Any]], int]:
    """Return the lines up to a step, and the byte offset of their end."""
    lines: list[dict[str, Any]] = []
    end = 0
    for text in data.splitlines(keepends=True):
        try:
            values = json.loads(text) if text.endswith(b"\n") else None
        except ValueError:  # also UnicodeDecodeError
            break
        if not isinstance(values, dict) or values["step"] > last_step:
            break
        lines.append(values)
        end += len(text)
    return lines, end


class CurveWriter:
    """Writes the log of a phase to a local folder.

    Write an evaluation before the checkpoint of its step: a resumed run does not evaluate that step
    again.

    Args:
        folder: Local folder; created if missing.
        resume_step: Step of the checkpoint that the run resumes from, or 0. Records of later steps
            are deleted; TensorBoard hides theirs.
    """

    def __init__(self, folder: Path, *, resume_step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._curves = JsonLines(folder / CURVES_FILE, resume_step=resume_step)
        self._timing = JsonLines(folder / TIMINGS_FILE, resume_step=resume_step)
        earlier = self._curves.earlier
        self._evaluated_steps = {line["step"] for line in earlier if line["kind"] == "held-out"}
        if resume_step and not earlier:
            _LOGGER.warning(
                "%s: resuming after step %d without earlier records; curves start there",
                folder / CURVES_FILE,
                resume_step,
            )
        self._events = _open_events(folder / EVENTS_FOLDER, resume_step=resume_step)

    def write_step(self, step: StepRecord, throughput: ThroughputRecord) -> None:
        """Write the losses of a step and the throughput until it."""
        self._curves.append({"kind": "train", **_values(step)})
        self._timing.append(_values(throughput))
        self._add_scalars("train", step)
        self._add_scalars("speed", throughput)

    def write_evaluation(self, evaluation: EvaluationRecord) -> None:
        """Write an evaluation, unless its step has one.

        A run that resumes from its last checkpoint evaluates that step a second time.
        """
        if evaluation.step in self._evaluated_steps:
            return
        self._evaluated_steps.add(evaluation.step)
        self._curves.append({"kind": "held-out", **_values(evaluation)})
        self._add_scalars("held-out", evaluation)

    def _add_scalars(self, group: str, record: _Record) -> None:
        if self._events is None:
            return
        for name, value in _values(record).items():
            if name != "step":
                tag = f"{group}/{name.removeprefix('held_out_')}"
                self._events.add_scalar(tag, value, record.step)

    def sync(self) -> None:
        """Write everything to disk. Call it before each checkpoint.

        Otherwise a power failure could keep a checkpoint and lose its curves.
        """
        self._curves.sync()
        self._timing.sync()
        if self._events is not None:
            self._events.flush()

    def close(self) -> None:
        """Close all files."""
        self._curves.close()
        self._timing.close()
        if self._events is not None:
            self._events.close()


def _open_events(folder: Path, *, resume_step: int) -> SummaryWriter | None:
    """Return the writer of TensorBoard's files, or None on machines without TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # lazy: loads tensorboard
    except ImportError:
        _LOGGER.warning("TensorBoard is not installed: its event files are not written")
        return None
    return SummaryWriter(str(folder), purge_step=resume_step + 1)


_Record = StepRecord | EvaluationRecord | ThroughputRecord


def _values(record: _Record) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in record._asdict().items() if value is not None}


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

    def on_step_end(self, done: Amounts, *, tokens: int, flops: float, waited: float) -> None:
        """Count a step, its tokens and model FLOPs over all processes."""
        self._meter.add(tokens, flops=flops, waited=waited)
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
