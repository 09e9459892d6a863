"""Progress of a training run: a bar in a terminal, elsewhere a plain log line now and then."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from model.telling.curves import EvaluationRecord, SpeedRecord, StepRecord
from model.telling.percent import format_percent
from model.training.amounts import Amounts, Unit, budget_unit
from pipelines.telling.progress import PLACES, ReadingFile
from schemas.model_configs import BudgetConfig

_LOGGER = logging.getLogger(__name__)
_LINE_SECONDS = 15.0
_PACE_SECONDS = 120.0
_PACE_GAP_SECONDS = 0.5
_BAR_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| "
_CLEAR_BELOW = "\x1b[J"
_BAR_COLUMNS = 25
"""Width that a bar is left, of which a share of a percent can be seen, before details are shown."""

Detail = tuple[int, str]
"""Something to tell, and its rank: what has a higher one is left out first; 0 stays."""


class TrainingProgress:
    """Tells how far a training is, how well it learns and how long it will take.

    Args:
        name: of the training, `pretrain.phase-1`.
        budget: its end, in steps, tokens or minutes.
        done: what earlier starts of the run did.
        is_main: False in all processes but the first, where every call does nothing.
        readings: file to leave for the process that started this one; None for none.
    """

    def __init__(
        self,
        name: str,
        *,
        budget: BudgetConfig,
        done: Amounts,
        is_main: bool = True,
        readings: Path | None = None,
    ) -> None:
        self._name, self._is_main = name, is_main
        self._unit, self._total = budget_unit(budget)
        self._readings = ReadingFile(
            readings if is_main else None, job=name, unit=self._unit.removesuffix("s")
        )
        self._readings.write(done.in_unit(self._unit), total=self._total)
        self._details: Sequence[Detail] = ()
        self._amounts = done
        self._is_said = True
        self._last_line = time.monotonic()
        # Moments and what was done by then. What was done before the first step is no measure of
        # its pace, and the first step itself is slow: kernels are chosen, code is compiled.
        self._pace: deque[tuple[float, float]] = deque()
        self._in_terminal = sys.stderr.isatty()
        self._held = contextlib.ExitStack()
        shown = is_main and self._in_terminal
        self._bar = tqdm(
            total=self._total,
            initial=done.in_unit(self._unit),
            desc=name,
            bar_format=_BAR_FORMAT,
            leave=False,
            disable=not shown,
            position=self._held.enter_context(PLACES.taken()) if shown else None,
        )

    def note_step(self, done: Amounts) -> None:
        """After each step: what was done so far, earlier starts counted."""
        if not self._is_main:
            return
        self._amounts = Amounts(done.steps, done.tokens, done.seconds)  # the caller's own goes on
        now, amount = time.monotonic(), done.in_unit(self._unit)
        self._readings.write(min(amount, self._total), total=self._total)
        if len(self._pace) > 1 and now - self._pace[-2][0] < _PACE_GAP_SECONDS:
            self._pace.pop()  # many short steps: keep few moments
        self._pace.append((now, amount))
        while len(self._pace) > 2 and now - self._pace[1][0] > _PACE_SECONDS:
            self._pace.popleft()
        self._is_said = False
        if self._in_terminal:
            self._bar.update(min(amount, self._total) - self._bar.n)
        elif now - self._last_line >= _LINE_SECONDS:
            self._say_line(now)

    def note_line(self, step: StepRecord, speed: SpeedRecord) -> None:
        """With each line of the curves: loss, accuracies, speed."""
        details = [
            (0, f"loss {step.loss:.2f}"),
            (1, f"MLM {format_percent(step.mlm_accuracy)}"),
        ]
        if step.nsp_accuracy is not None:
            details.append((2, f"NSP {format_percent(step.nsp_accuracy)}"))
        details.append((3, f"{_rounded(speed.tokens_per_second)} tokens/s"))
        if speed.model_flops_utilisation is not None:
            details.append((4, f"{100 * speed.model_flops_utilisation:.0f} % MFU"))
        self.note_details(details)
        if self._is_main and self._in_terminal:
            self._bar.refresh()

    def note_details(self, details: Sequence[Detail]) -> None:
        """Shown beside how far it is, until the next details."""
        self._details = details
        if self._is_main and self._in_terminal:
            self._bar.bar_format = _BAR_FORMAT + self.status(room=self._room())

    def _room(self) -> int | None:
        """Characters beside a bar of good width; None if the terminal's width is not known."""
        if self._bar.ncols is None:
            return None
        return int(self._bar.ncols) - len(f"{self._name}: 100%|| ") - _BAR_COLUMNS

    def note_evaluation(self, evaluation: EvaluationRecord) -> None:
        """Tell what an evaluation found, at once."""
        parts = [
            f"held-out MLM loss {evaluation.held_out_mlm_loss:.3f}",
            f"perplexity {evaluation.perplexity:,.2f}",
            f"MLM {format_percent(evaluation.held_out_mlm_accuracy)}",
        ]
        if evaluation.held_out_nsp_accuracy is not None:
            parts.append(f"NSP {format_percent(evaluation.held_out_nsp_accuracy)}")
        self.say(f"step {evaluation.step:,}, {', '.join(parts)}")

    def warn(self, text: str) -> None:
        """Show a warning at once."""
        self.say(f"warning: {text}", level=logging.WARNING)

    def say(self, text: str, *, level: int = logging.INFO) -> None:
        """Tell something at once."""
        if not self._is_main:
            return
        if self._in_terminal:
            self._bar.write(f"{self._name}: {text}", file=sys.stderr)
            self._clear_below()
        else:
            _LOGGER.log(level, "%s: %s", self._name, text)

    def finish(self, text: str) -> None:
        """Tell the result, in place of the last state."""
        self._close_bar()
        self._is_said = True
        if self._is_main:
            _LOGGER.info("%s: %s", self._name, text)
            self._clear_below()

    def _clear_below(self) -> None:
        """A line has moved the cursor to where another process's bar is: that one draws it anew."""
        if self._in_terminal:
            sys.stderr.write(_CLEAR_BELOW)
            sys.stderr.flush()

    def status(self, *, room: int | None = None) -> str:
        """How far, how well, how fast and how much longer, in one line.

        Args:
            room: characters that there are for it: details are left out, the least telling first.
                How far, the loss and what is left are always said. None for no limit.
        """
        parts = self._parts()
        for rank in sorted({rank for rank, _ in parts if rank}, reverse=True):
            if room is None or len(", ".join(text for _, text in parts)) <= room:
                break
            parts = [part for part in parts if part[0] != rank]
        return ", ".join(text for _, text in parts)

    def _parts(self) -> list[Detail]:
        """What there is to say, in its order; those of a higher rank are left out before others."""
        parts = [(0, self._position()), *self._details]
        left = self.seconds_left()
        if left is not None:
            parts.append((0, f"{duration_text(left)} left"))
        return parts

    def seconds_left(self) -> float | None:
        """Until the budget is used up, at the pace of the last minutes; None before there is one.

        The pace is by the clock, so evaluations and checkpoints on the way are in it.
        """
        left = self._total - self._amounts.in_unit(self._unit)
        if left <= 0:
            return 0.0
        if len(self._pace) < 2:
            return None
        (began, before), (now, done) = self._pace[0], self._pace[-1]
        return left * (now - began) / (done - before) if done > before else None

    def close(self) -> None:
        """Take the bar away, and tell the last state if it was not told."""
        self._close_bar()
        if self._is_main and not self._is_said:
            self._say_line(time.monotonic())

    def _close_bar(self) -> None:
        self._bar.close()
        self._held.close()

    def _position(self) -> str:
        steps = f"step {self._amounts.steps:,}"
        if self._unit == "steps":
            return f"{steps} of {self._total:,.0f}"
        done = self._amounts.in_unit(self._unit)
        return f"{steps}, {_amount(done, self._unit)} of {_amount(self._total, self._unit)}"

    def _say_line(self, now: float) -> None:
        self._last_line, self._is_said = now, True
        _LOGGER.info("%s: %s", self._name, self.status())


def _amount(value: float, unit: Unit) -> str:
    return f"{value:,.1f} min" if unit == "minutes" else f"{value:,.0f} tokens"


def _rounded(value: float) -> str:
    """Three digits are all that a speed is steady in: 41,200."""
    if value < 1:
        return f"{value:.2f}"
    places = max(0, len(str(int(value))) - 3)
    return f"{round(value, -places):,.0f}"


def duration_text(seconds: float) -> str:
    """A duration as far as it matters while waiting: 40 s, 3 min, 2 h 07 min, 4 d 3 h."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
