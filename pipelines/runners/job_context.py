"""Context of a job: the step that it belongs to, and the errors of its workers.

A run opens `submission_scope` around a step; the jobs that this thread starts inside have the
step's name. Workers write their errors to files, so that the launching process raises them with
their class and attributes on any runner.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from pipelines.io.file_systems import file_system
from schemas.error_serialization import deserialize_error, serialize_error
from schemas.errors import BertloomError, RunnerError

_NAME_LENGTH = 63  # of a label of DNS, which Dataflow's and Kubernetes' names are
_KEY_LENGTH = 16
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class SubmittedJob:
    """A job on an engine."""

    name: str
    runner: str
    id: str
    """Id that the engine gave it."""

    url: str = ""
    """URL of its page; "" if it has none."""


@dataclass(frozen=True)
class Submission:
    """Step that jobs are submitted for."""

    name: str
    """Name of the job, equal for equal work in the same store."""

    on_submitted: Callable[[SubmittedJob], None] = lambda _: None
    """Called when the engine has accepted the job."""

    log: Callable[[str], None] = lambda _: None
    """Logs a message for the user."""

    urls: tuple[str, ...] = ()
    """URLs of the store and the input, which workers open."""

    stop_event: threading.Event = field(default_factory=threading.Event)
    """Set when the run was asked to stop."""

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            RunnerError: The run was asked to stop.
        """
        if self.stop_event.wait(seconds):
            raise RunnerError(f"{self.name}: cancelled because the run was stopped")


_CURRENT: contextvars.ContextVar[Submission | None] = contextvars.ContextVar(
    "_CURRENT", default=None
)


@contextlib.contextmanager
def submission_scope(submission: Submission) -> Iterator[None]:
    """Submit the jobs that this thread starts in the block for a step."""
    token = _CURRENT.set(submission)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_submission(job: str) -> Submission:
    """Return the step of this thread; for a job outside a run, one named after the job."""
    return _CURRENT.get() or Submission(job_name(job))


def job_name(*parts: str, key: str = "") -> str:
    """Return `bertloom-RECIPE-STEP-KEY`: lower-case letters, digits and hyphens, 63 at most.

    >>> job_name("my.recipe", "build-instances.length-128", key="0123456789abcdef0123")
    'bertloom-my-recipe-build-instances-length-128-0123456789abcdef'
    """
    end = f"-{key[:_KEY_LENGTH]}" if key else ""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(["bertloom", *parts]).lower()).strip("-")
    return text[: _NAME_LENGTH - len(end)].rstrip("-") + end


class ErrorFiles:
    """Errors of one job: one file per failed item."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Start of the files' URLs, followed by the number of the item."""

    @contextlib.contextmanager
    def recording(self, item: Any) -> Iterator[None]:
        """Write the error of the block to a file, and raise it.

        A block without an error deletes the file that an earlier try left.
        """
        fs, path = file_system(f"{self.url}-{item.number:09d}")
        try:
            yield
        except Exception as error:
            # The disk may be full: then only the runner has the text of the error.
            with contextlib.suppress(OSError):
                fs.pipe_file(path, json.dumps(_facts(error, item)).encode())
            raise
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(path)

    @contextlib.contextmanager
    def reraise(self, job: str) -> Iterator[None]:
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
        """Return the error of the first failed item; None if none failed."""
        fs, path = file_system(self.url)
        names = sorted(str(name) for name in fs.glob(f"{path}-*"))
        if not names:
            return None
        facts = json.loads(fs.cat_file(names[0]))
        return deserialize_error(facts, name=f"{job}: while it worked on {facts['item']}")


def _facts(error: Exception, item: Any) -> dict[str, Any]:
    return {**serialize_error(error), "item": getattr(item, "name", f"item {item.number}")}


_MAX_CAUSE = 600  # characters


def root_cause(text: str) -> str:
    """Return the last line of a stack trace that is no frame; "" without such a line.

    Java and Python both print the innermost cause last.

    >>> root_cause("a.b.JobException: failed\\n\\tat a.b.C(D.java:1)\\nCaused by: a.b.E: no disk")
    'a.b.E: no disk'
    """
    lines = [line for line in text.splitlines() if line[:1].isalpha()]
    return lines[-1].removeprefix("Caused by: ")[:_MAX_CAUSE] if lines else ""


def find_bertloom_error(error: BaseException | None) -> BertloomError | None:
    """Return the BertloomError among an exception and its causes, or None."""
    while error is not None and not isinstance(error, BertloomError):
        error = error.__cause__ or error.__context__
    return error


@contextlib.contextmanager
def bertloom_errors(job: str) -> Iterator[None]:
    """Raise an error of the block as the BertloomError among its causes, or as a RunnerError."""
    try:
        yield
    except Exception as error:
        text = f"{job}: {root_cause(str(error)) or repr(error)}"
        raise (find_bertloom_error(error) or RunnerError(text)) from error


class _TracebackFilter:
    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if text.startswith("Traceback (most recent call last)"):
            return len(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class _NotRaisedOnPurpose(logging.Filter):
    """Drops Beam's log record of an error that the job raises anyway."""

    def filter(self, record: logging.LogRecord) -> bool:
        return find_bertloom_error(record.exc_info[1] if record.exc_info else None) is None


logging.getLogger("apache_beam.runners.common").addFilter(_NotRaisedOnPurpose())

_lock = threading.Lock()
_inside = 0


@contextlib.contextmanager
def suppress_worker_tracebacks() -> Iterator[None]:
    """Suppress the tracebacks that Beam's worker loop prints: the runner raises the error.

    Standard error is the whole process's, and jobs may overlap in threads: the first block that
    begins puts the filter in, and the last that ends takes it out.
    """
    global _inside
    with _lock:
        _inside += 1
        if not isinstance(sys.stderr, _TracebackFilter):
            sys.stderr = cast("TextIO", _TracebackFilter(sys.stderr))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            # Another stream may have been installed since then.
            if _inside == 0 and isinstance(sys.stderr, _TracebackFilter):
                sys.stderr = sys.stderr.stream
