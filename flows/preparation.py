"""Prepare a run: check it, plan it once, and attach its listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import ParamSpec, TypeVar

import tenacity

from flows.lineage.openlineage import openlineage_listeners, send_aborts
from flows.report.listener import ReportListener
from flows.run.events import Listener, watchers
from flows.run.graph import StepGraph
from flows.run.machines import Coordinator, MachineOptions, check_port, check_store
from flows.run.plan import plan_steps
from flows.run.preflight import check_environment, check_inputs, check_sample
from flows.run.run import RETRY_DELAYS, Run, get_store
from flows.run.run_recorder import RunRecorder
from flows.run.step_execution import is_transient
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, mark_crashed_runs, read_run
from flows.trackers import TrackerListener
from schemas.recipe import Recipe

_LOGGER = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def prepare_run(
    recipe: Recipe,
    graph: StepGraph,
    *,
    store: ArtifactStore | None,
    listeners: Sequence[Listener] = (),
    rebuild: Collection[str] = (),
    engine: str = "local",
    machines: MachineOptions | None = None,
) -> Run:
    """Return a run that is checked, planned and ready to start.

    Args:
        recipe: Recipe to run.
        graph: Its steps.
        store: Its store; None if it does not exist yet.
        listeners: Listeners in addition to the run's own and to those of `watch_runs`.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.
        engine: `prefect` or `local`, for the run's record.
        machines: Machines that train; this is the one with rank 0. None: this machine alone.

    Raises:
        ConfigError: The runner is unknown, a package is not installed, several inputs are missing,
            or the machines cannot share the store.
        RunnerError: The engine that jobs go to does not answer.
        InputError: A raw file, a task file or a checkpoint is missing.
    """
    check_environment(recipe, list(graph))
    check_sample(list(graph))
    planned = _retry_transient_errors(plan_steps, recipe, graph, store=store, rebuild=rebuild)
    cached = {step.label for step in planned if step.state == "cached"}
    _retry_transient_errors(check_inputs, [step for step in graph if step.label not in cached])
    own = (RunRecorder(), TrackerListener())
    coordinator = _coordinator(recipe, machines)
    last: list[Listener] = [ReportListener(), *filter(None, [coordinator])]
    return Run(
        recipe,
        graph,
        listeners=[*own, *listeners, *watchers(), *openlineage_listeners(), *last],
        rebuild=rebuild,
        engine=engine,
        planned=planned,
        machines=coordinator,
        store=store,
    )


def _coordinator(recipe: Recipe, machines: MachineOptions | None) -> Coordinator | None:
    if machines is None:
        return None
    store = get_store(recipe.store)
    check_store(store)
    check_port(machines.endpoint)
    return Coordinator(store, machines, recipe=recipe)


def _retry_transient_errors(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Call a function, and after a transient error again, as often and as late as a step."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        wait=tenacity.wait_chain(*map(tenacity.wait_fixed, RETRY_DELAYS)),
        stop=tenacity.stop_after_attempt(1 + len(RETRY_DELAYS)),
        before_sleep=_log_retry,
        reraise=True,
    )
    return retrying(function, *args, **kwargs)


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    _LOGGER.warning("planning: %s; next try in %.0f s", error, state.upcoming_sleep)


def mark_killed_runs(recipe: Recipe, *, store: ArtifactStore | None) -> list[RunRecord]:
    """Mark the runs of killed processes as crashed, and return their records.

    Args:
        recipe: Recipe of the runs.
        store: Its store; None if it does not exist yet.
    """
    if store is None:
        return []
    run_ids = mark_crashed_runs(store, recipe=recipe.name)
    send_aborts(store, run_ids)
    return [read_run(store, run_id) for run_id in run_ids]
