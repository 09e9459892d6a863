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
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.fake_stages import FakeStages

from flows.cli import run, terminal
from flows.cli.step_lines import step_printer
from flows.run.estimates import StepEstimate
from flows.run.plan import PlannedStep
from flows.run.step_execution import StepLine
from pipelines.telling import progress
from schemas.recipe import Recipe

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
    ("0123456789abcdef", "build-tokens", "DAMAGED: see `bertloom verify`", "a/[bold]b"),
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


def test_each_step_has_one_line_with_its_number_and_the_time_left(
    cli: Cli, fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Recipe = fakes.recipe(str(tmp_path / "store"))
    lines: list[str] = []
    results = run.run_recipe(made, log=lines.append, engine="local")
    steps = [line for line in lines if isinstance(line, StepLine)]
    total = len(results)
    assert [(line.number, line.total) for line in steps] == [
        (n, total) for n in range(1, total + 1)
    ]
    assert not any("\x1b" in line or " of " in line[:10] for line in lines)
    long = steps[0].result._replace(label="finetune.a-task.b16-lr0.0003-e4-r11", seconds=100.0)
    steps[0] = StepLine(long, left=steps[0].left, total=total)
    with shown(monkeypatch) as read:
        show = step_printer()
        for line in steps:
            show(line)
        show("x  FAILED: of\nsomething")
        said = read()
    found = _CONTROL.sub("", said).splitlines()
    assert found[0].startswith(f"1 of {total}  finetune.a-t")
    assert "-e4-r11  1 min 40 s" in found[0]
    says = [bool(re.search(r"  about \d+ (s|min) left$", line)) for line in found[:total]]
    assert says == [True] * (total - 1) + [False]
    assert max(map(len, found)) <= 80
    assert _COLOUR.search(said)
    with shown(monkeypatch) as read:
        monkeypatch.setenv("TERM", "dumb")
        step_printer()(steps[1])
        assert read() == f"{steps[1]}\n"


def test_the_time_left_is_what_the_plan_expects(
    cli: Cli, fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    run.run_recipe(fakes.recipe(str(tmp_path / "store")), log=lines.append, engine="local")
    done = next(line for line in lines if isinstance(line, StepLine)).result._replace(seconds=7.0)
    planned = [
        PlannedStep("built", "build", estimate=StepEstimate(seconds=600.0)),
        PlannedStep("found", "cached"),
        PlannedStep("unheard-of", "unknown", estimate=StepEstimate(seconds=None)),
    ]
    for left, said in (
        (("built", "found"), "about 10 min left"),
        (("found",), "about 0 s left"),
        (("unheard-of",), "about 7 s left"),
    ):
        with shown(monkeypatch) as read:
            step_printer(planned)(StepLine(done, left=left, total=4))
            assert said in _CONTROL.sub("", read())


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
