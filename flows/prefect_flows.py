"""Recipes as Prefect flows: every step is a task, submitted with the tasks that it waits for.

Prefect's result cache is not used: a task looks its artifact up in the store, and ends in a state
named `Cached` if it finds it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path, PurePath
from typing import Any

from prefect import get_run_logger
from prefect.assets import materialize
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.flows import Flow
from prefect.runtime import flow_run, task_run
from prefect.states import Completed, Crashed, Failed
from prefect.tasks import MaterializingTask, Task

from flows.bert import recipe_steps
from flows.lineage.openlineage import send_aborts
from flows.prefect_artifacts import ArtifactListener
from flows.preparation import mark_killed_runs, prepare_run
from flows.recipes.loader import load_recipe, recipe_from
from flows.run.executor import Submit, run_steps
from flows.run.graph import Step
from flows.run.log_lines import LogLines
from flows.run.machines import MachineOptions
from flows.run.run import RETRY_DELAYS, Run, find_store
from flows.run.step_execution import is_transient
from flows.store.runs import RunRecord, RunState, mark_flow_run_ended
from schemas.errors import BertloomError
from schemas.recipe import Recipe
from schemas.redaction import escape_control_characters, redact, redact_record

RecipeInput = str | dict[str, Any]
"""A recipe as flows take it: name of a packaged recipe, path of a file, or its fields as JSON."""

Texts = list[str] | None

_LOGGER = logging.getLogger(__name__)

# Tasks


def _can_succeed_later(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


def step_task(run: Run, step: Step) -> MaterializingTask[..., Any]:
    """Return the task of a step, with its asset and the tags that Prefect filters and limits by.

    Its only parameter is the label of the step, which Prefect shows.
    """
    tags = [f"stage:{step.stage.name}", *(["gpu"] if uses_gpu(step) else [])]

    @materialize(
        f"bertloom://{run.recipe.name}/{step.label}",
        by="bertloom",
        name=step.stage.name,
        task_run_name="{label}",
        # Prefect waits for a concurrency slot of each tag, which a cached step does not need.
        tags=[] if step.label in run.cached else tags,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(RETRY_DELAYS),
        retry_delay_seconds=list(RETRY_DELAYS),
        retry_condition_fn=_can_succeed_later,
    )
    def execute_step(label: str) -> Any:
        """Take the artifact of a step from the store, or build it."""
        del label
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

    return execute_step


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


class RecipeFlow(Flow[..., Any]):
    """Flow of which Prefect stores no credentials: addresses in its parameters can have some."""

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters as Prefect stores them; the flow itself gets the original ones."""
        serialized: dict[str, Any] = redact_record(super().serialize_parameters(parameters))
        return serialized


_recipe_flow = functools.partial(
    RecipeFlow,
    flow_run_name=_flow_run_name,
    persist_result=False,
    on_failure=[mark_run_ended],
    on_crashed=[mark_run_ended],
    on_cancellation=[mark_run_ended],
)


@functools.partial(_recipe_flow, name="bertloom")
def bert_flow(
    recipe: RecipeInput,
    overrides: Texts = None,
    store: str | None = None,
    rebuild: Texts = None,
    until: str = "",
    part: str = "",
    machines: MachineOptions | None = None,
) -> Any:
    """Run a recipe: corpus, pretraining, fine-tuning and evaluation.

    Args:
        recipe: Name of a packaged recipe, path of a file, or the recipe's fields as JSON.
        overrides: `KEY=VALUE` texts, as for `bertloom run --set`.
        store: Artifact store, in place of the recipe's.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.
        until: A stage or a step: run it and what it reads. "" for all steps.
        part: `corpus`, `pretraining`, `finetuning` or `evaluation`: its steps and what they read.
            "" for all parts.
        machines: Machines that train, of which this one has rank 0. None: this machine alone.

    Returns:
        The record of every step, in order.
    """
    try:
        loaded = _load(recipe, overrides, store)
        artifacts = find_store(loaded.store)
        _report_crashed(mark_killed_runs(loaded, store=artifacts))
        run = prepare_run(
            loaded,
            recipe_steps(loaded, part=part, until=until),
            store=artifacts,
            listeners=[LogLines(_log_line), ArtifactListener()],
            rebuild=rebuild or (),
            engine="prefect",
            machines=machines,
        )
        run.flow_run_id = str(flow_run.id)
        with run:
            run_steps(run, _task_executor(run))
    except BertloomError as error:
        return failed_state(error)
    return [result.record.model_dump() for result in run.results()]


@functools.partial(_recipe_flow, name="bertloom-corpus")
def corpus_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Build the corpus of a recipe; see `bert_flow`."""
    return bert_flow.fn(recipe, overrides, store, rebuild, part="corpus")


@functools.partial(_recipe_flow, name="bertloom-pretraining")
def pretrain_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Pretrain the model of a recipe, after the steps that it needs; see `bert_flow`."""
    return bert_flow.fn(recipe, overrides, store, rebuild, part="pretraining")


@functools.partial(_recipe_flow, name="bertloom-finetuning")
def finetune_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Fine-tune on the tasks of a recipe, after the steps that it needs; see `bert_flow`."""
    return bert_flow.fn(recipe, overrides, store, rebuild, part="finetuning")


@functools.partial(_recipe_flow, name="bertloom-evaluation")
def evaluate_flow(
    recipe: RecipeInput, overrides: Texts = None, store: str | None = None, rebuild: Texts = None
) -> Any:
    """Evaluate the models of a recipe, after the steps that they need; see `bert_flow`."""
    return bert_flow.fn(recipe, overrides, store, rebuild, part="evaluation")


def _load(recipe: RecipeInput, overrides: Texts, store: str | None) -> Recipe:
    if isinstance(recipe, str):
        return load_recipe(recipe, overrides=overrides or (), store=store)
    where = "flow parameter `recipe`"
    return recipe_from(
        recipe, where=where, folder=Path.cwd(), overrides=overrides or (), store=store
    )


def _report_crashed(records: Sequence[RunRecord]) -> None:
    """Set the flow runs of runs that were killed to Crashed: they cannot do it themselves."""
    ids = [record.flow_run_id for record in records if record.flow_run_id]
    if not ids:
        return
    running = {"id": {"any_": ids}, "state": {"type": {"any_": ["RUNNING"]}}}
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(running)):
            state: Any = Crashed(message="the process of the run was killed")
            client.set_flow_run_state(run.id, state, force=True)


def _task_executor(run: Run) -> Submit:
    """Return a function that executes a step as a task, after the tasks of its inputs."""
    upstream: dict[str, Any] = {}

    def submit(step: Step) -> Future[Any] | None:
        task = step_task(run, step)
        waits = [upstream[label] for label in step.inputs.values() if label in upstream]
        if run.max_parallel == 1:
            # Called, not submitted: in the flow's own thread, a signal interrupts the step itself.
            upstream[step.label] = task(step.label, wait_for=waits, return_state=True)
            return None
        upstream[step.label] = task.submit(step.label, wait_for=waits)
        future: Future[Any] = upstream[step.label].wrapped_future
        return future

    return submit


def _log_line(line: str) -> None:
    get_run_logger().info("%s", escape_control_characters(redact(line)))


def failed_state(error: Exception) -> State[Any]:
    """Return the state of a task or flow that failed; its message is the error's own sentence."""
    if not isinstance(error, BertloomError):
        raise error
    return Failed(message=escape_control_characters(redact(str(error))), data=error)
