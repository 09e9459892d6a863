"""Listener that prints a line per step; in a terminal with its number, color and the time left."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from rich.text import Text

from flows.cli.console import StepFailedError, echo
from flows.cli.tables import as_text, console_for, is_terminal
from flows.formatting import format_duration
from flows.run.events import Event, RunFinished, RunStarted, StepFailed, StepFinished
from flows.run.log_lines import event_lines, result_summary
from flows.run.run import Run
from model.formatting import format_rounded_duration
from pipelines.terminal import lines_above_bars
from schemas.errors import BertloomError


class StepPrinter:
    """Prints the events of a run; failures, and everything if `as_json`, to standard error."""

    def __init__(self, *, as_json: bool = False) -> None:
        """Print to standard error if standard output is for JSON."""
        self.run: Run | None = None
        """The run, as soon as it starts."""

        self._as_json = as_json
        self._estimates: dict[str, float] = {}
        self._built_seconds: list[float] = []
        self._cached: list[StepFinished] = []
        self._failures: dict[str, Exception] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def replace_printed_error(self) -> Iterator[None]:
        """Replace an error that ends the block, if it is the failure of a step that was printed.

        Raises:
            StepFailedError: The step failed.
        """
        try:
            yield
        except BertloomError as error:
            for label, failure in self._failures.items():
                if failure is error:
                    raise StepFailedError(label) from error
            raise

    def on_event(self, event: Event) -> None:
        """Print an event. Consecutive cached steps are one line."""
        with self._lock:
            match event:
                case RunStarted(run):
                    self.run = run
                    self._estimate_steps(event)
                case StepFinished(result=result) if result.was_cached:
                    self._cached.append(event)
                    return
                case StepFailed(step=step, error=error, retry_delay=None):
                    self._failures[step.label] = error
            lines = event_lines(event)
            if lines or isinstance(event, RunFinished):
                self._print_cached()
            if isinstance(event, StepFinished):
                self._print_step(event, lines)
            else:
                is_failure = isinstance(event, StepFailed) and event.retry_delay is None
                self._print_lines(lines, is_failure=is_failure)

    def _estimate_steps(self, event: RunStarted) -> None:
        for step in event.run.planned:
            if step.state == "cached":
                self._estimates[step.label] = 0.0
            elif step.expected_seconds is not None:
                self._estimates[step.label] = step.expected_seconds

    def _print_cached(self) -> None:
        """Print the cached steps since the last printed line."""
        if len(self._cached) == 1:
            self._print_step(self._cached[0], event_lines(self._cached[0]))
        elif self._cached:
            label = f"{len(self._cached):,} steps"
            row = Text.assemble(*self._row_start(self._cached[-1], label, "cached", "dim"))
            self._print_row(row, f"{label:<28}  cached")
        self._cached.clear()

    def _print_step(self, event: StepFinished, lines: list[str]) -> None:
        """Print the row of a step, or outside a terminal its first line, then its warnings."""
        self._print_row(self._row(event), lines[0])
        self._print_lines(lines[1:], style="yellow")

    def _print_row(self, row: Text, line: str) -> None:
        stream = self._stream()
        if is_terminal(stream):
            with lines_above_bars(stream):
                console_for(stream).print(row, no_wrap=True, overflow="ellipsis")
        else:
            echo(line, err=stream is sys.stderr)

    def _print_lines(self, lines: list[str], *, style: str = "", is_failure: bool = False) -> None:
        stream = self._stream(is_failure=is_failure)
        for line in lines:
            if is_terminal(stream):
                with lines_above_bars(stream):
                    text = as_text(line, "red" if is_failure else style)
                    console_for(stream).print(text, soft_wrap=True)
            else:
                echo(line, err=stream is sys.stderr)

    def _stream(self, *, is_failure: bool = False) -> TextIO:
        return sys.stderr if self._as_json or is_failure else sys.stdout

    def _row(self, event: StepFinished) -> Text:
        result = event.result
        state, style = "cached", "dim"
        if not result.was_cached:
            self._built_seconds.append(result.seconds)
            state, style = f"built {format_duration(result.seconds)}", "green"
        return Text.assemble(
            *self._row_start(event, result.label, state, style),
            as_text(self._time_left(event), "cyan"),
            as_text(result_summary(result)),
        )

    def _row_start(self, event: StepFinished, label: str, state: str, style: str) -> list[Text]:
        """Return the columns that all rows have, with the number of finished steps."""
        total = len(event.run.by_label)
        return [
            as_text(f"{total - len(event.remaining):>{len(str(total))}} of {total}  ", "dim"),
            as_text(f"{label:<28}  ", "bold"),
            as_text(f"{state:<16}  ", style),
        ]

    def _time_left(self, event: StepFinished) -> str:
        """Return the estimated time of the remaining steps, "" before this run built a step.

        A step without an estimate is taken to be as long as the average step of this run.
        """
        if not event.remaining or not self._built_seconds:
            return ""
        average = sum(self._built_seconds) / len(self._built_seconds)
        seconds = [self._estimates.get(label, average) for label in event.remaining]
        longest = max(sum(seconds) / event.run.max_parallel, *seconds)
        return f"{format_rounded_duration(longest)} left  "
