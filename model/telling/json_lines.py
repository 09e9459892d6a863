"""A file of JSON lines by ascending step that survives kill -9 and can be cut back to a step."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

from schemas.errors import TrainingError

_LOGGER = logging.getLogger(__name__)


class JsonLines:
    """Appends lines to a file, each handed to the system at once.

    Args:
        path: local file, made if there is none.
        last_step: what follows the lines up to this step is cut, and a torn last line with it.

    Attributes:
        kept: the lines that were there and stay.

    Raises:
        TrainingError: the file is damaged other than at its end.
    """

    def __init__(self, path: Path, *, last_step: int) -> None:
        path.touch()
        lines, torn_bytes = _parse(path)
        self.kept = [line.values for line in lines]
        for number, line in enumerate(lines):
            if line.values["step"] > last_step:
                self.kept = self.kept[:number]
                break
        cut = len(lines) - len(self.kept)
        if cut:
            _LOGGER.info(
                "%s: cut %d lines of steps after %d, where the run goes on", path, cut, last_step
            )
        if torn_bytes:
            _LOGGER.warning(
                "%s: cut a torn last line of %d bytes: the process that wrote it was killed",
                path,
                torn_bytes,
            )
        if cut or torn_bytes:
            os.truncate(path, lines[len(self.kept) - 1].end if self.kept else 0)
        self._file = path.open("ab")

    def append(self, values: dict[str, Any]) -> None:
        """Add a line; equal values give equal bytes."""
        line = json.dumps(values, allow_nan=False)
        self._file.write(f"{line}\n".encode())
        self._file.flush()

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; a torn last one, as of a process that is just writing, is left out.

    Raises:
        TrainingError: another line is not a JSON object with a step.
    """
    return [line.values for line in _parse(path)[0]]


class _Line(NamedTuple):
    values: dict[str, Any]
    end: int  # byte offset right after it


def _parse(path: Path) -> tuple[list[_Line], int]:
    """All whole lines, and how many bytes at the end are none."""
    data = path.read_bytes()
    lines: list[_Line] = []
    end = 0
    for number, text in enumerate(data.splitlines(keepends=True), start=1):
        values = _object(text) if text.endswith(b"\n") else None
        if values is None:
            if end + len(text) == len(data):
                return lines, len(text)
            raise TrainingError(
                f"{path}, line {number}: found {text[:60]!r}, expected a JSON object with a step: "
                "the file was damaged after it was written; move it away to begin a new one"
            )
        end += len(text)
        lines.append(_Line(values, end))
    return lines, 0


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(text)
    except ValueError:  # UnicodeDecodeError is one too
        return None
    is_line = isinstance(values, dict) and isinstance(values.get("step"), int)
    return values if is_line else None
