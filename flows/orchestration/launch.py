"""Launching a flow in this process: on the server that is configured, or on one of its own.

Prefect takes two seconds to load. It is loaded while the server starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flows.engine.graph import Graph
from flows.engine.steps import opened_store
from flows.orchestration.run import Run, as_current, current_run, settle_killed_runs
from flows.orchestration.server import needing_prefect, prefect_api, server_for_this_process
from schemas.recipe import Recipe


@contextlib.contextmanager
def in_prefect(graph: Graph, recipe: Recipe | str | dict[str, Any], **given: Any) -> Iterator[Run]:
    """The flow of a part can be called in this block, for the run that is yielded.

    Args:
        graph: the part.
        recipe: what to run, or what a flow's parameter of that name may be.
        given: as of `flows.orchestration.flows.prepare_run`.

    Raises:
        ConfigError: Prefect is not installed, or the recipe cannot be used.
        RunnerError: the server does not start.
    """
    around = current_run()
    if around is not None and around.is_begun:
        raise RuntimeError("a run of bertloom calls no other run of bertloom")
    with needing_prefect():
        server = server_for_this_process()
        # Meanwhile, in this process: Prefect and the flows are loaded, and artifacts looked up.
        from flows.orchestration.flows import prepare_run  # start-up: 2 s, while the server starts
    run = prepare_run(graph, recipe, **given)
    is_short = len(run.cached) == len(run.steps)
    with prefect_api(server, heartbeats=not is_short), as_current(run):
        _report_dead_runs(run.recipe)
        yield run


def _report_dead_runs(recipe: Recipe) -> None:
    """Tell Prefect of earlier runs of the recipe here that were killed: they cannot any more."""
    settled = settle_killed_runs(opened_store(recipe.store), recipe=recipe.name)
    dead = [record.flow_run_id for record in settled]
    if not any(dead):
        return
    from prefect.client.orchestration import get_client  # start-up: 2 s
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    state = {"type": {"any_": ["RUNNING"]}}
    with get_client(sync_client=True) as client:
        for name in ("parent_flow_run_id", "id"):  # parts before the run that they are of
            given = {name: {"any_": [*filter(None, dead)]}, "state": state}
            # One that another server knows, and this one does not, is not found.
            for found in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(given)):
                crashed: Any = Crashed(message="its process is gone")
                client.set_flow_run_state(found.id, crashed, force=True)
