"""The `bertloom` command run in the test's own process."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from flows.cli.app import main


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
