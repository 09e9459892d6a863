"""The plan of a job as a file beside its reports, so that the job's graph does not grow with it.

A line is a piece, a JSON list. An element of the graph is a range of the file's bytes, which holds
whole lines: a worker reads those of its element by one request, wherever the file lies. What all
pieces need and is as long as the plan, such as the names of all shards, lies in a file of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from pipelines.io.file_systems import file_system, read_file
from schemas.errors import ConfigError
from schemas.manifest import StageInput

ByteRange = tuple[int, int]
"""First byte of some lines and the one behind them."""


class PlanFile(NamedTuple):
    """Where a plan is, and what its lines are. Sent to workers by value."""

    url: str
    kind: type[Any]
    """The class of the pieces: a named tuple of plain values and named tuples."""

    def pieces(self, where: ByteRange) -> Iterator[Any]:
        """The pieces of some lines."""
        fs, path = file_system(self.url)
        adapter = TypeAdapter(self.kind)
        for line in fs.cat_file(path, start=where[0], end=where[1]).splitlines():
            yield adapter.validate_json(line)


class SharedInput:
    """An input with all its files, which goes to workers by a file of the job that is given it."""

    def __init__(self, value: StageInput) -> None:
        """Here it is there already."""
        self._value: StageInput | None = value
        self._url = ""

    def get(self) -> StageInput:
        """The input; a worker reads it once."""
        if self._value is None:
            self._value = StageInput.model_validate_json(read_file(self._url))
        return self._value

    @contextlib.contextmanager
    def written(self, url: str) -> Iterator[None]:
        """Have it in a file while the block runs, from which copies of this object read it."""
        fs, path = file_system(url)
        fs.pipe_file(path, self.get().model_dump_json().encode())
        self._url = url
        with _removed_after(fs, path):
            yield
        self._url = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"_value": None, "_url": self._url} if self._url else self.__dict__


@contextlib.contextmanager
def written_plan(
    lanes: Sequence[Sequence[Any]], *, folder: str
) -> Iterator[tuple[PlanFile, list[ByteRange]]]:
    """Write a plan below a folder's URL, hidden; it is taken away when the block ends.

    Returns:
        the plan, and the range of each lane that has pieces.

    Raises:
        ConfigError: the pieces are of several classes.
    """
    kinds = {type(piece) for lane in lanes for piece in lane}
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ConfigError(f"the pieces of a job have to be of one class, found {names}")
    plan = PlanFile(f"{folder}/.plan-{uuid.uuid4().hex}.ndjson", kinds.pop() if kinds else tuple)
    text, ranges = plan_text(lanes)
    fs, path = file_system(plan.url)
    fs.pipe_file(path, text)
    with _removed_after(fs, path):
        yield plan, ranges


def plan_text(lanes: Sequence[Sequence[Any]]) -> tuple[bytes, list[ByteRange]]:
    """The lines of a plan, and which of them are each lane's that has pieces."""
    text, ranges = io.BytesIO(), list[ByteRange]()
    for lane in filter(None, lanes):
        start = text.tell()
        for piece in lane:
            text.write(json.dumps(piece, separators=(",", ":")).encode() + b"\n")
        ranges.append((start, text.tell()))
    return text.getvalue(), ranges


@contextlib.contextmanager
def _removed_after(fs: Any, path: str) -> Iterator[None]:
    """Take a file away when the block ends, with or without an error.

    Not where it is interrupted: the job may go on elsewhere, and reads it.
    """
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):  # the job's own error counts
            fs.rm_file(path)
        raise
    fs.rm_file(path)
