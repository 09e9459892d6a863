"""The line of each step of a run: plain, or in a terminal with its number, colour and time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from flows.cli.console import say
from flows.cli.terminal import NARROW, in_terminal, print_over_bars, terminal_size, text_of
from flows.run.plan import PlannedStep
from flows.run.step_execution import FAILED, StepLine
from flows.formatting import format_duration

_STATE, _NARROW_STATE, _IDS_FROM = 16, 10, 110
"""Columns of a state, in a narrow terminal, and those of a terminal that has room for ids."""

_HOLDS = 28
"""Columns that are left for what an artifact holds, where names of trials are long."""


def step_printer(
    planned: Sequence[PlannedStep] = (), *, as_json: bool = False
) -> Callable[[str], None]:
    """What prints the line of a step: failures, and all beside JSON, to standard error.

    Args:
        planned: what the steps are expected to take, for the time left; none where nobody planned.
        as_json: whether standard output is for JSON.
    """
    lines = _StepLines(planned)

    def print_line(line: str) -> None:
        err = as_json or FAILED in line
        if not in_terminal(sys.stderr if err else sys.stdout):
            say(line, err=err)
        else:
            lines.show(line, err=err)

    return print_line


class _StepLines:
    """Remembers what a run has built, to say how much longer it takes."""

    def __init__(self, planned: Sequence[PlannedStep]) -> None:
        self._expected = {step.label: _seconds(step) for step in planned}
        self._built: list[float] = []
        self._label = 0

    def show(self, line: str, *, err: bool) -> None:
        if not isinstance(line, StepLine):
            style = "red" if FAILED in line else "yellow" if "warning: " in line else ""
            print_over_bars(text_of(line, style), err=err)
            return
        result = line.result
        if not result.was_cached:
            self._built.append(result.seconds)
        width = terminal_size()[0]
        count = f"{line.number:>{len(str(line.total))}} of {line.total}"
        is_narrow = width < NARROW
        built = format_duration(result.seconds) if is_narrow else f"built {format_duration(result.seconds)}"
        state = "cached" if result.was_cached else built
        wide = _NARROW_STATE if is_narrow else _STATE
        left = self._left(line)
        if not self._label:
            longest = max(map(len, (result.label, *line.left)))
            self._label = max(20, min(longest, width - len(count) - wide - _HOLDS - 6))
        room = width - len(count) - len(left) - self._label - wide - (8 if left else 6)
        holds = line.holds if width < _IDS_FROM else f"{result.manifest.artifact_id}  {line.holds}"
        text = text_of(f"{count}  ", "dim")
        label = _shortened(result.label, self._label)
        text.append_text(text_of(f"{label:<{self._label}}  ", "bold"))
        text.append_text(text_of(f"{state:<{wide}}  ", "dim" if result.was_cached else "green"))
        text.append_text(text_of(_cut(holds, room)))
        if left:
            text.append_text(text_of(f"  {left}", "cyan"))
        print_over_bars(text, err=err)

    def _left(self, line: StepLine) -> str:
        """How long the other steps take, as the plan expects.

        One of which that knows nothing is taken to be as long as those of this run on average.
        Nothing is said before this run has built a step: it may find them all.
        """
        if not line.left or not self._built:
            return ""
        from model.telling.progress import duration_text  # start-up: 100 ms

        average = sum(self._built) / len(self._built)
        known = [self._expected.get(label) for label in line.left]
        each = [average if seconds is None else seconds for seconds in known]
        return f"about {duration_text(max(sum(each) / line.at_once, *each))} left"


def _seconds(step: PlannedStep) -> float | None:
    if step.state == "cached":
        return 0.0
    return step.estimate.seconds if step.estimate is not None else None


def _shortened(text: str, room: int) -> str:
    """A label without its middle, where it is too long: trials differ at their end."""
    if len(text) <= room:
        return text
    end = room // 2
    return f"{text[: room - end - 1]}…{text[-end:]}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(0, room - 1)].rstrip(' ,')}…"
