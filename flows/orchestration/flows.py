"""The parts of a recipe as Prefect flows, and their steps as tasks.

Prefect's own result cache is not used: a task asks the artifact store, and where the artifact is
there it ends in a state named `Cached`. Prefect runs the tasks: each is submitted with those that
it waits for. Only where one step at a time is asked for they are called one by one, in the flow's
own thread, so that a signal interrupts the step itself.
"""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from prefect import Flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run
from prefect.states import Completed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import Task

from flows.engine.graph import Graph
from flows.engine.stages import Step
from flows.engine.steps import RETRY_DELAYS, StepResult, is_passing
from flows.orchestration.hooks import settle_cancelled, settle_crashed, settle_failed
from flows.orchestration.run import LOOK_SECONDS, Run
from flows.orchestration.session import (
    RecipeParameter,
    current_run,
    load_parameter,
    prepare_run,
    running,
)
from flows.orchestration.views import flush_views, show_found, show_summary, watched
from flows.store.leases import live_holder
from schemas.disclosure import visible, without_secrets
from schemas.errors import BertloomError, RunnerError
from schemas.trial_names import entry_label

_THREADS = 32
"""Tasks that may be submitted and wait for others; how many work is the recipe's limit."""

_LOGGER = logging.getLogger(__name__)
_LOGGERS = ("prefect.task_runs", "prefect.flow_runs", "prefect.engine")


def log_line(line: str) -> None:
    """Log on the page of the flow or task run, and where a worker writes its log."""
    get_run_logger().info("%s", visible(without_secrets(line)))


class _InASentence(logging.Filter):
    """Takes the traceback off the record of a `BertloomError`.

    Prefect logs an error at each level that it passes, each time with the traceback of Beam's
    insides. An error that is raised on purpose says all there is to say; others stay as they are.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, BertloomError):
            record.msg, record.args = "%s: %s", (type(error).__name__, error)
            record.exc_info = record.exc_text = None
        return True


_FILTER = _InASentence()


def log_errors_in_a_sentence() -> None:
    """From now on in this process; once is enough, more often does no harm."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


# Flows


def _flow_run_name() -> str:
    recipe = flow_run.parameters["recipe"]
    return str(recipe["name"]) if isinstance(recipe, dict) else PurePath(recipe).stem


@functools.cache
def flow_of(graph: Graph) -> Flow[..., Any]:
    """The Prefect flow of a part."""

    def run(
        recipe: RecipeParameter,
        changes: list[str] | None = None,
        store: str | None = None,
        rebuild: list[str] | None = None,
        until: str = "",
    ) -> list[dict[str, Any]]:
        return _run_flow(graph, recipe, changes or (), store, rebuild or (), until)

    run.__name__ = run.__qualname__ = graph.add_steps.__name__
    run.__doc__ = f"""{graph.add_steps.__doc__}

    Args:
        recipe: what to run: a packaged recipe's name, a file, or all of it as JSON.
        changes: `KEY=VALUE` texts, as of `bertloom run --set`.
        store: in place of the recipe's own.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all.
    """
    return Flow(
        run,
        name=graph.flow_name,
        flow_run_name=_flow_run_name,
        persist_result=False,
        on_failure=[settle_failed],
        on_crashed=[settle_crashed],
        on_cancellation=[settle_cancelled],
    )


def _run_flow(
    graph: Graph,
    recipe: RecipeParameter,
    changes: Sequence[str],
    store: str | None,
    rebuild: Sequence[str],
    until: str,
) -> list[dict[str, Any]]:
    """A part of the run around it, or else a run of its own with all that its steps need."""
    log_errors_in_a_sentence()
    run = current_run()
    if run is not None and run.is_begun:
        own = graph.own(run.steps)
        run_tasks(run, own, states={})
        for step in own:
            if (error := run.failures.get(step.label)) is not None:
                raise error
        return _records([run.done[step.label] for step in own if step.label in run.done])
    if run is None:
        loaded = load_parameter(recipe, changes=changes, store=store)
        run = prepare_run(graph, loaded, say=log_line, rebuild=rebuild, until=until)
    context = FlowRunContext.get()
    run.flow_run_id = str(context.flow_run.id) if context and context.flow_run else ""
    try:
        with running(run), run:
            if graph.is_whole:
                _run_parts(run, graph.after, recipe)
            else:
                run_tasks(run, run.steps, states={})
    finally:
        show_summary(run)
        flush_views()
    return _records(run.results())


def _records(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    return [result.record.model_dump() for result in results]


def _run_parts(run: Run, parts: Sequence[Graph], recipe: RecipeParameter) -> None:
    """Run parts that have something to build as flow runs of their own within this one.

    Prefect's pages show each by itself then. Steps of others are tasks of this flow, as a flow run
    costs a second.
    """
    found = [(part, own) for part in parts if (own := part.own(run.steps))]
    states: dict[str, State[Any]] = {}
    for part, own in found:
        if len(found) == 1 or all(step.label in run.cached for step in own):
            run_tasks(run, own, states=states)
            continue
        labels = {step.label for step in own}
        needed = {label for step in own for label in step.inputs.values()} - labels
        # One state stands for all steps of a part.
        waited = {id(states[label]): states[label] for label in sorted(needed & states.keys())}
        ended: Any = flow_of(part)(recipe=recipe, wait_for=list(waited.values()), return_state=True)
        state: State[Any] = ended
        if state.is_completed():
            states.update(dict.fromkeys(labels & run.done.keys(), _as_node(state)))
        elif not labels & run.failures.keys():
            raise error_of_state(state) or RuntimeError(f"{part.flow_name} ended as {state}")


def _as_node(state: State[Any]) -> State[Any]:
    """A part's state as one that an edge of the run's graph starts from.

    Edges are from tasks, by their ids, but the node of a flow run has the flow run's id.
    """
    details = state.state_details
    named = details.model_copy(update={"task_run_id": details.flow_run_id})
    return state.model_copy(update={"state_details": named})


def error_of_state(state: State[Any]) -> BaseException | None:
    """What a task or flow failed with."""
    if isinstance(state.data, BaseException):
        return state.data
    found = state.result(raise_on_failure=False)
    return found if isinstance(found, BaseException) else None


# Tasks


class Bundle(NamedTuple):
    """Steps that are one task: a step, or the trials of a grid where all artifacts are there."""

    title: str
    steps: tuple[Step, ...]

    def needs(self) -> list[str]:
        """Labels of the steps that these read from."""
        return list(dict.fromkeys(label for s in self.steps for label in s.inputs.values()))

    @property
    def task(self) -> Task[..., Any]:
        """Named after the stage, and tagged: for Prefect's limits, filters and automations."""
        stage = self.steps[0].stage
        tags = [f"stage:{stage.name}"]
        if any(uses_gpu(step) for step in self.steps):
            tags.append("gpu")
        return run_step_task.with_options(name=stage.name, tags=tags)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the task."""
        return {"title": self.title, "labels": [step.label for step in self.steps]}


def uses_gpu(step: Step) -> bool:
    """Whether a step computes on a GPU: its stage can, its configuration lets it, there is one."""
    device = str(getattr(step.config, "device", "cpu"))
    if not step.stage.uses_gpu or device == "cpu":
        return False
    return device != "auto" or any(Path("/dev").glob("nvidia[0-9]*"))


def bundles(steps: Sequence[Step], *, cached: frozenset[str]) -> list[Bundle]:
    """The steps in order, as tasks."""
    found = []
    for entry, group in itertools.groupby(steps, key=lambda step: entry_label(step.label)):
        trials = tuple(group)
        if len(trials) > 1 and all(trial.label in cached for trial in trials):
            found.append(Bundle(f"{entry} ({len(trials)} trials)", trials))
        else:
            found += [Bundle(trial.label, (trial,)) for trial in trials]
    return found


def _may_pass(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    error = error_of_state(state)
    return error is not None and is_passing(error)


@task(
    name="step",
    task_run_name="{title}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_DELAYS),
    retry_delay_seconds=list(RETRY_DELAYS),
    retry_condition_fn=_may_pass,
)
def run_step_task(title: str, labels: list[str]) -> Any:
    """The steps of a bundle; the result is their records.

    Args:
        title: what people see.
        labels: of the steps.
    """
    del title
    run = current_run()
    if run is None:
        raise RuntimeError("a step's task runs in a flow of bertloom only")
    results = [_run_step(run, run.by_label[label]) for label in labels]
    records = _records(results)
    if all(result.was_cached for result in results):
        show_found(run, results)
        message = ", ".join(record["manifest"] for record in records)
        return Completed(name="Cached", message=message, data=records)
    return records


def _run_step(run: Run, step: Step) -> StepResult:
    seconds, most = LOOK_SECONDS
    while True:
        with run.slots:
            if step.label in run.cached:
                outcome = run.execute(step)
            else:
                with watched(run, step.label) as view:
                    outcome = run.execute(step)
                    if isinstance(outcome, StepResult):
                        view.show(outcome)
        if isinstance(outcome, StepResult):
            return outcome
        # Another run builds it: others may go on meanwhile.
        if run.stopping.wait(seconds):
            raise RunnerError(f"{step.label}: not begun, as the run was stopped")
        seconds = min(2 * seconds, most)


def run_tasks(run: Run, steps: Sequence[Step], *, states: dict[str, State[Any]]) -> None:
    """Run steps in the flow one is in. What became of them is in the run.

    One that failed keeps those from running that need it, and no others.

    Args:
        run: what the steps belong to.
        steps: each after those that it needs.
        states: by label, the states of the tasks of this flow run; added to.
    """
    found = bundles(steps, cached=run.cached)
    if run.limit == 1:
        _call_tasks(run, found, states)
        return
    runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max(_THREADS, run.limit))
    with runner:
        try:
            _submit_tasks(run, runner, found, states)
        except BaseException as error:
            if not isinstance(error, Exception):
                # A signal reaches this thread alone, and Prefect ends no flow, and no part of one,
                # before the tasks in its other threads have ended.
                run.stop()
            raise


def _submit_tasks(
    run: Run,
    runner: ThreadPoolTaskRunner[Any],
    found: Sequence[Bundle],
    states: dict[str, State[Any]],
) -> None:
    futures: dict[PrefectFuture[Any], Bundle] = {}
    by_label: dict[str, Any] = dict(states)
    for bundle in found:
        if any(label not in by_label and label not in run.done for label in bundle.needs()):
            run.say_not_run(bundle.title, bundle.needs())
            continue
        future = runner.submit(bundle.task, bundle.arguments, wait_for=_unique(bundle, by_label))
        futures[future] = bundle
        by_label.update(dict.fromkeys((step.label for step in bundle.steps), future))
    for ended in as_completed(list(futures)):
        ended.wait()  # it has ended; this fetches its state
        _note(run, futures[ended], ended.state, states)


def _call_tasks(run: Run, found: Sequence[Bundle], states: dict[str, State[Any]]) -> None:
    waiting = list(found)
    seconds, most = LOOK_SECONDS
    while ready := [b for b in waiting if all(run.has_inputs(step) for step in b.steps)]:
        free = next((bundle for bundle in ready if not _is_elsewhere(run, bundle)), None)
        if free is None:  # wait only when nothing else is left
            time.sleep(seconds)
            seconds = min(2 * seconds, most)
            continue
        waiting.remove(free)
        wait_for = _unique(free, states)
        state: State[Any] = free.task(**free.arguments, wait_for=wait_for, return_state=True)
        _note(run, free, state, states)
    for bundle in waiting:
        run.say_not_run(bundle.title, bundle.needs())


def _is_elsewhere(run: Run, bundle: Bundle) -> bool:
    """Whether another run builds what a task would build."""
    step = bundle.steps[0]
    if step.label in run.cached:
        return False
    try:
        name, key = step.stage.name, run.key(step).cache_key
        if step.label not in run.rebuilt and run.store.pointer(name, key) is not None:
            return False
        other = live_holder(run.store, name, key)
    except Exception as error:  # the task meets it again, says it, and tries again if it may pass
        _LOGGER.debug("%s: not looked at: %s", step.label, error)
        return False
    if other is not None:
        run.say_waiting(step, other)
    return other is not None


def _unique(bundle: Bundle, by_label: dict[str, Any]) -> list[Any]:
    """What a task waits for; one state or future may stand for several steps."""
    found = [by_label[label] for label in bundle.needs() if label in by_label]
    return list({id(item): item for item in found}.values())


def _note(run: Run, bundle: Bundle, state: State[Any], states: dict[str, State[Any]]) -> None:
    if state.is_completed():
        states.update(dict.fromkeys((step.label for step in bundle.steps), state))
    elif not all(run.has_inputs(step) for step in bundle.steps):  # as Prefect found, too
        run.say_not_run(bundle.title, bundle.needs())
    else:
        failed = next(step for step in bundle.steps if step.label not in run.done)
        run.fail(failed, error_of_state(state) or RuntimeError(str(state)))
