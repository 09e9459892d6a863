"""Running a recipe with Prefect: against the server that is configured, or one of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.engine.graph import steps
from flows.engine.running import Say, opened_store
from flows.engine.stages import steps_until
from flows.engine.steps import StepResult
from flows.lineage.export.events import close_abandoned
from flows.orchestration.server import heartbeats, prefect_api, server_for_this_process
from flows.store.runs import read_run, settle_dead_runs
from schemas.disclosure import without_secrets
from schemas.errors import ConfigError
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import State


def run_with_prefect(
    recipe: Recipe, *, say: Say, rebuild: Sequence[str], until: str
) -> list[StepResult]:
    """Run a recipe's steps as the flow `bert`; see `flows.engine.engines.run_recipe`."""
    try:
        server = server_for_this_process()
        # Meanwhile, in this process: Prefect and the flows are loaded, and artifacts looked up.
        from flows.bert import bert
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prefect":
            raise
        raise ConfigError(
            "Prefect is not installed: pip install 'bertloom[flows]', or use --engine local"
        ) from error
    from flows.orchestration.flow_session import Held, found_steps, holding

    cached = found_steps(recipe, rebuild=rebuild, until=until)
    given = without_secrets(recipe.model_dump(mode="json"))
    is_short = len(cached) == len(steps_until(steps(recipe), until))
    with (
        prefect_api(server),
        heartbeats(are_needed=not is_short),
        holding(Held(recipe, say, cached)),
    ):
        _report_dead_runs(recipe)
        refs = bert(recipe=given, rebuild=list(rebuild), until=until)
    store = opened_store(recipe.store)
    return [
        StepResult(
            ref["label"],
            store.read_manifest(ref["manifest"]),
            ref["was_cached"],
            ref["seconds"],
            ref["warning"],
        )
        for ref in refs
    ]


def _report_dead_runs(recipe: Recipe) -> None:
    """Tell Prefect of earlier runs of the recipe here that were killed: they cannot any more."""
    store = opened_store(recipe.store)
    dead = [
        read_run(store, run_id)
        for run_id in settle_dead_runs(store, recipe=recipe.name, close=close_abandoned)
    ]
    if not any(record.flow_run_id for record in dead):
        return
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for record in dead:
            if record.flow_run_id:
                _crash(client, UUID(record.flow_run_id))


def _crash(client: SyncPrefectClient, flow_run_id: UUID) -> None:
    from prefect.client.schemas.filters import (
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
            crashed: State[Any] = Crashed(message="its process is gone")
            client.set_flow_run_state(found.id, crashed, force=True)
