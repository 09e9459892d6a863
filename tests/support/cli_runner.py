"""The `bertloom` command run in the test's own process."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from flows.cli.app import main

RECIPE = """\
name: mine
build_documents:
  sources:
    - kind: text
      name: notes
      paths: [texts/*.txt]
      target_split_bytes: 32768  # a shard a file
build_vocabulary: {vocab_size: 240, min_frequency: 1}
build_instances:
  length-64: {max_seq_length: 64, masking: {max_predictions_per_seq: 10}}
"""
"""Recipe of a small corpus that builds in seconds."""


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
