"""What the flows have in common: a part of a recipe's stages, alone or within a larger run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from flows.engine.stages import Step
from flows.orchestration.crash_hooks import settle_cancelled, settle_crashed, settle_failed
from flows.orchestration.flow_session import RecipeParameter, begun, open_session
from flows.orchestration.step_tasks import run_steps


def flow_run_name() -> str:
    """The name of the recipe."""
    recipe = flow_run.parameters["recipe"]
    return str(recipe["name"]) if isinstance(recipe, dict) else PurePath(recipe).stem


FLOW_OPTIONS: dict[str, Any] = {
    "flow_run_name": flow_run_name,
    "persist_result": False,
    "on_failure": [settle_failed],
    "on_crashed": [settle_crashed],
    "on_cancellation": [settle_cancelled],
}
"""Of every flow."""


def run_part(
    part: Sequence[str],
    recipe: RecipeParameter,
    changes: Sequence[str] | None,
    store: str | None,
    rebuild: Sequence[str] | None,
    until: str,
) -> list[dict[str, Any]]:
    """Run a part's stages: those of the run that this flow run belongs to, or else a run of its own
    with all that the stages need.

    Args:
        part: names of stages.
        recipe, changes, store, rebuild, until: as the flows take them.

    Returns:
        The references to the part's artifacts, or to all of the run's, in order.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    outer = open_session()
    context = FlowRunContext.get()
    if outer is not None and context and context.flow_run and context.flow_run.parent_task_run_id:
        steps = steps_of(outer.run.steps, part)
        run_steps(steps, states={})
        for step in steps:
            if (error := outer.failures.get(step.label)) is not None:
                raise error
        return [outer.done[step.label]._asdict() for step in steps if step.label in outer.done]
    with begun(recipe, changes=changes, store=store, rebuild=rebuild, until=until) as found:
        run_steps(found.run.steps, states={})
    return [ref._asdict() for ref in found.results()]


def steps_of(steps: Sequence[Step], part: Sequence[str]) -> list[Step]:
    """The steps of some stages."""
    return [step for step in steps if step.stage.name in part]
