"""The log of a phase: files and TensorBoard events."""

from __future__ import annotations

import json
import logging
import math
import struct
from contextlib import closing
from pathlib import Path

import pytest
from support.log_records import own_records
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from model.formatting import format_rounded_duration
from model.training.curves import (
    CurveWriter,
    EvaluationRecord,
    StepRecord,
    ThroughputRecord,
    read_curves,
)
from schemas.errors import TrainingError


def step_record(step: int, *, nsp: bool = True) -> StepRecord:
    loss = 10.0 * math.exp(-step / 100)
    return StepRecord(
        step=step,
        tokens=1_000 * step,
        epoch=step / 70,
        loss=loss + 0.7,
        mlm_loss=loss,
        mlm_accuracy=1 - loss / 11,
        learning_rate=1e-4 * step / 300,
        gradient_norm=1 / 3 + 1 / step,
        nsp_loss=0.7 if nsp else None,
        nsp_accuracy=0.5 if nsp else None,
    )


def throughput_record(step: int, *, mfu: float | None = 0.12) -> ThroughputRecord:
    return ThroughputRecord(
        step=step,
        seconds=0.5 * step,
        tokens_per_second=41_234.5,
        peak_memory_bytes=123_456_789,
        loader_wait_share=0.01,
        model_flops_utilization=mfu,
    )


def evaluation_record(step: int) -> EvaluationRecord:
    return EvaluationRecord(step, 1_000 * step, 2.5, math.exp(2.5), 0.45, 0.4, 0.8)


def write(folder: Path, steps: range, *, resume: int = 0, every: int = 50) -> None:
    with closing(CurveWriter(folder, resume_step=resume)) as writer:
        for step in steps:
            writer.write_step(step_record(step), throughput_record(step))
            if step % every == 0:
                writer.write_evaluation(evaluation_record(step))


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "events"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_written_records_are_read_back(tmp_path: Path) -> None:
    write(tmp_path / "new" / "folder", range(10, 121, 10))
    curves = read_curves(tmp_path / "new" / "folder")
    assert curves.steps == tuple(step_record(step) for step in range(10, 121, 10))
    assert curves.throughput == tuple(throughput_record(step) for step in range(10, 121, 10))
    assert curves.evaluations == (evaluation_record(50), evaluation_record(100))


def test_missing_and_non_finite_values_survive_as_valid_json(tmp_path: Path) -> None:
    odd = step_record(1, nsp=False)._replace(gradient_norm=math.inf, loss=math.nan)
    with closing(CurveWriter(tmp_path, resume_step=0)) as writer:
        writer.write_step(odd, throughput_record(1, mfu=None))

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    for name in ("curves.jsonl", "timing.jsonl"):
        json.loads((tmp_path / name).read_text(), parse_constant=refuse)
    curves = read_curves(tmp_path)
    assert curves.steps[0].gradient_norm == math.inf
    assert math.isnan(curves.steps[0].loss)
    assert curves.steps[0].nsp_accuracy is None
    assert curves.throughput[0].model_flops_utilization is None


@pytest.mark.parametrize("resume", [0, 100])
def test_resumed_run_has_the_curves_of_an_uninterrupted_run(tmp_path: Path, resume: int) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    write(whole, range(10, 201, 10))
    write(killed, range(10, 151, 10))
    (events,) = (killed / "events").iterdir()
    with events.open("ab") as file:
        file.write(struct.pack("<Q", 1_000))  # length of a record that is missing
    with closing(CurveWriter(killed, resume_step=resume)) as writer:
        if resume:  # a resumed run evaluates the step of its checkpoint again
            writer.write_evaluation(evaluation_record(resume)._replace(perplexity=1.0))
    write(killed, range(resume + 10, 201, 10), resume=resume)
    for name in ("curves.jsonl", "timing.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    for tag in ("train/loss", "speed/seconds", "held-out/perplexity"):
        assert scalars(killed, tag) == scalars(whole, tag)


def test_lines_are_read_while_the_run_goes_on(tmp_path: Path) -> None:
    with closing(CurveWriter(tmp_path, resume_step=0)) as writer:
        writer.write_step(step_record(1), throughput_record(1))
        curves = read_curves(tmp_path)
    assert (curves.steps, curves.throughput) == ((step_record(1),), (throughput_record(1),))


@pytest.mark.parametrize("torn", [b'{"kind": "train", "step": 12', b"\0\0\0\0", b'{"step": 3}x\n'])
def test_incomplete_last_line_is_ignored_and_deleted_on_resume(tmp_path: Path, torn: bytes) -> None:
    write(tmp_path, range(10, 121, 10))
    complete = (tmp_path / "curves.jsonl").read_bytes()
    with (tmp_path / "curves.jsonl").open("ab") as file:
        file.write(torn)
    assert len(read_curves(tmp_path).steps) == 12
    assert (tmp_path / "curves.jsonl").read_bytes() == complete + torn
    CurveWriter(tmp_path, resume_step=120).close()
    assert (tmp_path / "curves.jsonl").read_bytes() == complete


def test_damaged_line_before_the_last_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, range(10, 41, 10))
    file = tmp_path / "curves.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0], b"gibberish\n", *lines[2:]])
    file.write_bytes(damaged)
    for attempt in (lambda: read_curves(tmp_path), lambda: CurveWriter(tmp_path, resume_step=40)):
        with pytest.raises(TrainingError, match=r"curves\.jsonl, line 2:"):
            attempt()
    assert file.read_bytes() == damaged
    file.write_text('{"kind": "train", "step": 3}\n')
    with pytest.raises(TrainingError, match="step 3"):
        read_curves(tmp_path)


def test_resuming_without_records_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CurveWriter(tmp_path, resume_step=100).close()
    (warning,) = [r for r in own_records(caplog) if r.levelno == logging.WARNING]
    assert "step 100" in warning.getMessage()


def test_tensorboard_reads_every_value(tmp_path: Path) -> None:
    write(tmp_path, range(10, 121, 10))
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    step = {f"train/{name}" for name in StepRecord._fields if name != "step"}
    speed = {f"speed/{name}" for name in ThroughputRecord._fields if name != "step"}
    held_out = {"perplexity", "tokens", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    assert set(events.Tags()["scalars"]) == step | speed | {f"held-out/{n}" for n in held_out}
    found = scalars(tmp_path, "train/mlm_loss")
    assert [step for step, _ in found] == list(range(10, 121, 10))
    expected = [step_record(step).mlm_loss for step, _ in found]
    assert [value for _, value in found] == pytest.approx(expected, rel=1e-6)
    assert scalars(tmp_path, "held-out/mlm_loss") == [(50, 2.5), (100, 2.5)]
    assert scalars(tmp_path, "speed/tokens_per_second")[0] == (10, 41_234.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (185, "3 min"), (3_599, "1 h 00 min"),
     (7_620, "2 h 07 min"), (4 * 86_400 + 3 * 3_600, "4 d 3 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert format_rounded_duration(seconds) == text
