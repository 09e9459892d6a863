"""Following what a step trains, and telling trackers of it, beside the work."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from flows.trackers.records import (
    TrackedStep,
    TrackerRun,
    Values,
    summary_of,
    tags_of,
    values_of,
)
from model.processes.launcher import local_folder
from schemas.disclosure import without_secrets
from schemas.manifest import Manifest

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0
_END_SECONDS = 60.0
"""How long the end of a step waits for a tracker."""

STAGES = ("pretrain", "finetune", "evaluate")
"""Those that trackers are told of."""

_CURVES = ("curves/curves.jsonl", "curve.jsonl")
"""Where trainings write their curves, in their own folder."""


class Tracker(NamedTuple):
    """A kind of tracker."""

    name: str
    package: str
    extra: str
    module: str
    is_wanted: Callable[[Mapping[str, str]], bool]
    variables: str
    """Those that ask for it, for people."""


TRACKERS = (
    Tracker(
        "MLflow",
        "mlflow",
        "mlflow",
        "flows.trackers.mlflow_runs",
        lambda found: bool(found.get("MLFLOW_TRACKING_URI")),
        "MLFLOW_TRACKING_URI",
    ),
    Tracker(
        "Weights & Biases",
        "wandb",
        "wandb",
        "flows.trackers.wandb_runs",
        lambda found: (
            found.get("WANDB_MODE", "") != "disabled"
            and bool(found.get("WANDB_API_KEY") or found.get("WANDB_MODE") == "offline")
        ),
        "WANDB_API_KEY, or WANDB_MODE=offline",
    ),
)


def wanted(environment: Mapping[str, str] | None = None) -> list[Tracker]:
    """The trackers whose variables are set and whose packages are there.

    One whose package is not is said once.
    """
    found = os.environ if environment is None else environment
    asked = [tracker for tracker in TRACKERS if tracker.is_wanted(found)]
    for tracker in asked:
        if importlib.util.find_spec(tracker.package) is None:
            _say_missing(tracker)
    return [one for one in asked if importlib.util.find_spec(one.package) is not None]


@functools.cache
def _say_missing(tracker: Tracker) -> None:
    _LOGGER.warning(
        "%s is asked for (%s) and not installed, so that nothing is tracked there: pip install "
        "'bertloom[%s]'",
        tracker.name,
        tracker.variables,
        tracker.extra,
    )


class Tracking:
    """What is told of one step; does nothing where no tracker is wanted."""

    def __init__(self, followers: list[_Follower]) -> None:
        self._followers = followers

    def finish(self, manifest: Manifest) -> list[str]:
        """Tell what was made, once it is published; what could not be told, for people."""
        for follower in self._followers:
            follower.finish(summary_of(manifest), tags_of(manifest))
        return [text for follower in self._followers if (text := follower.problem())]

    def read_to_the_end(self) -> None:
        """Read what the training has written, before its folder is cleared."""
        for follower in self._followers:
            follower.read_to_the_end()


@contextlib.contextmanager
def tracked(stage: str, step: Callable[[], TrackedStep], *, work: str | None) -> Iterator[Tracking]:
    """Follow a step while the block runs.

    Args:
        stage: its stage's name.
        step: says what trackers are told of it; asked where one is wanted.
        work: URL of the folder that it goes on from; None where it has none.
    """
    trackers = wanted() if stage in STAGES else []
    folder = local_folder(work) if trackers and work is not None else None
    followers = [_Follower(tracker, step(), folder=folder) for tracker in trackers]
    try:
        yield Tracking(followers)
    finally:
        for follower in followers:
            follower.close()


class _Follower:
    """A thread that does all that a tracker is asked, in order."""

    def __init__(self, tracker: Tracker, step: TrackedStep, *, folder: Path | None) -> None:
        self._tracker, self._step, self._folder = tracker, step, folder
        self._waiting: list[Values] = []
        self._read = 0
        self._taken: set[tuple[int, str]] = set()
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._outcome: tuple[dict[str, float], dict[str, str], bool] | None = None
        self._failures, self._last_error = 0, ""
        self._thread = threading.Thread(
            target=self._work, name=f"{tracker.package}-{step.label}", daemon=True
        )
        self._thread.start()

    # Called by the step's own thread

    def read_to_the_end(self) -> None:
        with self._lock:
            self._read_lines()

    def finish(self, summary: dict[str, float], tags: dict[str, str]) -> None:
        self._end((summary, tags, True))

    def close(self) -> None:
        if self._outcome is None:  # the step failed, or was asked to stop
            self.read_to_the_end()
            self._end(({}, {}, False))

    def _end(self, outcome: tuple[dict[str, float], dict[str, str], bool]) -> None:
        self._outcome = outcome
        self._wake.set()
        self._thread.join(_END_SECONDS)

    def problem(self) -> str:
        """What could not be told; "" for nothing."""
        if not self._thread.is_alive() and not self._last_error:
            return ""
        left = len(self._waiting)
        why = self._last_error or f"it did not answer in {_END_SECONDS:.0f} s"
        return (
            f"{self._tracker.name} was not told all of it ({self._failures} requests failed, "
            f"{left:,} lines of the curve left): {why}. The training is as it would be without"
        )

    # The thread

    def _work(self) -> None:
        run: TrackerRun | None = None
        while True:
            is_last = self._outcome is not None
            with self._lock:
                self._read_lines()
                values = list(self._waiting)
            try:
                if run is None:
                    run = _opened(self._tracker, self._step)
                new = [one for one in values if one.step > run.last_step]
                if new:
                    run.log(new)
                with self._lock:
                    del self._waiting[: len(values)]
                if is_last and self._outcome is not None:
                    summary, tags, is_done = self._outcome
                    run.end(summary, tags, is_done=is_done)
                self._last_error = ""
            except Exception as error:  # whatever a tracker raises, the training goes on
                self._note(error)
            if is_last:
                return
            self._wake.wait(_LOOK_SECONDS)

    def _note(self, error: Exception) -> None:
        self._failures += 1
        self._last_error = without_secrets(f"{type(error).__name__}: {error}")
        if self._failures == 1:
            _LOGGER.warning(
                "%s: %s cannot be told of (%s); the training goes on, and it is tried again",
                self._step.label,
                self._tracker.name,
                self._last_error,
            )

    def _read_lines(self) -> None:
        """Take what was written since the last look; whole lines."""
        try:
            for name in _CURVES if self._folder is not None else ():
                path = (self._folder or Path()) / name
                if path.is_file():
                    self._take(path)
        except (OSError, ValueError, KeyError) as error:
            self._note(error)

    def _take(self, path: Path) -> None:
        with path.open("rb") as source:
            # A training that goes on from a checkpoint cuts what came after it.
            if path.stat().st_size < self._read:
                self._read = 0
            source.seek(self._read)
            text = source.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            values = values_of(json.loads(line))
            known = (values.step, next(iter(values.numbers), ""))
            if known not in self._taken:
                self._taken.add(known)
                self._waiting.append(values)


def _opened(tracker: Tracker, step: TrackedStep) -> TrackerRun:
    run: TrackerRun = importlib.import_module(tracker.module).open_run(step)
    return run
