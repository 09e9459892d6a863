"""How an error of a worker reaches the process that launched the job, with its class and facts.

Beam hands on text. So a worker leaves what it raised as JSON beside the reports before it raises
it: class, message and attributes of a `BertloomError`; number, words and path of an `OSError`; of
any other its words and the piece that it came from. Whatever the runner, the launching process
raises the error of the first piece in the plan's order.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from pipelines.io.file_systems import file_system
from schemas.error_serialization import deserialize_error, serialize_error
from schemas.errors import BertloomError


class ErrorFiles:
    """The errors of one job: a file for each piece that failed, under names with one beginning."""

    def __init__(self, url: str) -> None:
        self.url = url
        """What the files' URLs begin with; the number of the piece follows."""

    @contextlib.contextmanager
    def telling(self, piece: Any) -> Iterator[None]:
        """Write down what the block raises, and raise it."""
        try:
            yield
        except Exception as error:
            # The disk may be full: then the runner's text has to do, and the error still counts.
            with contextlib.suppress(OSError):
                fs, path = file_system(f"{self.url}-{piece.number:09d}")
                fs.pipe_file(path, json.dumps(_facts(error, piece)).encode())
            raise

    @contextlib.contextmanager
    def raised_again(self, job: str) -> Iterator[None]:
        """Replace the runner's error by that of the first work item that failed.

        Errors of this process are replaced too: Beam raises a copy without their attributes.
        """
        try:
            yield
        except BertloomError as error:
            first = self._first(job)
            if first is None:
                raise
            raise first from error

    def _first(self, job: str) -> Exception | None:
        """The error of the first piece that failed, made again; the files are taken away."""
        fs, path = file_system(self.url)
        found = sorted(str(name) for name in fs.glob(f"{path}-*"))
        facts = [json.loads(fs.cat_file(name)) for name in found]
        for name in found:
            fs.rm_file(name)
        if not facts:
            return None
        return deserialize_error(facts[0], name=f"{job}: while it worked on {facts[0]['piece']}")


def _facts(error: Exception, piece: Any) -> dict[str, Any]:
    return {**serialize_error(error), "piece": getattr(piece, "name", f"piece {piece.number}")}
