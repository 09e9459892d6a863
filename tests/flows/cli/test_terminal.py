"""What a terminal shows where a pipe gets plain lines, looked at through a terminal of the system.

`test_console.py` has the plain lines.
"""

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

from flows.cli import terminal
from flows.cli.progress import StepPrinter
from flows.run.estimates import StepEstimate
from flows.run.events import Event, RunStarted, StepFailed, StepFinished
from flows.run.log_lines import event_lines
from flows.run.plan import PlannedStep
from flows.running import run_recipe
from pipelines.telling import progress
from schemas.errors import InputError

_COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\r")

Screen = Callable[[], str]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@contextmanager
def shown(monkeypatch: pytest.MonkeyPatch, *, columns: int = 80) -> Iterator[Screen]:
    """Standard output and error are a terminal; yields what reads all that it got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    os.set_blocking(ours, False)

    def read() -> str:
        found = b""
        while True:
            try:
                found += os.read(ours, 1 << 16)
            except BlockingIOError:
                return found.decode().replace("\r\n", "\n")

    with open(theirs, "w", encoding="utf-8") as stream:  # noqa: PTH123 (a descriptor)
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        yield read
        monkeypatch.undo()
    os.close(ours)


HEAD = ("artifact", "stage", "holds", "refs")
ROWS = [
    ("0123456789abcdef", "build-tokens", "CORRUPT: see `bertloom verify`", "a/[bold]b"),
    ("fedcba9876543210", "pretrain", "1,000 steps, held-out perplexity 21.60", "sample/x " * 6),
]


def test_a_table_fits_the_terminal_and_says_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.print_table(HEAD, ROWS, folds=(2, 3), less=(1,))
    plain = capsys.readouterr().out
    assert plain.splitlines()[1].split() == " ".join(ROWS[0]).split()
    with shown(monkeypatch) as read:
        terminal.print_table(HEAD, ROWS, folds=(2, 3), less=(1,))
        said = read()
    lines = _CONTROL.sub("", said).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["artifact", "holds", "refs"]
    assert lines[-1].startswith("not shown in 80 columns: stage (")
    assert "[bold]" in lines[1]  # no markup of theirs
    assert _COLOUR.search(said)
    with shown(monkeypatch, columns=160) as read:
        monkeypatch.setenv("NO_COLOR", "1")
        terminal.print_table(HEAD, ROWS, folds=(2, 3), less=(1,))
        wide = read()
    assert not _COLOUR.search(wide)
    assert "build-tokens" in wide
    assert "not shown" not in wide
    with shown(monkeypatch) as read:
        monkeypatch.setenv("TERM", "dumb")
        terminal.print_table(HEAD, ROWS, folds=(2, 3), less=(1,))
        assert read() == plain


class Recorder:
    """Listener that keeps the events of a run."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def finished(self) -> list[StepFinished]:
        return [event for event in self.events if isinstance(event, StepFinished)]


@pytest.fixture
def recorder(fakes: FakeStages, tmp_path: Path) -> Recorder:
    """Events of a run that built every step."""
    recorder = Recorder()
    recipe = fakes.recipe(str(tmp_path / "store"))
    run_recipe(recipe, listeners=[recorder], engine="local")
    return recorder


def test_each_step_has_one_line_with_its_number_and_the_time_left(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, total = recorder.finished, len(recorder.finished)
    assert [len(event.remaining) for event in finished] == list(reversed(range(total)))
    long = finished[0].result._replace(label="finetune.a-task.bs16-lr0.0003-ep4-r11", seconds=100.0)
    finished[0] = replace(finished[0], result=long)
    failed = StepFailed(finished[0].run, finished[0].step, {}, InputError("of\nsomething"))
    with shown(monkeypatch) as read:
        printer = StepPrinter()
        for event in [*finished, failed]:
            printer.on_event(event)
        said = read()
    found = _CONTROL.sub("", said).splitlines()
    assert found[0].startswith(f"1 of {total}  finetune.a-t")
    assert "-ep4-r11  1 min 40 s" in found[0]
    says = [bool(re.search(r"  about \d+ (s|min) left$", line)) for line in found[:total]]
    assert says == [True] * (total - 1) + [False]
    assert max(map(len, found)) <= 80
    assert _COLOUR.search(said)


def test_steps_are_plain_lines_without_a_terminal(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shown(monkeypatch) as read:
        monkeypatch.setenv("TERM", "dumb")
        StepPrinter().on_event(recorder.finished[1])
        assert read().splitlines() == event_lines(recorder.finished[1])


def test_the_time_left_is_what_the_plan_expects(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = recorder.finished[0]
    event.run.planned = (
        PlannedStep("built", "build", estimate=StepEstimate(seconds=600.0)),
        PlannedStep("found", "cached"),
        PlannedStep("unheard-of", "unknown", estimate=StepEstimate(seconds=None)),
    )
    result = event.result._replace(seconds=7.0)
    for remaining, text in (
        (("built", "found"), "about 10 min left"),
        (("found",), "about 0 s left"),
        (("unheard-of",), "about 7 s left"),
    ):
        with shown(monkeypatch) as read:
            printer = StepPrinter()
            printer.on_event(RunStarted(event.run))
            printer.on_event(replace(event, result=result, remaining=remaining))
            assert text in _CONTROL.sub("", read())


def test_bars_of_other_processes_have_other_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress.tempfile, "gettempdir", lambda: str(tmp_path))
    with shown(monkeypatch):
        ours, other = (
            progress.Places(),
            progress.Places(),
        )  # as of two processes: locks are of files
        with ours.taken() as first, other.taken() as second, ours.taken() as third:
            assert (first, second, third) == (0, 1, 2)
        with other.taken() as again:
            assert again == 0
