"""One run of a recipe: which steps, which store, what it says, what it leaves behind.

Both engines are built from these pieces; see `flows.engine.engines`.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from flows.engine.extras import check_packages
from flows.engine.graph import steps
from flows.engine.keys import code_of
from flows.engine.preflight import check_inputs
from flows.engine.provenance import checkout
from flows.engine.stages import Step, rebuilt_labels, steps_until
from flows.engine.steps import StepResult, run_step, step_line
from flows.lineage.export.events import close_abandoned
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import now
from flows.store.processes import this_process
from flows.store.runs import (
    Heartbeat,
    RunRecord,
    RunState,
    StepRecord,
    read_run,
    settle_dead_runs,
    write_run,
)
from pipelines.runners.launch import RUNNERS
from schemas.configs import ExecutionConfig
from schemas.disclosure import without_secrets
from schemas.errors import BertloomError, ConfigError
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from flows.lineage.export.events import LineageEvents

# Steps on this machine's runners share its cores; a data centre gets all that can run.
RUNNERS_HERE = frozenset({"local", "threads"})
_STEPS_ELSEWHERE = 8

_RECORD_SECONDS = 2.0
"""How often the record of a run that goes on is written, at most."""

FAILED = "  FAILED: "
"""In the line of a step that failed, between its name and the error."""

Say = Callable[[str], None]
_LOGGER = logging.getLogger(__name__)


class StepRef(NamedTuple):
    """A step's result as small as an engine passes it on."""

    label: str
    manifest: str
    """Path of the manifest in the store."""

    was_cached: bool
    seconds: float
    warning: str


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What an engine needs to know of a run."""

    recipe: Recipe
    run_id: str
    steps: tuple[Step, ...]
    rebuilt: frozenset[str]
    """Labels of the steps to build even if they are there."""

    started: str
    """ISO 8601, UTC."""

    engine: str
    """`prefect` or `local`."""

    flow_run_id: str = ""
    """Prefect's id of the flow run."""

    @functools.cached_property
    def by_label(self) -> dict[str, Step]:
        """The steps by their labels."""
        return {step.label: step for step in self.steps}

    @property
    def store(self) -> ArtifactStore:
        """Opened once a process."""
        return opened_store(self.recipe.store)

    @functools.cached_property
    def events(self) -> LineageEvents:
        """Where the run tells others what it does."""
        from flows.lineage.export.events import LineageEvents

        return LineageEvents(
            self.store, recipe=self.recipe, run_id=self.run_id, flow_run_id=self.flow_run_id
        )

    @functools.cached_property
    def heartbeat(self) -> Heartbeat:
        """Its signs of life, which the process that started it leaves."""
        return Heartbeat(self.store, self.run_id)

    @functools.cached_property
    def progress(self) -> RunProgress:
        """What this process has done of it so far."""
        return RunProgress()


class RunProgress:
    """The steps that are done, for the record of a run that goes on. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: list[StepRef] = []
        self._written = time.monotonic()

    def add(self, ref: StepRef) -> list[StepRef]:
        """Add a step; those done if it is time to write them down again, else none."""
        with self._lock:
            self._done.append(ref)
            if time.monotonic() - self._written < _RECORD_SECONDS:
                return []
            self._written = time.monotonic()
            return list(self._done)


@functools.lru_cache(maxsize=8)
def opened_store(root: str) -> ArtifactStore:
    """A store, opened once a process."""
    return ArtifactStore(root)


def step_limit(execution: ExecutionConfig) -> int:
    """How many steps may run at once."""
    if execution.parallel_steps is not None:
        return execution.parallel_steps
    return 1 if execution.runner in RUNNERS_HERE else _STEPS_ELSEWHERE


def start_run(
    recipe: Recipe,
    *,
    rebuild: Sequence[str] = (),
    until: str = "",
    engine: str = "local",
    flow_run_id: str = "",
) -> RunPlan:
    """Make the store if need be, check the recipe's runner, and record the run's start.

    Raises:
        ConfigError: the runner is unknown, `rebuild` or `until` names no stage, or a package that a
            step needs is not installed.
        StoreError: the store cannot be used.
    """
    _check_runner(recipe.execution.runner)
    found = steps_until(steps(recipe), until)
    check_packages(found)
    check_inputs(found)
    for step in found:
        code_of(step.stage.module, step.stage.packages)  # before anyone edits it
    moment = datetime.now(UTC)
    run = RunPlan(
        recipe=recipe,
        run_id=f"{moment.strftime('%Y%m%dt%H%M%S%f')[:-3]}-{uuid.uuid4().hex[:8]}",
        steps=tuple(found),
        rebuilt=frozenset(rebuilt_labels(rebuild, found)),
        started=moment.isoformat(),
        engine=engine,
        flow_run_id=flow_run_id,
    )
    settle_dead_runs(run.store, recipe=recipe.name, close=close_abandoned)
    _write(run, state="running", results=(), failures={})
    run.heartbeat.start()
    run.events.run_started()
    return run


def _check_runner(runner: str) -> None:
    if runner not in RUNNERS:
        raise ConfigError(f"unknown runner {runner!r}: choose one of {', '.join(RUNNERS)}")


def open_run(recipe: Recipe, run_id: str) -> RunPlan:
    """A run that was started, perhaps by another process.

    Raises:
        ArtifactNotFoundError: the store has no such run.
    """
    record = read_run(opened_store(recipe.store), run_id)
    planned = set(record.planned)
    return RunPlan(
        recipe=recipe,
        run_id=run_id,
        steps=tuple(step for step in steps(recipe) if step.label in planned),
        rebuilt=frozenset(record.rebuild),
        started=record.started,
        engine=record.engine,
        flow_run_id=record.flow_run_id,
    )


def execute_step(
    run: RunPlan,
    label: str,
    *,
    inputs: Mapping[str, StepRef],
    say: Say,
    stopping: threading.Event | None = None,
) -> StepRef:
    """Find or build one step of a run, move its ref, and say what became of it.

    Where another run is building it, that one is waited for until `stopping` is set.
    """
    store, step = run.store, run.by_label[label]
    manifests = {name: store.manifest(ref.manifest) for name, ref in inputs.items()}
    run.events.step_started(step, manifests)
    try:
        result = run_step(
            step,
            store=store,
            inputs=manifests,
            execution=run.recipe.execution,
            run_id=run.run_id,
            code_identity=run.recipe.code_identity,
            rebuild=label in run.rebuilt,
            say=say,
            stopping=stopping,
        )
    except BaseException as error:
        run.events.step_failed(step, error)
        raise
    run.events.step_completed(step, result.manifest, was_cached=result.was_cached)
    store.set_ref(f"{run.recipe.name}/{label}", result.manifest)
    say(step_line(result))
    if result.warning:
        say(f"  warning: {result.warning}")
    path = result.manifest.path
    ref = StepRef(label, path, result.was_cached, round(result.seconds, 3), result.warning)
    if done := run.progress.add(ref):
        _write(run, state="running", results=done, failures={})
    return ref


def failed_line(label: str, error: BaseException) -> str:
    """What is said of a step that failed, when it fails; the error says that it was said.

    Whoever gets the error in the end need not say all of it once more.
    """
    error.__dict__["said_of"] = label
    is_told = isinstance(error, BertloomError)
    text = str(error) if is_told else f"{type(error).__name__}: {error}"
    return "\n  ".join([f"{label}{FAILED}{text}", *getattr(error, "__notes__", ())])


def finish_run(
    run: RunPlan,
    *,
    state: RunState,
    results: Sequence[StepRef],
    failures: Mapping[str, BaseException | str],
) -> RunRecord:
    """Record how a run ended, end its events, and write its report."""
    texts = {
        label: without_secrets(
            error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        )
        for label, error in failures.items()
    }
    run.heartbeat.stop()
    record = _write(run, state=state, results=results, failures=texts)
    run.events.run_ended(state, "; ".join(texts.values()))
    from flows.report.page import write_report

    try:
        write_report(run.store, record)
    except Exception as error:
        # What was run is there, and how it ended must be told before this.
        _LOGGER.warning("the report of run %s was not written: %r", run.run_id, error)
        _LOGGER.debug("what the report failed on", exc_info=True)
    return record


def _write(
    run: RunPlan,
    *,
    state: RunState,
    results: Sequence[StepRef],
    failures: Mapping[str, str],
) -> RunRecord:
    code = checkout()
    record = RunRecord(
        run_id=run.run_id,
        state=state,
        started=run.started,
        written=now(),
        recipe=without_secrets(run.recipe.model_dump(mode="json")),
        engine=run.engine,
        flow_run_id=run.flow_run_id,
        **this_process()._asdict(),
        beats=True,
        git_commit=code.commit,
        git_dirty=code.is_dirty,
        rebuild=tuple(sorted(run.rebuilt)),
        planned=tuple(step.label for step in run.steps),
        steps=tuple(StepRecord(**result._asdict()) for result in results),
        failures=dict(failures),
    )
    write_run(run.store, record)
    return record


def load_results(run: RunPlan, refs: Sequence[StepRef]) -> list[StepResult]:
    """The full results that small ones stand for."""
    return [
        StepResult(
            ref.label,
            run.store.manifest(ref.manifest),
            ref.was_cached,
            ref.seconds,
            ref.warning,
        )
        for ref in refs
    ]
