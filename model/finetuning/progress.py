"""Progress of a trial: a bar in a terminal; elsewhere a line now and then, and one at the end."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from model.training.progress import duration_text
from pipelines.telling.progress import ReadingFile

_LOGGER = logging.getLogger(__name__)
_LINE_SECONDS = 15.0
_BAR_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| step {n_fmt} of {total_fmt}{postfix}"


class TrialProgress:
    """Tells how far a training is. A trial that takes seconds says one line, at its end."""

    def __init__(self, name: str, *, readings: Path | None = None) -> None:
        """`name` is what people call the trial; `readings` a file for who started the process."""
        self._name = name
        self._readings = ReadingFile(readings, job=name, unit="step")
        self._total, self._first = 0, 0
        self._began = self._last_line = time.monotonic()
        self._in_terminal = sys.stderr.isatty()
        self._bar: Any = None

    def begin(self, *, done: int, total: int) -> None:
        """Before the first step: how many updates there will be, and those of earlier starts."""
        self._first, self._total = done, total
        self._began = self._last_line = time.monotonic()
        self._readings.write(done, total=total)
        if self._in_terminal:
            self._bar = tqdm(
                total=total, initial=done, desc=self._name, bar_format=_BAR_FORMAT, leave=False
            )

    def note(self, *, done: int, loss: float) -> None:
        """After each step."""
        self._readings.write(done, total=self._total)
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            self._bar.update(done - self._bar.n)
            return
        now = time.monotonic()
        if now - self._last_line < _LINE_SECONDS:
            return
        self._last_line = now
        left = (self._total - done) * (now - self._began) / max(1, done - self._first)
        _LOGGER.info(
            "%s: step %s of %s, loss %.3f, %s left",
            self._name,
            f"{done:,}",
            f"{self._total:,}",
            loss,
            duration_text(left),
        )

    def end(self, metrics: dict[str, float], *, seconds: float) -> None:
        """The last line: what dev says."""
        self._close_bar()
        found = ", ".join(f"{name} {100 * value:.1f}" for name, value in metrics.items())
        _LOGGER.info(
            "%s: dev %s (%s of training)",
            self._name,
            found or "not scored",
            duration_text(seconds),
        )

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_bar()
