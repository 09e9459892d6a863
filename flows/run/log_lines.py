"""Events of a run as lines of text."""

from __future__ import annotations

from collections.abc import Callable

from flows.formatting import format_duration
from flows.run.events import (
    Event,
    JobSubmitted,
    RunFinished,
    RunMessage,
    StepFailed,
    StepFinished,
    StepSkipped,
)
from flows.run.stages import summarize
from flows.run.step_execution import StepResult
from schemas.errors import BertloomError
from schemas.trial_names import entry_label


class LogLines:
    """Listener that passes the lines of each event to a function, such as `print`."""

    def __init__(self, log: Callable[[str], None]) -> None:
        """Take the function that is called with each line."""
        self._log = log

    def on_event(self, event: Event) -> None:
        """Log the lines of an event."""
        for line in event_lines(event):
            self._log(line)


def event_lines(event: Event) -> list[str]:
    """Return the lines that report an event to people; none for most progress."""
    match event:
        case StepFinished(result=result):
            return [_result_line(result), *warning_lines(result)]
        case StepFailed(step=step, error=error, retry_delay=delay) if delay is not None:
            return [f"{step.label}  {error}; trying again in {delay:g} s"]
        case StepFailed(run, step, error=error):
            state = "not finished" if run.stopping.is_set() else "FAILED"
            text = error_text(error).removeprefix(f"{step.label}: ")
            notes = getattr(error, "__notes__", ())
            return ["\n  ".join([f"{step.label}  {state}: {text}", *notes])]
        case StepSkipped(_, step, missing):
            entries = dict.fromkeys(entry_label(label) for label in missing)
            return [f"{step.label}  not run: needs {', '.join(entries)}"]
        case JobSubmitted(_, step, job):
            return [f"{step.label}  job: {job.name}, {job.id} on {job.runner}  {job.url}".rstrip()]
        case RunMessage(_, text):
            return [text]
        case RunFinished(state="interrupted", failures=failures):
            return list(getattr(failures.get(""), "__notes__", ()))
    return []


def error_text(error: BaseException) -> str:
    """Return the message of an error, with its type if it is not one of bertloom's."""
    return str(error) if isinstance(error, BertloomError) else f"{type(error).__name__}: {error}"


def warning_lines(result: StepResult) -> list[str]:
    """Return the warnings of a step; those of a cached training are repeated at the run's end."""
    warnings = [result.warning] if result.was_cached else result.warnings
    return [f"  warning: {warning}" for warning in filter(None, warnings)]


def result_summary(result: StepResult) -> str:
    """Return what a step's artifact holds, and how much of the work was reused."""
    reuse, summary = result.manifest.produced_by.reuse, summarize(result.manifest)
    if reuse is None or not reuse.items_reused or result.was_cached:
        return summary
    fraction = reuse.weight_reused / reuse.weight if reuse.weight else 1.0
    return (
        f"{summary}, {reuse.items_reused:,} of {reuse.items:,} work items reused "
        f"({fraction:.0%} of work)"
    )


def _result_line(result: StepResult) -> str:
    state = "cached" if result.was_cached else f"built in {format_duration(result.seconds)}"
    artifact = result.manifest.artifact_id
    return f"{result.label:<28}  {state:<20}  {artifact}  {result_summary(result)}"
