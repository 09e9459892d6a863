"""How an error of a worker reaches the process that launched the job, with its class and facts.

Beam hands on text. So a worker leaves what it raised as JSON beside the reports before it raises
it: class, message and attributes of a `BertloomError`; number, words and path of an `OSError`; of
any other its words and the piece that it came from. Whatever the runner, the launching process
raises the error of the first piece in the plan's order.
"""

from __future__ import annotations

import builtins
import contextlib
import json
from collections.abc import Iterator
from typing import Any

from pipelines.io.file_systems import file_system
from schemas.errors import BertloomError, RunnerError


class ErrorFiles:
    """The errors of one job: a file for each piece that failed, under names with one beginning."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Of the files, without the number of the piece at their end."""

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
        """Raise, for the runner's own error, that of the first piece that failed."""
        try:
            yield
        except RunnerError as error:
            first = self._first(job)
            if first is None:
                raise
            raise first from error
        except BertloomError:
            self._first(job)  # raised in this process, with its traceback
            raise

    def _first(self, job: str) -> Exception | None:
        """The error of the first piece that failed, made again; the files are taken away."""
        fs, path = file_system(self.url)
        found = sorted(str(name) for name in fs.glob(f"{path}-*"))
        facts = [json.loads(fs.cat_file(name)) for name in found]
        for name in found:
            fs.rm_file(name)
        return _rebuilt(job, facts[0]) if facts else None


def _facts(error: Exception, piece: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "class": type(error).__name__,
        "message": str(error),
        "piece": getattr(piece, "name", f"piece {piece.number}"),
        "notes": list(getattr(error, "__notes__", ())),
    }
    if isinstance(error, BertloomError):
        facts["attributes"] = {
            name: value
            for name, value in vars(error).items()
            if isinstance(value, (str, int, float, bool, type(None))) and name != "__notes__"
        }
    elif isinstance(error, OSError):
        facts["os"] = [error.errno, error.strerror, error.filename and str(error.filename)]
    return facts


def _rebuilt(job: str, facts: dict[str, Any]) -> Exception:
    error = _plain(job, facts)
    for note in facts["notes"]:
        error.add_note(note)
    return error


def _plain(job: str, facts: dict[str, Any]) -> Exception:
    name, message = facts["class"], facts["message"]
    kind = {known.__name__: known for known in _descendants(BertloomError)}.get(name)
    if kind is not None and "attributes" in facts:
        # Not by its constructor: each class has its own, and the message is whole already.
        error = kind.__new__(kind, message)
        vars(error).update(facts["attributes"])
        return error
    if "os" in facts:
        number, words, path = facts["os"]
        named = getattr(builtins, name, None)
        os_kind = named if isinstance(named, type) and issubclass(named, OSError) else OSError
        return os_kind(message) if number is None else os_kind(number, words, path)
    return RunnerError(f"{job}: while it worked on {facts['piece']}: {name}: {message}")


def _descendants(kind: type[BertloomError]) -> Iterator[type[BertloomError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)
