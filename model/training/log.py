"""Logs of pretraining and fine-tuning: JSON lines and TensorBoard events.

`curves.jsonl` depends only on the configuration, so equal runs write equal bytes. `timing.jsonl`
depends on the machine.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from model.formatting import format_percent
from model.training.artifact_files import CURVES_FILE, EVENTS_FOLDER, TIMINGS_FILE
from model.training.throughput import ThroughputRecord

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


_KINDS: dict[type, str] = {
    StepRecord: "train",
    EvaluationRecord: "held-out",
    ThroughputRecord: "speed",
}
"""Group of a record in TensorBoard; except for `speed`, `kind` of its line."""


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

    def write(self, record: StepRecord | EvaluationRecord | ThroughputRecord) -> None:
        """Write a record, without the fields that are None.

        Of two evaluations of a step the second is ignored: a run that resumes from its last
        checkpoint evaluates that step again.
        """
        values = {name: value for name, value in record._asdict().items() if value is not None}
        kind = _KINDS[type(record)]
        if kind == "held-out":
            if record.step in self._evaluated_steps:
                return
            self._evaluated_steps.add(record.step)
        if kind == "speed":
            self._timing.append(values)
        else:
            self._curves.append({"kind": kind, **values})
        if self._events is not None:
            for name, value in values.items():
                if name != "step":
                    tag = f"{kind}/{name.removeprefix('held_out_')}"
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


def describe_step(step: StepRecord, throughput: ThroughputRecord) -> list[str]:
    """Return loss, accuracies and throughput as texts."""
    texts = [f"loss {step.loss:.2f}", f"MLM {format_percent(step.mlm_accuracy)}"]
    if step.nsp_accuracy is not None:
        texts.append(f"NSP {format_percent(step.nsp_accuracy)}")
    texts.append(f"{throughput.tokens_per_second:,.0f} tokens/s")
    if throughput.model_flops_utilization is not None:
        texts.append(f"{100 * throughput.model_flops_utilization:.0f} % MFU")
    return texts


def describe_evaluation(evaluation: EvaluationRecord) -> list[str]:
    """Return loss, perplexity and accuracies as texts."""
    texts = [
        f"held-out MLM loss {evaluation.held_out_mlm_loss:.3f}",
        f"perplexity {evaluation.perplexity:,.2f}",
        f"MLM {format_percent(evaluation.held_out_mlm_accuracy)}",
    ]
    if evaluation.held_out_nsp_accuracy is not None:
        texts.append(f"NSP {format_percent(evaluation.held_out_nsp_accuracy)}")
    return texts
