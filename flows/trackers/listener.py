"""Listener that sends trainings and evaluations to the experiment trackers that are configured."""

from __future__ import annotations

import contextlib
import logging

from flows.run.events import Event, RunFinished, StepFailed, StepFinished, StepStarted
from flows.trackers.records import TrackedStep, tracked_step
from flows.trackers.tracking import Tracking, tracked

_LOGGER = logging.getLogger(__name__)


class TrackerListener:
    """Follows the training curve of each step that is built, and sends its metrics at the end."""

    def __init__(self) -> None:
        """Follow nothing yet."""
        self._open: dict[str, tuple[Tracking, contextlib.ExitStack]] = {}

    def on_event(self, event: Event) -> None:
        """Start to follow a step, or send its end."""
        if isinstance(event, StepStarted):
            stack = contextlib.ExitStack()
            tracking = stack.enter_context(
                tracked(
                    event.step.stage.name,
                    lambda: _tracked_step(event),
                    work=event.work_folder or None,
                )
            )
            self._open[event.step.label] = (tracking, stack)
        elif isinstance(event, StepFinished) and event.step.label in self._open:
            tracking, stack = self._open.pop(event.step.label)
            with stack:
                tracking.read_to_the_end()
                for problem in tracking.finish(event.result.manifest):
                    _LOGGER.warning("%s: %s", event.step.label, problem)
        elif isinstance(event, StepFailed) and event.step.label in self._open:
            self._open.pop(event.step.label)[1].close()
        elif isinstance(event, RunFinished):
            while self._open:
                self._open.popitem()[1][1].close()


def _tracked_step(event: StepStarted) -> TrackedStep:
    return tracked_step(
        event.step.label,
        recipe=event.run.recipe.name,
        stage=event.step.stage.name,
        key=event.cache_key,
        config=event.step.config.model_dump(mode="json"),
        inputs=event.inputs,
        run_id=event.run.run_id,
    )
