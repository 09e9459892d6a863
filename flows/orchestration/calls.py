"""Calling the flows from this process: on the server that is configured, or on one of its own.

Prefect takes two seconds to load. It is loaded while the server starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.engine.graph import Graph
from flows.engine.steps import StepResult, opened_store
from flows.lineage.export.events import close_abandoned
from flows.orchestration.run import Run, Say
from flows.orchestration.server import heartbeats, prefect_api, server_for_this_process
from flows.orchestration.session import current_run, load_parameter, prepare_run, running
from flows.store.runs import read_run, settle_dead_runs
from schemas.disclosure import without_secrets
from schemas.errors import ConfigError
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.orchestration import SyncPrefectClient


def run_with_prefect(
    graph: Graph, recipe: Recipe, *, say: Say, rebuild: Collection[str], until: str
) -> list[StepResult]:
    """Run a recipe's steps as a flow; see `flows.orchestration.part.Part.run`."""
    given = {"recipe": without_secrets(recipe.model_dump(mode="json")), "until": until}

    def prepared() -> Run:
        return prepare_run(graph, recipe, say=say, rebuild=rebuild, until=until)

    run, _ = _call(graph, prepared, {**given, "rebuild": list(rebuild)})
    return run.results()


def call_flow(graph: Graph, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Call a flow with parameters; what it returns."""

    def prepared() -> Run:
        from flows.orchestration.flows import log_line  # start-up: 2 s

        recipe = load_parameter(
            parameters["recipe"], changes=parameters["changes"], store=parameters["store"]
        )
        more = {"rebuild": parameters["rebuild"], "until": parameters["until"]}
        return prepare_run(graph, recipe, say=log_line, **more)

    return _call(graph, prepared, parameters)[1]


def _call(
    graph: Graph, prepared: Callable[[], Run], parameters: dict[str, Any]
) -> tuple[Run, list[dict[str, Any]]]:
    flow_around = current_run()
    if flow_around is not None and flow_around.is_begun:
        raise RuntimeError("a run of bertloom calls no other run of bertloom")
    try:
        server = server_for_this_process()
        # Meanwhile, in this process: Prefect and the flows are loaded, and artifacts looked up.
        flow = _flow_of(graph)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prefect":
            raise
        raise ConfigError(
            "Prefect is not installed: pip install 'bertloom[flows]', or use --engine local"
        ) from error
    run = prepared()
    is_short = len(run.cached) == len(run.steps)
    with prefect_api(server), heartbeats(are_needed=not is_short), running(run):
        _report_dead_runs(run.recipe)
        records: list[dict[str, Any]] = flow(**parameters)
    return run, records


def _flow_of(graph: Graph) -> Flow[..., Any]:
    from flows.orchestration.flows import flow_of  # start-up: 2 s, while the server starts

    return flow_of(graph)


def _report_dead_runs(recipe: Recipe) -> None:
    """Tell Prefect of earlier runs of the recipe here that were killed: they cannot any more."""
    store = opened_store(recipe.store)
    settled = settle_dead_runs(store, recipe=recipe.name, close=close_abandoned)
    dead = [read_run(store, run_id) for run_id in settled]
    flow_run_ids = [UUID(record.flow_run_id) for record in dead if record.flow_run_id]
    if not flow_run_ids:
        return
    from prefect.client.orchestration import get_client  # start-up: 2 s

    with get_client(sync_client=True) as client:
        for flow_run_id in flow_run_ids:
            _crash(client, flow_run_id)


def _crash(client: SyncPrefectClient, flow_run_id: UUID) -> None:
    from prefect.client.schemas.filters import (  # start-up: 2 s
        FlowRunFilter,
        FlowRunFilterId,
        FlowRunFilterParentFlowRunId,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    running = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING]))
    own = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]), state=running)
    parts = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run_id]), state=running
    )
    for chosen in (parts, own):
        # One that another server knows, and this one does not, is not found.
        for found in client.read_flow_runs(flow_run_filter=chosen):
            crashed: Any = Crashed(message="its process is gone")
            client.set_flow_run_state(found.id, crashed, force=True)
