"""Output in a real pseudo-terminal; `test_console.py` tests plain output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_stages import FakeStages

from flows.cli import tables
from flows.cli.progress import StepPrinter
from flows.run.estimates import StepEstimate
from flows.run.events import Event, RunStarted, StepFailed, StepFinished
from flows.run.log_lines import event_lines
from flows.run.plan import PlannedStep
from flows.running import run_recipe
from schemas.errors import InputError

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


class Recorder:
    """Listener that stores the events of a run."""

    def __init__(self) -> None:
        self.finished: list[StepFinished] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, StepFinished):
            self.finished.append(event)


@pytest.fixture
def finished(fakes: FakeStages, tmp_path: Path) -> list[StepFinished]:
    """Return the events of the steps of a run that built every step."""
    recorder = Recorder()
    run_recipe(fakes.recipe(str(tmp_path / "store")), listeners=[recorder], engine="local")
    return recorder.finished


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
    has_time_left = [bool(re.search(r"  about \d+ (s|min)", line)) for line in lines[:total]]
    assert has_time_left == [True] * (total - 1) + [False]
    assert max(map(len, lines)) <= 80
    assert _COLOR.search(output)


def test_steps_are_plain_lines_in_dumb_terminal(
    finished: list[StepFinished], monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as read:
        monkeypatch.setenv("TERM", "dumb")
        StepPrinter().on_event(finished[1])
        assert read().splitlines() == event_lines(finished[1])


@pytest.mark.parametrize(
    ("remaining", "text"),
    [
        (("slow", "cached"), "about 10 min left"),
        (("cached",), "about 0 s left"),
        (("unknown",), "about 7 s left"),
    ],
)
def test_time_left_is_the_estimate_of_the_plan(
    finished: list[StepFinished],
    monkeypatch: pytest.MonkeyPatch,
    remaining: tuple[str, ...],
    text: str,
) -> None:
    event = finished[0]
    event.run.planned = (
        PlannedStep("slow", "build", estimate=StepEstimate(seconds=600.0)),
        PlannedStep("cached", "cached"),
        PlannedStep("unknown", "unknown", estimate=StepEstimate(seconds=None)),
    )
    result = event.result._replace(seconds=7.0)
    with terminal(monkeypatch, columns=120) as read:
        printer = StepPrinter()
        printer.on_event(RunStarted(event.run))
        printer.on_event(replace(event, result=result, remaining=remaining))
        assert text in _CONTROL.sub("", read())
