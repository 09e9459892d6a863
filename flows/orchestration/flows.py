"""The parts of a recipe as Prefect flows, and their steps as tasks.

Prefect's own result cache is not used: a task asks the artifact store, and where the artifact is
there it ends in a state named `Cached`. Prefect runs the tasks: each is submitted with those that
it waits for. Only where one step at a time is asked for they are called one by one, in the flow's
own thread, so that a signal interrupts the step itself.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from prefect import Flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import Task

from flows.engine.graph import Graph
from flows.engine.plan import plan_steps
from flows.engine.stages import Step
from flows.engine.steps import RETRY_DELAYS, StepResult, is_passing, opened_store
from flows.lineage.export.events import close_abandoned
from flows.orchestration.run import Run, Say, as_current, current_run, look_pauses
from flows.orchestration.views import flush_views, show_found, show_summary, watched
from flows.recipes.files import load_recipe, recipe_from
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunState, settle_flow_run
from schemas.disclosure import visible, without_secrets
from schemas.errors import BertloomError
from schemas.recipe import Recipe
from schemas.trial_names import entry_label

RecipeParameter = str | dict[str, Any]
"""How flows take a recipe: the name of a packaged one, a file, or all of it as plain JSON."""

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


def failed_with(error: BertloomError) -> State[Any]:
    """The state of what ended by an error that is raised on purpose: its sentence comes first.

    Raised on, Prefect would write of an exception that was encountered, and of its class, before.
    Whoever asks for the result still gets the error.
    """
    return Failed(message=visible(without_secrets(str(error))), data=error)


def prepare_run(
    graph: Graph,
    recipe: Recipe | RecipeParameter,
    *,
    say: Say = log_line,
    changes: Sequence[str] = (),
    store: str | None = None,
    rebuild: Collection[str] = (),
    until: str = "",
) -> Run:
    """A run that is not begun yet, with the steps that need nothing but to be looked up.

    Raises:
        ConfigError: there is no such recipe, or something in it cannot be used.
    """
    if not isinstance(recipe, Recipe):
        recipe = _load_parameter(recipe, changes=changes, store=store)
    steps = graph.steps(recipe, until)
    try:
        opened = opened_store(recipe.store)
        planned = plan_steps(recipe, steps, store=opened, rebuild=rebuild)
        cached = [step.label for step in planned if step.state == "cached"]
    except BertloomError as error:  # the step that it is about says it in its turn
        _LOGGER.debug("no plan: %s", error)
        cached = []
    return Run(recipe, steps, say=say, rebuild=rebuild, engine="prefect", cached=cached)


def _load_parameter(
    recipe: RecipeParameter, *, changes: Sequence[str], store: str | None
) -> Recipe:
    if isinstance(recipe, str):
        return load_recipe(recipe, changes=changes, store=store)
    where = "the flow's parameter `recipe`"
    return recipe_from(recipe, where=where, folder=Path.cwd(), changes=changes, store=store)


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
    ) -> list[dict[str, Any]] | State[Any]:
        given = {"changes": changes or (), "store": store, "rebuild": rebuild or ()}
        try:
            with _flow_calls(graph, recipe, {**given, "until": until}) as calls:
                for bundle, begin in calls:
                    calls.note(bundle, begin(wait_for=calls.waits_for(bundle)))
        except BertloomError as error:
            return failed_with(error)
        return _records(calls.results())

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
        on_failure=[settle_run],
        on_crashed=[settle_run],
        on_cancellation=[settle_run],
    )


@contextlib.contextmanager
def _flow_calls(
    graph: Graph, recipe: RecipeParameter, given: dict[str, Any]
) -> Iterator[FlowCalls]:
    """What a flow run is to begin: of the run around it, or else of a run of its own."""
    log_errors_in_a_sentence()
    run = current_run()
    if run is not None and run.is_begun:
        own = [step for step in graph.own(run.steps) if step.label not in run.done]
        with contextlib.closing(FlowCalls(run, [(None, own)])) as calls:
            yield calls
        for step in own:
            if (error := run.failures.get(step.label)) is not None:
                raise error
        return
    run = run or prepare_run(graph, recipe, **given)
    context = FlowRunContext.get()
    run.flow_run_id = str(context.flow_run.id) if context and context.flow_run else ""
    groups = _groups(graph, run)
    try:
        with (
            as_current(run),
            run,
            contextlib.closing(FlowCalls(run, groups, recipe=recipe)) as calls,
        ):
            yield calls
    finally:
        show_summary(run)
        flush_views()


def _groups(graph: Graph, run: Run) -> list[tuple[Graph | None, list[Step]]]:
    """The steps of a run in order, those of each part with the part if it gets a flow run.

    It gets one, as Prefect's pages show it by itself then, if it has something to build and is not
    all there is: a flow run costs a second.
    """
    if not graph.is_whole:
        return [(None, list(run.steps))]
    found: list[tuple[Graph, list[Step]]] = []
    for part in graph.after:
        taken = {step.label for _, steps in found for step in steps}
        if own := [step for step in part.own(run.steps) if step.label not in taken]:
            found.append((part, own))
    return [
        (None if len(found) == 1 or {s.label for s in own} <= run.cached else part, own)
        for part, own in found
    ]


def _records(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    return [result.record.model_dump() for result in results]


_RUN_STATES: dict[StateType, RunState] = {
    StateType.CRASHED: "crashed",
    StateType.FAILED: "failed",
}


def settle_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Prefect's hook for flow runs that end badly: the run's record is to say so, too.

    A run that is interrupted or fails writes its record itself. This is for those that cannot any
    more: after SIGKILL the worker calls it, in its own process.
    """
    if flow_run.parent_task_run_id is not None:
        return  # the run is that of the flow around it
    given = flow_run.parameters
    try:
        recipe = _load_parameter(
            given["recipe"], changes=given.get("changes") or (), store=given.get("store")
        )
        store = ArtifactStore(recipe.store, create=False)
    except BertloomError as error:  # then there was no run either
        _LOGGER.debug("%s of flow %s has no record: %s", flow_run.id, flow.name, error)
        return
    ended = _RUN_STATES.get(state.type, "interrupted")
    reason = state.message or state.name or ended
    settle_flow_run(store, str(flow_run.id), state=ended, reason=reason, close=close_abandoned)


class Bundle(NamedTuple):
    """Steps that Prefect shows as one: a step, trials of a grid that are all there, or a part."""

    title: str
    steps: tuple[Step, ...]
    part: Graph | None = None
    """Whose flow runs them; None for a task."""

    @property
    def labels(self) -> list[str]:
        """The labels of its steps."""
        return [step.label for step in self.steps]

    @property
    def needs(self) -> list[str]:
        """Labels of the steps of others that these read from."""
        read = dict.fromkeys(label for step in self.steps for label in step.inputs.values())
        return [label for label in read if label not in self.labels]

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
        """What the task is called with."""
        return {"title": self.title, "labels": self.labels}


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


Ended = State[Any] | PrefectFuture[Any]
"""What a task or the flow of a part ended in, or will end in."""

Begins = Generator[tuple[Bundle, Callable[..., Ended]], None, None]
"""Bundles, and what begins each, called with `wait_for`: Prefect's own functions, so that nothing
of ours stands between a flow and its tasks."""


class FlowCalls:
    """What one flow run begins, each when it may begin. What became of the steps is in the run.

    A step that failed keeps those from running that need it, and no others.
    """

    def __init__(
        self,
        run: Run,
        groups: Sequence[tuple[Graph | None, Sequence[Step]]],
        *,
        recipe: RecipeParameter = "",
    ) -> None:
        """Take steps, each after those that it needs, and parts, whose flows take `recipe`."""
        self._run, self._groups, self._recipe = run, groups, recipe
        self._states: dict[str, Ended] = {}
        self._futures: dict[PrefectFuture[Any], Bundle] = {}
        self._calls = self._in_order()

    def __iter__(self) -> Begins:
        return self._calls

    def close(self) -> None:
        """Begin nothing more, and wait for what was begun."""
        self._calls.close()

    def waits_for(self, bundle: Bundle) -> list[Ended]:
        """What Prefect draws edges from; one state or future may stand for several steps."""
        found = [self._states[label] for label in bundle.needs if label in self._states]
        return list({id(item): item for item in found}.values())

    def note(self, bundle: Bundle, ended: Ended) -> None:
        """Take what a bundle ended in, or will."""
        if isinstance(ended, PrefectFuture):
            self._futures[ended] = bundle
            self._states.update(dict.fromkeys(bundle.labels, ended))
        else:
            self._settle(bundle, ended)

    def results(self) -> list[StepResult]:
        """The results of the steps that are done, in their order."""
        labels = [step.label for _, steps in self._groups for step in steps]
        return [self._run.done[label] for label in labels if label in self._run.done]

    def _in_order(self) -> Begins:
        for part, steps in self._groups:
            if part is not None:
                flow: Any = functools.partial(flow_of(part), recipe=self._recipe, return_state=True)
                yield Bundle(part.flow_name, tuple(steps), part), flow
            elif self._run.limit == 1:
                yield from self._in_turn(bundles(steps, cached=self._run.cached))
            else:
                yield from self._at_once(bundles(steps, cached=self._run.cached))

    def _in_turn(self, found: Sequence[Bundle]) -> Begins:
        waiting, pauses = list(found), look_pauses()
        while ready := [b for b in waiting if all(self._run.has_inputs(s) for s in b.steps)]:
            for bundle in ready:
                with self._claimed(bundle) as is_free:
                    if is_free:
                        waiting.remove(bundle)
                        pauses = look_pauses()
                        task: Any = bundle.task
                        named = {**bundle.arguments, "return_state": True}
                        yield bundle, functools.partial(task, **named)
                        break
            else:  # wait only when nothing else is left
                self._run.pause(ready[0].steps[0], next(pauses))
        for bundle in waiting:
            self._run.say_not_run(bundle.title, bundle.needs)

    @contextlib.contextmanager
    def _claimed(self, bundle: Bundle) -> Iterator[bool]:
        """Whether a task may begin in this block; the lease of what is to be built is held then."""
        run, step = self._run, bundle.steps[0]
        with contextlib.ExitStack() as held:
            other = None
            try:
                if step.label not in run.cached and not run.is_there(step):
                    other = held.enter_context(run.claim(step))
            except Exception as error:  # the task meets it again, and tries again if it may pass
                _LOGGER.debug("%s: not looked at: %s", step.label, error)
            yield other is None

    def _at_once(self, found: Sequence[Bundle]) -> Begins:
        run = self._run
        runner: Any = ThreadPoolTaskRunner(max(_THREADS, run.limit))
        with runner:
            try:
                for bundle in found:
                    if not run.done.keys() | self._states.keys() >= {*bundle.needs}:
                        run.say_not_run(bundle.title, bundle.needs)
                        continue
                    yield bundle, functools.partial(runner.submit, bundle.task, bundle.arguments)
                for future in as_completed(list(self._futures)):
                    future.wait()  # it has ended; this fetches its state
                    self._settle(self._futures.pop(future), future.state)
            except BaseException as error:
                if not isinstance(error, Exception):
                    # A signal reaches this thread alone, and Prefect ends no flow, and no part of
                    # one, before the tasks in its other threads have ended.
                    run.stop()
                raise

    def _settle(self, bundle: Bundle, state: State[Any]) -> None:
        """Take the state that a task or the flow of a part ended in."""
        run = self._run
        for label in bundle.labels:
            self._states.pop(label, None)
        if state.is_completed():
            node = state if bundle.part is None else _as_node(state)
            self._states.update(dict.fromkeys(set(bundle.labels) & run.done.keys(), node))
        elif bundle.part is not None:
            if not set(bundle.labels) & run.failures.keys():
                raise error_of_state(state) or RuntimeError(f"{bundle.title} ended as {state}")
        elif not all(run.has_inputs(step) for step in bundle.steps):  # as Prefect found, too
            run.say_not_run(bundle.title, bundle.needs)
        else:
            failed = next(step for step in bundle.steps if step.label not in run.done)
            run.fail(failed, error_of_state(state) or RuntimeError(str(state)))


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
    results: list[StepResult] = []
    for step in (run.by_label[label] for label in labels):
        for pause in look_pauses():
            try:
                with run.slots, watched(run, step.label) as view:
                    outcome = run.execute(step)
            except BertloomError as error:
                if is_passing(error):
                    raise  # Prefect logs it, and tries again
                return failed_with(error)
            if isinstance(outcome, StepResult):
                results.append(outcome)
                if step.label not in run.cached:
                    view.show(outcome)
                break
            run.pause(step, pause)  # another run builds it: others may go on meanwhile
    records = _records(results)
    if all(result.was_cached for result in results):
        show_found(run, results)
        message = ", ".join(record["manifest"] for record in records)
        return Completed(name="Cached", message=message, data=records)
    return records
