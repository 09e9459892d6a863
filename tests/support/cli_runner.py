"""The `bertloom` command run in the test's own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.paths import PYTHONPATH

from flows.cli.app import main

RECIPE = """\
name: mine
build_documents:
  sources:
    - kind: text
      name: notes
      paths: [texts/*.txt]
      target_split_bytes: 4096  # several shards
build_vocabulary: {vocab_size: 240, min_frequency: 1}
build_instances:
  length-64: {max_seq_length: 64, masking: {max_predictions_per_seq: 10}}
"""
"""Recipe of a small corpus that builds in seconds."""


_LOADED = """
import sys
from flows.cli.app import main

for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code
    print("LOADED", *sys.modules)
"""


def modules_loaded_by(*commands: str, folder: Path) -> list[set[str]]:
    """Run commands one after the other in a new process; return the modules loaded after each."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *commands],
        cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    return [set(words) for words in lines if words[:1] == ["LOADED"]]


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Cli:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        self._capsys.readouterr()
        code: Any = 0
        try:
            main(arguments)
        except SystemExit as error:
            code = error.code or 0
        captured = self._capsys.readouterr()
        return Said(int(code), captured.out, captured.err)
