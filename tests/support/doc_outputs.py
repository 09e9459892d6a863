"""The commands of the pages, run in order in one folder, and what they print.

`make docs-outputs` writes the outputs of such a run into the pages and draws their pictures; a test
compares another run with them. The tutorial comes first. README repeats some of its commands. The
commands of the other pages then use the artifacts that the tutorial built, if an output is shown.

`bertloom quickstart` turns the measured time of a training step into a number of steps. Here this
time is a constant, so every run trains the same models.

A block shows as much of the output as its page needs: a line with `...` stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.doc_commands import RUN, RUN_TUTORIAL, WITH_A_MODEL, shape, site_module
from support.paths import PYTHONPATH, ROOT

from flows.cli.app import main

TUTORIAL = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
OTHERS = sorted({*(ROOT / "docs").rglob("*.md")} - {*TUTORIAL})
PAGES = [*TUTORIAL, ROOT / "README.md", *OTHERS]
STEP_SECONDS_PER_TOKEN = 0.04 / 32
"""Time of a training step for each token of a sequence, as on two idle cores."""

_BLOCK = re.compile(
    rf"^<!-- ({RUN_TUTORIAL}|{RUN})({WITH_A_MODEL})? -->\n```console\n(.*?)^```", re.M | re.S
)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.M)
_FIGURE = re.compile(r"\d[\d.,]*")
_PREDICTION = re.compile(r"[^\n]*\n  \[MASK\]:.*")
_UNSTABLE = re.compile(
    r"""\b\d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d\b                 # dates
    | \b\d{8}t\d+-[0-9a-f]{8}\b                             # ids of runs
    | \b(?:\d+\ h\ )?(?:\d+\ min\ )?\d[\d.]*\ s\b           # durations
    | \b(?=[a-z]*\d)[0-9a-f]{7,}\b                          # ids of artifacts""",
    re.VERBOSE,
)


class Command(NamedTuple):
    """A command of a page, and the output that the page shows below it."""

    page: Path
    line: str
    shown: list[str]
    """Lines; a filled sentence and the predictions below it are one."""

    uses_model: bool
    """True if its figures come from a model: other machines give slightly different ones."""

    is_in_tutorial: bool

    def match(self, printed: list[str], *, only_shape: bool = False) -> Iterator[str | None]:
        """Yield the printed line that each shown one stands for, or None."""
        rest = iter(_join_predictions(printed))
        only_shape = only_shape or self.uses_model
        for line in self.shown:
            if "..." in line or not line:
                yield line
            else:
                yield next((new for new in rest if are_alike(line, new, only_shape)), None)


def commands(page: Path) -> Iterator[Command]:
    """Yield the recorded commands of a page in order."""
    for mark, model, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line, shown in _COMMAND.findall(block):
            if not shown and mark == RUN:
                continue
            lines = _join_predictions(shown.splitlines())
            yield Command(page, line, lines, bool(model), mark == RUN_TUTORIAL)


def run_commands(folder: Path) -> Iterator[tuple[Command, list[str]]]:
    """Run the commands of all pages in a folder; yield each with the lines that it prints."""
    environ = _environment(folder.parent / "programs")
    in_tutorial: dict[str, list[str]] = {}
    for command in (command for page in PAGES for command in commands(page)):
        if command.is_in_tutorial and command.page not in TUTORIAL:
            yield command, in_tutorial[command.line]
            continue
        done = subprocess.run(
            ["bash", "-c", command.line], cwd=folder, env=environ, text=True, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output = done.stdout.replace(f"{folder}/", "").rstrip()
        assert done.returncode == 0, f"{command.page.name}: $ {command.line}\n{output}"
        printed = [line.rstrip() for line in output.splitlines()]
        in_tutorial.setdefault(command.line, printed)
        yield command, printed


def write_outputs(folder: Path) -> None:
    """Run all commands, write into each page what they print, and draw the pictures."""
    missing: list[str] = []
    for command, printed in run_commands(folder):
        matched = list(command.match(printed, only_shape=True))
        if None in matched:
            line = command.shown[matched.index(None)]
            missing += [f"{command.page.name}: $ {command.line}: not printed: {line}", *printed, ""]
            continue
        lines = [line for line in matched if line is not None] if command.shown else printed
        before = "".join(f"{line}\n" for line in [f"$ {command.line}", *command.shown])
        after = "".join(f"{line}\n" for line in [f"$ {command.line}", *lines])
        text = command.page.read_text(encoding="utf-8")
        command.page.write_text(text.replace(before, after, 1), encoding="utf-8")
        sys.stdout.write(after)
        sys.stdout.flush()
    site_module("pictures").write_pictures(str(folder / "store"))
    if missing:
        sys.exit("\n".join([*missing, "correct these lines of the pages, and run again"]))


def _environment(programs: Path) -> dict[str, str]:
    """Return variables with which `bertloom` is this checkout's, without settings of the user."""
    programs.mkdir()
    program = programs / "bertloom"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m support.doc_outputs bertloom "$@"\n')
    program.chmod(0o755)
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    ours = ("BERTLOOM", "PREFECT_API", "COLUMNS")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return environ | {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": PYTHONPATH,
        "HF_HUB_OFFLINE": "1",
    }


def _join_predictions(lines: list[str]) -> list[str]:
    """Join each line of predictions with the sentence above it."""
    return re.split(r"\n(?!  \[MASK\]:)", "\n".join(lines)) if lines else []


def are_alike(line: str, other: str, only_shape: bool) -> bool:
    """Compare two lines without ids and times, and also without other figures on request."""
    if only_shape:
        line, other = (_PREDICTION.sub("[MASK]", text) for text in (line, other))
        return shape(line) == shape(other)
    figures, others = (_FIGURE.findall(_UNSTABLE.sub("", text)) for text in (line, other))
    return figures == others and shape(line) == shape(other)


def _run_with_fixed_speed() -> None:
    """Run the command line; measured training steps have a fixed duration."""
    if "quickstart" in sys.argv:
        from model.training import throughput  # loads torch

        throughput.measure_step_seconds = lambda *_, seq_length, **__: (
            seq_length * STEP_SECONDS_PER_TOKEN
        )
    main(sys.argv[2:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["bertloom"]:
        _run_with_fixed_speed()
    else:
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary) / "tutorial"
            work.mkdir()
            write_outputs(work)
