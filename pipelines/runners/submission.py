"""What a run tells of itself to the jobs that it submits, and hears of them.

Whoever runs steps opens `submitting` around one; jobs that are launched within it, by the same
thread, bear its name. Outside it a job is called after its stage and listens to nobody.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from schemas.errors import RunnerError

_NAME_LENGTH = 63  # of a label of DNS, which Dataflow's and Kubernetes' names are
_KEY_LENGTH = 16


@dataclass(frozen=True)
class SubmittedJob:
    """A job as its engine knows it."""

    name: str
    runner: str
    id: str
    """The engine's own."""

    url: str = ""
    """Of its page; "" where there is none."""

    attached: bool = False
    """Whether an earlier run submitted it."""


def _tell_nobody(_job: SubmittedJob) -> None:
    pass


def _say_nothing(_line: str) -> None:
    pass


def _measure_nothing(_job: SubmittedJob, _measured: Mapping[str, float]) -> None:
    pass


@dataclass(frozen=True)
class Submission:
    """The step that jobs are submitted for."""

    name: str
    """Of its job, the same for the same work in the same store."""

    told: Callable[[SubmittedJob], None] = _tell_nobody
    """Called when the engine has taken it, or has it already."""

    ended: Callable[[SubmittedJob, Mapping[str, float]], None] = _measure_nothing
    """Called at its end with what it took, by names that say the unit, where its engine tells."""

    say: Callable[[str], None] = _say_nothing
    """Takes a line for people."""

    places: tuple[str, ...] = ()
    """URLs of the store and of the input, which workers open."""

    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the run is to end."""

    detach: bool = False
    """Whether a job is left to its engine then."""

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            RunnerError: the run is to end.
        """
        if self.stopping.wait(seconds):
            raise RunnerError(f"{self.name}: stopped, as the run was")


_CURRENT: contextvars.ContextVar[Submission | None] = contextvars.ContextVar(
    "_CURRENT", default=None
)


@contextlib.contextmanager
def submitting(submission: Submission) -> Iterator[None]:
    """Jobs that are launched in this block, by this thread, are of a step."""
    token = _CURRENT.set(submission)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_submission(job: str) -> Submission:
    """The step that this thread works on, or a name of its own for a job outside a run."""
    return _CURRENT.get() or Submission(job_name(job))


def job_name(*parts: str, key: str = "") -> str:
    """`bertloom-RECIPE-STEP-KEY`: lower-case letters, digits and hyphens, 63 at most.

    >>> job_name("my.recipe", "build-instances.length-128", key="0123456789abcdef0123")
    'bertloom-my-recipe-build-instances-length-1-0123456789abcdef'
    """
    end = f"-{key[:_KEY_LENGTH]}" if key else ""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(["bertloom", *parts]).lower()).strip("-")
    return text[: _NAME_LENGTH - len(end)].rstrip("-") + end
