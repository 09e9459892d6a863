"""Log of a pretraining phase: losses and throughput by step, as JSON lines and TensorBoard events.

`curves.jsonl` depends only on the configuration, so equal runs write equal bytes. `timing.jsonl`
depends on the machine.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from model.training.artifact_files import CURVES_FILE, EVENTS_FOLDER, TIMINGS_FILE
from schemas.errors import TrainingError

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


class ThroughputRecord(NamedTuple):
    """Throughput since the last line: a line of `timing.jsonl`.

    Attributes:
        step: Last step of the measurement.
        seconds: Training time since the phase began, over all starts
            (`model.training.loop.Stopwatch`).
        tokens_per_second: Tokens per second, over all processes.
        peak_memory_bytes: Peak memory of this process: of its GPU, or of the host without a GPU.
        loader_wait_share: Fraction of the time in which the model waited for its next batch.
        model_flops_utilization: Model FLOPs per second over the peak of the devices. None: the peak
            is unknown.
    """

    step: int
    seconds: float
    tokens_per_second: float
    peak_memory_bytes: int
    loader_wait_share: float
    model_flops_utilization: float | None = None


class Curves(NamedTuple):
    """Log of a phase, each part sorted by step."""

    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvaluationRecord, ...]
    throughput: tuple[ThroughputRecord, ...]


class CurveWriter:
    """Writes the log of a phase to a local folder.

    Every line is flushed, so that a killed process loses none. Write an evaluation before the
    checkpoint of its step: a resumed run does not evaluate that step again.

    Args:
        folder: Local folder; created if missing.
        resume_step: Step of the checkpoint that the run resumes from, or 0. Records of later steps
            are deleted; TensorBoard hides theirs.

    Raises:
        TrainingError: A line other than the last one is damaged.
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
        self._curves.append({"kind": "train", **_to_json(step)})
        self._timing.append(_to_json(throughput))
        self._add_scalars("train", step)
        self._add_scalars("speed", throughput)

    def write_evaluation(self, evaluation: EvaluationRecord) -> None:
        """Write an evaluation, unless its step has one.

        A run that resumes from its last checkpoint evaluates that step a second time.
        """
        if evaluation.step in self._evaluated_steps:
            return
        self._evaluated_steps.add(evaluation.step)
        self._curves.append({"kind": "held-out", **_to_json(evaluation)})
        self._add_scalars("held-out", evaluation)

    def _add_scalars(self, group: str, record: _Record) -> None:
        if self._events is None:
            return
        for name, value in record._asdict().items():
            if name != "step" and value is not None:
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


def read_curves(folder: Path) -> Curves:
    """Return the log in a local folder, also of a run in progress.

    Raises:
        TrainingError: A line is damaged, other than an incomplete last line.
    """
    curves, timing = folder / CURVES_FILE, folder / TIMINGS_FILE
    lines = _read_json_lines(curves)
    trained = [line for line, _ in lines if line["kind"] == "train"]
    evaluated = [line for line, _ in lines if line["kind"] == "held-out"]
    return Curves(
        tuple(_from_json(StepRecord, line, curves) for line in trained),
        tuple(_from_json(EvaluationRecord, line, curves) for line in evaluated),
        tuple(_from_json(ThroughputRecord, line, timing) for line, _ in _read_json_lines(timing)),
    )


_Record = StepRecord | EvaluationRecord | ThroughputRecord
_AnyRecord = TypeVar("_AnyRecord", StepRecord, EvaluationRecord, ThroughputRecord)


def _to_json(record: _Record) -> dict[str, Any]:
    """Return the fields that are not None. Infinity and NaN, which JSON lacks, become text."""
    return {
        name: value if math.isfinite(value) else str(value)
        for name, value in record._asdict().items()
        if value is not None
    }


def _from_json(record_type: type[_AnyRecord], line: dict[str, Any], path: Path) -> _AnyRecord:
    try:
        values: dict[str, Any] = {
            name: float(line[name]) if isinstance(line[name], str) else line[name]
            for name in record_type._fields
            if name in line
        }
        return record_type(**values)
    except (TypeError, ValueError) as error:
        raise TrainingError(
            f"{path}, step {line['step']}: expected numbers for {', '.join(record_type._fields)}, "
            f"got {line}. Move the file away to start a new one."
        ) from error


class JsonLines:
    """Appends JSON objects to a file, one per line, sorted by step.

    Args:
        path: Local file; created if missing.
        resume_step: Last step to keep. Lines of later steps and an incomplete last line are
            deleted.

    Attributes:
        earlier: Lines up to `resume_step`.

    Raises:
        TrainingError: A line other than the last one is damaged.
    """

    def __init__(self, path: Path, *, resume_step: int) -> None:
        path.touch()
        lines = list(
            itertools.takewhile(lambda line: line[0]["step"] <= resume_step, _read_json_lines(path))
        )
        self.earlier = [values for values, _ in lines]
        end = lines[-1][1] if lines else 0
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


def _read_json_lines(path: Path) -> list[tuple[dict[str, Any], int]]:
    """Return each complete line and the byte offset of its end."""
    data = path.read_bytes()
    lines: list[tuple[dict[str, Any], int]] = []
    end = 0
    for number, text in enumerate(data.splitlines(keepends=True), start=1):
        end += len(text)
        if (values := _parse_line(text)) is not None:
            lines.append((values, end))
        elif end < len(data):
            raise TrainingError(
                f"{path}, line {number}: expected a JSON object with a step, got {text[:60]!r}. "
                "Move the file away to start a new one."
            )
    return lines


def _parse_line(text: bytes) -> dict[str, Any] | None:
    if not text.endswith(b"\n"):
        return None
    try:
        values = json.loads(text)
    except ValueError:  # also UnicodeDecodeError
        return None
    has_step = isinstance(values, dict) and isinstance(values.get("step"), int)
    return values if has_step else None
