"""Recipes as Prefect flows: every step is a task, submitted with the tasks that it waits for.

Prefect's result cache is not used: a task looks its artifact up in the store, and ends in a state
named `Cached` if it finds it.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path, PurePath
from typing import Any

from prefect import flow, get_run_logger
from prefect.assets import materialize
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.flows import Flow
from prefect.runtime import flow_run, task_run
from prefect.states import Completed, Failed
from prefect.tasks import MaterializingTask, Task

from flows.bert import recipe_steps
from flows.lineage.openlineage import send_aborts
from flows.prefect_artifacts import ArtifactListener
from flows.preparation import mark_killed_runs, prepare_run
from flows.recipes.loader import load_recipe, recipe_from
from flows.run.executor import Submit, run_steps
from flows.run.graph import Step
from flows.run.log_lines import LogLines
from flows.run.run import RETRY_DELAYS, Run, find_store
from flows.run.step_execution import is_transient
from flows.store.runs import RunState, mark_flow_run_ended
from schemas.errors import BertloomError
from schemas.recipe import Recipe
from schemas.redaction import escape_control_characters, redact

RecipeInput = str | dict[str, Any]
"""A recipe as flows take it: name of a packaged recipe, path of a file, or its fields as JSON."""

Texts = list[str] | None

_LOGGER = logging.getLogger(__name__)
_CURRENT: contextvars.ContextVar[Run] = contextvars.ContextVar("_CURRENT")
"""The run of the flow in this context. Tasks get the label of a step only, which Prefect shows."""

# Tasks


def _can_succeed_later(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


@materialize(
    "bertloom://recipe/step",
    by="bertloom",
    task_run_name="{label}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_DELAYS),
    retry_delay_seconds=list(RETRY_DELAYS),
    retry_condition_fn=_can_succeed_later,
)
def execute_step(label: str) -> Any:
    """Take the artifact of a step from the store, or build it.

    Args:
        label: Label of the step, such as `build-instances.length-128`.
    """
    run = _CURRENT.get()
    step = run.by_label[label]
    try:
        result = run.execute(step)
    except Exception as error:
        retries = task_run.run_count - 1
        if is_transient(error) and retries < len(RETRY_DELAYS):
            run.fail(step, error, retry_delay=RETRY_DELAYS[retries])
            raise
        run.fail(step, error)
        return failed_state(error)
    name = "Cached" if result.was_cached else "Completed"
    return Completed(name=name, message=result.manifest.manifest_path)


def step_task(run: Run, step: Step) -> MaterializingTask[..., Any]:
    """Return the task of a step, with its asset and the tags that Prefect filters and limits by."""
    tags = [f"stage:{step.stage.name}", *(["gpu"] if uses_gpu(step) else [])]
    return execute_step.with_options(
        name=step.stage.name,
        assets=[f"bertloom://{run.recipe.name}/{step.label}"],
        # Prefect waits for a concurrency slot of each tag, which a cached step does not need.
        tags=[] if step.label in run.cached else tags,
    )


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


def mark_run_ended(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Write how Prefect ended a flow run into the run's record, if the run could not.

    After SIGKILL, Prefect's worker calls this hook in its own process.
    """
    values = flow_run.parameters
    try:
        recipe = _load(values["recipe"], values.get("overrides"), values.get("store"))
        store = find_store(recipe.store)
    except BertloomError as error:  # then the run did not start
        _LOGGER.debug("flow run %s of %s has no record: %s", flow_run.id, flow.name, error)
        return
    if store is not None:
        ended = _RUN_STATES.get(state.type, "interrupted")
        reason = state.message or ended
        run_ids = mark_flow_run_ended(store, str(flow_run.id), state=ended, reason=reason)
        send_aborts(store, run_ids)


_RUN_STATES: dict[StateType, RunState] = {
    StateType.CRASHED: "crashed",
    StateType.FAILED: "failed",
}
_OPTIONS: dict[str, Any] = {
    "flow_run_name": _flow_run_name,
    "persist_result": False,
    "on_failure": [mark_run_ended],
    "on_crashed": [mark_run_ended],
    "on_cancellation": [mark_run_ended],
}


@flow(name="bertloom", **_OPTIONS)
def bert_flow(
    recipe: RecipeInput,
    overrides: Texts = None,
    store: str | None = None,
    rebuild: Texts = None,
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


@flow(name="bertloom-corpus", **_OPTIONS)
def corpus_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Build the corpus of a recipe; see `bert_flow`."""
    return _run_part("corpus", recipe, overrides, store, rebuild)


@flow(name="bertloom-pretraining", **_OPTIONS)
def pretrain_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Pretrain the model of a recipe, after the steps that it needs; see `bert_flow`."""
    return _run_part("pretraining", recipe, overrides, store, rebuild)


@flow(name="bertloom-finetuning", **_OPTIONS)
def finetune_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Fine-tune on the tasks of a recipe, after the steps that it needs; see `bert_flow`."""
    return _run_part("finetuning", recipe, overrides, store, rebuild)


@flow(name="bertloom-evaluation", **_OPTIONS)
def evaluate_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Evaluate the models of a recipe, after the steps that they need; see `bert_flow`."""
    return _run_part("evaluation", recipe, overrides, store, rebuild)


FLOWS: dict[str, Flow[..., Any]] = {
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
    recipe: RecipeInput,
    overrides: Texts,
    store: str | None,
    rebuild: Texts,
    until: str = "",
) -> Any:
    """Run the steps of a part as tasks; the body of every flow."""
    try:
        run = _CURRENT.get(None)
        if run is None or run.is_started:
            run = _prepare(_load(recipe, overrides, store), part, rebuild or [], until)
        run.flow_run_id = str(flow_run.id)
        run.listeners = (*run.listeners, ArtifactListener())
        with current_run(run), run:
            run_steps(run, _task_executor(run))
    except BertloomError as error:
        return failed_state(error)
    return [result.record.model_dump() for result in run.results()]


def _prepare(recipe: Recipe, part: str, rebuild: list[str], until: str) -> Run:
    mark_killed_runs(recipe)
    graph = recipe_steps(recipe, part=part, until=until)
    listeners = [LogLines(_log_line)]
    return prepare_run(recipe, graph, listeners=listeners, rebuild=rebuild, engine="prefect")


def _load(recipe: RecipeInput, overrides: Texts, store: str | None) -> Recipe:
    if isinstance(recipe, str):
        return load_recipe(recipe, overrides=overrides or (), store=store)
    where = "flow parameter `recipe`"
    return recipe_from(
        recipe, where=where, folder=Path.cwd(), overrides=overrides or (), store=store
    )


def _task_executor(run: Run) -> Submit:
    """Return a function that executes a step as a task, after the tasks of its inputs."""
    upstream: dict[str, Any] = {}

    def submit(step: Step) -> Future[Any]:
        task = step_task(run, step)
        waits = [upstream[label] for label in step.inputs.values() if label in upstream]
        if run.max_parallel > 1:
            upstream[step.label] = task.submit(step.label, wait_for=waits)
            future: Future[Any] = upstream[step.label].wrapped_future
            return future
        # Called, not submitted: in the flow's own thread, a signal interrupts the step itself.
        upstream[step.label] = task(step.label, wait_for=waits, return_state=True)
        future = Future()
        future.set_result(None)
        return future

    return submit


def _log_line(line: str) -> None:
    get_run_logger().info("%s", escape_control_characters(redact(line)))


def failed_state(error: Exception) -> State[Any]:
    """Return the state of a task or flow that failed; its message is the error's own sentence."""
    if not isinstance(error, BertloomError):
        raise error
    return Failed(message=escape_control_characters(redact(str(error))), data=error)
