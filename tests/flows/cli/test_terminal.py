"""Output in a real pseudo-terminal, and the summary at the end of a run."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import FakeStages, Recorder
from support.lineage_builder import put, put_recipe, raw_file
from support.store_builder import write_run

from flows.cli import tables
from flows.cli.final_summary import MAX_MESSAGES, summary_parts
from flows.cli.progress import StepPrinter
from flows.cli.run import runs
from flows.cli.tables import print_parts
from flows.run.events import RunFinished, RunMessage, RunStarted, StepFailed, StepFinished
from flows.run.plan import PlannedStep
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from model.tables.compare import Comparison
from model.tables.render import JSON_FILE, Tables
from model.tables.verdicts import Verdict
from pipelines.terminal import LogHandler, TerminalBar, copy_lines, lines_above_bars
from schemas.errors import InputError, TrainingError
from schemas.manifest import Manifest

_COLOR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\r")

Read = Callable[[], str]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, *, columns: int = 80) -> Iterator[Read]:
    """Make standard output and error a terminal; yield a function that reads what it shows."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    os.set_blocking(master, False)

    def read() -> str:
        output = b""
        while True:
            try:
                output += os.read(master, 1 << 16)
            except BlockingIOError:
                return output.decode().replace("\r\n", "\n")

    with open(slave, "w", encoding="utf-8") as stream:  # noqa: PTH123 (a descriptor)
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        yield read
        monkeypatch.undo()
    os.close(master)


HEADER = ("artifact", "stage", "contents", "refs")
ROWS = [
    ("0123456789abcdef", "build-tokens", "CORRUPT: see `bertloom verify`", "a/[bold]b"),
    ("fedcba9876543210", "pretrain", "1,000 steps, held-out perplexity 21.60", "sample/x " * 6),
]


@pytest.mark.parametrize("wrap", [True, False])
def test_table_fits_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrap: bool
) -> None:
    tables.print_parts(tables.table(HEADER, ROWS, wrap=wrap))
    plain = capsys.readouterr().out
    assert plain.splitlines()[1].split() == " ".join(ROWS[0]).split()
    with terminal(monkeypatch) as read:
        tables.print_parts(tables.table(HEADER, ROWS, wrap=wrap))
        output = read()
    lines = [line.rstrip() for line in _CONTROL.sub("", output).splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == list(HEADER)
    assert [len(lines) == 3, "fedcba9876543210" in output] == [not wrap, True]
    assert _COLOR.search(output)
    with terminal(monkeypatch) as read:
        monkeypatch.setenv("NO_COLOR", "1")
        tables.print_parts(tables.table(HEADER, ROWS))
        assert not _COLOR.search(read())


@pytest.fixture
def finished(fakes: FakeStages, tmp_path: Path) -> list[StepFinished]:
    """Return the events of the steps of a run that built every step."""
    recorder = Recorder()
    run_recipe(fakes.recipe(str(tmp_path / "store")), listeners=[recorder], engine="local")
    return recorder.events_of(StepFinished)


def test_each_step_is_one_line_with_number_and_time_left(
    finished: list[StepFinished], monkeypatch: pytest.MonkeyPatch
) -> None:
    total = len(finished)
    label = "finetune.a-task.bs16-lr0.0003-ep4-r11"
    finished[0] = replace(finished[0], result=finished[0].result._replace(label=label, seconds=100))
    failed = StepFailed(finished[0].run, finished[0].step, {}, InputError("of\nsomething"))
    with terminal(monkeypatch) as read:
        printer = StepPrinter()
        for event in [*finished, failed]:
            printer.on_event(event)
        output = read()
    lines = _CONTROL.sub("", output).splitlines()
    assert lines[0].startswith(f"1 of {total}  {label}  built 1 min 40 s")
    has_time_left = [bool(re.search(r"  \d+ (s|min) left", line)) for line in lines[:total]]
    assert has_time_left == [True] * (total - 1) + [False]
    assert max(map(len, lines)) <= 80
    assert _COLOR.search(output)


def test_time_left_is_the_estimate_of_the_plan(
    finished: list[StepFinished], monkeypatch: pytest.MonkeyPatch
) -> None:
    event = finished[0]
    event.run.planned = (
        PlannedStep("slow", "build", expected_seconds=600.0),
        PlannedStep("cached", "cached"),
        PlannedStep("unknown", "unknown"),
    )
    result = event.result._replace(seconds=7.0)
    with terminal(monkeypatch, columns=120) as read:
        printer = StepPrinter()
        printer.on_event(RunStarted(event.run))
        for remaining, text in ((("slow", "cached"), "10 min"), (("unknown",), "7 s")):
            printer.on_event(replace(event, result=result, remaining=remaining))
            assert f"  {text} left" in _CONTROL.sub("", read())


# Summary of a run


REPORT = "/somewhere/reports/mine.html"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.chdir(tmp_path)
    return ArtifactStore(str(tmp_path / "kept"))


def results_of(manifests: Mapping[str, Manifest], **fields: Any) -> list[StepResult]:
    return [StepResult(label, item, False, 1.0, **fields) for label, item in manifests.items()]


def summarize(
    results: list[StepResult], store: ArtifactStore, *, recipe: str = "mine"
) -> list[str]:
    """Return the lines that a pipe gets."""
    with redirect_stdout(StringIO()) as output:
        print_parts(
            *summary_parts(results, store=store, recipe=recipe, report=REPORT, seconds=90.0)
        )
    return [line.rstrip() for line in output.getvalue().splitlines()]


def block(lines: list[str], title: str) -> list[str]:
    """Return the lines below a title, up to an empty one."""
    start = next(index for index, line in enumerate(lines) if line.startswith(title)) + 1
    return lines[start : lines.index("", start)]


def verdict(sentence: str) -> Verdict:
    test = Comparison(first="cola", second="cola-scratch", title="CoLA", columns=("cola",))
    about = {"task": "cola", "title": "CoLA", "sentence": sentence, "test": test}
    return Verdict(kind="pretraining", **about)


def test_run_with_tables_ends_with_some_verdicts_headline_and_report(store: ArtifactStore) -> None:
    made = put_recipe(store)
    sentences = [f"Pretraining helps on task {number}" for number in range(30)]
    tables = Tables(results=(), comparisons=(), tables=(), verdicts=tuple(map(verdict, sentences)))
    text = tables.to_json().decode()
    manifest = put(store, "tabulate", {"cola": made["evaluate.cola"]}, key="tables", text=text)
    files = (manifest.files[0].model_copy(update={"path": JSON_FILE}),)
    made["tabulate"] = manifest.model_copy(update={"files": files})
    lines = summarize(results_of(made), store)
    assert lines[1] == f"mine: {len(made)} steps, {len(made)} built, 0 cached, in 1 min 30 s"
    assert lines[-3:] == ["store: kept", sentences[0], f"report: {REPORT}"]
    assert [line for line in lines[:-3] if line in sentences] == sentences[1 : MAX_MESSAGES + 1]
    assert f"... and {29 - MAX_MESSAGES} more: see the report" in lines
    steps = [line.split()[0] for line in block(lines, "step")]
    assert len(steps) < len(made)  # one row per stage


def test_run_without_tables_ends_with_lineage_and_last_score(store: ArtifactStore) -> None:
    made = put_recipe(store)
    del made["tabulate"]
    lines = summarize(results_of(made), store)
    assert lines[-2].startswith("cola: matthews ")
    assert not [line for line in lines if line.startswith("try next")]
    rows = block(lines, "lineage of evaluate.cola")
    stages = [row.split()[0] for row in rows]
    assert stages[:2] == ["evaluate", "finetune"]
    assert stages[-2:] == ["build-documents", "raw"]
    assert made["evaluate.cola"].artifact_id in rows[0]
    assert "wiki.xml.bz2 (2.0 kB, verified sha1)" in rows[-1]


def test_all_raw_files_of_a_run_are_summed_up(store: ArtifactStore) -> None:
    files = [raw_file(f"part-{number}.bz2") for number in range(40)]  # 2 kB each
    made = {"build-documents": put(store, "build-documents", raw=files)}
    [row] = block(summarize(results_of(made), store), "lineage of build-documents")[-1:]
    assert row.split()[:2] == ["raw", "files"]
    assert "80.0 kB" in row


def test_run_of_sample_ends_with_commands_for_its_steps(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "env" / "bin" / "activate"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    monkeypatch.setenv("PATH", str(tmp_path))  # the shell does not know `bertloom`
    made = put_recipe(store)
    del made["tabulate"]
    made["build-instances.length-32"] = made.pop("build-instances.short")
    lines = summarize(results_of(made), store, recipe="sample")
    assert block(lines, "try next (after: source env/bin/activate)") == [
        "  bertloom fill 'Soup was [MASK] and tasty.' --model sample/pretrain.phase-2 --store kept",
        "  bertloom trace sample/build-instances.length-32:0 --store kept",
    ]


def test_warnings_of_cached_steps_are_shown_once(store: ArtifactStore) -> None:
    made = put_recipe(store)
    text = "The classifier gives one answer only."
    evaluated, recorded = made["evaluate.cola"], [{"kind": "one-answer", "text": text}]
    statistics = {**evaluated.statistics, "warnings": recorded}
    warned = evaluated.model_copy(update={"statistics": statistics})
    results = [
        StepResult("build-documents", made["build-documents"], True, 0.0),
        StepResult("evaluate.cola", warned, True, 0.0, warning=text),
    ]
    lines = summarize(results, store)
    assert lines.count(f"warning: evaluate.cola: {text}") == 1
    assert [line.split()[1] for line in block(lines, "step")] == ["cached", "cached"]


# Bars and lines


def screen(output: str) -> list[str]:
    """Return the lines that a terminal shows after this output."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.|\n", output):
        if part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        elif part == "\x1b[A":
            row -= 1
        elif part == "\x1b[J":
            lines[row:] = [lines[row][:column]]
        elif not part.startswith("\x1b"):
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


def test_lines_between_two_bars_are_whole(
    finished: list[StepFinished], monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch, columns=100) as read:
        printer, logger = StepPrinter(), logging.Logger("a")
        logger.addHandler(LogHandler())
        reader, writer = os.pipe()
        output = ""
        with (
            closing(TerminalBar("one", total=9)) as one,
            closing(TerminalBar("two", total=9)) as two,
        ):
            thread = copy_lines(os.fdopen(reader, "rb"))
            for number in range(9):
                with ThreadPoolExecutor(4) as pool:
                    pool.submit(one.show, number, ["step", "loss 1.5", "MLM 50.1", "3 min left"])
                    pool.submit(two.show, number)
                    pool.submit(logger.warning, "logged %d", number)
                    message = RunMessage(finished[0].run, f"printed {number}")
                    pool.submit(printer.on_event, message)
                os.write(writer, f"worker {number}\n".encode())
                output += read()
            os.close(writer)
            thread.join()
            output += read()
            *lines, first, second = screen(output)
        closed = screen(output + read())
    names = ("logged", "printed", "worker")
    assert sorted(lines) == sorted(f"{name} {number}" for name in names for number in range(9))
    assert re.fullmatch(r"one:  89%\|.{20,}\| step, loss 1.5, MLM 50.1, 3 min left", first)
    assert re.fullmatch(r"two:  89%\|.{20,}\| \d\d:\d\d<\S+", second)
    assert closed == lines  # the bars are removed


def test_line_after_a_closed_second_bar_begins_at_the_margin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal(monkeypatch) as read:
        with closing(TerminalBar("one", total=9)) as one:
            second = TerminalBar("two", total=9)
            second.show(3)
            one.close()
            second.close()
        with lines_above_bars(sys.stderr):
            sys.stderr.write("a line\n")
        assert screen(read()) == ["a line"]


def test_consecutive_cached_steps_are_one_line(
    finished: list[StepFinished], capsys: pytest.CaptureFixture[str]
) -> None:
    cached = [
        replace(event, result=event.result._replace(was_cached=True)) for event in finished[:3]
    ]
    printer = StepPrinter()
    for event in (*cached, finished[3], cached[0], RunFinished(finished[0].run, "completed")):
        printer.on_event(event)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "3",
        finished[3].step.label,
        cached[0].step.label,
    ]
    assert lines[0].split()[1:] == ["steps", "cached"]


def test_interrupt_says_what_was_saved(
    finished: list[StepFinished], capsys: pytest.CaptureFixture[str]
) -> None:
    error = KeyboardInterrupt()
    error.add_note("phase: stopped after step 7, saved")
    StepPrinter().on_event(RunFinished(finished[0].run, "interrupted", {"": error}))
    assert capsys.readouterr().out.splitlines() == ["phase: stopped after step 7, saved"]


def test_stopped_training_is_no_failure(
    finished: list[StepFinished], capsys: pytest.CaptureFixture[str]
) -> None:
    run, step = finished[0].run, finished[0].step
    run.stopping.set()
    error = TrainingError(f"{step.label}: stopped after step 7, saved")
    StepPrinter().on_event(StepFailed(run, step, {}, error))
    [line] = capsys.readouterr().err.splitlines()
    assert "FAILED" not in line
    assert line.count(step.label) == 1
    assert "step 7" in line


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 160, 240])
def test_runs_are_listed_at_any_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    store = ArtifactStore(str(tmp_path))
    names = ("20260101t000000-aa", "20260102t000000-bb")
    for run_id in names:
        write_run(store, run_id, recipe={"name": "a-recipe-with-a-long-name"})
    with terminal(monkeypatch, columns=columns) as read:
        runs(store=str(tmp_path))
        header, *lines = re.sub(r"\x1b\[[0-9;]*m", "", read()).splitlines()
    assert [line.split()[0] for line in lines] == [*reversed(names)]  # one line per run
    titles = header.split()
    assert titles[0] == "run"
    assert titles[-1] == "result"
    assert ("cached" in titles) == (columns >= 120)
