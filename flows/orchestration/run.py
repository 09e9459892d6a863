"""One run of a recipe: its steps, what became of each, and the record it leaves in the store.

`flows.orchestration.loop` runs its steps in this process, `flows.orchestration.flows` as tasks of
Prefect. Both call `Run.execute`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from flows.engine.extras import lacking
from flows.engine.finding import find
from flows.engine.keys import StepKey, step_key
from flows.engine.preflight import check_inputs, raw_paths
from flows.engine.provenance import checkout
from flows.engine.stages import Step, rebuilt_labels
from flows.engine.steps import FAILED, StepLine, StepResult, build_step, opened_store
from flows.lineage.export.events import LineageEvents, close_abandoned
from flows.report.index import write_index
from flows.report.page import write_report
from flows.store.artifacts import ArtifactStore
from flows.store.leases import Holder, Lease, lease_or_holder
from flows.store.pointers import now, pointer_to
from flows.store.processes import this_process
from flows.store.runs import (
    KEPT,
    Heartbeat,
    JobRecord,
    RunRecord,
    RunState,
    read_run,
    settle_dead_runs,
    write_run,
)
from flows.store.verification import verify, withdraw
from model.processes.launcher import stop_running_calls
from pipelines.runners.checks import check_execution, steps_at_once
from pipelines.runners.launch import RUNNERS_HERE, check_known
from pipelines.runners.submission import Submission, SubmittedJob, job_name, submitting
from schemas.configs import ExecutionConfig
from schemas.disclosure import recorded, without_secrets
from schemas.errors import (
    BertloomError,
    ConfigError,
    RunnerError,
    StoreError,
)
from schemas.manifest import Manifest
from schemas.recipe import Recipe
from schemas.trial_names import entry_label

_LOOK_SECONDS = (0.05, 1.0)
"""How long to wait before looking again at a step that another run builds: at first, at most."""

_RECORD_SECONDS = 2.0
"""How often the record of a run that goes on is written, at most."""

_STOP_SECONDS = 0.5

_KEY_DIGITS = 10
"""Of its key in the name of a step's job; further ones are of the store's address."""

Say = Callable[[str], None]
_LOGGER = logging.getLogger(__name__)
_CURRENT: contextvars.ContextVar[Run | None] = contextvars.ContextVar("_CURRENT", default=None)


def current_run() -> Run | None:
    """The run that the code of this context belongs to: Prefect is handed names and labels only."""
    return _CURRENT.get()


@contextlib.contextmanager
def as_current(run: Run) -> Iterator[None]:
    """Flows and tasks that are called in this block belong to a run."""
    token = _CURRENT.set(run)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def look_pauses() -> Iterator[float]:
    """Seconds to wait before each further look at a step that another run builds."""
    seconds, most = _LOOK_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, most)


def step_limit(execution: ExecutionConfig) -> int:
    """How many steps may run at once."""
    if execution.parallel_steps is not None:
        return execution.parallel_steps
    return 1 if execution.runner in RUNNERS_HERE else steps_at_once(execution)


def check_runner(recipe: Recipe, steps: Sequence[Step]) -> None:
    """See that there is such a runner, that it answers, and that its workers see what they need.

    Raises:
        ConfigError: there is none, or something is missing or contradicts itself.
        RunnerError: its cluster or job service does not answer.
    """
    check_known(recipe.execution.runner)
    if any(step.stage.module.startswith("pipelines.") for step in steps):
        check_execution(recipe.execution, store=recipe.store, inputs=raw_paths(steps))


class Run:
    """A run of a recipe's steps. Recorded while its `with` block runs; for any thread."""

    def __init__(
        self,
        recipe: Recipe,
        steps: Sequence[Step],
        *,
        say: Say = print,
        rebuild: Collection[str] = (),
        engine: str = "local",
        cached: Collection[str] = (),
        given: Mapping[str, Manifest] | None = None,
    ) -> None:
        """Nothing is done yet.

        Args:
            recipe: what is run.
            steps: those to run, each after those it reads from.
            say: takes a line of text on each step.
            rebuild: stages to build even if they are there: `all`, stage names or step labels.
            engine: `prefect` or `local`.
            cached: labels of steps whose artifacts are known to be there, as a hint.
            given: artifacts that steps read and no step of the run makes, by label.

        Raises:
            ConfigError: `rebuild` names no stage.
        """
        moment = datetime.now(UTC)
        self.recipe, self.steps, self.say, self.engine = recipe, tuple(steps), say, engine
        self.rebuilt = frozenset(rebuilt_labels(rebuild, self.steps))
        self.cached = frozenset(cached)
        self.run_id = f"{moment.strftime('%Y%m%dt%H%M%S%f')[:-3]}-{uuid.uuid4().hex[:8]}"
        self.started = moment.isoformat()
        self.flow_run_id = ""
        self.is_begun = False
        self.by_label = {step.label: step for step in self.steps}
        self.limit = step_limit(recipe.execution)
        self.done: dict[str, StepResult] = {
            label: StepResult(label, manifest, was_cached=True, seconds=0.0)
            for label, manifest in (given or {}).items()
        }
        self.failures: dict[str, BaseException] = {}
        self.jobs: list[JobRecord] = []
        """What was handed to an engine, in order."""

        self.stopping = threading.Event()
        """Set when the run is to end: no step is begun any more."""

        self.slots = threading.BoundedSemaphore(self.limit)
        """One for each step that may work at once, where tasks are started by another scheduler."""

        self._keys: dict[str, StepKey] = {}
        self._looked_at, self._waited_for, self._over_steps = set[str](), set[str](), set[str]()
        self._leases: dict[str, Lease] = {}
        self._over, self._lock, self._written = threading.Event(), threading.Lock(), 0.0

    @property
    def store(self) -> ArtifactStore:
        """Where artifacts are."""
        return opened_store(self.recipe.store)

    @functools.cached_property
    def events(self) -> LineageEvents:
        """What the run tells others, as OpenLineage events."""
        return LineageEvents(
            self.store, recipe=self.recipe, run_id=self.run_id, flow_run_id=self.flow_run_id
        )

    @functools.cached_property
    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self.store, self.run_id)

    def results(self) -> list[StepResult]:
        """The results of the steps that are done, in the order of the plan."""
        return [self.done[step.label] for step in self.steps if step.label in self.done]

    # From start to end

    def __enter__(self) -> Self:
        """Make the store if need be, check what can be checked, and record the run's start.

        Raises:
            ConfigError: the runner is unknown or lacks something, or a package that a step needs is
                not installed.
            RunnerError: the engine that jobs go to does not answer.
            InputError: data of a task or a checkpoint is not there.
            StoreError: the store cannot be used.
        """
        check_runner(self.recipe, self.steps)
        if text := lacking(self.steps):
            raise ConfigError(text)
        check_inputs(self.steps)
        settle_killed_runs(self.store, recipe=self.recipe.name)
        self.is_begun = True
        self._record("running")
        self._heartbeat.start()
        self.events.run_started()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Record how the run ended, end its events, and write its report.

        Raises:
            Exception: as the first step that failed.
        """
        state: RunState = "failed" if self.failures or error is not None else "completed"
        if error is not None and not isinstance(error, Exception):  # a signal
            state = "interrupted"
            self.stop()
        failures = {**self.failures, **({"": error} if error is not None else {})}
        try:
            self.end(state, failures)
        finally:
            self._over.set()
        if error is None:
            for failure in self.failures.values():
                raise failure

    def end(self, state: RunState, failures: dict[str, BaseException]) -> RunRecord:
        """Record how the run ended, end its events, and write its report."""
        self._heartbeat.stop()
        texts = {label: _why(error) for label, error in failures.items()}
        record = self._record(state, texts)
        self.events.run_ended(state, "; ".join(texts.values()))
        with _reporting(self.run_id):
            report = write_report(self.store, record)
            for error in self.failures.values():
                error.__dict__["report"] = report
            write_index(self.store, anew=[self.run_id])
        return record

    def stop(self) -> None:
        """Ask the steps in progress to stop, and those about to begin; returns at once."""
        if not self.stopping.is_set():
            self.stopping.set()
            threading.Thread(target=self._keep_stopping, name="stop-steps", daemon=True).start()
            if self.is_begun and not self._over.is_set():
                # Whoever stops this process may not wait for its threads; `end` writes it again.
                with contextlib.suppress(OSError, StoreError):
                    self._record("interrupted", {"": f"it was stopped; {KEPT}"})

    def _keep_stopping(self) -> None:
        # More than once: a training that was just about to start has no process to be asked yet.
        while True:
            stop_running_calls()
            if self._over.wait(_STOP_SECONDS):
                return

    def _record(self, state: RunState, failures: dict[str, str] | None = None) -> RunRecord:
        code, process = checkout(), this_process()
        self._written = time.monotonic()
        record = RunRecord(
            run_id=self.run_id,
            state=state,
            started=self.started,
            written=now(),
            recipe=recorded(self.recipe.model_dump(mode="json")),
            engine=self.engine,
            flow_run_id=self.flow_run_id,
            host=process.host,
            system=process.system,
            pid=process.pid,
            process_start=process.process_start,
            git_commit=code.commit,
            git_dirty=code.is_dirty,
            rebuild=tuple(sorted(self.rebuilt)),
            planned=tuple(self.by_label),
            steps=tuple(result.record for result in self.results()),
            failures=failures or {},
            jobs=tuple(self.jobs),
        )
        write_run(self.store, record)
        return record

    # One step

    def has_inputs(self, step: Step) -> bool:
        """Whether all that a step reads is there."""
        return all(label in self.done for label in step.inputs.values())

    def inputs(self, step: Step) -> dict[str, Manifest]:
        """The manifest of each of a step's inputs."""
        return {name: self.done[label].manifest for name, label in step.inputs.items()}

    def key(self, step: Step) -> StepKey:
        """A step's cache key, of its inputs as this run has them."""
        if step.label not in self._keys:
            self._keys[step.label] = step_key(step, inputs=self.inputs(step))
        return self._keys[step.label]

    def execute(self, step: Step) -> StepResult | Holder:
        """Find a step's artifact, or build it; move its ref, and say what became of it.

        Returns:
            The result, which is in `done` then, or who builds the same at this moment.

        Raises:
            BertloomError: as the stage and the store say. Nothing is published then.
        """
        clock = time.monotonic()
        if step.label not in self._looked_at:
            self.events.step_started(step, self.inputs(step))
            self._looked_at.add(step.label)
        try:
            result = self._find(step)
            if result is None:
                with self.claim(step) as other:
                    if other is not None:
                        return other
                    self.pause(step, 0)
                    # Another run may have published it since the look above.
                    result = self._find(step)
                    if result is None:
                        with submitting(self._submission(step)):
                            result = build_step(
                                step,
                                self.key(step),
                                store=self.store,
                                inputs=self.inputs(step),
                                execution=self.recipe.execution,
                                lease=self._leases[step.label],
                                rebuild=step.label in self.rebuilt,
                                recipe_name=self.recipe.name,
                                cards=self.recipe.cards,
                            )
        except BaseException as error:
            self._looked_at.discard(step.label)
            self.events.step_failed(step, error)
            raise
        self._looked_at.discard(step.label)  # what fails from here on is tried again from its start
        result = result._replace(seconds=time.monotonic() - clock)
        self._note(step, result)
        return result

    def _submission(self, step: Step) -> Submission:
        """What the jobs of a step are called, and whom they tell."""
        # The same recipe in another store is other work.
        store = hashlib.sha256(self.store.root.encode()).hexdigest()
        key = f"{self.key(step).cache_key[:_KEY_DIGITS]}{store}"
        return Submission(
            job_name(self.recipe.name, step.label, key=key),
            told=functools.partial(self._note_job, step),
            ended=self._note_end,
            say=self.say,
            places=(self.recipe.store, *raw_paths([*self.by_label.values()])),
            stopping=self.stopping,
            detach=self.recipe.execution.detach,
        )

    def _note_job(self, step: Step, job: SubmittedJob) -> None:
        how = "attached to a job that runs already" if job.attached else "job"
        self.say(f"{step.label}  {how}: {job.name}, {job.id} on {job.runner}  {job.url}".rstrip())
        record = JobRecord(
            label=step.label,
            name=job.name,
            runner=job.runner,
            id=job.id,
            url=job.url,
            attached=job.attached,
        )
        if step.label in self._leases:
            self._leases[step.label].name_job(job.id, job.url)
        with self._lock:
            self.jobs.append(record)
            if not self.stopping.is_set():
                self._record("running")

    def _note_end(self, job: SubmittedJob, took: Mapping[str, float]) -> None:
        with self._lock:
            self.jobs = [
                record.model_copy(update={"took": dict(took)}) if record.id == job.id else record
                for record in self.jobs
            ]

    def _find(self, step: Step) -> StepResult | None:
        """Return the artifact of a step if it exists and is undamaged."""
        if step.label in self.rebuilt:
            return None
        manifest = find(step, self.key(step), store=self.store).manifest
        if manifest is not None and self.recipe.execution.verify_on_hit != "size":
            verdicts = verify(self.store, [pointer_to(manifest)])
            if not verdicts[0].is_sound:
                withdraw(self.store, verdicts)
                return None
        return StepResult(step.label, manifest, was_cached=True, seconds=0.0) if manifest else None

    def is_there(self, step: Step) -> bool:
        """Whether the store leads to an artifact of a step that need not be built anew."""
        if step.label in self.rebuilt:
            return False
        return self.store.pointer(step.stage.name, self.key(step).cache_key) is not None

    @contextlib.contextmanager
    def claim(self, step: Step) -> Iterator[Holder | None]:
        """Hold a step's lease in this block. Yields who has it instead, and says so once.

        A claim within another one of the same step is that one.
        """
        if step.label in self._leases:
            yield None
            return
        key = self.key(step).cache_key
        with lease_or_holder(self.store, step.stage.name, key, holder=self.run_id) as found:
            if isinstance(found, Holder):
                if step.label not in self._waited_for:
                    self._waited_for.add(step.label)
                    self.say(f"{step.label}  {found} is building the same; waiting for it")
                yield found
                return
            self._leases[step.label] = found
            try:
                yield None
            finally:
                del self._leases[step.label]

    def pause(self, step: Step, seconds: float) -> None:
        """Wait before a step is looked at again.

        Raises:
            RunnerError: the run is to end.
        """
        if self.stopping.wait(seconds):
            raise RunnerError(f"{step.label}: not begun, as the run was stopped")

    def _note(self, step: Step, result: StepResult) -> None:
        self.events.step_completed(step, result.manifest, was_cached=result.was_cached)
        self.store.set_ref(f"{self.recipe.name}/{step.label}", result.manifest)
        with self._lock:
            self._over_steps.add(step.label)
            left = [label for label in self.by_label if label not in self._over_steps]
        self.say(StepLine(result, left=left, total=len(self.by_label), at_once=self.limit))
        # Warnings of an earlier training are repeated at the end of the run, not at each step.
        for warning in filter(None, [result.warning]) if result.was_cached else result.warnings:
            self.say(f"  warning: {warning}")
        with self._lock:
            self.done[step.label] = result
            is_due = time.monotonic() - self._written >= _RECORD_SECONDS
            if is_due and not self.stopping.is_set():
                self._record("running")

    def fail(self, step: Step, error: BaseException) -> None:
        """Keep a step's failure and say it; whoever gets the error need not say it all again."""
        self.failures[step.label] = error
        error.__dict__["said_of"] = step.label
        is_clear = isinstance(error, BertloomError)
        text = str(error) if is_clear else f"{type(error).__name__}: {error}"
        notes = getattr(error, "__notes__", ())
        self.say("\n  ".join([f"{step.label}{FAILED}{text}", *notes]))

    def say_not_run(self, title: str, needed: Sequence[str]) -> None:
        """Say that a step, or several, had no inputs."""
        missing = dict.fromkeys(entry_label(label) for label in needed if label not in self.done)
        self.say(f"{title}  not run: needs {', '.join(missing)}")


def settle_killed_runs(store: ArtifactStore, *, recipe: str) -> list[RunRecord]:
    """Mark earlier runs of a recipe here that were killed as crashed, and write their pages."""
    settled = settle_dead_runs(store, recipe=recipe, close=close_abandoned)
    records = [read_run(store, run_id) for run_id in settled]
    for record in records:
        with _reporting(record.run_id):
            write_report(store, record, is_newest=False)
    return records


@contextlib.contextmanager
def _reporting(run_id: str) -> Iterator[None]:
    """What was run is there, and how it ended is told, whether its page can be written or not."""
    try:
        yield
    except Exception as error:
        _LOGGER.warning("the report of run %s was not written: %r", run_id, error)
        _LOGGER.debug("what the report failed on", exc_info=True)


def _why(error: BaseException) -> str:
    """What the record says of what ended a step, or the run."""
    if isinstance(error, Exception):
        return str(without_secrets(f"{type(error).__name__}: {error}"))
    by = "Ctrl-C" if isinstance(error, KeyboardInterrupt) else "a signal"
    return f"it was stopped by {by}; {KEPT}"
