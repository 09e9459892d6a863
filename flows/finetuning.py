"""The fine-tuning flow: examples of tasks, and the trials of every grid.

Each trial (a point of a grid and a restart) is a task with an artifact of its own, so that a sweep
that was stopped goes on where it was. What they start from is built first where it is not there.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.orchestration.flow_parts import FLOW_OPTIONS, run_part
from flows.orchestration.flow_session import RecipeParameter

FINETUNING = ("build-examples", "finetune")
"""The flow's own stages."""


@flow(name="bertloom-finetuning", **FLOW_OPTIONS)
def finetune(
    recipe: RecipeParameter,
    changes: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
    until: str = "",
) -> list[dict[str, Any]]:
    """Fine-tune on a recipe's tasks. The references to all artifacts, in order.

    Args:
        recipe: what to build and train: a packaged recipe's name, a file, or all of it as JSON.
        changes: `KEY=VALUE` texts, as of `bertloom run --set`.
        store: in place of the recipe's own.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all trials.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_part(FINETUNING, recipe, changes, store, rebuild, until or "finetune")
