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
from model.training.log import CurveWriter, EvaluationRecord, JsonLines, StepRecord
from model.training.throughput import ThroughputRecord


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
            writer.write(step_record(step))
            writer.write(throughput_record(step))
            if step % every == 0:
                writer.write(evaluation_record(step))


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "events"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _present(record: StepRecord | EvaluationRecord | ThroughputRecord) -> dict[str, object]:
    return {name: value for name, value in record._asdict().items() if value is not None}


def test_each_record_is_a_line_without_missing_values(tmp_path: Path) -> None:
    with closing(CurveWriter(tmp_path / "new" / "folder", resume_step=0)) as writer:
        for record in (
            step_record(1, nsp=False),
            throughput_record(1, mfu=None),
            evaluation_record(1),
        ):
            writer.write(record)
        curves = _lines(tmp_path / "new" / "folder" / "curves.jsonl")  # during the run
        timing = _lines(tmp_path / "new" / "folder" / "timing.jsonl")
    assert curves == [
        {"kind": "train", **_present(step_record(1, nsp=False))},
        {"kind": "held-out", **_present(evaluation_record(1))},
    ]
    assert timing == [_present(throughput_record(1, mfu=None))]
    assert "nsp_loss" not in curves[0]


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
            writer.write(evaluation_record(resume)._replace(perplexity=1.0))
    write(killed, range(resume + 10, 201, 10), resume=resume)
    for name in ("curves.jsonl", "timing.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    for tag in ("train/loss", "speed/seconds", "held-out/perplexity"):
        assert scalars(killed, tag) == scalars(whole, tag)


@pytest.mark.parametrize("torn", [b'{"step": 4', b"\0\0\0\0", b'{"step": 3}x\n', b"gibberish\n"])
@pytest.mark.parametrize("more", [b"", b'{"step": 4}\n'])
def test_damaged_line_and_what_follows_are_deleted_on_resume(
    tmp_path: Path, torn: bytes, more: bytes
) -> None:
    path, sound = tmp_path / "curve.jsonl", b'{"step": 1}\n{"step": 3}\n'
    path.write_bytes(sound + torn + more)
    with closing(JsonLines(path, resume_step=4)) as lines:
        assert lines.earlier == [{"step": 1}, {"step": 3}]
        assert path.read_bytes() == sound
        lines.append({"step": 5})
    assert path.read_bytes() == sound + b'{"step": 5}\n'


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
    losses = scalars(tmp_path, "train/mlm_loss")
    assert [step for step, _ in losses] == list(range(10, 121, 10))
    expected = [step_record(step).mlm_loss for step, _ in losses]
    assert [value for _, value in losses] == pytest.approx(expected, rel=1e-6)
    assert scalars(tmp_path, "held-out/mlm_loss") == [(50, 2.5), (100, 2.5)]
    assert scalars(tmp_path, "speed/tokens_per_second")[0] == (10, 41_234.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (185, "3 min"), (3_599, "1 h 00 min"),
     (7_620, "2 h 07 min"), (4 * 86_400 + 3 * 3_600, "4 d 3 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert format_rounded_duration(seconds) == text
