"""One run of a recipe: its steps, their results, and the events that it emits.

`flows.run.executor` executes the steps in this process, `flows.prefect_flows` as Prefect tasks.
Both call `Run.execute`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from flows.run.cache_keys import StepKey, step_key
from flows.run.events import (
    Event,
    JobSubmitted,
    Listener,
    RunFinished,
    RunMessage,
    RunStarted,
    RunStopping,
    StepFailed,
    StepFinished,
    StepProgress,
    StepSkipped,
    StepStarted,
)
from flows.run.graph import Step, StepGraph
from flows.run.plan import PlannedStep
from flows.run.preflight import raw_paths
from flows.run.step_execution import (
    StepResult,
    build_step,
    checkpoint_writer,
    delete_progress,
    stage_folders,
)
from flows.store.activity import ActiveRun
from flows.store.artifacts import ArtifactStore
from flows.store.leases import Lease, acquire_or_holder
from flows.store.pointers import pointer_to
from flows.store.runs import RunRecord, RunState
from flows.store.verification import quarantine, verify
from model.pretraining.job import MachineGroup, machines_scope
from model.training.workers import stop_running_calls
from pipelines.progress import progress_listener
from pipelines.runners.job_context import Submission, job_name, submission_scope
from pipelines.runners.local import close_pools
from pipelines.runners.registry import get_runner
from schemas.errors import ArtifactNotFoundError, BertloomError, RunnerError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import Manifest
from schemas.recipe import Recipe

RETRY_DELAYS: tuple[float, ...] = (10, 60)
"""Seconds before each further try of a step that failed with a transient error."""

_LOGGER = logging.getLogger(__name__)
_STOP_SECONDS = 0.5
_KEY_DIGITS = 10
"""Digits of the cache key in the name of a step's job; the digits after them name the store."""


def get_store(root: str) -> ArtifactStore:
    """Return the store at a folder or URL, created if necessary."""
    return ArtifactStore(root)


def find_store(root: str) -> ArtifactStore | None:
    """Return the store at a folder or URL; None if it does not exist yet."""
    try:
        return ArtifactStore(root, create=False)
    except ArtifactNotFoundError:
        return None


def max_parallel_steps(execution: ExecutionConfig) -> int:
    """Return how many steps can run concurrently."""
    return execution.max_parallel_steps or get_runner(execution).max_parallel_steps


def poll_delays() -> Iterator[float]:
    """Yield the seconds before each further look at a step that another run builds."""
    seconds = 0.05
    while True:
        yield seconds
        seconds = min(2 * seconds, 1.0)


class Run:
    """A run of a recipe's steps, started and finished by its `with` block. Thread-safe."""

    def __init__(
        self,
        recipe: Recipe,
        graph: StepGraph,
        *,
        listeners: Sequence[Listener] = (),
        rebuild: Collection[str] = (),
        engine: str = "local",
        planned: Sequence[PlannedStep] = (),
        machines: MachineGroup | None = None,
        store: ArtifactStore | None = None,
    ) -> None:
        """Take a plan and listeners; nothing is written yet. See `flows.preparation.prepare_run`.

        `store` is the store that the plan has read; None: it does not exist yet.

        Raises:
            UnknownStepError: `rebuild` names no step.
        """
        moment = datetime.now(UTC)
        self.recipe, self.engine, self.listeners = recipe, engine, tuple(listeners)
        self.steps = tuple(graph)
        self.by_label = {step.label: step for step in self.steps}
        self.rebuilt = graph.select_all(rebuild)
        self.planned = tuple(planned)
        self.cached = frozenset(step.label for step in planned if step.state == "cached")
        self.run_id = f"{moment.strftime('%Y%m%dt%H%M%S%f')[:-3]}-{uuid.uuid4().hex[:8]}"
        self.started_at = moment.isoformat()
        self.flow_run_id = ""
        """Prefect's id of the flow run; "" without Prefect."""

        self.max_parallel = max_parallel_steps(recipe.execution)
        self.step_results: dict[str, StepResult] = {}
        self.failures: dict[str, Exception] = {}
        self.stopping = threading.Event()
        """Set when the run was asked to stop: no other step starts."""

        self.record: RunRecord | None = None
        """Record of the run as it was last written."""

        self.has_report = False
        """True as soon as the report of the run is written."""

        self._machines, self._planned_store = machines, store
        self._keys: dict[str, StepKey] = {}
        self._planned_keys = {step.label: step.cache_key for step in planned}
        self._registration = contextlib.ExitStack()
        self._leases: dict[str, tuple[Lease, contextlib.ExitStack]] = {}
        self._waiting = set[str]()
        self._restarted = set[str]()
        self._lock, self._finished = threading.Lock(), threading.Event()

    @functools.cached_property
    def store(self) -> ArtifactStore:
        """Artifact store of the recipe, opened once per run."""
        return self._planned_store or get_store(self.recipe.store)

    @functools.cached_property
    def _active(self) -> ActiveRun:
        return ActiveRun(
            self.store, self.run_id, log=lambda text: self.emit(RunMessage(self, text))
        )

    @property
    def newest_report(self) -> str:
        """URL of the recipe's newest report, "" if this run did not write it."""
        return self.store.url(f"reports/{self.recipe.name}.html") if self.has_report else ""

    def results(self) -> list[StepResult]:
        """Return the results of the finished steps, in the order of the recipe."""
        return [self.step_results[s.label] for s in self.steps if s.label in self.step_results]

    def emit(self, event: Event) -> None:
        """Send an event to the listeners, in order; log the errors that they raise."""
        for listener in self.listeners:
            try:
                listener.on_event(event)
            except Exception as error:
                name = type(listener).__name__
                _LOGGER.warning("%s failed on %s: %r", name, type(event).__name__, error)
                _LOGGER.debug("traceback of %s", name, exc_info=True)

    def __enter__(self) -> Self:
        self._register()
        self.emit(RunStarted(self))
        return self

    def _register(self) -> None:
        """Register as a user of the store; only a run with steps to build needs to write to it."""
        try:
            self._registration.enter_context(self._active)
        except OSError as error:
            if len(self.cached) < len(self.steps):
                raise
            _LOGGER.warning("store %s: the run cannot be registered: %s", self.store.root, error)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Finish the run.

        Raises:
            Exception: The first error of a step, if the block itself raised none.
        """
        state: RunState = "failed" if self.failures or error is not None else "completed"
        if error is not None and not isinstance(error, Exception):  # KeyboardInterrupt, SIGTERM
            state = "interrupted"
            self.stop()
        failures = {**self.failures, **({"": error} if error is not None else {})}
        try:
            self.emit(RunFinished(self, state, failures))
        finally:
            with self._registration:
                self._finished.set()
                close_pools()
                for step in self.steps:
                    self._release(step)
        if error is None:
            for failure in self.failures.values():
                raise failure

    def stop(self) -> None:
        """Ask the steps in progress to stop, and start no other; returns immediately."""
        if not self.stopping.is_set():
            self.stopping.set()
            threading.Thread(target=self._stop_calls, name="stop-steps", daemon=True).start()
            self.emit(RunStopping(self))

    def _stop_calls(self) -> None:
        # Repeated: a training that is about to start has no process to stop yet.
        while True:
            stop_running_calls()
            if self._finished.wait(_STOP_SECONDS):
                return

    def wait(self, seconds: float) -> None:
        """Wait before a step is looked at or tried again.

        Raises:
            RunnerError: The run was asked to stop.
        """
        if self.stopping.wait(seconds):
            raise RunnerError("skipped: the run was stopped")

    # Steps

    def is_ready(self, step: Step) -> bool:
        """Return whether the artifacts of all inputs are known."""
        return all(label in self.step_results for label in step.inputs.values())

    def inputs(self, step: Step) -> dict[str, Manifest]:
        """Return the manifest of each input that is known, by input name."""
        return {
            name: self.step_results[label].manifest
            for name, label in step.inputs.items()
            if label in self.step_results
        }

    def key(self, step: Step) -> StepKey:
        """Return the cache key of a step that is ready."""
        if step.label not in self._keys:
            self._keys[step.label] = step_key(step, inputs=self.inputs(step))
        return self._keys[step.label]

    def claim(self, step: Step) -> bool:
        """Take the lease of a step unless it is in the store; False if another run has the lease.

        Between a claim and the execution, Prefect takes time to start a task.
        """
        try:
            return step.label in self.cached or self._find(step) is not None or self._acquire(step)
        except (OSError, BertloomError) as error:
            # `execute` meets the same error, and reports it.
            _LOGGER.debug("%s was not claimed: %r", step.label, error)
            return True

    def execute(self, step: Step) -> StepResult:
        """Take a step's artifact from the store, or build it; wait while another run builds it.

        Raises:
            BertloomError: The stage or the store failed. Nothing is published.
        """
        delays = poll_delays()
        try:
            while (result := self._find(step)) is None and not self._acquire(step):
                self.wait(next(delays))
            # Another run can have published it before the lease was taken.
            result = result or self._find(step)
            if result is None:
                self.wait(0)
                lease, _ = self._leases[step.label]
                self._wait_for_writer(step)
                self._restart_if_rebuilt(step)
                with self._building(step):
                    result = build_step(
                        step,
                        self.key(step),
                        store=self.store,
                        inputs=self.inputs(step),
                        execution=self.recipe.execution,
                        lease=lease,
                        rebuild=step.label in self.rebuilt,
                    )
            self._finish(step, result)
            if step.stage.supports_resume and not result.was_cached and lease.is_held():
                self.store.clear_work(step.stage.name, result.manifest.cache_key)
        finally:
            self._release(step)
        return result

    def _wait_for_writer(self, step: Step) -> None:
        """Wait while a process of a run that lost the lease still writes checkpoints of a step.

        It ends as soon as it notices, also if its machine was asleep.
        """
        delays, is_reported = poll_delays(), False
        while writer := checkpoint_writer(step, self.key(step), store=self.store):
            if not is_reported:
                text = f"{step.label}  waiting for process {writer}, which writes its checkpoints"
                self.emit(RunMessage(self, text))
                is_reported = True
            self.wait(next(delays))

    def _restart_if_rebuilt(self, step: Step) -> None:
        """Delete what earlier runs left unfinished of a rebuilt step, once: a retry resumes."""
        if step.label in self.rebuilt and step.label not in self._restarted:
            delete_progress(step, self.key(step), store=self.store)
            self._restarted.add(step.label)

    def _acquire(self, step: Step) -> bool:
        """Take the lease of a step if this run does not have it; False if another run has it."""
        if step.label in self._leases:
            return True
        with contextlib.ExitStack() as stack:
            lease = stack.enter_context(
                acquire_or_holder(self._active, step.stage.name, self.key(step).cache_key)
            )
            if isinstance(lease, Lease):
                self._leases[step.label] = (lease, stack.pop_all())
                return True
        if step.label not in self._waiting:
            self._waiting.add(step.label)
            text = f"{step.label}  waiting for {lease}, which is building this artifact"
            self.emit(RunMessage(self, text))
        return False

    def _release(self, step: Step) -> None:
        if step.label in self._leases:
            self._leases.pop(step.label)[1].close()

    def _find(self, step: Step) -> StepResult | None:
        """Return the artifact of a step if it is in the store and not damaged."""
        if step.label in self.rebuilt:
            return None
        # If the inputs are as planned, so is the key: raw files are not read again.
        is_planned = step.label in self.cached and all(
            self.step_results[label].was_cached for label in step.inputs.values()
        )
        key = self._planned_keys[step.label] if is_planned else self.key(step).cache_key
        manifest = self.store.lookup(step.stage.name, key)
        if manifest is not None and self.recipe.execution.verify_cached != "size":
            verdicts = verify(self.store, [pointer_to(manifest)])
            if not verdicts[0].is_ok:
                quarantine(self.store, verdicts)
                return None
        return StepResult(step.label, manifest, was_cached=True, seconds=0.0) if manifest else None

    @contextlib.contextmanager
    def _building(self, step: Step) -> Iterator[None]:
        """Emit that a step is built, and what its jobs report while the block runs."""
        key = self.key(step)
        work = stage_folders(step, key, store=self.store).get("work", "")
        self.emit(StepStarted(self, step, self.inputs(step), key.cache_key, work))
        with (
            submission_scope(self._submission(step)),
            machines_scope(self._machines),
            progress_listener(lambda reading: self.emit(StepProgress(self, step, reading))),
        ):
            yield

    def _submission(self, step: Step) -> Submission:
        """Describe the jobs of a step to the runner that submits them."""
        # The same recipe in another store is another job.
        store_digest = hashlib.sha256(self.store.root.encode()).hexdigest()
        key = f"{self.key(step).cache_key[:_KEY_DIGITS]}{store_digest}"
        return Submission(
            job_name(self.recipe.name, step.label, key=key),
            on_submitted=lambda job: self.emit(JobSubmitted(self, step, job)),
            log=lambda text: self.emit(RunMessage(self, text)),
            urls=(self.recipe.store, *raw_paths(self.steps)),
            stop_event=self.stopping,
        )

    def _finish(self, step: Step, result: StepResult) -> None:
        self.store.set_ref(f"{self.recipe.name}/{step.label}", result.manifest)
        with self._lock:
            self.step_results[step.label] = result
            remaining = tuple(label for label in self.by_label if label not in self.step_results)
        self.emit(StepFinished(self, step, self.inputs(step), result, remaining))

    def fail(self, step: Step, error: Exception, *, retry_delay: float | None = None) -> None:
        """Report a failed try of a step; keep the error if it is the last try."""
        if retry_delay is None:
            self.failures[step.label] = error
        self.emit(StepFailed(self, step, self.inputs(step), error, retry_delay))

    def skip(self, step: Step) -> None:
        """Report that a step does not run, because inputs of it were not built."""
        missing = [label for label in step.inputs.values() if label not in self.step_results]
        self.emit(StepSkipped(self, step, tuple(dict.fromkeys(missing))))
