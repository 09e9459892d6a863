"""Listener that prints a line per step; in a terminal with number, color and time left."""

from __future__ import annotations

import sys
import threading

from flows.cli.console import echo
from flows.cli.terminal import NARROW, in_terminal, print_over_bars, terminal_size, text_of
from flows.formatting import format_duration
from flows.run.events import Event, RunStarted, StepFailed, StepFinished
from flows.run.log_lines import event_lines, result_summary, warning_lines
from flows.run.plan import PlannedStep
from model.telling.progress import duration_text

_STATE, _NARROW_STATE, _MIN_WIDTH_WITH_IDS = 16, 10, 110
"""Columns of a state, in a narrow terminal, and of a terminal that has room for artifact ids."""

_MIN_SUMMARY = 28
"""Columns for the contents of an artifact, where labels of trials are long."""


class StepPrinter:
    """Prints the events of a run; failures, and everything if `as_json`, to standard error."""

    def __init__(self, *, as_json: bool = False) -> None:
        """Print to standard error if standard output is for JSON."""
        self._as_json = as_json
        self._rows = _TerminalRows()
        self._lock = threading.Lock()

    def on_event(self, event: Event) -> None:
        """Print an event."""
        if isinstance(event, RunStarted):
            self._rows.set_plan(event.run.planned)
        is_failure = isinstance(event, StepFailed) and event.retry_delay is None
        err = self._as_json or is_failure
        if is_failure and isinstance(event, StepFailed):
            event.error.__dict__["printed_label"] = event.step.label
        with self._lock:
            if not in_terminal(sys.stderr if err else sys.stdout):
                for line in event_lines(event):
                    echo(line, err=err)
            elif isinstance(event, StepFinished):
                self._rows.print(event, err=err)
            else:
                style = "red" if is_failure else ""
                for line in event_lines(event):
                    print_over_bars(text_of(line, style), err=err)


class _TerminalRows:
    """Rows of a terminal; remembers what a run has built, to estimate how much longer it takes."""

    def __init__(self) -> None:
        self._estimates: dict[str, float | None] = {}
        self._built: list[float] = []
        self._label_width = 0

    def set_plan(self, planned: tuple[PlannedStep, ...]) -> None:
        """Take the estimates of a plan."""
        self._estimates = {step.label: _seconds(step) for step in planned}

    def print(self, event: StepFinished, *, err: bool) -> None:
        """Print the row of a finished step, and its warnings."""
        result, total = event.result, len(event.run.by_label)
        if not result.was_cached:
            self._built.append(result.seconds)
        width = terminal_size()[0]
        count = f"{total - len(event.remaining):>{len(str(total))}} of {total}"
        is_narrow = width < NARROW
        duration = format_duration(result.seconds)
        state = "cached" if result.was_cached else duration if is_narrow else f"built {duration}"
        state_width = _NARROW_STATE if is_narrow else _STATE
        left = self._time_left(event)
        if not self._label_width:
            longest = max(map(len, (result.label, *event.remaining)))
            available = width - len(count) - state_width - _MIN_SUMMARY - 6
            self._label_width = max(20, min(longest, available))
        used = len(count) + len(left) + self._label_width + state_width + (8 if left else 6)
        summary = result_summary(result)
        if width >= _MIN_WIDTH_WITH_IDS:
            summary = f"{result.manifest.artifact_id}  {summary}"
        text = text_of(f"{count}  ", "dim")
        label = _shorten_middle(result.label, self._label_width)
        text.append_text(text_of(f"{label:<{self._label_width}}  ", "bold"))
        style = "dim" if result.was_cached else "green"
        text.append_text(text_of(f"{state:<{state_width}}  ", style))
        text.append_text(text_of(_shorten_end(summary, width - used)))
        if left:
            text.append_text(text_of(f"  {left}", "cyan"))
        print_over_bars(text, err=err)
        for line in warning_lines(result):
            print_over_bars(text_of(line, "yellow"), err=err)

    def _time_left(self, event: StepFinished) -> str:
        """Return the estimated time of the remaining steps, "" before this run built a step.

        A step without an estimate is taken to be as long as the average step of this run.
        """
        if not event.remaining or not self._built:
            return ""
        average = sum(self._built) / len(self._built)
        known = [self._estimates.get(label) for label in event.remaining]
        each = [average if seconds is None else seconds for seconds in known]
        seconds = max(sum(each) / event.run.max_parallel, *each)
        return f"about {duration_text(seconds)} left"


def _seconds(step: PlannedStep) -> float | None:
    if step.state == "cached":
        return 0.0
    return step.estimate.seconds if step.estimate is not None else None


def _shorten_middle(label: str, width: int) -> str:
    """Return a label without its middle if it is too long: trials differ at their end."""
    if len(label) <= width:
        return label
    end = width // 2
    return f"{label[: width - end - 1]}…{label[-end:]}"


def _shorten_end(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)].rstrip(' ,')}…"
