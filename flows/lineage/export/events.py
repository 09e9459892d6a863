"""What a run does, told to others as OpenLineage events: Marquez, DataHub and their like read them.

Every run of a recipe is a run of the job `bertloom.RECIPE`, every step a run of its own below it:
START, then COMPLETE, FAIL or, where it was interrupted, ABORT; steps whose artifact was found as
well. Events go to the store first, at once (`event_file`); with $OPENLINEAGE_URL set they are also
sent there at the end of a run, as far as that goes in a few seconds.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flows.engine.stages import Step
from flows.lineage.export.client_classes import without_transports
from flows.lineage.export.event_file import EventFile, read_events
from flows.lineage.export.push import push as push
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from flows.lineage.export.run_events import Kind, RunEvents

URL_VARIABLE = "OPENLINEAGE_URL"

_ENDS: Mapping[str, Kind] = {
    "completed": "COMPLETE",
    "failed": "FAIL",
    "interrupted": "ABORT",
    "crashed": "ABORT",
}
_PUSH_SECONDS = 3.0
_LEFT_OPEN = "the run ended while this was at work"
_ABANDONED = "the process that was at work on this is gone"
_LOGGER = logging.getLogger(__name__)


class LineageEvents:
    """Tells what a run does. Threads may share one; each process makes its own."""

    def __init__(
        self,
        store: ArtifactStore,
        *,
        recipe: Recipe,
        run_id: str,
        flow_run_id: str = "",
        nominal_time: str = "",
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Nothing is written yet.

        Args:
            store: where the run's events go.
            recipe: what is run.
            run_id: of the run.
            flow_run_id: Prefect's id of it; "" without Prefect.
            nominal_time: when a schedule wanted it to start, ISO 8601; "" without a schedule.
            say: is given a line if events could not be sent; else it is logged.
        """
        self._store = store
        self._recipe = recipe
        self._run_id = run_id
        self._flow_run_id = flow_run_id
        self._nominal_time = nominal_time
        self._say = say or _LOGGER.warning
        self._lock = threading.Lock()
        self._made: RunEvents | None = None

    @property
    def _events(self) -> RunEvents:
        with self._lock:
            if self._made is None:
                with without_transports():
                    from flows.lineage.export.run_events import RunEvents
                self._made = RunEvents(
                    self._store,
                    recipe=self._recipe,
                    run_id=self._run_id,
                    flow_run_id=self._flow_run_id,
                    nominal_time=self._nominal_time,
                )
            return self._made

    def run_started(self) -> None:
        """The run begins."""
        self._events.run_started()

    def run_ended(self, state: str, error: str = "") -> None:
        """The run ends: `completed`, `failed`, `interrupted` or `crashed`.

        Steps that are still open end with it. With $OPENLINEAGE_URL set, what was not sent yet is
        sent, which takes a few seconds at most; what fails there is told and does no harm.
        """
        kind = _ENDS[state]
        if kind != "COMPLETE":
            _abort_open(self._store, self._run_id, why=_LEFT_OPEN, with_run=False)
        self._events.run_ended(kind, error=error)
        if url := os.environ.get(URL_VARIABLE):
            self._send(url)

    def _send(self, url: str) -> None:
        try:
            push(self._store, self._run_id, url=url, say=self._say, seconds=_PUSH_SECONDS)
        except ConfigError as error:  # a wrong setting must not take the run with it
            self._say(f"lineage: ${URL_VARIABLE}: {error}")

    def step_started(self, step: Step, inputs: Mapping[str, Manifest]) -> None:
        """A step begins: it is looked up, and built if it is not there.

        Args:
            step: the step.
            inputs: the manifest of each of its inputs.
        """
        self._events.step_started(step, inputs)

    def step_completed(self, step: Step, manifest: Manifest, *, was_cached: bool) -> None:
        """A step that began has its artifact."""
        self._events.step_completed(step, manifest, was_cached=was_cached)

    def step_failed(self, step: Step, error: BaseException) -> None:
        """A step that began has failed or, where the error is no `Exception`, was interrupted."""
        self._events.step_failed(step, error)


def close_abandoned(store: ArtifactStore, run_id: str) -> int:
    """Write an ABORT for whatever a run that is dead has left open; how many.

    Only to be called of a run whose process is known to be gone. What is written already stays as
    it is, and a second call finds nothing to do.
    """
    return _abort_open(store, run_id, why=_ABANDONED, with_run=True)


def _abort_open(store: ArtifactStore, run_id: str, *, why: str, with_run: bool) -> int:
    try:
        recorded = read_events(store, run_id)
    except ArtifactNotFoundError:
        return 0  # it ended before its first event
    with without_transports():
        from flows.lineage.export.run_events import abort_line, open_runs
    started = [
        event
        for event in open_runs(recorded.events)
        if with_run or "parent" in event["run"]["facets"]
    ]
    if started:
        lines = [abort_line(event, why=why) for event in started]
        EventFile(store, run_id).append(lines, durable=True)
    return len(started)
