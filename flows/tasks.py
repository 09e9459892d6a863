"""Steps of a recipe as the tasks of a Prefect flow; the flows themselves are in their own modules.

A thin adapter. Prefect's own result cache is not used: a task asks the artifact store, and where
the artifact is there it ends in a state named `Cached`. Only small references pass between tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import Flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture, wait
from prefect.states import Completed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import Task

from flows.runs import (
    RETRY_DELAYS,
    RunPlan,
    Say,
    StepRef,
    execute_step,
    is_passing,
    load_results,
    write_record,
)
from flows.stages import StepResult
from model.training_job import stop_running_jobs
from model.tuning.task_process import stop_running_calls
from schemas.recipe import Recipe

# Runners that share this machine get one step at a time; a data centre gets all that can run.
_RUNNERS_HERE = frozenset({"local", "threads"})
_STEPS_ELSEWHERE = 8


def _may_pass(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.data if isinstance(state.data, BaseException) else _exception_of(state)
    return error is not None and is_passing(error)


def _exception_of(state: State[Any]) -> BaseException | None:
    found = state.result(raise_on_failure=False)
    return found if isinstance(found, BaseException) else None


@task(
    task_run_name="{label}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_DELAYS),
    retry_delay_seconds=list(RETRY_DELAYS),
    retry_condition_fn=_may_pass,
)
def run_step_task(
    recipe: Recipe,
    label: str,
    inputs: dict[str, dict[str, Any]],
    run_id: str,
    rebuild: bool,
) -> Any:
    """One step; its result is a `StepRef` as a dict."""
    given = {name: StepRef(**ref) for name, ref in inputs.items()}
    ref = execute_step(
        recipe, label, inputs=given, run_id=run_id, rebuild=rebuild, say=_say_through_print
    )
    result = ref._asdict()
    if ref.was_cached:
        return Completed(name="Cached", message=ref.manifest, data=result)
    return result


_SAYERS: list[Say] = []


def _say_through_print(line: str) -> None:
    # Tasks take plain values only; who listens is this process's own affair.
    (_SAYERS[-1] if _SAYERS else print)(line)


def run_steps(run: RunPlan) -> list[dict[str, Any]]:
    """Run a plan's steps in the flow one is in; the references to their artifacts, in order.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    context = FlowRunContext.get()
    flow_run_id = str(context.flow_run.id) if context and context.flow_run else ""
    futures: dict[str, PrefectFuture[Any]] = {}
    for step in run.steps:
        inputs: dict[str, Any] = {name: futures[label] for name, label in step.inputs.items()}
        futures[step.label] = run_step_task.submit(
            recipe=run.recipe,
            label=step.label,
            inputs=inputs,
            run_id=run.run_id,
            rebuild=step.label in run.rebuilt,
        )
    try:
        wait(list(futures.values()))
    except BaseException:
        # A signal reaches this thread alone, and Prefect waits for the others' tasks to end.
        stop_running_jobs()
        stop_running_calls()
        raise
    return _collect(run, futures, flow_run_id)


def _collect(
    run: RunPlan, futures: dict[str, PrefectFuture[Any]], flow_run_id: str
) -> list[dict[str, Any]]:
    refs: list[StepRef] = []
    failures: dict[str, BaseException] = {}
    for label, future in futures.items():
        if future.state.is_completed():
            refs.append(StepRef(**future.result()))
        elif not future.state.is_pending():  # pending: what it needs has failed
            failures[label] = _exception_of(future.state) or RuntimeError(str(future.state))
    texts = {label: f"{type(error).__name__}: {error}" for label, error in failures.items()}
    state = "failed" if failures else "completed"
    write_record(run, state=state, results=refs, failures=texts, flow_run_id=flow_run_id)
    for label, text in texts.items():
        _say_through_print(f"{label}  FAILED: {text}")
    for error in failures.values():
        raise error
    return [ref._asdict() for ref in refs]


def run_flow(
    flow: Flow[..., list[dict[str, Any]]],
    recipe: Recipe,
    *,
    say: Say,
    rebuild: Sequence[str] = (),
    until: str = "",
) -> list[StepResult]:
    """Run a flow in this process, against the Prefect server that is configured, or its own."""
    workers = 1 if recipe.execution.runner in _RUNNERS_HERE else _STEPS_ELSEWHERE
    runner: Any = ThreadPoolTaskRunner(max_workers=workers)
    _SAYERS.append(say)
    try:
        refs = flow.with_options(task_runner=runner)(recipe, tuple(rebuild), until)
    finally:
        _SAYERS.pop()
    return load_results(recipe, [StepRef(**ref) for ref in refs])
