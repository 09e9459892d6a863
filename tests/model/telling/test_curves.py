"""The record of a training run: its files, its events, its picture and what is told on the way."""

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

from model.telling import event_files
from model.telling import progress as training_progress
from model.telling.curves import (
    Curves,
    CurveWriter,
    EvaluationRecord,
    SpeedRecord,
    StepRecord,
    read_curves,
)
from model.telling.pictures import draw_curves, smoothed
from model.telling.progress import TrainingProgress, duration_text
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


def speed_record(step: int, *, mfu: float | None = 0.12) -> SpeedRecord:
    return SpeedRecord(
        step=step,
        seconds=0.5 * step,
        tokens_per_second=41_234.5,
        places_per_second=50_000.0,
        peak_memory_bytes=123_456_789,
        loader_wait_share=0.01,
        model_flops_utilisation=mfu,
    )


def evaluation_record(step: int) -> EvaluationRecord:
    return EvaluationRecord(step, 1_000 * step, 2.5, math.exp(2.5), 0.45, 0.4, 0.8)


def write(folder: Path, steps: range, *, resume: int = 0, every: int = 50) -> None:
    with closing(CurveWriter(folder, resume_step=resume)) as writer:
        for step in steps:
            writer.write_step(step_record(step), speed_record(step))
            if step % every == 0:
                writer.write_evaluation(evaluation_record(step))


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "events"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write(tmp_path / "new" / "folder", range(10, 121, 10))
    curves = read_curves(tmp_path / "new" / "folder")
    assert curves.steps == tuple(step_record(step) for step in range(10, 121, 10))
    assert curves.speeds == tuple(speed_record(step) for step in range(10, 121, 10))
    assert curves.evaluations == (evaluation_record(50), evaluation_record(100))


def test_missing_numbers_stay_missing_and_odd_ones_are_valid_json(tmp_path: Path) -> None:
    odd = step_record(1, nsp=False)._replace(gradient_norm=math.inf, loss=math.nan)
    with closing(CurveWriter(tmp_path, resume_step=0)) as writer:
        writer.write_step(odd, speed_record(1, mfu=None))

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    for name in ("curves.jsonl", "timing.jsonl"):
        json.loads((tmp_path / name).read_text(), parse_constant=refuse)
    curves = read_curves(tmp_path)
    assert curves.steps[0].gradient_norm == math.inf
    assert math.isnan(curves.steps[0].loss)
    assert curves.steps[0].nsp_accuracy is None
    assert curves.speeds[0].model_flops_utilisation is None


def test_numbers_of_numpy_are_written_as_plain_ones(tmp_path: Path) -> None:
    record = step_record(7)._replace(step=np.int64(7), loss=np.float32(0.1))
    with closing(CurveWriter(tmp_path, resume_step=0)) as writer:
        writer.write_step(record, speed_record(7))
    assert read_curves(tmp_path).steps[0] == step_record(7)._replace(loss=float(np.float32(0.1)))


def test_equal_runs_have_equal_curves_whatever_the_time(tmp_path: Path) -> None:
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        with closing(CurveWriter(tmp_path / name, resume_step=0)) as writer:
            for step in range(1, 30):
                speed = speed_record(step)._replace(seconds=seconds * step)
                writer.write_step(step_record(step), speed)
            writer.write_evaluation(evaluation_record(29))
    curves = [(tmp_path / name / "curves.jsonl").read_bytes() for name in "ab"]
    timing = [(tmp_path / name / "timing.jsonl").read_bytes() for name in "ab"]
    assert curves[0] == curves[1]
    assert timing[0] != timing[1]


def test_another_loss_gives_other_curves(tmp_path: Path) -> None:
    for name, shift in (("a", 0.0), ("b", 1e-12)):
        with closing(CurveWriter(tmp_path / name, resume_step=0)) as writer:
            writer.write_step(step_record(5, shift=shift), speed_record(5))
    written = [(tmp_path / name / "curves.jsonl").read_bytes() for name in "ab"]
    assert written[0] != written[1]


def test_a_resumed_run_has_the_curves_of_one_that_was_never_stopped(tmp_path: Path) -> None:
    write(tmp_path / "whole", range(10, 201, 10))
    write(tmp_path / "killed", range(10, 151, 10))
    write(tmp_path / "killed", range(110, 201, 10), resume=100)
    for name in ("curves.jsonl", "timing.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_evaluation_at_the_resumed_step_is_kept_and_not_doubled(tmp_path: Path) -> None:
    write(tmp_path, range(10, 101, 10))
    with closing(CurveWriter(tmp_path, resume_step=100)) as writer:
        writer.write_evaluation(evaluation_record(100)._replace(perplexity=1.0))
    assert read_curves(tmp_path).evaluations[-1] == evaluation_record(100)
    assert [step for step, _ in scalars(tmp_path, "held-out/perplexity")] == [50, 100]


def test_a_run_from_the_beginning_cuts_everything(tmp_path: Path) -> None:
    write(tmp_path, range(10, 101, 10))
    write(tmp_path, range(20, 41, 20))
    assert [record.step for record in read_curves(tmp_path).steps] == [20, 40]
    assert [step for step, _ in scalars(tmp_path, "train/loss")] == [20, 40]


@pytest.mark.parametrize("torn", [b'{"kind": "train", "step": 12', b"\0\0\0\0", b'{"step": 3}x\n'])
def test_a_torn_last_line_is_cut_and_told(
    tmp_path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, range(10, 121, 10))
    whole = (tmp_path / "curves.jsonl").read_bytes()
    with (tmp_path / "curves.jsonl").open("ab") as file:
        file.write(torn)
    assert len(read_curves(tmp_path).steps) == 12  # a reader passes over it and changes nothing
    assert (tmp_path / "curves.jsonl").read_bytes() == whole + torn
    CurveWriter(tmp_path, resume_step=120).close()
    assert (tmp_path / "curves.jsonl").read_bytes() == whole
    assert f"torn last line of {len(torn)} bytes" in caplog.text


def test_damage_in_the_middle_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    write(tmp_path, range(10, 41, 10))
    lines = (tmp_path / "curves.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = b"gibberish\n"
    (tmp_path / "curves.jsonl").write_bytes(b"".join(lines))
    for attempt in (lambda: read_curves(tmp_path), lambda: CurveWriter(tmp_path, resume_step=40)):
        with pytest.raises(TrainingError, match=r"curves\.jsonl, line 2: found b'gibberish"):
            attempt()
    assert (tmp_path / "curves.jsonl").read_bytes() == b"".join(lines)


def test_a_line_of_another_version_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "curves.jsonl").write_text('{"kind": "train", "step": 3}\n')
    with pytest.raises(TrainingError, match="line of step 3: expected step, tokens"):
        read_curves(tmp_path)


def test_a_folder_without_curves_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"found no curves\.jsonl"):
        read_curves(tmp_path)


def test_going_on_without_the_earlier_lines_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CurveWriter(tmp_path, resume_step=100).close()
    assert "goes on after step 100, and there is no record" in caplog.text


def test_steps_must_ascend(tmp_path: Path) -> None:
    with closing(CurveWriter(tmp_path, resume_step=100)) as writer:
        for step, speed in ((100, 100), (110, 120)):
            with pytest.raises(ValueError, match="expected both records of one step after 100"):
                writer.write_step(step_record(step), speed_record(speed))
        writer.write_step(step_record(101), speed_record(101))
    assert len(read_curves(tmp_path).steps) == 1


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    with closing(CurveWriter(tmp_path / "curves", resume_step=0, is_main=False)) as writer:
        writer.write_step(step_record(1), speed_record(1))
        writer.write_evaluation(evaluation_record(1))
        writer.sync()
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_reads_every_value(tmp_path: Path) -> None:
    write(tmp_path, range(10, 121, 10))
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    step = {f"train/{name}" for name in StepRecord._fields if name != "step"}
    speed = {f"speed/{name}" for name in SpeedRecord._fields if name != "step"}
    held_out = {"perplexity", "tokens", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    assert set(events.Tags()["scalars"]) == step | speed | {f"held-out/{n}" for n in held_out}
    found = scalars(tmp_path, "train/mlm_loss")
    assert [step for step, _ in found] == list(range(10, 121, 10))
    expected = [step_record(step).mlm_loss for step, _ in found]
    assert [value for _, value in found] == pytest.approx(expected, rel=1e-6)
    assert scalars(tmp_path, "held-out/mlm_loss") == [(50, 2.5), (100, 2.5)]
    assert scalars(tmp_path, "speed/tokens_per_second")[0] == (10, 41_234.5)


def test_tensorboard_forgets_the_steps_that_are_done_again(tmp_path: Path) -> None:
    write(tmp_path, range(10, 151, 10))
    write(tmp_path, range(110, 201, 10), resume=100)
    for tag in ("train/loss", "speed/seconds"):
        assert [step for step, _ in scalars(tmp_path, tag)] == list(range(10, 201, 10))
    assert [step for step, _ in scalars(tmp_path, "held-out/perplexity")] == [50, 100, 150, 200]


def test_a_torn_event_file_hides_nothing_of_the_next(tmp_path: Path) -> None:
    write(tmp_path, range(10, 101, 10))
    (first,) = (tmp_path / "events").iterdir()
    with first.open("ab") as file:
        file.write(struct.pack("<Q", 1_000))  # a record's length, and no record
    write(tmp_path, range(110, 201, 10), resume=100)
    assert [step for step, _ in scalars(tmp_path, "train/loss")] == list(range(10, 201, 10))


def test_without_tensorboard_the_lines_are_written_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    event_files._say_once.cache_clear()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for name in ("a", "b"):
        write(tmp_path / name, range(1, 4))
        assert len(read_curves(tmp_path / name).steps) == 3
        assert not (tmp_path / name / "events").exists()
    assert caplog.text.count("no event files for TensorBoard are written") == 1
    event_files._say_once.cache_clear()


def test_a_killed_process_loses_no_line(tmp_path: Path) -> None:
    code = (
        "import sys, time\nsys.path.insert(0, 'tests')\n"
        f"from {__name__} import CurveWriter, step_record, speed_record\n"
        f"writer = CurveWriter({str(tmp_path)!r}, resume_step=0)\n"
        "for step in range(1, 8): writer.write_step(step_record(step), speed_record(step))\n"
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
    assert curves.speeds == tuple(speed_record(step) for step in range(1, 8))


# The picture


def record_of(steps: int, *, nsp: bool = True) -> Curves:
    numbers = range(10, 10 * steps + 1, 10)
    return Curves(
        tuple(step_record(step, nsp=nsp) for step in numbers),
        tuple(evaluation_record(step) for step in numbers if step % 100 == 0),
        tuple(speed_record(step) for step in numbers),
    )


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_a_picture_of_a_phase(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_curves("phase-1", record_of(90), tmp_path / name)
    assert png_size(tmp_path / "a.png") == (1320, 1284)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    draw_curves("phase-1", record_of(30), tmp_path / "other.png")
    assert (tmp_path / "other.png").read_bytes() != (tmp_path / "a.png").read_bytes()


def test_diagrams_without_numbers_are_left_out(tmp_path: Path) -> None:
    curves = record_of(3, nsp=False)
    curves = curves._replace(speeds=tuple(speed_record(r.step, mfu=None) for r in curves.steps))
    draw_curves("only", curves, tmp_path / "few.png")
    assert png_size(tmp_path / "few.png") == (1320, 984)  # five diagrams in three rows


def test_a_picture_of_one_line_and_of_numbers_that_are_not_finite(tmp_path: Path) -> None:
    odd = step_record(10)._replace(loss=math.nan, gradient_norm=math.inf, learning_rate=0.0)
    draw_curves("one", Curves((odd,), (), ()), tmp_path / "odd.png")
    assert png_size(tmp_path / "odd.png")[0] == 1320


def test_a_picture_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="found no line of training, expected at least one"):
        draw_curves("empty", Curves((), (), ()), tmp_path / "empty.png")


def test_drawing_needs_no_screen_and_leaves_matplotlib_alone(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.path.insert(0, 'tests')\n"
        "import matplotlib\nbefore = dict(matplotlib.rcParams.copy())\n"
        f"from {__name__} import draw_curves, record_of\n"
        f"draw_curves('p', record_of(5), {str(tmp_path / 'a.png')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert dict(matplotlib.rcParams.copy()) == before\n"
    )
    # A backend that does not exist: whoever asked for the process's own would fail.
    environment = {**os.environ, "MPLBACKEND": "module://no_such_backend", "DISPLAY": ""}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    assert png_size(tmp_path / "a.png")[0] == 1320


def test_smoothing_keeps_a_constant_and_passes_over_gaps() -> None:
    y = np.full(50, 3.0)
    y[[0, 7, 8]] = np.nan
    np.testing.assert_allclose(smoothed(y, sigma=2.0), 3.0)
    wave = np.where(np.arange(200) % 2, 1.0, -1.0)
    assert np.abs(smoothed(wave, sigma=3.0)[20:-20]).max() < 0.01
    ramp = np.arange(100.0)
    np.testing.assert_allclose(smoothed(ramp, sigma=2.0)[10:-10], ramp[10:-10])  # no lag
    assert np.isnan(smoothed(np.full(5, np.nan), sigma=1.0)).all()


# What is told on the way


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(training_progress.time, "monotonic", lambda: now[0])
    return now


def advance(progress: TrainingProgress, step: int) -> None:
    progress.note_step(Amounts(step, 1_000 * step, 0.5 * step))


def test_a_line_now_and_then(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="model")
    budget = BudgetConfig(max_steps=1_000)
    with closing(TrainingProgress("pretrain.phase-1", budget=budget, done=Amounts())) as progress:
        for step in range(1, 121):
            clock[0] += 1 / 4
            if step % 10 == 0:
                progress.note_line(step_record(step), speed_record(step))
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
def test_other_budgets(clock: list[float], budget: BudgetConfig, place: str) -> None:
    progress = TrainingProgress("p", budget=budget, done=Amounts())
    for step in (119, 120):
        advance(progress, step)
        clock[0] += 0.5
    assert progress.status().startswith(place + ", ")


def test_the_time_left_is_by_the_pace_of_this_start(clock: list[float]) -> None:
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
        if step == 950:  # the slower pace counts, the faster one is long ago
            assert progress.seconds_left() == pytest.approx(150.0)
    assert progress.seconds_left() == 0.0


def test_many_short_steps_keep_few_moments(clock: list[float]) -> None:
    progress = TrainingProgress("p", budget=BudgetConfig(max_steps=10_000_000), done=Amounts())
    for step in range(1, 20_001):
        clock[0] += 0.001
        advance(progress, step)
    assert len(progress._pace) < 100
    assert progress.seconds_left() == pytest.approx(0.001 * (10_000_000 - 20_000), rel=1e-3)


def test_what_an_evaluation_found(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="model")
    progress = TrainingProgress("p", budget=BudgetConfig(max_steps=10), done=Amounts())
    progress.note_evaluation(evaluation_record(5))
    assert caplog.messages == [
        "p: step 5, held-out MLM loss 2.500, perplexity 12.18, MLM 45.0, NSP 80.0"
    ]


def test_other_processes_say_nothing(
    clock: list[float], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, logger="model")
    budget = BudgetConfig(max_steps=10)
    with closing(TrainingProgress("p", budget=budget, done=Amounts(), is_main=False)) as progress:
        for step in range(1, 4):
            clock[0] += 20
            advance(progress, step)
            progress.note_line(step_record(step), speed_record(step))
        progress.note_evaluation(evaluation_record(3))
    assert caplog.records == []
    assert capsys.readouterr() == ("", "")


def test_a_bar_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    budget = BudgetConfig(max_steps=200)
    with closing(TrainingProgress("pretrain", budget=budget, done=Amounts(steps=100))) as progress:
        for step in range(101, 121):
            advance(progress, step)
        progress.note_line(step_record(120), speed_record(120))
        progress.note_evaluation(evaluation_record(120))
    shown = capsys.readouterr().err
    assert "pretrain:  60%|" in shown
    assert "| step 120 of 200, loss 3.71, MLM 72.6, NSP 50.0, 41,200 tokens/s, 12 % MFU" in shown
    assert "pretrain: step 120, held-out MLM loss 2.500" in shown


def test_in_a_narrower_terminal_the_bar_keeps_its_width_and_details_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    narrow = functools.partial(training_progress.tqdm, ncols=110)  # as found in a real terminal
    monkeypatch.setattr(training_progress, "tqdm", narrow)
    budget = BudgetConfig(max_steps=1_000)
    with closing(TrainingProgress("pretrain.phase-1", budget=budget, done=Amounts())) as progress:
        for step in range(101, 121):
            clock[0] += 1
            advance(progress, step)
        progress.note_line(step_record(120), speed_record(120))
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
    assert duration_text(seconds) == text
