"""The record of a training run, written as it goes and read again: JSON lines and event files.

Two files, so that equal runs can be told from different ones: `curves.jsonl` holds only what
follows from the configuration, `timing.jsonl` what depends on the machine and the day. A run that
was killed goes on where its checkpoint stands: lines of later steps are cut first.
"""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from model.telling.event_files import EventFiles
from model.telling.json_lines import JsonLines, read_json_lines
from model.training.artifact_files import CURVES_FILE, EVENTS_FOLDER, TIMINGS_FILE
from schemas.errors import TrainingError

_LOGGER = logging.getLogger(__name__)


class StepRecord(NamedTuple):
    """What a step learnt from, a line of kind `train` in `curves.jsonl`.

    Losses and accuracies are of the global batch, or means over the steps since the line before.
    """

    step: int
    """Updates of the weights so far, from 1."""

    tokens: int
    """Real tokens read so far."""

    epoch: float
    """Passes over all instances so far."""

    loss: float
    """What the gradient is of, in nats: the sum of the objective's losses."""

    mlm_loss: float
    """Mean over predicted tokens, in nats. With `objective: left-to-right`, over next tokens."""

    mlm_accuracy: float
    """Share of predicted tokens whose likeliest token is the right one, 0 to 1."""

    learning_rate: float
    """That the step was made with."""

    gradient_norm: float
    """Euclidean norm over all weights, before it is clipped."""

    nsp_loss: float | None = None
    """Mean over instances with a segment B, in nats; None where the objective has no NSP."""

    nsp_accuracy: float | None = None
    """Share of them told right, 0 to 1."""


class EvaluationRecord(NamedTuple):
    """How well held-out documents are predicted, a line of kind `held-out` in `curves.jsonl`."""

    step: int
    """Updates of the weights before it."""

    tokens: int
    """Real tokens trained on before it."""

    held_out_mlm_loss: float
    """Mean over predicted tokens, in nats."""

    perplexity: float
    """exp of that."""

    held_out_mlm_accuracy: float
    """Share of them predicted right, 0 to 1."""

    held_out_nsp_loss: float | None = None
    """Mean over instances with a segment B, in nats; None where the objective has no NSP."""

    held_out_nsp_accuracy: float | None = None
    """Share of them told right, 0 to 1."""


class SpeedRecord(NamedTuple):
    """How fast it went since the line before, a line of `timing.jsonl`."""

    step: int
    """The step that it was measured up to."""

    seconds: float
    """Spent training since the phase began, over all starts (`model.training.loop.Stopwatch`)."""

    tokens_per_second: float
    """Real tokens, over all processes."""

    places_per_second: float
    """Token positions, padding counted, over all processes."""

    peak_memory_bytes: int
    """Most memory this process has held so far: of the GPU, or of the host without one."""

    loader_wait_share: float
    """Share of the time in which the model waited for its next batch, 0 to 1."""

    model_flops_utilisation: float | None = None
    """Useful FLOPs per second over the devices' peak; None where no peak is known."""


class Curves(NamedTuple):
    """The whole record of a run, each part by ascending step."""

    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvaluationRecord, ...]
    speeds: tuple[SpeedRecord, ...]


class CurveWriter:
    """Writes a run's record to a local folder: two files of JSON lines, and TensorBoard's events.

    Every line is handed to the system at once, so a killed process loses none. Evaluate before
    the checkpoint of the same step is made: what comes after it is missing if the run dies between.

    Args:
        folder: local folder, made if there is none.
        resume_step: the checkpoint's step that the run goes on from, 0 at the beginning. Lines of
            later steps and a torn last line are cut; TensorBoard hides such events.
        is_main: False in all processes but the first, where every call does nothing.

    Raises:
        TrainingError: a file there is damaged other than at its end.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, resume_step: int, is_main: bool = True
    ) -> None:
        self._files: tuple[JsonLines, JsonLines] | None = None
        self._events: EventFiles | None = None
        self._last_step = resume_step
        self._evaluated: set[int] = set()
        if not is_main:
            return
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        curves = JsonLines(path / CURVES_FILE, last_step=resume_step)
        timing = JsonLines(path / TIMINGS_FILE, last_step=resume_step)
        self._files = (curves, timing)
        self._evaluated = {line["step"] for line in curves.kept if line.get("kind") == "held-out"}
        if resume_step and not curves.kept:
            _LOGGER.warning(
                "%s: the run goes on after step %d, and there is no record of the steps before: "
                "the curves begin there",
                path / CURVES_FILE,
                resume_step,
            )
        self._events = EventFiles(path / EVENTS_FOLDER, resume_step=resume_step)

    def write_step(self, step: StepRecord, speed: SpeedRecord) -> None:
        """Add a step, and how fast it went there.

        Raises:
            ValueError: the two are of different steps, or not of a later one than those before.
        """
        if step.step != speed.step or step.step <= self._last_step:
            raise ValueError(
                f"expected both records of one step after {self._last_step}, found steps "
                f"{step.step} and {speed.step}"
            )
        self._last_step = step.step
        if self._files is None or self._events is None:
            return
        curves, timing = self._files
        curves.append({"kind": "train", **_values(step)})
        timing.append(_values(speed))
        self._events.add("train", _values(step))
        self._events.add("speed", _values(speed))

    def write_evaluation(self, evaluation: EvaluationRecord) -> None:
        """Add an evaluation; one of a step that has one already is left out.

        That happens where a run goes on from its very last checkpoint and evaluates again.
        """
        if self._files is None or self._events is None or evaluation.step in self._evaluated:
            return
        self._evaluated.add(evaluation.step)
        values = _values(evaluation)
        self._files[0].append({"kind": "held-out", **values})
        self._events.add("held-out", {k.removeprefix("held_out_"): v for k, v in values.items()})

    def sync(self) -> None:
        """Have it all on the disk, not only with the system: to be called before a checkpoint.

        Else a power cut could leave a checkpoint whose curves are missing.
        """
        for file in self._files or ():
            file.sync()
        if self._events is not None:
            self._events.flush()

    def close(self) -> None:
        """Write out what is left and close the files."""
        for file in self._files or ():
            file.close()
        if self._events is not None:
            self._events.close()


def read_curves(folder: str | os.PathLike[str]) -> Curves:
    """The record in a local folder, also of a run that is still going on.

    Raises:
        TrainingError: there is none, or it is damaged other than in its last line.
    """
    path = Path(folder)
    if not (path / CURVES_FILE).is_file():
        raise TrainingError(
            f"{path}: found no {CURVES_FILE}, expected the folder that a training run writes its "
            "curves to: check the path"
        )
    lines = read_json_lines(path / CURVES_FILE)
    timing = path / TIMINGS_FILE
    trained = [line for line in lines if line.get("kind") == "train"]
    evaluated = [line for line in lines if line.get("kind") == "held-out"]
    timed = read_json_lines(timing) if timing.is_file() else []
    return Curves(
        tuple(_record(StepRecord, line, path / CURVES_FILE) for line in trained),
        tuple(_record(EvaluationRecord, line, path / CURVES_FILE) for line in evaluated),
        tuple(_record(SpeedRecord, line, timing) for line in timed),
    )


Record = TypeVar("Record", StepRecord, EvaluationRecord, SpeedRecord)

_COUNTS = frozenset({"step", "tokens", "peak_memory_bytes"})  # whole numbers; all others are floats


def _values(record: StepRecord | EvaluationRecord | SpeedRecord) -> dict[str, Any]:
    """The fields by name as Python's own numbers; those that are None left out.

    JSON has no word for a number that is not finite, so such a one is a text: nan, inf, -inf.
    """
    values: dict[str, Any] = {}
    for name, value in record._asdict().items():
        if value is None:
            continue
        number = int(value) if name in _COUNTS else float(value)
        values[name] = number if math.isfinite(number) else str(number)
    return values


def _record(kind: type[Record], line: dict[str, Any], path: Path) -> Record:
    values: dict[str, Any] = {}
    try:
        for name in kind._fields:
            if name in line:
                values[name] = int(line[name]) if name in _COUNTS else float(line[name])
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise TrainingError(
            f"{path}, line of step {line.get('step')}: expected {', '.join(kind._fields)} as "
            f"numbers, found {line}: it was written by another version or changed by hand; "
            "move the file away"
        ) from error
