"""Events of a run, and the listeners that receive them.

    RunStarted
      StepStarted  (StepProgress | JobSubmitted | RunMessage)*  StepFinished
      StepFinished                                               (from the cache)
      StepStarted  ...                                           StepFailed
      StepSkipped                                                (an input was not built)
    RunFinished

Whatever watches a run is a listener: console lines, run record, OpenLineage events, experiment
trackers, Prefect artifacts. A run calls its listeners in order, from the thread that
executes the step.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flows.run.graph import Step
from flows.run.step_execution import StepResult
from flows.store.runs import RunState
from pipelines.progress import ProgressUpdate
from pipelines.runners.job_context import SubmittedJob
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from flows.run.run import Run


@dataclass(frozen=True)
class Event:
    """Something that happened in a run."""

    run: Run


@dataclass(frozen=True)
class StepEvent(Event):
    """Something that happened to a step."""

    step: Step


@dataclass(frozen=True)
class RunStarted(Event):
    """A run starts its first step next."""


@dataclass(frozen=True)
class StepStarted(StepEvent):
    """A step is built: it is not in the store, and the run holds its lease."""

    inputs: Mapping[str, Manifest]
    """Manifest of each input, by input name."""

    cache_key: str
    work_folder: str = ""
    """URL of the folder that the stage resumes from; "" if it has none."""


@dataclass(frozen=True)
class StepProgress(StepEvent):
    """A job or a training of a step reports how far it is, about once a second."""

    reading: ProgressUpdate


@dataclass(frozen=True)
class JobSubmitted(StepEvent):
    """An engine accepted a job of a step."""

    job: SubmittedJob


@dataclass(frozen=True)
class RunMessage(Event):
    """A line for people: what a step waits for, or why it is tried again."""

    text: str


@dataclass(frozen=True)
class StepFinished(StepEvent):
    """The artifact of a step is in the store."""

    inputs: Mapping[str, Manifest]
    result: StepResult
    remaining: tuple[str, ...] = ()
    """Labels of the steps that are not finished."""


@dataclass(frozen=True)
class StepFailed(StepEvent):
    """A try of a step failed."""

    inputs: Mapping[str, Manifest]
    error: Exception
    retry_delay: float | None = None
    """Seconds until the next try; None after the last one."""


@dataclass(frozen=True)
class StepSkipped(StepEvent):
    """A step does not run, because inputs of it were not built."""

    missing: tuple[str, ...]
    """Labels of these inputs."""


@dataclass(frozen=True)
class RunStopping(Event):
    """A run was asked to stop: steps in progress are stopped, and no step starts."""


@dataclass(frozen=True)
class RunFinished(Event):
    """A run has ended."""

    state: RunState
    failures: Mapping[str, BaseException] = field(default_factory=dict)
    """Error by label; "" is the run's own."""


class Listener(Protocol):
    """Receives the events of a run. Threads of one run can call it at the same time."""

    def on_event(self, event: Event) -> None:
        """Handle an event. An error is logged and never fails the run."""


_WATCHERS: contextvars.ContextVar[tuple[Listener, ...]] = contextvars.ContextVar(
    "_WATCHERS", default=()
)


@contextlib.contextmanager
def watch_runs(*listeners: Listener) -> Iterator[None]:
    """Let listeners receive the events of the runs that are prepared in the block.

    A flow prepares its run itself, from parameters, which listeners cannot be.
    """
    token = _WATCHERS.set((*_WATCHERS.get(), *listeners))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def watchers() -> tuple[Listener, ...]:
    """Return the listeners of the `watch_runs` blocks around the caller."""
    return _WATCHERS.get()
