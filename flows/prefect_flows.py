"""Recipes as Prefect flows: every step is a task, submitted with the tasks that it waits for.

Prefect's result cache is not used: a task looks its artifact up in the store, and ends in a state
named `Cached` if it finds it.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.flows import Flow
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run, task_run
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import Task

from flows.bert import recipe_steps
from flows.lineage.openlineage import send_abort
from flows.prefect_artifacts import ArtifactListener
from flows.preparation import mark_killed_runs, prepare_run
from flows.recipes.loader import load_recipe, recipe_from
from flows.run.graph import Step
from flows.run.log_lines import LogLines
from flows.run.run import RETRY_DELAYS, Run, poll_delays
from flows.run.step_execution import StepResult, is_transient
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunState, mark_flow_run_ended
from schemas.disclosure import visible, without_secrets
from schemas.errors import BertloomError
from schemas.recipe import Recipe

RecipeParameter = str | dict[str, Any]
"""A recipe as flows take it: name of a packaged recipe, path of a file, or its fields as JSON."""

# 32 tasks wait for their inputs or work; `Run.slots` limits how many of them work.
_TASK_RUNNER: Any = ThreadPoolTaskRunner(max_workers=32)

_LOGGER = logging.getLogger(__name__)
_CURRENT: contextvars.ContextVar[Run | None] = contextvars.ContextVar("_CURRENT", default=None)
"""The run of the flow in this context. Tasks get the label of a step only, which Prefect shows."""


# Tasks


def _may_succeed_later(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


@task(
    task_run_name="{label}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_DELAYS),
    retry_delay_seconds=list(RETRY_DELAYS),
    retry_condition_fn=_may_succeed_later,
)
def execute_step(label: str) -> Any:
    """Take the artifact of a step from the store, or build it.

    Args:
        label: Label of the step, such as `build-instances.length-128`.
    """
    run = _CURRENT.get()
    if run is None:
        raise RuntimeError("execute_step: expected to be called by a flow of bertloom")
    step = run.by_label[label]
    for delay in poll_delays():
        try:
            with run.slots:
                result = run.execute(step)
        except Exception as error:
            return _report_failure(run, step, error)
        if isinstance(result, StepResult):
            name = "Cached" if result.was_cached else "Completed"
            return Completed(name=name, message=result.manifest.path)
        run.wait(delay)  # another run builds it
    return None


def _report_failure(run: Run, step: Step, error: Exception) -> State[Any]:
    """Return the state of a task that failed for good, or raise an error that is tried again."""
    retries = task_run.run_count - 1
    if is_transient(error) and retries < len(RETRY_DELAYS):
        run.fail(step, error, retry_delay=RETRY_DELAYS[retries])
        raise error
    run.fail(step, error)
    return failed_state(error)


def step_task(step: Step, *, is_cached: bool = False) -> Task[..., Any]:
    """Return the task of a step, with the name and the tags that Prefect filters and limits by."""
    tags = [f"stage:{step.stage.name}", *(["gpu"] if uses_gpu(step) else [])]
    # Prefect asks the server for a concurrency slot of each tag, which a cached step does not need.
    return execute_step.with_options(name=step.stage.name, tags=[] if is_cached else tags)


def uses_gpu(step: Step) -> bool:
    """Return whether a step computes on a GPU of this machine."""
    device = str(getattr(step.config, "device", "cpu"))
    if not step.stage.uses_gpu or device == "cpu":
        return False
    return device != "auto" or any(Path("/dev").glob("nvidia[0-9]*"))


# Flows


def _flow_run_name() -> str:
    recipe = flow_run.parameters["recipe"]
    return str(recipe["name"]) if isinstance(recipe, dict) else PurePath(recipe).stem


_RUN_STATES: dict[StateType, RunState] = {
    StateType.CRASHED: "crashed",
    StateType.FAILED: "failed",
}


def mark_run_ended(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Write how Prefect ended a flow run into the run's record, if the run could not.

    After SIGKILL, Prefect's worker calls this hook in its own process.
    """
    given = flow_run.parameters
    try:
        recipe = _load(given["recipe"], given.get("overrides"), given.get("store"))
        store = ArtifactStore(recipe.store, create=False)
    except BertloomError as error:  # then the run did not start
        _LOGGER.debug("flow run %s of %s has no record: %s", flow_run.id, flow.name, error)
        return
    ended = _RUN_STATES.get(state.type, "interrupted")
    reason = state.message or state.name or ended
    mark_flow_run_ended(store, str(flow_run.id), state=ended, reason=reason, close=send_abort)


def _recipe_flow(name: str) -> Callable[[Callable[..., Any]], Flow[..., Any]]:
    """Return Prefect's decorator with the options that the flows of recipes share."""
    return flow(
        name=name,
        flow_run_name=_flow_run_name,
        task_runner=_TASK_RUNNER,
        persist_result=False,
        on_failure=[mark_run_ended],
        on_crashed=[mark_run_ended],
        on_cancellation=[mark_run_ended],
    )


@_recipe_flow("bertloom")
def bert_flow(
    recipe: RecipeParameter,
    overrides: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
    until: str = "",
) -> Any:
    """Run a recipe: corpus, pretraining, fine-tuning and evaluation.

    Args:
        recipe: Name of a packaged recipe, path of a file, or the recipe's fields as JSON.
        overrides: `KEY=VALUE` texts, as for `bertloom run --set`.
        store: Artifact store, in place of the recipe's.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.
        until: A stage or a step: run it and what it reads. "" for all steps.

    Returns:
        The record of every step, in order.
    """
    return _run_part("", recipe, overrides, store, rebuild, until)


@_recipe_flow("bertloom-corpus")
def corpus_flow(
    recipe: RecipeParameter,
    overrides: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
) -> Any:
    """Build the corpus of a recipe; see `bert_flow`."""
    return _run_part("corpus", recipe, overrides, store, rebuild)


@_recipe_flow("bertloom-pretraining")
def pretrain_flow(
    recipe: RecipeParameter,
    overrides: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
) -> Any:
    """Pretrain the model of a recipe, after the steps that it needs; see `bert_flow`."""
    return _run_part("pretraining", recipe, overrides, store, rebuild)


@_recipe_flow("bertloom-finetuning")
def finetune_flow(
    recipe: RecipeParameter,
    overrides: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
) -> Any:
    """Fine-tune on the tasks of a recipe, after the steps that it needs; see `bert_flow`."""
    return _run_part("finetuning", recipe, overrides, store, rebuild)


@_recipe_flow("bertloom-evaluation")
def evaluate_flow(
    recipe: RecipeParameter,
    overrides: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
) -> Any:
    """Evaluate the models of a recipe, after the steps that they need; see `bert_flow`."""
    return _run_part("evaluation", recipe, overrides, store, rebuild)


FLOWS = {
    "": bert_flow,
    "corpus": corpus_flow,
    "pretraining": pretrain_flow,
    "finetuning": finetune_flow,
    "evaluation": evaluate_flow,
}
"""Flow of each part of a recipe, by the name of the part."""


@contextlib.contextmanager
def current_run(run: Run) -> Iterator[None]:
    """Let the flows and tasks that are called in the block execute this run."""
    token = _CURRENT.set(run)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _run_part(
    part: str,
    recipe: RecipeParameter,
    overrides: list[str] | None,
    store: str | None,
    rebuild: list[str] | None,
    until: str = "",
) -> Any:
    """Run the steps of a part as tasks; the body of every flow."""
    log_user_errors_without_traceback()
    try:
        run = _CURRENT.get()
        if run is None or run.is_started:
            run = _prepare(_load(recipe, overrides, store), part, rebuild or [], until)
        run.flow_run_id = str(flow_run.id)
        run.listeners = (*run.listeners, ArtifactListener())
        with current_run(run), run:
            _execute_steps(run)
    except BertloomError as error:
        return failed_state(error)
    return [result.record.model_dump() for result in run.results()]


def _prepare(recipe: Recipe, part: str, rebuild: list[str], until: str) -> Run:
    mark_killed_runs(recipe)
    graph = recipe_steps(recipe, part=part, until=until)
    listeners = [LogLines(_log_line)]
    return prepare_run(recipe, graph, listeners=listeners, rebuild=rebuild, engine="prefect")


def _load(recipe: RecipeParameter, overrides: list[str] | None, store: str | None) -> Recipe:
    if isinstance(recipe, str):
        return load_recipe(recipe, overrides=overrides or (), store=store)
    where = "flow parameter `recipe`"
    return recipe_from(
        recipe, where=where, folder=Path.cwd(), overrides=overrides or (), store=store
    )


def _execute_steps(run: Run) -> None:
    cached = {step.label for step in run.planned if step.state == "cached"}
    tasks = {step.label: step_task(step, is_cached=step.label in cached) for step in run.steps}
    if run.max_parallel == 1:
        # Called, not submitted: in the flow's own thread, a signal interrupts the step itself.
        states: dict[str, State[Any]] = {}
        for step in _in_turn(run):
            upstream = [states[label] for label in step.inputs.values() if label in states]
            task = tasks[step.label]
            states[step.label] = task(step.label, wait_for=upstream, return_state=True)
        return
    futures: dict[str, PrefectFuture[Any]] = {}
    for step in run.steps:
        waits = [futures[label] for label in step.inputs.values() if label in futures]
        futures[step.label] = tasks[step.label].submit(step.label, wait_for=waits)
    try:
        wait(list(futures.values()))
    except BaseException:
        run.stop()
        wait(list(futures.values()))
        raise
    for step in run.steps:
        if step.label not in run.step_results and step.label not in run.failures:
            run.skip(step)


def _in_turn(run: Run) -> Iterator[Step]:
    """Yield the steps that are ready; those that another run is building come later."""
    pending, delays = dict(run.by_label), poll_delays()
    while ready := [step for step in pending.values() if run.is_ready(step)]:
        step = next((step for step in ready if not run.is_built_elsewhere(step)), None)
        if step is None:
            run.wait(next(delays))
            continue
        del pending[step.label]
        delays = poll_delays()
        yield step
    for step in pending.values():
        run.skip(step)


# Logs and states


def _log_line(line: str) -> None:
    get_run_logger().info("%s", visible(without_secrets(line)))


def failed_state(error: Exception) -> State[Any]:
    """Return the state of a task or flow that failed; its message is the error's own sentence."""
    if not isinstance(error, BertloomError):
        raise error
    return Failed(message=visible(without_secrets(str(error))), data=error)


class _UserErrorFilter(logging.Filter):
    """Removes the traceback from the log records of a `BertloomError`."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, BertloomError):
            record.msg, record.args = "%s: %s", (type(error).__name__, error)
            record.exc_info = record.exc_text = None
        return True


_USER_ERROR_FILTER = _UserErrorFilter()


def log_user_errors_without_traceback() -> None:
    """Let Prefect log errors of bertloom as a sentence; other errors keep their traceback."""
    for name in ("prefect.task_runs", "prefect.flow_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_USER_ERROR_FILTER)
