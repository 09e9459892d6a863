"""Listener that prints a line per step; in a terminal with its number, color and the time left."""

from __future__ import annotations

import sys
import threading
from typing import Any, TextIO

from rich.text import Text

from flows.cli.console import echo
from flows.cli.tables import as_text, console_for, is_terminal
from flows.formatting import format_duration
from flows.run.events import Event, RunStarted, StepFailed, StepFinished
from flows.run.log_lines import event_lines, result_summary, warning_lines
from model.monitoring.formatting import format_rounded_duration

_CLEAR_LINE, _CLEAR_BELOW = "\r\x1b[K", "\x1b[J"


class StepPrinter:
    """Prints the events of a run; failures, and everything if `as_json`, to standard error."""

    def __init__(self, *, as_json: bool = False) -> None:
        """Print to standard error if standard output is for JSON."""
        self._as_json = as_json
        self._estimates: dict[str, float] = {}
        self._built_seconds: list[float] = []
        self._lock = threading.Lock()

    def on_event(self, event: Event) -> None:
        """Print an event."""
        if isinstance(event, RunStarted):
            for step in event.run.planned:
                if step.state == "cached":
                    self._estimates[step.label] = 0.0
                elif step.estimate is not None and step.estimate.seconds is not None:
                    self._estimates[step.label] = step.estimate.seconds
        is_failure = False
        if isinstance(event, StepFailed) and event.retry_delay is None:
            is_failure = True
            event.error.__dict__["printed_label"] = event.step.label
        stream = sys.stderr if self._as_json or is_failure else sys.stdout
        with self._lock:
            if not is_terminal(stream):
                for line in event_lines(event):
                    echo(line, err=stream is sys.stderr)
                return
            if isinstance(event, StepFinished):
                _print_above_bars(stream, self._row(event), no_wrap=True, overflow="ellipsis")
                texts = [as_text(line, "yellow") for line in warning_lines(event.result)]
            else:
                texts = [as_text(line, "red" if is_failure else "") for line in event_lines(event)]
            for text in texts:
                _print_above_bars(stream, text, soft_wrap=True)

    def _row(self, event: StepFinished) -> Text:
        result, total = event.result, len(event.run.by_label)
        if not result.was_cached:
            self._built_seconds.append(result.seconds)
        state = "cached" if result.was_cached else f"built {format_duration(result.seconds)}"
        return Text.assemble(
            as_text(f"{total - len(event.remaining):>{len(str(total))}} of {total}  ", "dim"),
            as_text(f"{result.label:<28}  ", "bold"),
            as_text(f"{state:<16}  ", "dim" if result.was_cached else "green"),
            as_text(self._time_left(event), "cyan"),
            as_text(result_summary(result)),
        )

    def _time_left(self, event: StepFinished) -> str:
        """Return the estimated time of the remaining steps, "" before this run built a step.

        A step without an estimate is taken to be as long as the average step of this run.
        """
        if not event.remaining or not self._built_seconds:
            return ""
        average = sum(self._built_seconds) / len(self._built_seconds)
        seconds = [self._estimates.get(label, average) for label in event.remaining]
        longest = max(sum(seconds) / event.run.max_parallel, *seconds)
        return f"about {format_rounded_duration(longest)} left  "


def _print_above_bars(stream: TextIO, text: Text, **layout: Any) -> None:
    """Print a line where progress bars can be, which are drawn again below it."""
    stream.write(_CLEAR_LINE)
    console_for(stream).print(text, **layout)
    stream.write(_CLEAR_BELOW)
    stream.flush()
