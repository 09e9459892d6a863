"""What Prefect calls when a flow run ends badly: the run's record is to say so, too.

A run that is interrupted or fails writes its record itself. These hooks are for those that cannot
any more: after SIGKILL the worker calls them, in its own process.
"""

from __future__ import annotations

import logging
from typing import Any

from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow

from flows.lineage.export.events import close_abandoned
from flows.orchestration.session import load_parameter
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunState, settle_flow_run
from schemas.errors import BertloomError

_LOGGER = logging.getLogger(__name__)


def settle_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """`on_crashed`."""
    _settle(flow, flow_run, state, "crashed")


def settle_cancelled(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """`on_cancellation`."""
    _settle(flow, flow_run, state, "interrupted")


def settle_failed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """`on_failure`."""
    _settle(flow, flow_run, state, "failed")


def _settle(
    flow: Flow[..., Any], flow_run: FlowRun, state: State[Any], run_state: RunState
) -> None:
    if flow_run.parent_task_run_id is not None:
        return  # the run is that of the flow around it
    given = flow_run.parameters
    try:
        recipe = load_parameter(
            given["recipe"], changes=given.get("changes") or (), store=given.get("store")
        )
        store = ArtifactStore(recipe.store, create=False)
    except BertloomError as error:  # then there was no run either
        _LOGGER.debug("%s of flow %s has no record: %s", flow_run.id, flow.name, error)
        return
    reason = state.message or state.name or run_state
    settle_flow_run(store, str(flow_run.id), state=run_state, reason=reason, close=close_abandoned)
