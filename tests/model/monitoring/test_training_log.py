"""The log of a phase: files, TensorBoard events, plot and console."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import signal
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from support.paths import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tqdm import tqdm

from model.monitoring.formatting import format_rounded_duration
from model.monitoring.plots import plot_curves, smooth
from model.monitoring.reporter import TrainingProgress
from model.monitoring.training_log import (
    Curves,
    CurveWriter,
    EvaluationRecord,
    StepRecord,
    ThroughputRecord,
    read_curves,
)
from model.training.amounts import Amounts
from schemas.errors import TrainingError
from schemas.model_configs import BudgetConfig


def step_record(step: int, *, nsp: bool = True, shift: float = 0.0) -> StepRecord:
    loss = 10.0 * math.exp(-step / 100) + shift
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
        padded_tokens_per_second=50_000.0,
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


def test_curves_do_not_depend_on_time(tmp_path: Path) -> None:
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        with closing(CurveWriter(tmp_path / name, resume_step=0)) as writer:
            for step in range(1, 30):
                speed = throughput_record(step)._replace(seconds=seconds * step)
                writer.write_step(step_record(step), speed)
            writer.write_evaluation(evaluation_record(29))
    curves = [(tmp_path / name / "curves.jsonl").read_bytes() for name in "ab"]
    timing = [(tmp_path / name / "timing.jsonl").read_bytes() for name in "ab"]
    assert curves[0] == curves[1]
    assert timing[0] != timing[1]


def test_different_losses_give_different_curves(tmp_path: Path) -> None:
    for name, shift in (("a", 0.0), ("b", 1e-12)):
        with closing(CurveWriter(tmp_path / name, resume_step=0)) as writer:
            writer.write_step(step_record(5, shift=shift), throughput_record(5))
    written = [(tmp_path / name / "curves.jsonl").read_bytes() for name in "ab"]
    assert written[0] != written[1]


def test_resumed_run_has_the_curves_of_an_uninterrupted_run(tmp_path: Path) -> None:
    write(tmp_path / "whole", range(10, 201, 10))
    write(tmp_path / "killed", range(10, 151, 10))
    write(tmp_path / "killed", range(110, 201, 10), resume=100)
    for name in ("curves.jsonl", "timing.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_evaluation_of_the_resumed_step_is_not_repeated(tmp_path: Path) -> None:
    write(tmp_path, range(10, 101, 10))
    with closing(CurveWriter(tmp_path, resume_step=100)) as writer:
        writer.write_evaluation(evaluation_record(100)._replace(perplexity=1.0))
    assert read_curves(tmp_path).evaluations[-1] == evaluation_record(100)
    assert [step for step, _ in scalars(tmp_path, "held-out/perplexity")] == [50, 100]


def test_restart_from_step_zero_deletes_all_records(tmp_path: Path) -> None:
    write(tmp_path, range(10, 101, 10))
    write(tmp_path, range(20, 41, 20))
    assert [record.step for record in read_curves(tmp_path).steps] == [20, 40]
    assert [step for step, _ in scalars(tmp_path, "train/loss")] == [20, 40]


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
    lines = (tmp_path / "curves.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = b"gibberish\n"
    (tmp_path / "curves.jsonl").write_bytes(b"".join(lines))
    for attempt in (lambda: read_curves(tmp_path), lambda: CurveWriter(tmp_path, resume_step=40)):
        with pytest.raises(TrainingError, match=r"curves\.jsonl, line 2:"):
            attempt()
    assert (tmp_path / "curves.jsonl").read_bytes() == b"".join(lines)


def test_line_without_required_fields_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "curves.jsonl").write_text('{"kind": "train", "step": 3}\n')
    (tmp_path / "timing.jsonl").touch()
    with pytest.raises(TrainingError, match="step 3"):
        read_curves(tmp_path)


def test_resuming_without_earlier_records_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CurveWriter(tmp_path, resume_step=100).close()
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
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


def test_tensorboard_hides_repeated_steps(tmp_path: Path) -> None:
    write(tmp_path, range(10, 151, 10))
    write(tmp_path, range(110, 201, 10), resume=100)
    for tag in ("train/loss", "speed/seconds"):
        assert [step for step, _ in scalars(tmp_path, tag)] == list(range(10, 201, 10))
    assert [step for step, _ in scalars(tmp_path, "held-out/perplexity")] == [50, 100, 150, 200]


def test_incomplete_event_file_does_not_hide_the_next_file(tmp_path: Path) -> None:
    write(tmp_path, range(10, 101, 10))
    (first,) = (tmp_path / "events").iterdir()
    with first.open("ab") as file:
        file.write(struct.pack("<Q", 1_000))  # length of a record that is missing
    write(tmp_path, range(110, 201, 10), resume=100)
    assert [step for step, _ in scalars(tmp_path, "train/loss")] == list(range(10, 201, 10))


def test_killed_process_loses_no_line(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\nsys.path.insert(0, 'tests')\n"
        f"from {__name__} import CurveWriter, step_record, throughput_record\n"
        f"writer = CurveWriter(pathlib.Path({str(tmp_path)!r}), resume_step=0)\n"
        "for step in range(1, 8): writer.write_step(step_record(step), throughput_record(step))\n"
        "print('written', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    curves = read_curves(tmp_path)
    assert curves.steps == tuple(step_record(step) for step in range(1, 8))
    assert curves.throughput == tuple(throughput_record(step) for step in range(1, 8))


# Plot


def record_of(steps: int, *, nsp: bool = True) -> Curves:
    numbers = range(10, 10 * steps + 1, 10)
    return Curves(
        tuple(step_record(step, nsp=nsp) for step in numbers),
        tuple(evaluation_record(step) for step in numbers if step % 100 == 0),
        tuple(throughput_record(step) for step in numbers),
    )


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_plot_of_a_phase_is_reproducible(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        plot_curves("phase-1", record_of(90), tmp_path / name)
    assert png_size(tmp_path / "a.png") == (1320, 1284)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    plot_curves("phase-1", record_of(30), tmp_path / "other.png")
    assert (tmp_path / "other.png").read_bytes() != (tmp_path / "a.png").read_bytes()


def test_panels_without_values_are_omitted(tmp_path: Path) -> None:
    curves = record_of(3, nsp=False)
    curves = curves._replace(
        throughput=tuple(throughput_record(r.step, mfu=None) for r in curves.steps)
    )
    plot_curves("only", curves, tmp_path / "few.png")
    assert png_size(tmp_path / "few.png") == (1320, 984)  # five diagrams in three rows


def test_plot_of_one_step_with_non_finite_values(tmp_path: Path) -> None:
    odd = step_record(10)._replace(loss=math.nan, gradient_norm=math.inf, learning_rate=0.0)
    plot_curves("one", Curves((odd,), (), ()), tmp_path / "odd.png")
    assert png_size(tmp_path / "odd.png")[0] == 1320


def test_plot_without_steps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        plot_curves("empty", Curves((), (), ()), tmp_path / "empty.png")


def test_plot_needs_no_display_and_keeps_matplotlib_settings(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\nsys.path.insert(0, 'tests')\n"
        "import matplotlib\nbefore = dict(matplotlib.rcParams.copy())\n"
        f"from {__name__} import plot_curves, record_of\n"
        f"plot_curves('p', record_of(5), pathlib.Path({str(tmp_path / 'a.png')!r}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert dict(matplotlib.rcParams.copy()) == before\n"
    )
    # With this backend, pyplot would fail.
    environment = {**os.environ, "MPLBACKEND": "module://no_such_backend", "DISPLAY": ""}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    assert png_size(tmp_path / "a.png")[0] == 1320


def test_smoothing_keeps_constants_and_skips_gaps() -> None:
    y = np.full(50, 3.0)
    y[[0, 7, 8]] = np.nan
    np.testing.assert_allclose(smooth(y, sigma=2.0), 3.0)
    wave = np.where(np.arange(200) % 2, 1.0, -1.0)
    assert np.abs(smooth(wave, sigma=3.0)[20:-20]).max() < 0.01
    ramp = np.arange(100.0)
    np.testing.assert_allclose(smooth(ramp, sigma=2.0)[10:-10], ramp[10:-10])  # no lag
    assert np.isnan(smooth(np.full(5, np.nan), sigma=1.0)).all()


# Console


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr("model.monitoring.reporter.time.monotonic", lambda: now[0])
    return now


def advance(progress: TrainingProgress, step: int) -> None:
    progress.update(Amounts(step, 1_000 * step, 0.5 * step))


def test_status_is_logged_every_15_seconds(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="model")
    budget = BudgetConfig(max_steps=1_000)
    with closing(TrainingProgress("pretrain.phase-1", budget=budget, done=Amounts())) as progress:
        for step in range(1, 121):
            clock[0] += 1 / 4
            if step % 10 == 0:
                progress.log_step(step_record(step), throughput_record(step))
            advance(progress, step)
    assert [record.getMessage() for record in caplog.records] == [
        "pretrain.phase-1: step 60 of 1,000, loss 6.19, MLM 50.1, NSP 50.0, 41,200 tokens/s, "
        "12 % MFU, 4 min left",
        "pretrain.phase-1: step 120 of 1,000, loss 3.71, MLM 72.6, NSP 50.0, 41,200 tokens/s, "
        "12 % MFU, 4 min left",
    ]


@pytest.mark.parametrize(
    ("budget", "place"),
    [
        (BudgetConfig(max_tokens=1_000_000), "step 120, 120,000 tokens of 1,000,000 tokens"),
        (BudgetConfig(max_minutes=10), "step 120, 1.0 min of 10.0 min"),
    ],
)
def test_status_shows_the_unit_of_the_budget(
    clock: list[float], budget: BudgetConfig, place: str
) -> None:
    progress = TrainingProgress("p", budget=budget, done=Amounts())
    for step in (119, 120):
        advance(progress, step)
        clock[0] += 0.5
    assert progress.status().startswith(place + ", ")


def test_time_left_follows_the_recent_pace(clock: list[float]) -> None:
    progress = TrainingProgress("p", budget=BudgetConfig(max_steps=1_000), done=Amounts(steps=800))
    assert progress.seconds_left() is None
    clock[0] += 30.0  # the first step, in which code is compiled
    advance(progress, 801)
    assert progress.seconds_left() is None
    for step in range(802, 812):
        clock[0] += 2.0
        advance(progress, step)
    assert progress.seconds_left() == pytest.approx(2.0 * (1_000 - 811))
    for step in range(812, 1_001):
        clock[0] += 3.0
        advance(progress, step)
        if step == 950:  # only the slower pace of the last two minutes counts
            assert progress.seconds_left() == pytest.approx(150.0)
    assert progress.seconds_left() == 0.0


def test_pace_of_many_short_steps_is_measured(clock: list[float]) -> None:
    progress = TrainingProgress("p", budget=BudgetConfig(max_steps=10_000_000), done=Amounts())
    for step in range(1, 20_001):
        clock[0] += 0.001
        advance(progress, step)
    assert progress.seconds_left() == pytest.approx(0.001 * (10_000_000 - 20_000), rel=1e-3)


def test_evaluation_is_logged(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="model")
    progress = TrainingProgress("p", budget=BudgetConfig(max_steps=10), done=Amounts())
    progress.log_evaluation(evaluation_record(5))
    assert caplog.messages == [
        "p: step 5, held-out MLM loss 2.500, perplexity 12.18, MLM 45.0, NSP 80.0"
    ]


def test_terminal_shows_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    budget = BudgetConfig(max_steps=200)
    with closing(TrainingProgress("pretrain", budget=budget, done=Amounts(steps=100))) as progress:
        for step in range(101, 121):
            advance(progress, step)
        progress.log_step(step_record(120), throughput_record(120))
        progress.log_evaluation(evaluation_record(120))
    shown = capsys.readouterr().err
    assert "pretrain:  60%|" in shown
    assert "| step 120 of 200, loss 3.71, MLM 72.6, NSP 50.0, 41,200 tokens/s, 12 % MFU" in shown
    assert "pretrain: step 120, held-out MLM loss 2.500" in shown


def test_narrow_terminal_drops_details_and_keeps_the_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    narrow = functools.partial(tqdm, ncols=110)  # width of a real terminal
    monkeypatch.setattr("model.monitoring.reporter.tqdm", narrow)
    budget = BudgetConfig(max_steps=1_000)
    with closing(TrainingProgress("pretrain.phase-1", budget=budget, done=Amounts())) as progress:
        for step in range(101, 121):
            clock[0] += 1
            advance(progress, step)
        progress.log_step(step_record(120), throughput_record(120))
    last = capsys.readouterr().err.split("\r")[-3]
    assert "pretrain.phase-1:  12%|" in last
    assert "step 120 of 1,000, loss 3.71, MLM 72.6" in last
    assert "15 min left" in last
    assert "MFU" not in last
    assert len(last.split("|")[1]) >= 25
    assert len(last) <= 110


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (185, "3 min"), (3_599, "1 h 00 min"),
     (7_620, "2 h 07 min"), (4 * 86_400 + 3 * 3_600, "4 d 3 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert format_rounded_duration(seconds) == text
